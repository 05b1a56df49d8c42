// What attention in bf16 does with a block of KEYS keys; each vector of 16 lanes has 16 keys, or 16
// features in the order of `spread`.
#pragma once
#include "attention.h"
#include "dot.h"
#include "turn.h"

#define V __m512
#define TILE 6 // most query rows at once
#define PAIRS (KEYS / 2)

static inline long wide32(long dim) { return (dim + 31) / 32 * 32; }

static inline void fetch(const bf16 *p, long dim) {
    for (long i = 0; i < dim; i += 32) _mm_prefetch((const char *)(p + i), _MM_HINT_T0);
}

// Thirty-two features from p; zeros after the first `left`.
static inline __attribute__((always_inline)) __m512i features(const int whole, const bf16 *p, long left) {
    return whole || left >= 32 ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi16((1u << left) - 1, p);
}

// to[pair][0 … 16): features 2 pair and 2 pair + 1 of sixteen keys.
static inline __attribute__((always_inline)) void turn_some(const int whole, const bf16 *k, long step, long dim,
                                                            const bf16 *next, long more, long next_step, uint32_t *to) {
    const bf16 *const k4 = k + 4 * step, *const k8 = k + 8 * step, *const k12 = k + 12 * step;
    for (long d = 0; d < dim; d += 32) {
        __m512i r[16];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            r[i] = features(whole, k + i * step + d, dim - d);
            r[i + 4] = features(whole, k4 + i * step + d, dim - d);
            r[i + 8] = features(whole, k8 + i * step + d, dim - d);
            r[i + 12] = features(whole, k12 + i * step + d, dim - d);
        }
        for (long i = 0; i < more; i++) _mm_prefetch((const char *)(next + i * next_step + d), _MM_HINT_T0);
        turn16(r);
        uint32_t *place = to + d / 2 * KEYS;
#pragma GCC unroll 16
        for (int i = 0; i < 16; i++) _mm512_store_si512(place + i * KEYS, r[i]);
    }
}

// to[pair][key]: features 2 pair and 2 pair + 1 of n keys, sixteen keys at a time. `ahead` keys at `next`
// are fetched on the way. `room`: sixteen keys.
static void turn_keys(const bf16 *k, long step, long n, long dim, const bf16 *next, long ahead, uint32_t *to,
                      bf16 *room) {
    for (long key = 0; key < n; key += 16) {
        const long more = MOST(0, LEAST(16, ahead - key));
        const bf16 *from = k + key * step, *after = next + key * step;
        long by = step;
        if (key + 16 > n) { // what lies after the last key need not be ours
            from = room, by = wide32(dim);
            memset(room, 0, 16 * by * sizeof(bf16));
            for (long i = key; i < n; i++) memcpy(room + (i - key) * by, k + i * step, dim * sizeof(bf16));
        }
        if (dim % 32 == 0) turn_some(1, from, by, dim, after, more, step, to + key);
        else turn_some(0, from, by, dim, after, more, step, to + key);
    }
}

// Two keys' values, each feature with itself: features 0 … 3, 8 … 11, 16 … 19, 24 … 27, then the rest.
static inline __attribute__((always_inline)) void pair32(__m512i a, __m512i b, __m512i to[2]) {
    to[0] = _mm512_unpacklo_epi16(a, b);
    to[1] = _mm512_unpackhi_epi16(a, b);
}

// Thirty-two sums in that order, in the features' own.
static inline __attribute__((always_inline)) void spread(V low, V high, float *to) {
    const __m512i first = _mm512_set_epi32(23, 22, 21, 20, 7, 6, 5, 4, 19, 18, 17, 16, 3, 2, 1, 0);
    const __m512i second = _mm512_set_epi32(31, 30, 29, 28, 15, 14, 13, 12, 27, 26, 25, 24, 11, 10, 9, 8);
    _mm512_storeu_ps(to, _mm512_permutex2var_ps(low, first, high));
    _mm512_storeu_ps(to + 16, _mm512_permutex2var_ps(low, second, high));
}

