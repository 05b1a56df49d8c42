// Packed rows where registers have 256 bits: AVX2, with or without AVX-VNNI.
//
// A product of two rows is added in 8 lanes: lane l takes bytes 4 l … 4 l + 3 of every 32 (of every
// 128, all four, where the rows are `wide`), which are summed as integers, then scaled. Groups are
// added one after another in the same lanes, so one row gives the same alone and among many.
#pragma once
#include "dot.h"
#include "packed.h"

#ifdef HAVE_256
#define TILE256 2 // weight rows of one tile: with PACKED_ROWS of x, all sums stay in registers

// 16 bytes of nibbles as 32 bytes, the low ones first.
static inline __m256i nibbles256(const uint8_t *p) {
    const __m256i by = _mm256_set_epi64x(0x400000004, 0x400000004, 0, 0);
    __m256i v = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)p));
    return _mm256_and_si256(_mm256_srlv_epi32(v, by), _mm256_set1_epi8(15));
}
static inline __attribute__((always_inline)) __m256i half256(const uint8_t *p, const int high) {
    __m256i v = _mm256_loadu_si256((const void *)p);
    return _mm256_and_si256(high ? _mm256_srli_epi16(v, 4) : v, _mm256_set1_epi8(15));
}

// Elements 32 c … 32 c + 31 from the start p of a row or block, as the bytes stored.
static inline __attribute__((always_inline)) __m256i chunk256(const int kind, const int g, const uint8_t *p, const int c) {
    switch (kind) {
    case INT8: return _mm256_loadu_si256((const void *)(p + 32 * c));
    case INT4:
        if (g == 32) return nibbles256(p + 16 * c);
        if (g == 64) return half256(p + c / 2 * 32, c & 1);
        return half256(p + c / 4 * 64 + (c & 1) * 32, c & 2);
    case Q4_0: return nibbles256(p + 18 * c + 2);
    case Q4_1: return nibbles256(p + 20 * c + 4);
    case Q8_0: return _mm256_loadu_si256((const void *)(p + 34 * c + 2));
    case Q4_K: return half256(p + 16 + c / 2 * 32, c & 1);
    }
    // Q6_K: four bits in ql, two more in qh.
    const int j = c & 3;
    __m256i low = half256(p + c / 4 * 64 + (j & 1) * 32, j & 2);
    __m256i high = _mm256_loadu_si256((const void *)(p + 128 + c / 4 * 32));
    high = j < 2 ? _mm256_slli_epi16(high, 4 - 2 * j) : _mm256_srli_epi16(high, 2 * j - 4);
    return _mm256_or_si256(low, _mm256_and_si256(high, _mm256_set1_epi8(0x30)));
}

static inline __m256i flip256(__m256i v) { return _mm256_xor_si256(v, _mm256_set1_epi8((char)0x80)); }

// start + the sums of four products of bytes. Of centre 7, w is signed; else it is at most 63.
// `start` is what takes the centre off (unused where signs are moved to the other factor).
static inline __attribute__((always_inline)) __m256i dot256(const int centre, __m256i start, __m256i w, __m256i x) {
#ifdef __AVXVNNI__
    return _mm256_dpbusd_avx_epi32(start, centre == 7 ? flip256(w) : w, x);
#else
    const __m256i ones = _mm256_set1_epi16(1);
    if (centre == 7) return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w)), ones);
    __m256i d = _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), ones);
    return centre < 0 ? d : _mm256_add_epi32(start, d);
#endif
}
static inline __attribute__((always_inline)) __m256i start256(const int centre, const int32_t *four) {
    return centre < 0 ? _mm256_setzero_si256() : _mm256_slli_epi32(_mm256_loadu_si256((const void *)four), MOST(centre, 0));
}

// The same for 128 bytes, w in four vectors.
static inline __attribute__((always_inline)) __m256i wide256(const int centre, __m256i start, const __m256i *w, const int8_t *q) {
    __m256i x[4];
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) x[k] = _mm256_loadu_si256((const void *)(q + 32 * k));
#ifndef __AVXVNNI__
    if (centre == 3) { // products of nibbles leave room for four pairs in 16 bits
        __m256i a = _mm256_add_epi16(_mm256_maddubs_epi16(w[0], x[0]), _mm256_maddubs_epi16(w[1], x[1]));
        __m256i b = _mm256_add_epi16(_mm256_maddubs_epi16(w[2], x[2]), _mm256_maddubs_epi16(w[3], x[3]));
        return _mm256_add_epi32(start, _mm256_madd_epi16(_mm256_add_epi16(a, b), _mm256_set1_epi16(1)));
    }
    __m256i d = dot256(centre, start, w[0], x[0]);
#pragma GCC unroll 4
    for (int k = 1; k < 4; k++) d = _mm256_add_epi32(d, dot256(centre, start, w[k], x[k]));
    return d;
#else
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) start = dot256(centre, start, w[k], x[k]);
    return start;
#endif
}
static inline __attribute__((always_inline)) __m256i wide_start256(const int centre, const int32_t *pair) {
    __m256i a = _mm256_loadu_si256((const void *)pair), b = _mm256_loadu_si256((const void *)(pair + 8));
    return _mm256_slli_epi32(_mm256_add_epi32(a, b), centre);
}

// Values for every 16 elements of up to 256, `count` of them; beyond stand zeros.
typedef struct sixteen {
    __m256 low, high;
} sixteen;
static inline __attribute__((always_inline)) sixteen load256(const float *p, const int count) {
    if (count == 16) return (sixteen){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
    const __m256i to = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    __m256i low = _mm256_cmpgt_epi32(_mm256_set1_epi32(count), to);
    __m256i high = _mm256_cmpgt_epi32(_mm256_set1_epi32(count - 8), to);
    return (sixteen){_mm256_maskload_ps(p, low), _mm256_maskload_ps(p + 8, high)};
}
// One of each two, in order.
static inline __m256 evens256(__m256 low, __m256 high) {
    __m256 v = _mm256_shuffle_ps(low, high, 0x88);
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xd8));
}
static inline __m256 odds256(__m256 low, __m256 high) {
    __m256 v = _mm256_shuffle_ps(low, high, 0xdd);
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xd8));
}
// Sums of each two, in order.
static inline __m256 pairs256(sixteen v) {
    __m256 sum = _mm256_hadd_ps(v.low, v.high);
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(sum), 0xd8));
}
// The scales of eight groups of 128, which stand eight apart.
static inline __attribute__((always_inline)) __m256 apart256(const float *p, const int count) {
#define APART(k) p[(k) < count ? 8 * (k) : 0]
    return _mm256_set_ps(APART(7), APART(6), APART(5), APART(4), APART(3), APART(2), APART(1), APART(0));
#undef APART
}
// A factor for each lane of chunk c from one for every 32 elements, or (`fine`) every 16.
static inline __attribute__((always_inline)) __m256 factor256(const int fine, const float *by, const int c) {
    if (!fine) return _mm256_broadcast_ss(by + c);
    const __m256i halves = _mm256_set_epi32(1, 1, 1, 1, 0, 0, 0, 0);
    __m128 two = _mm_castsi128_ps(_mm_loadl_epi64((const void *)(by + 2 * c)));
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(two), halves);
}

int unpack_bytes256(const weight *w, long row, long in, uint8_t *u);
void packed_dot256(int rows, int outs, const packed_row *x, const unpacked *w, int centre, int wide, long in, float *y);
// As `packed_dot_one`.
int packed_dot_one256(int outs, const packed_row *x, const weight *w, long row, long in, float *y);
#endif
