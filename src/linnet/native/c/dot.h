// Dot products of rows, several rows by several rows at a time.
//
// Each product of two rows is added in 16 lanes: lane l takes elements 2l and 2l + 1 of every 32
// (bf16) or element l of every 16 (f32); the lanes are then added as a tree, l and l + 8 first.
// That order holds for one row and for many, so a row's result never depends on the others.
#pragma once
#include "runtime.h"
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#if defined(__AVX512BF16__) && defined(__AVX512BW__) && !defined(LINNET_NO_BF16)
#define HAVE_DPBF16 1
#endif

typedef float v16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef uint32_t u16v __attribute__((vector_size(64), aligned(4), may_alias));
typedef float v8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef float v4 __attribute__((vector_size(16), aligned(4), may_alias));

#if defined(__AVX512F__)
#define TILE_ROWS 6
#define TILE_OUTS 4
#else
#define TILE_ROWS 2
#define TILE_OUTS 2
#endif

static inline __attribute__((always_inline)) float lanes_sum(v16 a) {
    float s[16];
    memcpy(s, &a, 64);
    v8 h, l;
    memcpy(&l, s, 32);
    memcpy(&h, s + 8, 32);
    l = l + h;
    v4 p, q;
    memcpy(s, &l, 32);
    memcpy(&p, s, 16);
    memcpy(&q, s + 4, 16);
    p = p + q;
    return (p[0] + p[2]) + (p[1] + p[3]);
}

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
        for (int r = 0; r < rows; r++)
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
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int o = 0; o < outs; o++) y[r * TILE_OUTS + o] = lanes_sum(acc[r][o]);
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
        for (int o = 0; o < outs; o++) {
            float wp[16] = {0};
            memcpy(wp, w + o * ldw + i, (k - i) * 4);
            for (int r = 0; r < rows; r++) {
                float xp[16] = {0};
                memcpy(xp, x[r] + i, (k - i) * 4);
                acc[r][o] += *(v16 *)wp * *(v16 *)xp;
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int o = 0; o < outs; o++) y[r * TILE_OUTS + o] = lanes_sum(acc[r][o]);
}

// As above for any number of rows up to TILE_ROWS and outs up to TILE_OUTS.
void dot_bf16(int rows, int outs, const bf16 *const *x, const bf16 *w, long ldw, long k, float *y);
void dot_f32(int rows, int outs, const float *const *x, const float *w, long ldw, long k, float *y);
