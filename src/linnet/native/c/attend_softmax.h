// The softmax of attention in bf16: scores of a block of KEYS keys to weights, kept up from block to block.
//
// A weight is a bf16 number, its high half; what rounding leaves, again rounded, is its low half, so that both
// hold 16 bits. A low half counts as zero where its weight is less than SMALL of the row's sum so far, this
// block included; that sum is of the weights as they are multiplied. So a result is a mean of the values whose
// weights, 1 in all, are each off by at most 2^-8 of itself, and 2^-16 where it is not small: off by at most 2^-8
// of the mean distance from the values to the result and, as roundings go either way, usually by no more than
// 2^-9 sqrt(SMALL) = 2^-11.5 of it. Where the values point all ways, the result itself is only as long as the
// root of the squares of the weights, and what is lost stays within what its rounding to bf16 loses.
// Whether a half counts, and so what inf and NaN among the values come to, follows from the row alone.
#pragma once
#include "attend_block.h"

#define SMALL (1 / 32.0f)
#define UNSEEN -1e30f

// 2^x for x <= 0: a polynomial fitted to 2^f on |f| <= 1/2, relative error 1e-7.
static inline __attribute__((always_inline)) V power(V x) {
    x = _mm512_max_ps(_mm512_set1_ps(-150.0f), x); // in this order a NaN stays one
    V n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    V f = _mm512_sub_ps(x, n);
    V p = _mm512_set1_ps(1.3220805e-3f);
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(9.6716955e-3f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(5.5508856e-2f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(2.4022238e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(6.9314688e-1f));
    p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.0f));
    return _mm512_scalef_ps(p, n);
}

// The highest lane of each of four vectors.
static inline __attribute__((always_inline)) __m128 lanes_most4(const V *in) {
    V ab = _mm512_max_ps(_mm512_shuffle_f32x4(in[0], in[1], 0x44), _mm512_shuffle_f32x4(in[0], in[1], 0xee));
    V cd = _mm512_max_ps(_mm512_shuffle_f32x4(in[2], in[3], 0x44), _mm512_shuffle_f32x4(in[2], in[3], 0xee));
    V all = _mm512_max_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
    all = _mm512_max_ps(all, _mm512_permute_ps(all, 0x4e));
    all = _mm512_max_ps(all, _mm512_permute_ps(all, 0xb1));
    const __m512i first = _mm512_set_epi32(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 8, 4, 0);
    return _mm512_castps512_ps128(_mm512_permutexvar_ps(first, all));
}

// Up to TILE query rows on their way through the blocks; a lane for each. Its steps within a block may be apart
// in time, so that other work hides how long one waits for another.
typedef struct tile {
    _Alignas(64) float peak[16], sum[16]; // of what was seen
    float fade[16];                       // what becomes of sums of the blocks before
    float least[16];                      // the highest weight of the block, then the least with a low half
    int first, rows;                      // rows of the piece
    int used[TILE];                       // keys of the block that each sees, the first ones
    const uint8_t *allowed[TILE];         // or NULL
    int most, whole;                      // keys that any sees; every row sees all
    int sharp;                            // bit r: the row has low halves
    uint64_t low[TILE];                   // of such a row, bit 2 j: one of the keys 2 j and 2 j + 1 has
} tile;

// Lanes of sixteen keys from 16 v that a row sees.
static inline __attribute__((always_inline)) __mmask16 seen(const int whole, const tile *t, int r, int v) {
    const uint64_t in = t->used[r] >= 64 ? ~0ull : (1ull << t->used[r]) - 1;
    return whole ? 0xffff : (__mmask16)(in >> (v * 16));
}
// Those among them that its mask leaves out.
static inline __attribute__((always_inline)) __mmask16 left_out(const int whole, const tile *t, int r, int v) {
    if (whole || !t->allowed[r]) return 0;
    return _mm_cmpeq_epi8_mask(_mm_maskz_loadu_epi8(seen(whole, t, r, v), t->allowed[r] + v * 16), _mm_setzero_si128());
}
static inline __attribute__((always_inline)) V weight_of(const int whole, const tile *t, int r, int v, const float *s, V by,
                                                         V top) {
    // The product and the sum as one, in every copy of this code; at most 0 in spite of it.
    V x = _mm512_fmsub_ps(_mm512_load_ps(s + r * KEYS + v * 16), by, top);
    if (!whole) x = _mm512_mask_sub_ps(x, left_out(whole, t, r, v), _mm512_set1_ps(UNSEEN), top);
    x = power(_mm512_min_ps(_mm512_setzero_ps(), x));
    return whole ? x : _mm512_maskz_mov_ps(seen(whole, t, r, v), x);
}

// Eight rows' lanes, each added as the same tree.
static inline __attribute__((always_inline)) V lanes_sum8rows(const V *row) {
    const v4 low = lanes_sum4((v16)row[0], (v16)row[1], (v16)row[2], (v16)row[3]);
    const v4 high = lanes_sum4((v16)row[4], (v16)row[5], (v16)row[6], (v16)row[7]);
    return _mm512_castps256_ps512(_mm256_set_m128((__m128)high, (__m128)low));
}

