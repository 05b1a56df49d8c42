// Up to four rows of x: decoding, bound by reading memory. The weight's rows are read one after another
// as one stream, with prefetches ahead of it.
#include "ahead.h"
#include "wide.h"
#include "dot.h"
#include "values.h"

#ifdef HAVE_VNNI
#define INLINE static inline __attribute__((always_inline))

INLINE __m512i wide_load(const void *x, int type, long at) {
    if (type == T_F32) return _mm512_loadu_si512((const float *)x + at);
    const __m256i half = _mm256_loadu_si256((const void *)((const uint16_t *)x + at));
    if (type == T_BF16) return _mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
    return _mm512_castps_si512(_mm512_cvtph_ps(half));
}

INLINE void quantize_groups(packed_row *row, const void *x, const int type, long at, long in, const int group) {
    for (long g = 0; g < in / group; g++) {
        __m512 v[8];
        __m512i most = _mm512_setzero_si512(), sum = most;
#pragma GCC unroll 8
        for (int i = 0; i < group / 16; i++) {
            const __m512i bits = wide_load(x, type, at + g * group + 16 * i);
            v[i] = _mm512_castsi512_ps(bits);
            // Bits of magnitudes compare as the magnitudes do; infinities and NaN come last.
            most = _mm512_max_epi32(most, _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff)));
        }
        const float largest = bits_float((uint32_t)_mm512_reduce_max_epi32(most));
        // What has no inverse becomes zero; a scale that is not finite spoils the result, as it should.
        const int usable = largest > 1e-36f && largest < INFINITY;
        const __m512 inverse = _mm512_set1_ps(usable ? 127.0f / largest : 0);
#pragma GCC unroll 8
        for (int i = 0; i < group / 16; i++) {
            const __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(v[i], inverse));
            const __m512i kept = usable ? q : _mm512_setzero_si512();
            sum = _mm512_add_epi32(sum, kept);
            _mm_storeu_si128((void *)(row->q + g * group + 16 * i), _mm512_cvtepi32_epi8(kept));
        }
        row->factor[g] = largest / 127.0f;
        row->less[g] = (uint16_t)-_mm512_reduce_add_epi32(sum);
    }
    for (long g = in / group; g % 4; g++) row->factor[g] = 0, row->less[g] = 0;
}

void quantize_wide(packed_row *row, const void *x, int type, long at, long in, int group) {
#define GROUP_OF(type) \
    if (group == 128) quantize_groups(row, x, type, at, in, 128); \
    else quantize_groups(row, x, type, at, in, 64)
    if (type == T_BF16) GROUP_OF(T_BF16);
    else if (type == T_F32) GROUP_OF(T_F32);
    else GROUP_OF(T_F16);
#undef GROUP_OF
}

// The 4 sums of 4 lanes each of every 128 bits: of a in lane 0, of b in lane 1 and so on.
INLINE __m512i sums_of_four(const __m512i *v) {
    const __m512i ab = _mm512_add_epi32(_mm512_unpacklo_epi32(v[0], v[1]), _mm512_unpackhi_epi32(v[0], v[1]));
    const __m512i cd = _mm512_add_epi32(_mm512_unpacklo_epi32(v[2], v[3]), _mm512_unpackhi_epi32(v[2], v[3]));
    return _mm512_add_epi32(_mm512_unpacklo_epi64(ab, cd), _mm512_unpackhi_epi64(ab, cd));
}

