// Tiles of dense rows at 256 bits, 16 lanes in two registers. bf16: the first eight lanes take the
// even elements of every 16, the others the odd ones. f32: lane l takes element l of every 16.
// One part of a tile is two rows by two, or one by four: its sums stay in registers.
#pragma once

static inline __attribute__((always_inline)) void bf16_lanes(const bf16 *p, __m256 *even, __m256 *odd) {
    const __m256i v = _mm256_loadu_si256((const void *)p);
    *even = _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
    *odd = _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32((int)0xffff0000u)));
}
static inline __attribute__((always_inline)) void float_lanes(const float *p, __m256 *low, __m256 *high) {
    *low = _mm256_loadu_ps(p), *high = _mm256_loadu_ps(p + 8);
}

// step_T: 16 elements of each row. part_T: rows by outs; `ahead`: bytes by which the rows w are
// fetched before they are read.
#define PART_256(T, E)                                                                              \
    static inline __attribute__((always_inline)) void step_##T(                                     \
        const int rows, const int outs, const E *const *x, const E *w, long ldw, long i,            \
        __m256 acc[][TILE_OUTS][2]) {                                                               \
        __m256 w0[TILE_OUTS], w1[TILE_OUTS];                                                        \
        _Pragma("GCC unroll 4") for (int o = 0; o < outs; o++)                                      \
            E##_lanes(w + o * ldw + i, &w0[o], &w1[o]);                                             \
        _Pragma("GCC unroll 4") for (int r = 0; r < rows; r++) {                                    \
            __m256 x0, x1;                                                                          \
            E##_lanes(x[r] + i, &x0, &x1);                                                          \
            _Pragma("GCC unroll 4") for (int o = 0; o < outs; o++) {                                \
                acc[r][o][0] = _mm256_fmadd_ps(w0[o], x0, acc[r][o][0]);                            \
                acc[r][o][1] = _mm256_fmadd_ps(w1[o], x1, acc[r][o][1]);                            \
            }                                                                                       \
        }                                                                                           \
    }                                                                                               \
    static inline __attribute__((always_inline)) void part_##T(                                     \
        const int rows, const int outs, const int ahead, const E *const *x, const E *w, long ldw,   \
        long k, float *y) {                                                                         \
        __m256 acc[2][TILE_OUTS][2];                                                                \
        _Pragma("GCC unroll 4") for (int r = 0; r < rows; r++)                                      \
            _Pragma("GCC unroll 4") for (int o = 0; o < outs; o++)                                  \
                acc[r][o][0] = acc[r][o][1] = _mm256_setzero_ps();                                  \
        const E *const row[2] = {x[0], x[rows - 1]};                                                \
        long i = 0;                                                                                 \
        for (; i + 16 <= k; i += 16) {                                                              \
            if (ahead)                                                                              \
                _Pragma("GCC unroll 4") for (int o = 0; o < outs; o++)                              \
                    _mm_prefetch((const char *)(w + o * ldw + i) + ahead, _MM_HINT_T0);             \
            step_##T(rows, outs, row, w, ldw, i, acc);                                              \
        }                                                                                           \
        if (i < k) {                                                                                \
            E wt[TILE_OUTS][16] = {0}, xt[2][16] = {0};                                             \
            const E *const rest[2] = {xt[0], xt[1]};                                                \
            for (int o = 0; o < outs; o++) memcpy(wt[o], w + o * ldw + i, (k - i) * sizeof(E));     \
            for (int r = 0; r < rows; r++) memcpy(xt[r], x[r] + i, (k - i) * sizeof(E));            \
            step_##T(rows, outs, rest, wt[0], 16, 0, acc);                                          \
        }                                                                                           \
        _Pragma("GCC unroll 4") for (int r = 0; r < rows; r++)                                      \
            _Pragma("GCC unroll 4") for (int o = 0; o < outs; o++)                                  \
                y[r * TILE_OUTS + o] = lanes_sum8((v8)_mm256_add_ps(acc[r][o][0], acc[r][o][1]));   \
    }                                                                                               \
    static inline __attribute__((always_inline)) void tile_##T(                                     \
        const int rows, const int outs, const E *const *x, const E *w, long ldw, long k, float *y) { \
        if (rows == 1) {                                                                            \
            part_##T(1, outs, 0, x, w, ldw, k, y);                                                  \
            return;                                                                                 \
        }                                                                                           \
        const int by = LEAST(outs, 2);                                                              \
        for (int r = 0; r + 2 <= rows; r += 2)                                                      \
            for (int o = 0; o < outs; o += 2)                                                       \
                part_##T(2, by, 0, x + r, w + o * ldw, ldw, k, y + r * TILE_OUTS + o);              \
        if (rows & 1) part_##T(1, outs, 0, x + rows - 1, w, ldw, k, y + (rows - 1) * TILE_OUTS);    \
    }

PART_256(bf16, bf16)
PART_256(f32, float)
#undef PART_256