// to[pair][feature]: keys 2 pair and 2 pair + 1 of each feature.
static void pair_values(const bf16 *v, long step, long n, long dim, const bf16 *next, long ahead, uint32_t *to) {
    const long wide = wide32(dim);
    for (long key = 0; key < n; key += 2) {
        const bf16 *a = v + key * step, *b = key + 1 < n ? a + step : a; // a weight of zero keeps its twin out
        for (long d = 0; d < dim; d += 32) {
            __m512i x[2];
            pair32(features(0, a + d, dim - d), features(0, b + d, dim - d), x);
            if (key < ahead) {
                _mm_prefetch((const char *)(next + key * step + d), _MM_HINT_T0);
                _mm_prefetch((const char *)(next + (key + 1) * step + d), _MM_HINT_T0);
            }
            _mm512_store_si512(to + key / 2 * wide + d, x[0]);
            _mm512_store_si512(to + key / 2 * wide + d + 16, x[1]);
        }
    }
}

// s[r][0 … 16 vecs) = q_r . keys.
static inline __attribute__((always_inline)) void scores(const int rows, const int vecs, const uint32_t *q, long ldq,
                                                         const uint32_t *keys, long pairs, float *s) {
    V acc[TILE][4];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++) acc[r][v] = _mm512_setzero_ps();
    for (long i = 0; i < pairs; i++) {
        __m512bh k[4];
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++) k[v] = (__m512bh)_mm512_load_si512(keys + i * KEYS + v * 16);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            __m512bh x = (__m512bh)_mm512_set1_epi32((int)q[r * ldq + i]);
#pragma GCC unroll 4
            for (int v = 0; v < vecs; v++) acc[r][v] = _mm512_dpbf16_ps(acc[r][v], k[v], x);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++) _mm512_store_ps(s + r * KEYS + v * 16, acc[r][v]);
}

// Where the values of a block are: in pairs, or as they lie in memory (features a multiple of 32).
typedef struct values {
    const uint32_t *pairs; // or NULL
    const bf16 *rows;
    long step, count;
} values;

// 16 vecs features of the keys 2 j and 2 j + 1; a key after the last has the values of the one before.
static inline __attribute__((always_inline)) void values_at(const int paired, const int vecs, const values *from,
                                                            long wide, long d, long j, __m512i x[4]) {
    if (paired) {
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++) x[v] = _mm512_load_si512(from->pairs + j * wide + d + v * 16);
    } else {
        const bf16 *a = from->rows + 2 * j * from->step + d, *b = 2 * j + 1 < from->count ? a + from->step : a;
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v += 2) pair32(_mm512_loadu_si512(a + v * 16), _mm512_loadu_si512(b + v * 16), x + v);
    }
}

// acc[r][d … d + 16 vecs) = fade[r] acc[r] + p_r . values over the first used[r] keys, where p_r is a row of
// high halves and a row of low ones.
static inline __attribute__((always_inline)) void weigh(const int rows, const int paired, const int vecs, float *acc,
                                                        long wide, long d, const float *fade, const uint32_t *p,
                                                        const int *used, const values *from) {
    V s[TILE][4];
    int all = used[0];
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        all = LEAST(all, used[r]);
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++)
            s[r][v] = _mm512_mul_ps(_mm512_load_ps(acc + r * wide + d + v * 16), _mm512_set1_ps(fade[r]));
    }
    for (long j = 0; j < all / 2; j++) {
        __m512i x[4];
        values_at(paired, vecs, from, wide, d, j, x);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
            for (int half = 0; half < 2; half++) {
                __m512bh w = (__m512bh)_mm512_set1_epi32((int)p[r * KEYS + half * PAIRS + j]);
#pragma GCC unroll 4
                for (int v = 0; v < vecs; v++) s[r][v] = _mm512_dpbf16_ps(s[r][v], (__m512bh)x[v], w);
            }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) { // keys that not every row sees: their values may be anything
        for (long j = all / 2; j < (used[r] + 1) / 2; j++) {
            const __m512i keep = _mm512_set1_epi32(2 * j + 1 < used[r] ? -1 : 0xffff);
            __m512i x[4];
            values_at(paired, vecs, from, wide, d, j, x);
#pragma GCC unroll 2
            for (int half = 0; half < 2; half++) {
                __m512bh w = (__m512bh)_mm512_set1_epi32((int)p[r * KEYS + half * PAIRS + j]);
#pragma GCC unroll 4
                for (int v = 0; v < vecs; v++)
                    s[r][v] = _mm512_dpbf16_ps(s[r][v], (__m512bh)_mm512_and_si512(x[v], keep), w);
            }
        }
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++) _mm512_store_ps(acc + r * wide + d + v * 16, s[r][v]);
    }
}

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

// Rows' running softmax, in powers of two; each array has room for a vector after the last row.
typedef struct running {
    float *peak, *sum, *fade;
} running;

