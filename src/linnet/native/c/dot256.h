// Tiles of dense rows at 256 bits, 16 lanes in two registers. bf16: the first eight lanes take the
// even elements of every 16, the others the odd ones. f32: lane l takes element l of every 16.
// One tile is at most three rows by two, or one by four, so that its sums stay in registers.
#pragma once

// The 16 elements at p, of which `count` are there, as lanes of f32.
static inline __attribute__((always_inline)) void bf16_lanes(const bf16 *p, __m256 *even, __m256 *odd) {
    const __m256i v = _mm256_loadu_si256((const void *)p);
    *even = _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
    *odd = _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32((int)0xffff0000u)));
}
static inline __attribute__((always_inline)) void f32_lanes(const float *p, __m256 *low, __m256 *high) {
    *low = _mm256_loadu_ps(p), *high = _mm256_loadu_ps(p + 8);
}

// `ahead`: bytes by which the rows w are fetched before they are read.
#define PART_256(T, E)                                                                             \
    static inline __attribute__((always_inline)) void part_##T(                                    \
        const int rows, const int outs, const int ahead, const E *const *x, const E *w, long ldw,  \
        long k, float *y) {                                                                        \
        __m256 acc[TILE_ROWS + 1][TILE_OUTS][2];                                                   \
        _Pragma("GCC unroll 8") for (int r = 0; r < rows; r++)                                     \
            _Pragma("GCC unroll 8") for (int o = 0; o < outs; o++)                                 \
                acc[r][o][0] = acc[r][o][1] = _mm256_setzero_ps();                                 \
        for (long i = 0; i < k; i += 16) {                                                         \
            E part[TILE_OUTS + 1][16];                                                             \
            const int whole = i + 16 <= k;                                                         \
            __m256 w0[TILE_OUTS], w1[TILE_OUTS];                                                   \
            _Pragma("GCC unroll 8") for (int o = 0; o < outs; o++) {                               \
                const E *p = w + o * ldw + i;                                                      \
                if (ahead) _mm_prefetch((const char *)p + ahead, _MM_HINT_T0);                     \
                if (!whole) {                                                                      \
                    memset(part[o], 0, sizeof part[o]);                                            \
                    memcpy(part[o], p, (k - i) * sizeof(E));                                       \
                    p = part[o];                                                                   \
                }                                                                                  \
                T##_lanes(p, &w0[o], &w1[o]);                                                      \
            }                                                                                      \
            _Pragma("GCC unroll 8") for (int r = 0; r < rows; r++) {                               \
                const E *p = x[r] + i;                                                             \
                if (!whole) {                                                                      \
                    memset(part[TILE_OUTS], 0, sizeof part[0]);                                    \
                    memcpy(part[TILE_OUTS], p, (k - i) * sizeof(E));                               \
                    p = part[TILE_OUTS];                                                           \
                }                                                                                  \
                __m256 x0, x1;                                                                     \
                T##_lanes(p, &x0, &x1);                                                            \
                _Pragma("GCC unroll 8") for (int o = 0; o < outs; o++) {                           \
                    acc[r][o][0] = _mm256_fmadd_ps(w0[o], x0, acc[r][o][0]);                       \
                    acc[r][o][1] = _mm256_fmadd_ps(w1[o], x1, acc[r][o][1]);                       \
                }                                                                                  \
            }                                                                                      \
        }                                                                                          \
        _Pragma("GCC unroll 8") for (int r = 0; r < rows; r++)                                     \
            _Pragma("GCC unroll 8") for (int o = 0; o < outs; o++)                                 \
                y[r * TILE_OUTS + o] = lanes_sum8((v8)_mm256_add_ps(acc[r][o][0], acc[r][o][1]));  \
    }                                                                                              \
    static inline __attribute__((always_inline)) void tile_##T(                                    \
        const int rows, const int outs, const E *const *x, const E *w, long ldw, long k, float *y) { \
        if (rows == 1 || outs == 1) part_##T(rows, outs, 0, x, w, ldw, k, y);                      \
        else                                                                                       \
            for (int o = 0; o < outs; o += 2) part_##T(rows, 2, 0, x, w + o * ldw, ldw, k, y + o); \
    }

PART_256(bf16, bf16)
PART_256(f32, float)
#undef PART_256
