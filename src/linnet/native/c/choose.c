// The largest of each row of logits, for greedy choice: read once, as they are.
//
// As integers of one order with the numbers: the sign turned, and the other bits of negative ones.
#include "kernels.h"

#define STRETCH 256 // elements whose largest is kept, so that its place is looked for in few

#define LARGEST(NAME, INT, UINT, BITS, INF)                                                       \
    static INT key_##NAME(INT x) { return x ^ (x >> (BITS - 1) & (INT)((UINT)-1 >> 1)); }         \
    /* The first place of the largest; -1 where one is not a number. */                           \
    static long NAME(const INT *x, long width) {                                                  \
        const INT rest = (INT)((UINT)-1 >> 1);                                                    \
        INT best = (INT)((UINT)1 << (BITS - 1)), size = 0;                                        \
        long where = 0;                                                                           \
        for (long at = 0; at < width; at += STRETCH) {                                            \
            const long n = width - at < STRETCH ? width - at : STRETCH;                           \
            INT most = key_##NAME(x[at]);                                                         \
            for (long i = 0; i < n; i++) {                                                        \
                INT key = key_##NAME(x[at + i]), bits = x[at + i] & rest;                         \
                most = most > key ? most : key;                                                   \
                size = size > bits ? size : bits;                                                 \
            }                                                                                     \
            /* 0 and -0 are equal: the first of either. */                                        \
            if (most > best && !(most == 0 && best == -1)) where = at;                            \
            best = best > most ? best : most;                                                     \
        }                                                                                         \
        if (size > (INT)INF) return -1;                                                           \
        const INT least = best == 0 ? -1 : best;                                                  \
        while (key_##NAME(x[where]) < least) where++;                                             \
        return where;                                                                             \
    }

LARGEST(of_bf16, int16_t, uint16_t, 16, 0x7f80)
LARGEST(of_f32, int32_t, uint32_t, 32, 0x7f800000)

// `top[r]` and its first place `at[r]` for each of `rows` rows of `width` elements one after
// another. NaN where a row holds one. Whether the type is known here.
int largest(int type, const void *x, long rows, long width, double *top, int64_t *at) {
    if ((type != T_BF16 && type != T_F32) || width < 1) return 0;
    for (long r = 0; r < rows; r++) {
        if (type == T_BF16) {
            const bf16 *row = (const bf16 *)x + r * width;
            at[r] = of_bf16((const int16_t *)row, width);
            top[r] = at[r] < 0 ? NAN : from_bf16(row[at[r]]);
        } else {
            const float *row = (const float *)x + r * width;
            at[r] = of_f32((const int32_t *)row, width);
            top[r] = at[r] < 0 ? NAN : row[at[r]];
        }
        if (at[r] < 0) at[r] = 0;
    }
    return 1;
}
