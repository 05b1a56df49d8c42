// Attention in bf16 with products of bf16 pairs, for any number of query rows.
//
// A block of keys is turned to pairs of features with the keys along the lanes, and its values to
// pairs of keys with the features along the lanes; so scores and sums come out in lanes and nothing
// is added across. Scores are added over the features in order, values over the keys in order, two at
// a time, whatever else is in the piece. A weight meets the values as the sum of two bf16 numbers, which
// hold 16 of its bits.
#include "attention.h"
#include "dot.h"

#ifdef HAVE_DPBF16
#define V __m512
#define TILE 6

int attend_bf16_here(const attention *a) { return a->type == T_BF16; }

static inline long wide16(long dim) { return (dim + 15) / 16 * 16; }

size_t attend_bf16_bytes(const attention *a) {
    const size_t dim = wide16(a->dim);
    // Keys and values as pairs, sums, scores, weights, queries.
    return KEYS * (dim + 32) * 2 + KEYS * dim * 2 + ROWS * (dim * 4 + KEYS * 4 + KEYS * 4 + dim * 2) + 4096;
}

// Sixteen vectors of sixteen words, rows and columns exchanged.
static inline __attribute__((always_inline)) void turn16(__m512i r[16]) {
    __m512i t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

static inline __mmask32 first32(long n) { return n >= 32 ? 0xffffffffu : n <= 0 ? 0 : (1u << n) - 1; }

static void fetch(const bf16 *p, long dim) {
    for (long i = 0; i < dim; i += 32) _mm_prefetch((const char *)(p + i), _MM_HINT_T0);
}

// to[pair][key]: features 2 pair and 2 pair + 1 of each of KEYS keys, zeros after the last.
static void turn_keys(const bf16 *k, long step, long n, long dim, const bf16 *next, long next_n, uint32_t *to) {
    for (long key = 0; key < n; key += 16)
        for (long d = 0; d < dim; d += 32) {
            __m512i r[16];
            const __mmask32 m = first32(dim - d);
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++)
                r[i] = _mm512_maskz_loadu_epi16(key + i < n ? m : 0, k + (key + i < n ? (key + i) * step + d : 0));
            if (next)
                for (long i = key; i < LEAST(key + 16, next_n); i++)
                    _mm_prefetch((const char *)(next + i * step + d), _MM_HINT_T0);
            turn16(r);
            const long pairs = LEAST(16, (dim - d + 1) / 2);
            for (long i = 0; i < pairs; i++) _mm512_store_si512(to + (d / 2 + i) * KEYS + key, r[i]);
        }
}

// to[pair][feature]: keys 2 pair and 2 pair + 1 of each feature, zeros after the last.
static void pair_values(const bf16 *v, long step, long n, long dim, const bf16 *next, long next_n, uint32_t *to) {
    const long wide = wide16(dim);
    __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37, 5,
                                   36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    for (long key = 0; key < n; key += 2) {
        const int both = key + 1 < n;
        for (long d = 0; d < dim; d += 32) {
            const __mmask32 m = first32(dim - d);
            __m512i a = _mm512_maskz_loadu_epi16(m, v + key * step + d);
            __m512i b = _mm512_maskz_loadu_epi16(both ? m : 0, v + (key + both) * step + d);
            if (next && key < next_n) {
                _mm_prefetch((const char *)(next + key * step + d), _MM_HINT_T0);
                _mm_prefetch((const char *)(next + (key + 1) * step + d), _MM_HINT_T0);
            }
            uint32_t *place = to + key / 2 * wide + d;
            _mm512_storeu_si512(place, _mm512_permutex2var_epi16(a, low, b));
            if (d + 16 < wide) _mm512_storeu_si512(place + 16, _mm512_permutex2var_epi16(a, high, b));
        }
    }
}

// s[r][0 … KEYS) = q_r . keys.
static inline __attribute__((always_inline)) void scores(const int rows, const uint32_t *q, long ldq,
                                                         const uint32_t *keys, long pairs, float *s) {
    V acc[TILE][4];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++) acc[r][v] = _mm512_setzero_ps();
    for (long i = 0; i < pairs; i++) {
        __m512bh k[4];
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++) k[v] = (__m512bh)_mm512_load_si512(keys + i * KEYS + v * 16);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            __m512bh x = (__m512bh)_mm512_set1_epi32((int)q[r * ldq + i]);
#pragma GCC unroll 4
            for (int v = 0; v < 4; v++) acc[r][v] = _mm512_dpbf16_ps(acc[r][v], k[v], x);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < 4; v++) _mm512_store_ps(s + r * KEYS + v * 16, acc[r][v]);
}