// Groups k … k + 3 of a weight row at p (`count` of them) by n rows of x.
INLINE void four_groups(const int kind, const int group, const int n, const int count, const uint8_t *p,
                        const float *scale, const uint8_t *zero, const packed_row *x, long k, __m128 *acc) {
    const long size = kind == INT8 ? group : group / 2;
    const __m512i low = _mm512_set1_epi8(15), flip = _mm512_set1_epi8((char)0x80);
    __m512i d[4][4];
#pragma GCC unroll 4
    for (int g = 0; g < 4; g++) {
        __m512i w[2];
        if (g < count) {
            const uint8_t *at = p + g * size;
            if (size > 32 || g % 2 == 0) FETCH(at);
            if (kind == INT8) {
                w[0] = _mm512_xor_si512(_mm512_loadu_si512(at), flip);
                if (group == 128) {
                    FETCH(at + 64);
                    w[1] = _mm512_xor_si512(_mm512_loadu_si512(at + 64), flip);
                }
            } else if (group == 128) {
                const __m512i v = _mm512_loadu_si512(at);
                w[0] = _mm512_and_si512(v, low);
                w[1] = _mm512_and_si512(_mm512_srli_epi16(v, 4), low);
            } else {
                const __m256i v = _mm256_loadu_si256((const void *)at);
                w[0] = _mm512_inserti64x4(_mm512_castsi256_si512(v), _mm256_srli_epi16(v, 4), 1);
                w[0] = _mm512_and_si512(w[0], low);
            }
        }
#pragma GCC unroll 4
        for (int r = 0; r < n; r++) {
            d[r][g] = _mm512_setzero_si512();
            if (g >= count) continue;
            const int8_t *q = x[r].q + (k + g) * group;
            d[r][g] = _mm512_dpbusd_epi32(d[r][g], w[0], _mm512_loadu_si512(q));
            if (group == 128) d[r][g] = _mm512_dpbusd_epi32(d[r][g], w[1], _mm512_loadu_si512(q + 64));
        }
    }
    const __mmask8 m = (__mmask8)((1 << count) - 1);
    const __m128 ws = count == 4 ? _mm_loadu_ps(scale + k) : _mm_maskz_loadu_ps(m, scale + k);
    const __m128i offset = zero ? _mm_cvtepu8_epi32(_mm_maskz_loadu_epi8(m, zero + k))
                                : _mm_set1_epi32(kind == INT8 ? 128 : 8);
#pragma GCC unroll 4
    for (int r = 0; r < n; r++) {
        const __m512i v = sums_of_four(d[r]);
        const __m256i half = _mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
        __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
        sum = _mm_dpwssd_epi32(sum, offset, _mm_loadu_si128((const void *)(x[r].less + k)));
        acc[r] = _mm_fmadd_ps(_mm_cvtepi32_ps(sum), _mm_mul_ps(ws, _mm_loadu_ps(x[r].factor + k)), acc[r]);
    }
}

INLINE void few_of(const int kind, const int group, const int n, int outs, const packed_row *x, const weight *w,
                   long row, long in, float *y) {
    const long groups = in / group, size = kind == INT8 ? group : group / 2;
    const uint8_t *p = (const uint8_t *)w->data + row * groups * size;
    const float *scale = (const float *)w->scale + row * groups;
    const uint8_t *zero = kind == INT4 && w->zero ? (const uint8_t *)w->zero + row * groups : NULL;
    for (int o = 0; o < outs; o++) {
        __m128 acc[4];
#pragma GCC unroll 4
        for (int r = 0; r < n; r++) acc[r] = _mm_setzero_ps();
        long k = 0;
        for (; k + 4 <= groups; k += 4, p += 4 * size) {
            if (k % 16 == 0) _mm_prefetch((const char *)(scale + k) + AHEAD * 4 / size, HINT); // a slower stream
            four_groups(kind, group, n, 4, p, scale, zero, x, k, acc);
        }
        if (k < groups) {
            four_groups(kind, group, n, (int)(groups - k), p, scale, zero, x, k, acc);
            p += (groups - k) * size;
        }
        scale += groups;
        if (zero) zero += groups;
#pragma GCC unroll 4
        for (int r = 0; r < n; r++) {
            const __m128 two = _mm_add_ps(acc[r], _mm_movehl_ps(acc[r], acc[r]));
            y[r * TILE_OUTS + o] = _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
        }
    }
}

#define FEW(name, kind, group)                                                                             \
    static void name(int n, int outs, const packed_row *x, const weight *w, long row, long in, float *y) { \
        switch (n) {                                                                                       \
        case 1: few_of(kind, group, 1, outs, x, w, row, in, y); break;                                     \
        case 2: few_of(kind, group, 2, outs, x, w, row, in, y); break;                                     \
        case 3: few_of(kind, group, 3, outs, x, w, row, in, y); break;                                     \
        default: few_of(kind, group, 4, outs, x, w, row, in, y);                                           \
        }                                                                                                  \
    }
FEW(few_int8_128, INT8, 128)
FEW(few_int8_64, INT8, 64)
FEW(few_int4_128, INT4, 128)
FEW(few_int4_64, INT4, 64)

void wide_few(int rows, int outs, const packed_row *x, const weight *w, long row, long in, float *y) {
    if (w->kind == INT8) (w->group == 128 ? few_int8_128 : few_int8_64)(rows, outs, x, w, row, in, y);
    else (w->group == 128 ? few_int4_128 : few_int4_64)(rows, outs, x, w, row, in, y);
}
#endif
