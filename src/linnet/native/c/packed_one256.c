// Packed weight rows by one quantized row of x, straight from the stored bytes, at 256 bits.
//
// Four rows at a time, so that the additions of one need not wait for each other; their bytes lie
// together in memory. Sums are those of packed256.c, bit for bit.
#include "packed256.h"

#ifdef HAVE_256
#ifndef AHEAD
#define AHEAD 4096 // bytes by which prefetches run before the reads
#endif
#define FETCH(p) _mm_prefetch((const char *)(p) + AHEAD, _MM_HINT_T0)

static inline int word_at(const uint8_t *p) {
    int v;
    memcpy(&v, p, 4);
    return v;
}
static inline short short_at(const uint8_t *p) {
    short v;
    memcpy(&v, p, 2);
    return v;
}
static inline __m256 half_at(const uint8_t *p) {
    f16 h;
    memcpy(&h, p, 2);
    return _mm256_set1_ps((float)h);
}

static inline __attribute__((always_inline)) long block_bytes(const int kind) {
    switch (kind) {
    case INT8: return 256;
    case INT4: return 128;
    case Q4_0: return 8 * 18;
    case Q4_1: return 8 * 20;
    case Q8_0: return 8 * 34;
    case Q4_K: return 144;
    }
    return 210;
}

// Scales and offsets for every 32 elements of the block at p (Q6_K: scales for every 16), which has
// `chunks` times 32 elements. `scale` and `zero` are those of its first group.
static inline __attribute__((always_inline)) sixteen scales_of(
    const int kind, const int g, const int zeros, const int chunks, const uint8_t *p, const float *scale,
    const uint8_t *zero, __m256 *offset) {
#define AT(k) (p + ((k) < chunks ? (k) : 0) * step)
    switch (kind) {
    case INT8:
    case INT4: {
        const int share = LEAST(g, 256) / 32, count = (chunks + share - 1) / share;
        const __m256i by = share == 1   ? _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0)
                           : share == 2 ? _mm256_set_epi32(3, 3, 2, 2, 1, 1, 0, 0)
                           : share == 4 ? _mm256_set_epi32(1, 1, 1, 1, 0, 0, 0, 0)
                                        : _mm256_setzero_si256();
        _mm_prefetch((const char *)scale + AHEAD / 4, _MM_HINT_T0); // a slower stream beside
        __m256 s = count == 1 ? _mm256_broadcast_ss(scale) : load256(scale, count == 8 ? 16 : count).low;
        if (zeros) {
            uint64_t z = 0;
            memcpy(&z, zero, count);
            __m256 of = _mm256_mul_ps(s, _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)z))));
            *offset = _mm256_permutevar8x32_ps(of, by);
        }
        return (sixteen){_mm256_permutevar8x32_ps(s, by)};
    }
    case Q4_0:
    case Q8_0: {
        const long step = kind == Q4_0 ? 18 : 34;
        return (sixteen){_mm256_cvtph_ps(_mm_set_epi16(
            short_at(AT(7)), short_at(AT(6)), short_at(AT(5)), short_at(AT(4)), short_at(AT(3)), short_at(AT(2)),
            short_at(AT(1)), short_at(AT(0))))};
    }
    case Q4_1: {
        const long step = 20;
        __m256 a = _mm256_cvtph_ps(_mm_set_epi32(word_at(AT(3)), word_at(AT(2)), word_at(AT(1)), word_at(AT(0))));
        __m256 b = _mm256_cvtph_ps(_mm_set_epi32(word_at(AT(7)), word_at(AT(6)), word_at(AT(5)), word_at(AT(4))));
        *offset = _mm256_xor_ps(_mm256_set1_ps(-0.0f), odds256(a, b));
        return (sixteen){evens256(a, b)};
    }
    case Q4_K: { // eight scales and eight offsets of six bits in twelve bytes
        const uint32_t a = word_at(p + 4), b = word_at(p + 8), c = word_at(p + 12), six = 0x3f3f3f3f;
        const uint32_t four = 0x0f0f0f0f, top = 0x30303030;
        uint64_t s = (a & six) | (uint64_t)((c & four) | ((a >> 2) & top)) << 32;
        uint64_t z = (b & six) | (uint64_t)(((c >> 4) & four) | ((b >> 2) & top)) << 32;
        __m256 sf = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)s)));
        __m256 zf = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)z)));
        *offset = _mm256_mul_ps(half_at(p + 2), zf);
        return (sixteen){_mm256_mul_ps(half_at(p), sf)};
    }
    }