// Of scores times `by`, which is not negative: the highest so far, and what becomes of the sums before. Keys that
// count are among the first 16 vecs; `whole`: all of them.
static inline __attribute__((always_inline)) void tops(const int vecs, const int whole, const int rows, tile *t, const float *s, V by) {
    const V none = _mm512_set1_ps(-INFINITY);
    V row[8];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        const float *x = s + r * KEYS;
        if (whole) {
            row[r] = _mm512_mul_ps(by, _mm512_max_ps(_mm512_max_ps(_mm512_load_ps(x), _mm512_load_ps(x + 16)),
                                                     _mm512_max_ps(_mm512_load_ps(x + 32), _mm512_load_ps(x + 48))));
            continue;
        }
        row[r] = none;
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++) {
            const V all = _mm512_mul_ps(_mm512_load_ps(x + v * 16), by);
            const V value = _mm512_mask_mov_ps(all, left_out(whole, t, r, v), _mm512_set1_ps(UNSEEN));
            row[r] = _mm512_mask_max_ps(row[r], seen(whole, t, r, v), row[r], value);
        }
    }
    for (int r = rows; r < 8; r++) row[r] = none;
    const V here = _mm512_castps256_ps512(_mm256_set_m128(lanes_most4(row + 4), lanes_most4(row)));
    const V before = _mm512_load_ps(t->peak), top = _mm512_max_ps(here, before);
    // Rows that have seen no key yet stay so.
    const __mmask16 some = _mm512_cmp_ps_mask(top, none, _CMP_NEQ_UQ);
    _mm512_store_ps(t->fade, _mm512_mask_blend_ps(some, _mm512_set1_ps(1.0f), power(_mm512_sub_ps(before, top))));
    _mm512_store_ps(t->least, power(_mm512_sub_ps(here, top)));
    _mm512_store_ps(t->peak, top);
}

// Scores to weights: p[r] has PAIRS pairs of high halves. Their sum, and which rows have low halves.
static inline __attribute__((always_inline)) void weights(const int vecs, const int whole, const int rows, tile *t, float *s, V by,
                                                          uint32_t *p) {
    V row[8];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        const V top = _mm512_set1_ps(t->peak[r]);
        const __m512bh one = (__m512bh)_mm512_set1_epi16(0x3f80);
        row[r] = _mm512_setzero_ps();
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v += 2) {
            const V a = weight_of(whole, t, r, v, s, by, top), b = weight_of(whole, t, r, v + 1, s, by, top);
            const __m512bh pair = _mm512_cvtne2ps_pbh(b, a);
            _mm512_store_ps(s + r * KEYS + v * 16, a);
            _mm512_store_ps(s + r * KEYS + v * 16 + 16, b);
            _mm512_store_si512(p + r * KEYS + v * 8, (__m512i)pair);
            row[r] = _mm512_dpbf16_ps(row[r], pair, one); // the sum of what is multiplied
        }
    }
    for (int r = rows; r < 8; r++) row[r] = _mm512_setzero_ps();
    const V sum = _mm512_fmadd_ps(_mm512_load_ps(t->sum), _mm512_load_ps(t->fade), lanes_sum8rows(row));
    const V bound = _mm512_mul_ps(sum, _mm512_set1_ps(SMALL));
    // "Not less" is also what is not a number.
    t->sharp = _mm512_cmp_ps_mask(_mm512_load_ps(t->least), bound, _CMP_NLT_UQ) & ((1 << rows) - 1);
    _mm512_store_ps(t->sum, sum);
    _mm512_store_ps(t->least, bound);
}

// Then the low halves, from p[r] + PAIRS, and their sum.
static inline __attribute__((always_inline)) void lows(const int vecs, const int whole, const int rows, tile *t, const float *s,
                                                       uint32_t *p) {
    V row[8];
    for (int r = 0; r < 8; r++) row[r] = _mm512_setzero_ps();
    for (int left = t->sharp; left; left &= left - 1) {
        const int r = __builtin_ctz(left);
        const V least = _mm512_set1_ps(t->least[r]);
        uint64_t low = 0;
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v += 2) {
            const __m512i pair = _mm512_load_si512(p + r * KEYS + v * 8);
            V rest[2];
#pragma GCC unroll 2
            for (int i = 0; i < 2; i++) {
                const V value = _mm512_load_ps(s + r * KEYS + (v + i) * 16);
                const __mmask16 m = seen(whole, t, r, v + i) & _mm512_cmp_ps_mask(value, least, _CMP_NLT_UQ);
                const __m512i high = _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(pair, i)), 16);
                rest[i] = _mm512_maskz_sub_ps(m, value, (V)high);
                row[r] = _mm512_add_ps(row[r], rest[i]);
                low |= (uint64_t)m << (16 * (v + i));
            }
            _mm512_store_si512(p + r * KEYS + PAIRS + v * 8, (__m512i)_mm512_cvtne2ps_pbh(rest[1], rest[0]));
        }
        t->low[r] = (low | low >> 1) & 0x5555555555555555;
    }
    _mm512_store_ps(t->sum, _mm512_add_ps(_mm512_load_ps(t->sum), lanes_sum8rows(row)));
}