// acc[r][0 … 16 vecs) = fade[r] acc[r] + p_r . values over the first used[r] keys, where p_r is a row of
// high halves and a row of low ones.
static inline __attribute__((always_inline)) void weigh(const int rows, const int vecs, float *acc, long wide,
                                                        const float *fade, const uint32_t *p, const int *used,
                                                        const uint32_t *values) {
    V s[TILE][4];
    int all = used[0];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        all = LEAST(all, used[r]);
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++)
            s[r][v] = _mm512_mul_ps(_mm512_load_ps(acc + r * wide + v * 16), _mm512_set1_ps(fade[r]));
    }
    for (long j = 0; j < all / 2; j++) {
        __m512bh x[4];
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++) x[v] = (__m512bh)_mm512_load_si512(values + j * wide + v * 16);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
            for (int half = 0; half < 2; half++) {
                __m512bh w = (__m512bh)_mm512_set1_epi32((int)p[r * KEYS + half * (KEYS / 2) + j]);
#pragma GCC unroll 4
                for (int v = 0; v < vecs; v++) s[r][v] = _mm512_dpbf16_ps(s[r][v], x[v], w);
            }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) { // keys that not every row sees: their values may be anything
        for (long j = all / 2; j < (used[r] + 1) / 2; j++) {
            const __m512i keep = _mm512_set1_epi32(2 * j + 1 < used[r] ? -1 : 0xffff);
#pragma GCC unroll 2
            for (int half = 0; half < 2; half++) {
                __m512bh w = (__m512bh)_mm512_set1_epi32((int)p[r * KEYS + half * (KEYS / 2) + j]);
#pragma GCC unroll 4
                for (int v = 0; v < vecs; v++) {
                    __m512i x = _mm512_and_si512(_mm512_load_si512(values + j * wide + v * 16), keep);
                    s[r][v] = _mm512_dpbf16_ps(s[r][v], (__m512bh)x, w);
                }
            }
        }
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++) _mm512_store_ps(acc + r * wide + v * 16, s[r][v]);
    }
}

#define ROWS_OF(f, ...)               \
    switch (rows) {                   \
    case 1: f(1, __VA_ARGS__); break; \
    case 2: f(2, __VA_ARGS__); break; \
    case 3: f(3, __VA_ARGS__); break; \
    case 4: f(4, __VA_ARGS__); break; \
    case 5: f(5, __VA_ARGS__); break; \
    default: f(6, __VA_ARGS__);       \
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

// Scores to weights against the highest score so far; the weights' sum and what becomes of the
// sums before them. The scale's sign may be any.
static inline __attribute__((always_inline)) void shares(const float *s, float scale, int used, const uint8_t *allowed,
                                                         int none, float *peak, float *sum, float *fade, uint32_t *p) {
    const V by = _mm512_set1_ps(scale), log2e = _mm512_set1_ps(1.44269504f);
    const V least = _mm512_set1_ps(-INFINITY);
    const uint64_t in = used >= 64 ? ~0ull : (1ull << used) - 1;
    V value[4], top = least;
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++) {
        V x = _mm512_mul_ps(_mm512_load_ps(s + v * 16), by);
        if (none) x = _mm512_setzero_ps();
        const __mmask16 m = (__mmask16)(in >> (v * 16));
        if (allowed) {
            __m128i seen = _mm_maskz_loadu_epi8(m, allowed + v * 16);
            x = _mm512_mask_mov_ps(x, _mm_cmpeq_epi8_mask(seen, _mm_setzero_si128()), _mm512_set1_ps(-1e30f));
        }
        value[v] = _mm512_mask_mov_ps(least, m, x);
        top = _mm512_max_ps(top, value[v]);
    }
    const float most = MOST(*peak, _mm512_reduce_max_ps(top));
    top = _mm512_set1_ps(most);
    V total = _mm512_setzero_ps();
#pragma GCC unroll 4
    for (int v = 0; v < 4; v++) {
        value[v] = power(_mm512_mul_ps(_mm512_sub_ps(value[v], top), log2e));
        value[v] = _mm512_maskz_mov_ps((__mmask16)(in >> (v * 16)), value[v]);
        total = v ? _mm512_add_ps(total, value[v]) : value[v];
    }
#pragma GCC unroll 2
    for (int v = 0; v < 4; v += 2) {
        const __m512i high = (__m512i)_mm512_cvtne2ps_pbh(value[v + 1], value[v]);
        const V first = (V)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_castsi512_si256(high)), 16);
        const V second = (V)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(high, 1)), 16);
        const V rest[2] = {_mm512_sub_ps(value[v], first), _mm512_sub_ps(value[v + 1], second)};
        _mm512_store_si512(p + v * 8, high);
        _mm512_store_si512(p + KEYS / 2 + v * 8, (__m512i)_mm512_cvtne2ps_pbh(rest[1], rest[0]));
    }
    *fade = *peak == -INFINITY ? 0.0f : m_exp(*peak - most);
    *sum = *sum * *fade + lanes_sum((v16)total);
    *peak = most;
}