#undef AT
    __m128i s = _mm_loadu_si128((const void *)(p + 192));
    __m256 d = half_at(p + 208);
    return (sixteen){_mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(s))),
                     _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(s, 8))))};
}

// One block of four rows, at p + o * size: products added to `acc`, those of offsets to `taken`.
static inline __attribute__((always_inline)) void block_by(
    const int kind, const int g, const int zeros, const int chunks, const uint8_t *p, long size, const float *scale,
    const uint8_t *zero, long groups, long i, const packed_row *x, __m256 *acc, __m256 *taken) {
    const int centre = zeros ? -1 : kind == INT8 || kind == Q8_0 ? 7 : kind == Q6_K ? 5 : 3, fine = centre == 5;
    float by[4][16];
    sixteen xs = load256(x->scale + i / 16, 2 * chunks);
    if (!fine) xs.low = evens256(xs.low, xs.high);
    __m256 sum = _mm256_setzero_ps();
    if (zeros) sum = pairs256(load256(x->sum + i / 16, 2 * chunks));
#pragma GCC unroll 4
    for (int o = 0; o < 4; o++) {
        __m256 offset = _mm256_setzero_ps();
        sixteen s = scales_of(kind, g, zeros, chunks, p + o * size, scale + o * groups, zero + o * groups, &offset);
        // What stands beyond the last chunk counts 0 times.
        if (zeros) taken[o] = _mm256_fmadd_ps(offset, sum, taken[o]);
        _mm256_storeu_ps(by[o], _mm256_mul_ps(s.low, xs.low));
        if (fine) _mm256_storeu_ps(by[o] + 8, _mm256_mul_ps(s.high, xs.high));
    }
#pragma GCC unroll 8
    for (int c = 0; c < chunks; c++) {
        const __m256i xv = _mm256_loadu_si256((const void *)(x->q + i + 32 * c));
        const __m256i start = start256(centre, x->four + i / 4 + 8 * c);
#pragma GCC unroll 4
        for (int o = 0; o < 4; o++) {
            const uint8_t *at = p + o * size;
            if (kind == INT8 || kind == Q8_0 ? 1 : c % 2 == 0) FETCH(at + block_bytes(kind) / 8 * c);
            acc[o] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot256(centre, start, chunk256(kind, g, at, c), xv)),
                                     factor256(fine, by[o], c), acc[o]);
        }
    }
}

static inline __attribute__((always_inline)) void rows_of(
    const int kind, const int g, const int zeros, const packed_row *x, const weight *w, long row, long in, float *y) {
    const int own = kind == INT4 || kind == INT8;
    const long size = kind == INT8 ? in : kind == INT4 ? in / 2 : in / 256 * block_bytes(kind) + in % 256 / 32 * (block_bytes(kind) / 8);
    const long groups = own ? in / w->group : 0;
    const uint8_t *p = (const uint8_t *)w->data + row * size;
    const float *scale = (const float *)w->scale + row * groups;
    const uint8_t *zero = (const uint8_t *)w->zero + row * groups;
    __m256 acc[4], taken[4];
#pragma GCC unroll 4
    for (int o = 0; o < 4; o++) acc[o] = taken[o] = _mm256_setzero_ps();
    long i = 0;
    const long share = g >= 256 ? w->group : MOST(g, 1);
#define BLOCK(chunks)                                                                                     \
    block_by(kind, g, zeros, chunks, p, size, scale + (own ? i / share : 0), zero + (own ? i / share : 0), groups, i, \
             x, acc, taken)
    for (; i + 256 <= in; i += 256, p += block_bytes(kind)) BLOCK(8);
    switch ((in - i) / 64) {
    case 1: BLOCK(2); break;
    case 2: BLOCK(4); break;
    case 3: BLOCK(6); break;
    }
#undef BLOCK
#pragma GCC unroll 4
    for (int o = 0; o < 4; o++) y[o] = lanes_sum8((v8)acc[o]);
    if (zeros)
#pragma GCC unroll 4
        for (int o = 0; o < 4; o++) y[o] -= lanes_sum8((v8)taken[o]);
}

