// What attention in bf16 does with a block of KEYS keys; each vector of 16 lanes has 16 keys, or 16
// features in the order that `pair32` leaves.
#pragma once
#include "attention.h"
#include "dot.h"
#include "turn.h"
#include "values.h"

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
                                                            long wide, long d, long j, __m512i *x) {
    if (paired) {
#pragma GCC unroll 8
        for (int v = 0; v < vecs; v++) x[v] = _mm512_load_si512(from->pairs + j * wide + d + v * 16);
    } else {
        const bf16 *a = from->rows + 2 * j * from->step + d, *b = 2 * j + 1 < from->count ? a + from->step : a;
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v += 2) pair32(_mm512_loadu_si512(a + v * 16), _mm512_loadu_si512(b + v * 16), x + v);
    }
}

// s[v] += the pair of weights w times the keys 2 j and 2 j + 1, of which those from `used` on may be anything.
static inline __attribute__((always_inline)) void weigh_pair(const int paired, const int vecs, V *s, long wide, long d,
                                                             uint32_t w, long j, int used, const values *from) {
    const __m512i keep = _mm512_set1_epi32(2 * j + 1 < used ? -1 : 0xffff);
    __m512i x[8];
    values_at(paired, vecs, from, wide, d, j, x);
#pragma GCC unroll 8
    for (int v = 0; v < vecs; v++)
        s[v] = _mm512_dpbf16_ps(s[v], (__m512bh)_mm512_and_si512(x[v], keep), (__m512bh)_mm512_set1_epi32((int)w));
}

// acc[r][d … d + 16 vecs) = fade[r] acc[r] + p_r . values over the first used[r] keys, where p_r is a row of
// high halves.
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
        for (int r = 0; r < rows; r++) {
            __m512bh w = (__m512bh)_mm512_set1_epi32((int)p[r * KEYS + j]);
#pragma GCC unroll 4
            for (int v = 0; v < vecs; v++) s[r][v] = _mm512_dpbf16_ps(s[r][v], (__m512bh)x[v], w);
        }
    }
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) {
        for (long j = all / 2; j < (used[r] + 1) / 2; j++) // what not every row sees
            weigh_pair(paired, vecs, s[r], wide, d, p[r * KEYS + j], j, used[r], from);
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++) _mm512_store_ps(acc + r * wide + d + v * 16, s[r][v]);
    }
}

// acc[d … d + 16 vecs) += p . values over the pairs of keys in `pairs`, among the first `used` keys.
static inline __attribute__((always_inline)) void weigh_low(const int paired, const int vecs, float *acc, long wide,
                                                            long d, const uint32_t *p, uint64_t pairs, int used,
                                                            const values *from) {
    V s[8];
#pragma GCC unroll 8
    for (int v = 0; v < vecs; v++) s[v] = _mm512_load_ps(acc + d + v * 16);
    const uint64_t last = used & 1 ? pairs >> (used - 1) << (used - 1) : 0;
    for (pairs ^= last; pairs; pairs &= pairs - 1) {
        const long j = __builtin_ctzll(pairs) / 2;
        __m512i x[8];
        values_at(paired, vecs, from, wide, d, j, x);
#pragma GCC unroll 8
        for (int v = 0; v < vecs; v++)
            s[v] = _mm512_dpbf16_ps(s[v], (__m512bh)x[v], (__m512bh)_mm512_set1_epi32((int)p[j]));
    }
    if (last) weigh_pair(paired, vecs, s, wide, d, p[used / 2], used / 2, used, from);
#pragma GCC unroll 8
    for (int v = 0; v < vecs; v++) _mm512_store_ps(acc + d + v * 16, s[v]);
}

// y = by acc, the features put into their own order.
static inline __attribute__((always_inline)) void finish_row(const float *acc, float by, long dim, bf16 *y) {
    const __m512i first = _mm512_set_epi32(23, 22, 21, 20, 7, 6, 5, 4, 19, 18, 17, 16, 3, 2, 1, 0);
    const __m512i second = _mm512_set_epi32(31, 30, 29, 28, 15, 14, 13, 12, 27, 26, 25, 24, 11, 10, 9, 8);
    const V times = _mm512_set1_ps(by);
    for (long d = 0; d < dim; d += 32) {
        const V low = _mm512_load_ps(acc + d), high = _mm512_load_ps(acc + d + 16);
        const long left = dim - d;
        float x[32];
        bf16 last[32], *const to = left >= 32 ? y + d : last;
        _mm512_storeu_ps(x, _mm512_mul_ps(_mm512_permutex2var_ps(low, first, high), times));
        _mm512_storeu_ps(x + 16, _mm512_mul_ps(_mm512_permutex2var_ps(low, second, high), times));
        narrow16(x, to);
        narrow16(x + 16, to + 16);
        if (left < 32) memcpy(y + d, last, left * sizeof(bf16));
    }
}