void attend_bf16(const attention *a, const piece *w, const long *after, char *memory) {
    const long dim = a->dim, wide = wide16(dim), pairs = (dim + 1) / 2;
    const int n = w->n;
    uint32_t *keys = (uint32_t *)(((uintptr_t)memory + 63) & ~(uintptr_t)63);
    uint32_t *values = keys + KEYS / 2 * (wide + 32);
    float *acc = (float *)(values + KEYS / 2 * wide);
    float *s = acc + ROWS * wide;
    uint32_t *p = (uint32_t *)(s + ROWS * KEYS), *q = p + ROWS * KEYS;
    float peak[ROWS], sum[ROWS], fade[ROWS];
    for (int r = 0; r < n; r++) {
        q[r * (wide / 2) + pairs - 1] = 0;
        memcpy(q + r * (wide / 2), w->q[r], dim * 2);
        memset(acc + r * wide, 0, wide * 4);
        peak[r] = -INFINITY;
        sum[r] = 0;
    }
    const bf16 *const k = (const bf16 *)a->k + w->batch * a->ks[0] + w->head * a->ks[1];
    const bf16 *const v = (const bf16 *)a->v + w->batch * a->vs[0] + w->head * a->vs[1];
    for (long s0 = 0; s0 < w->longest; s0 += KEYS) {
        const long here = LEAST(KEYS, w->longest - s0);
        long ahead = LEAST(KEYS, w->longest - s0 - KEYS);
        const bf16 *kn = k + (s0 + KEYS) * a->ks[2], *vn = v + (s0 + KEYS) * a->vs[2];
        if (ahead <= 0) {
            ahead = after ? after[2] : 0;
            kn = ahead ? (const bf16 *)a->k + after[0] * a->ks[0] + after[1] * a->ks[1] : NULL;
            vn = ahead ? (const bf16 *)a->v + after[0] * a->vs[0] + after[1] * a->vs[1] : NULL;
            if (ahead && here < KEYS) // too short to fetch all of it on the way
                for (long i = (here + 15) / 16 * 16; i < ahead; i++)
                    fetch(kn + i * a->ks[2], dim), fetch(vn + i * a->vs[2], dim);
        }
        turn_keys(k + s0 * a->ks[2], a->ks[2], here, dim, kn, ahead, keys);
        pair_values(v + s0 * a->vs[2], a->vs[2], here, dim, vn, ahead, values);
        int used[ROWS];
        for (int r = 0; r < n; r++) used[r] = (int)MOST(0, LEAST(here, w->limit[r] - s0));
        for (int r0 = 0; r0 < n; r0 += TILE) {
            const int rows = (int)LEAST(TILE, n - r0);
            ROWS_OF(scores, q + r0 * (wide / 2), wide / 2, keys, pairs, s + r0 * KEYS)
            for (int r = r0; r < r0 + rows; r++)
                if (used[r])
                    shares(s + r * KEYS, a->scale, used[r], w->allowed[r] ? w->allowed[r] + s0 : NULL, w->none[r],
                           peak + r, sum + r, fade + r, p + r * KEYS);
                else fade[r] = 1.0f;
            long d = 0;
            for (; d + 64 <= wide; d += 64)
                ROWS_OF(weigh, 4, acc + r0 * wide + d, wide, fade + r0, p + r0 * KEYS, used + r0, values + d)
            for (; d < wide; d += 16)
                ROWS_OF(weigh, 1, acc + r0 * wide + d, wide, fade + r0, p + r0 * KEYS, used + r0, values + d)
        }
    }
    for (int r = 0; r < n; r++) {
        const float by = sum[r] > 0 ? 1.0f / sum[r] : 0.0f;
        bf16 *y = w->y[r];
        for (long d = 0; d < dim; d++) y[d] = to_bf16(acc[r * wide + d] * by);
    }
}

#else

int attend_bf16_here(const attention *a) { return 0; }
size_t attend_bf16_bytes(const attention *a) { return 0; }
void attend_bf16(const attention *a, const piece *p, const long *after, char *memory) {}

#endif