// Scores times `by` to weights against the highest score so far: of each row the first used[r] keys, all
// among the first 16 vecs. The weights' sum, and what becomes of the sums before them.
static inline __attribute__((always_inline)) void shares(const int vecs, const int whole, const int rows, const float *s,
                                                         V by, const int *used, const uint8_t *const *allowed,
                                                         running now, uint32_t *p) {
    const V least = _mm512_set1_ps(-INFINITY), unseen = _mm512_set1_ps(-1e30f);
    V row[8];
#define SEEN(v)                                                                    \
    const V x = _mm512_load_ps(s + r * KEYS + v * 16);                             \
    const uint64_t in = used[r] >= 64 ? ~0ull : (1ull << used[r]) - 1;             \
    const __mmask16 m = whole ? 0xffff : (__mmask16)(in >> (v * 16));              \
    const __mmask16 out = whole || !allowed[r] ? 0                                 \
        : _mm_cmpeq_epi8_mask(_mm_maskz_loadu_epi8(m, allowed[r] + v * 16), _mm_setzero_si128());
    for (int r = 0; r < rows; r++) {
        row[r] = least;
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++) {
            SEEN(v)
            const V value = _mm512_mask_blend_ps(out, _mm512_mul_ps(x, by), unseen);
            row[r] = _mm512_mask_max_ps(row[r], m, row[r], value);
        }
    }
    for (int r = rows; r < 8; r++) row[r] = least;
    const __m128 low = lanes_most4(row), high = rows > 4 ? lanes_most4(row + 4) : low;
    const __mmask16 here = (__mmask16)((1u << rows) - 1);
    V top = _mm512_castps256_ps512(_mm256_set_m128(high, low)), before = _mm512_loadu_ps(now.peak);
    top = _mm512_max_ps(top, before);
    // Rows that have seen no key yet stay so.
    const __mmask16 some = _mm512_cmp_ps_mask(top, least, _CMP_NEQ_UQ);
    const V fade = _mm512_mask_blend_ps(some, _mm512_set1_ps(1.0f), power(_mm512_sub_ps(before, top)));
    _mm512_mask_storeu_ps(now.peak, here, top);
    _mm512_mask_storeu_ps(now.fade, here, fade);
    for (int r = 0; r < rows; r++) {
        const V most = _mm512_set1_ps(now.peak[r]);
        V value[4], total = _mm512_setzero_ps();
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++) {
            if (v >= vecs) {
                value[v] = _mm512_setzero_ps();
                continue;
            }
            SEEN(v)
            // The product and the sum as one, in every copy of this code; at most 0 in spite of it.
            value[v] = _mm512_mask_blend_ps(out, _mm512_fmsub_ps(x, by, most), _mm512_sub_ps(unseen, most));
            value[v] = power(_mm512_min_ps(_mm512_setzero_ps(), value[v]));
            if (!whole) value[v] = _mm512_maskz_mov_ps(m, value[v]);
            total = v ? _mm512_add_ps(total, value[v]) : value[v];
        }
        row[r] = total;
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v += 2) {
            const __m512i half = _mm512_set1_epi32(0x8000), upper = _mm512_set1_epi32(0xffff0000);
            V first[2], rest[2];
#pragma GCC unroll 2
            for (int i = 0; i < 2; i++) { // rounded, and what that leaves
                first[i] = (V)_mm512_and_si512(_mm512_add_epi32((__m512i)value[v + i], half), upper);
                rest[i] = _mm512_sub_ps(value[v + i], first[i]);
            }
            _mm512_store_si512(p + r * KEYS + v * 8, (__m512i)_mm512_cvtne2ps_pbh(first[1], first[0]));
            _mm512_store_si512(p + r * KEYS + PAIRS + v * 8, (__m512i)_mm512_cvtne2ps_pbh(rest[1], rest[0]));
        }
    }
#undef SEEN
    const v4 part = lanes_sum4((v16)row[0], (v16)row[1], (v16)row[2], (v16)row[3]);
    const v4 more = rows > 4 ? lanes_sum4((v16)row[4], (v16)row[5], (v16)row[6], (v16)row[7]) : part;
    const V total = _mm512_castps256_ps512(_mm256_set_m128((__m128)more, (__m128)part));
    _mm512_mask_storeu_ps(now.sum, here, _mm512_fmadd_ps(_mm512_loadu_ps(now.sum), fade, total));
}
