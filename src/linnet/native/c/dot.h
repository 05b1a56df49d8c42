// Dot products of rows, several rows by several rows at a time.
//
// Each product of two rows is added in 16 lanes: lane l takes elements 2l and 2l + 1 of every 32
// (bf16; dot256.h has another order) or element l of every 16 (f32); the lanes are then added as a
// tree. With AVX-512 the four lanes of each 128 bits come first (l and l + 2, then l and l + 1), where
// moving them is cheap, and then the four sums (l and l + 8, then l and l + 4); elsewhere l and l + 8
// come first. That order holds for one row and for many, so a row's result never depends on the others.
#pragma once
#include "runtime.h"
#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512BF16__) && defined(__AVX512BW__) && !defined(LINNET_NO_BF16)
#define HAVE_DPBF16 1
#endif

typedef float v16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t u16v __attribute__((vector_size(64), aligned(4), may_alias));
typedef float v8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef float v4 __attribute__((vector_size(16), aligned(4), may_alias));

// The widest vector that is one register, for loops whose order does not depend on its width.
#if defined(__AVX512F__)
typedef v16 vec;
#elif defined(__AVX2__)
typedef v8 vec;
#else
typedef v4 vec;
#endif
#define WIDE ((long)(sizeof(vec) / sizeof(float)))

#if defined(__AVX512F__)
#define TILE_ROWS 6
#define TILE_OUTS 4
#elif defined(__AVX2__) && defined(__FMA__)
#define DOT_256 1
#define TILE_ROWS 4
#define TILE_OUTS 4
#else
#define TILE_ROWS 2
#define TILE_OUTS 2
#endif

#if defined(__AVX2__)
// The 8 lanes of each of four vectors, every one added as the same tree.
static inline __attribute__((always_inline)) v4 lanes_sum8x4(v8 a, v8 b, v8 c, v8 d) {
#define HALVES(v) _mm_add_ps(_mm256_castps256_ps128((__m256)(v)), _mm256_extractf128_ps((__m256)(v), 1))
    __m128 p = HALVES(a), q = HALVES(b), r = HALVES(c), s = HALVES(d);
#undef HALVES
    __m128 pq = _mm_add_ps(_mm_unpacklo_ps(p, q), _mm_unpackhi_ps(p, q)); // p0+p2 q0+q2 p1+p3 q1+q3
    __m128 rs = _mm_add_ps(_mm_unpacklo_ps(r, s), _mm_unpackhi_ps(r, s));
    return (v4)_mm_add_ps(_mm_movelh_ps(pq, rs), _mm_movehl_ps(rs, pq));
}
static inline __attribute__((always_inline)) float lanes_sum8(v8 a) { return lanes_sum8x4(a, a, a, a)[0]; }
#endif

#if defined(__AVX512F__)
// The first half of the tree, of four vectors: each 128 bits hold a sum of each.
static inline __attribute__((always_inline)) __m512 lanes_part4(__m512 a, __m512 b, __m512 c, __m512 d) {
    const __m512d ab = (__m512d)_mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const __m512d cd = (__m512d)_mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    return _mm512_add_ps((__m512)_mm512_unpacklo_pd(ab, cd), (__m512)_mm512_unpackhi_pd(ab, cd));
}
// The second half, of one such part.
static inline __attribute__((always_inline)) __m128 lanes_rest(__m512 part) {
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(part),
                                      (__m256)_mm512_extractf64x4_pd((__m512d)part, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}
// The same, of two parts and then of two of those: the four sums of the first part, of the second
// and so on.
static inline __attribute__((always_inline)) __m512 lanes_half(__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}
static inline __attribute__((always_inline)) __m512 lanes_whole(__m512 a, __m512 b) {
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}
#endif

// The 16 lanes of each of four vectors, every one added as the same tree.
static inline __attribute__((always_inline)) v4 lanes_sum4(v16 a, v16 b, v16 c, v16 d) {
#if defined(__AVX512F__)
    return (v4)lanes_rest(lanes_part4((__m512)a, (__m512)b, (__m512)c, (__m512)d));
#elif defined(DOT_256)
    const v16 *in[4] = {&a, &b, &c, &d};
    v8 half[4];
    for (int k = 0; k < 4; k++) half[k] = ((const v8 *)in[k])[0] + ((const v8 *)in[k])[1];
    return lanes_sum8x4(half[0], half[1], half[2], half[3]);
#else
    v4 y;
    v16 in[4] = {a, b, c, d};
    for (int k = 0; k < 4; k++) {
        float s[8], t[4];
        for (int i = 0; i < 8; i++) s[i] = in[k][i] + in[k][i + 8];
        for (int i = 0; i < 4; i++) t[i] = s[i] + s[i + 4];
        y[k] = (t[0] + t[2]) + (t[1] + t[3]);
    }
    return y;
#endif
}
static inline __attribute__((always_inline)) float lanes_sum(v16 a) {
#if defined(__AVX512F__) || defined(DOT_256)
    return lanes_sum4(a, a, a, a)[0];
#else
    float s[8], t[4];
    for (int i = 0; i < 8; i++) s[i] = a[i] + a[i + 8];
    for (int i = 0; i < 4; i++) t[i] = s[i] + s[i + 4];
    return (t[0] + t[2]) + (t[1] + t[3]);
#endif
}
static inline __attribute__((always_inline)) void tile_sums(const int rows, const int outs, v16 acc[][TILE_OUTS], float *y) {
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
#if TILE_OUTS == 4
        if (outs == 4) {
            *(v4 *)(y + r * 4) = lanes_sum4(acc[r][0], acc[r][1], acc[r][2], acc[r][3]);
            continue;
        }
#endif
#pragma GCC unroll 8
        for (int o = 0; o < outs; o++) y[r * TILE_OUTS + o] = lanes_sum(acc[r][o]);
    }
}