// Four rows with groups of 128 on both sides, as `wide_tile256`.
static inline __attribute__((always_inline)) void wide_rows(
    const int kind, const packed_row *x, const weight *w, long row, long in, float *y) {
    const long groups = in / 128, each = kind == INT8 ? 128 : 64, size = groups * each;
    const int centre = kind == INT8 ? 7 : 3;
    const uint8_t *p = (const uint8_t *)w->data + row * size;
    const float *scale = (const float *)w->scale + row * groups;
    __m256 acc[4];
    float by[4][8];
#pragma GCC unroll 4
    for (int o = 0; o < 4; o++) acc[o] = _mm256_setzero_ps();
    for (long g0 = 0; g0 < groups; g0 += 8) {
        const int count = (int)LEAST(8, groups - g0);
        const __m256 xs = count == 8 ? apart256(x->scale + g0 * 8, 8) : apart256(x->scale + g0 * 8, count);
#pragma GCC unroll 4
        for (int o = 0; o < 4; o++) {
            _mm_prefetch((const char *)(scale + o * groups + g0) + AHEAD / 4, _MM_HINT_T0);
            _mm256_storeu_ps(by[o], _mm256_mul_ps(load256(scale + o * groups + g0, count == 8 ? 16 : count).low, xs));
        }
        for (int g = 0; g < count; g++, p += each) {
            const long i = (g0 + g) * 128;
            const __m256i start = wide_start256(centre, x->pair + i / 8);
#pragma GCC unroll 4
            for (int o = 0; o < 4; o++) {
                __m256i wv[4];
                FETCH(p + o * size);
                if (kind == INT8) FETCH(p + o * size + 64);
#pragma GCC unroll 4
                for (int k = 0; k < 4; k++) wv[k] = chunk256(kind, 128, p + o * size, k);
                acc[o] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(wide256(centre, start, wv, x->q + i)),
                                         _mm256_broadcast_ss(by[o] + g), acc[o]);
            }
        }
    }
#pragma GCC unroll 4
    for (int o = 0; o < 4; o++) y[o] = lanes_sum8((v8)acc[o]);
}

int packed_dot_one256(int outs, const packed_row *x, const weight *w, long row, long in, float *y) {
    if (outs != 4 || in % 64) return 0;
    const int g = w->group;
    switch (w->kind) {
    case INT8:
        if (wide_of(w, in)) wide_rows(INT8, x, w, row, in, y);
        else if (g == 32) rows_of(INT8, 32, 0, x, w, row, in, y);
        else if (g == 64) rows_of(INT8, 64, 0, x, w, row, in, y);
        else if (g == 128) rows_of(INT8, 128, 0, x, w, row, in, y);
        else if (g % 256 == 0) rows_of(INT8, 256, 0, x, w, row, in, y);
        else return 0;
        return 1;
    case INT4:
        if (wide_of(w, in)) wide_rows(INT4, x, w, row, in, y);
        else if (w->zero) {
            if (g == 32) rows_of(INT4, 32, 1, x, w, row, in, y);
            else if (g == 64) rows_of(INT4, 64, 1, x, w, row, in, y);
            else if (g == 128) rows_of(INT4, 128, 1, x, w, row, in, y);
            else return 0;
        } else if (g == 32) rows_of(INT4, 32, 0, x, w, row, in, y);
        else if (g == 64) rows_of(INT4, 64, 0, x, w, row, in, y);
        else return 0;
        return 1;
    case Q4_0: rows_of(Q4_0, 0, 0, x, w, row, in, y); return 1;
    case Q4_1: rows_of(Q4_1, 0, 1, x, w, row, in, y); return 1;
    case Q8_0: rows_of(Q8_0, 0, 0, x, w, row, in, y); return 1;
    case Q4_K: rows_of(Q4_K, 0, 1, x, w, row, in, y); return 1;
    case Q6_K: rows_of(Q6_K, 0, 0, x, w, row, in, y); return 1;
    }
    return 0;
}
#endif
