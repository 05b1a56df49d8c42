#include "dot.h"

#if TILE_ROWS == 6
#define CASES(T, O)                          \
    switch (rows) {                          \
    case 1: tile_##T(1, O, x, w, ldw, k, y); break; \
    case 2: tile_##T(2, O, x, w, ldw, k, y); break; \
    case 3: tile_##T(3, O, x, w, ldw, k, y); break; \
    case 4: tile_##T(4, O, x, w, ldw, k, y); break; \
    case 5: tile_##T(5, O, x, w, ldw, k, y); break; \
    default: tile_##T(6, O, x, w, ldw, k, y); \
    }
#elif TILE_ROWS == 4
#define CASES(T, O)                          \
    switch (rows) {                          \
    case 1: tile_##T(1, O, x, w, ldw, k, y); break; \
    case 2: tile_##T(2, O, x, w, ldw, k, y); break; \
    case 3: tile_##T(3, O, x, w, ldw, k, y); break; \
    default: tile_##T(4, O, x, w, ldw, k, y); \
    }
#else
#define CASES(T, O)                          \
    switch (rows) {                          \
    case 1: tile_##T(1, O, x, w, ldw, k, y); break; \
    default: tile_##T(2, O, x, w, ldw, k, y); \
    }
#endif

#define DOT(T, E)                                                                               \
    void dot_##T(int rows, int outs, const E *const *x, const E *w, long ldw, long k, float *y) { \
        if (outs == TILE_OUTS) {                                                                \
            CASES(T, TILE_OUTS)                                                                 \
        } else {                                                                                \
            for (int o = 0; o < outs; o++) {                                                    \
                float part[TILE_ROWS * TILE_OUTS];                                              \
                float *keep = y;                                                                \
                y = part;                                                                       \
                const E *all = w;                                                               \
                w = all + o * ldw;                                                              \
                CASES(T, 1)                                                                     \
                w = all;                                                                        \
                y = keep;                                                                       \
                for (int r = 0; r < rows; r++) y[r * TILE_OUTS + o] = part[r * TILE_OUTS];      \
            }                                                                                   \
        }                                                                                       \
    }

DOT(bf16, bf16)
DOT(f32, float)