#ifdef DOT_256
#include "dot256.h"
#else
// y[r][o] = x_r . w_o over k elements, rows and outs constant where it is inlined.
static inline __attribute__((always_inline)) void tile_bf16(
    const int rows, const int outs, const bf16 *const *x, const bf16 *w, long ldw, long k, float *y) {
    v16 acc[TILE_ROWS][TILE_OUTS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int o = 0; o < outs; o++) acc[r][o] = (v16){0};
    long i = 0;
#ifdef HAVE_DPBF16
    for (; i + 32 <= k; i += 32) {
        __m512bh wv[TILE_OUTS];
#pragma GCC unroll 8
        for (int o = 0; o < outs; o++) wv[o] = (__m512bh)_mm512_loadu_si512(w + o * ldw + i);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            __m512bh xv = (__m512bh)_mm512_loadu_si512(x[r] + i);
#pragma GCC unroll 8
            for (int o = 0; o < outs; o++)
                acc[r][o] = (v16)_mm512_dpbf16_ps((__m512)acc[r][o], wv[o], xv);
        }
    }
    if (i < k) {
        __mmask32 m = (__mmask32)((1ull << (k - i)) - 1);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
            for (int o = 0; o < outs; o++) {
                __m512bh xv = (__m512bh)_mm512_maskz_loadu_epi16(m, x[r] + i);
                __m512bh wv = (__m512bh)_mm512_maskz_loadu_epi16(m, w + o * ldw + i);
                acc[r][o] = (v16)_mm512_dpbf16_ps((__m512)acc[r][o], wv, xv);
            }
    }
#else
    for (; i < k; i += 32) {
        u16v wv[TILE_OUTS];
        bf16 part[32];
        const int whole = i + 32 <= k;
#pragma GCC unroll 8
        for (int o = 0; o < outs; o++) {
            const bf16 *p = w + o * ldw + i;
            if (!whole) {
                memset(part, 0, 64);
                memcpy(part, p, (k - i) * 2);
                p = part;
            }
            memcpy(&wv[o], p, 64);
        }
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            u16v xv;
            const bf16 *p = x[r] + i;
            if (!whole) {
                memset(part, 0, 64);
                memcpy(part, p, (k - i) * 2);
                p = part;
            }
            memcpy(&xv, p, 64);
            v16 lo = (v16)(xv << 16), hi = (v16)(xv & 0xffff0000u);
#pragma GCC unroll 8
            for (int o = 0; o < outs; o++) {
                acc[r][o] += (v16)(wv[o] << 16) * lo;
                acc[r][o] += (v16)(wv[o] & 0xffff0000u) * hi;
            }
        }
    }
#endif
    tile_sums(rows, outs, acc, y);
}

static inline __attribute__((always_inline)) void tile_f32(
    const int rows, const int outs, const float *const *x, const float *w, long ldw, long k, float *y) {
    v16 acc[TILE_ROWS][TILE_OUTS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int o = 0; o < outs; o++) acc[r][o] = (v16){0};
    long i = 0;
    for (; i + 16 <= k; i += 16) {
        v16 wv[TILE_OUTS];
#pragma GCC unroll 8
        for (int o = 0; o < outs; o++) wv[o] = *(const v16 *)(w + o * ldw + i);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            v16 xv = *(const v16 *)(x[r] + i);
#pragma GCC unroll 8
            for (int o = 0; o < outs; o++) acc[r][o] += wv[o] * xv;
        }
    }
    if (i < k) {
#pragma GCC unroll 8
        for (int o = 0; o < outs; o++) {
            float wp[16] = {0};
            memcpy(wp, w + o * ldw + i, (k - i) * 4);
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) {
                float xp[16] = {0};
                memcpy(xp, x[r] + i, (k - i) * 4);
                acc[r][o] += *(v16 *)wp * *(v16 *)xp;
            }
        }
    }
    tile_sums(rows, outs, acc, y);
}
#endif

// As above for any number of rows up to TILE_ROWS and outs up to TILE_OUTS.
void dot_bf16(int rows, int outs, const bf16 *const *x, const bf16 *w, long ldw, long k, float *y);
void dot_f32(int rows, int outs, const float *const *x, const float *w, long ldw, long k, float *y);
