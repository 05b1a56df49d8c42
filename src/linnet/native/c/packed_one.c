// Packed weight rows by one quantized row of x, straight from the stored bytes.
//
// Decoding is bound by reading memory, so the rows are read one after another as one stream, with
// prefetches ahead of it. Sums are those of `packed_tile` in packed.c, bit for bit:
// lanes, scales and offsets are taken in the same order.
#include "ahead.h"
#include "dot.h"
#include "packed256.h"
#include "wide.h"

#ifdef HAVE_VNNI

#define LOW _mm512_set1_epi8(15)
#define PAIRS _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0)

// Two pieces of 16 bytes of nibbles as 64 bytes: low and high of the first, then of the second.
static inline __m512i nibbles16(const uint8_t *a, const uint8_t *b) {
    __m256i first = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)a));
    __m256i second = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)b));
    const __m512i by = _mm512_set_epi64(0x4000400040004, 0x4000400040004, 0, 0, 0x4000400040004, 0x4000400040004, 0, 0);
    __m512i v = _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
    return _mm512_and_si512(_mm512_srlv_epi16(v, by), LOW);
}

// 32 bytes of nibbles as 64 bytes, the low ones first.
static inline __m512i nibbles32(const uint8_t *p) {
    __m256i b = _mm256_loadu_si256((const void *)p);
    return _mm512_and_si512(_mm512_inserti64x4(_mm512_castsi256_si512(b), _mm256_srli_epi16(b, 4), 1), LOW);
}

// Bytes of one block of 256 elements, or of a shorter last one, in the format's own layout.
static inline __attribute__((always_inline)) long block_bytes(const int kind, long n) {
    switch (kind) {
    case INT8: return n;
    case INT4: return n / 2;
    case Q4_0: return n / 32 * 18;
    case Q4_1: return n / 32 * 20;
    case Q8_0: return n / 32 * 34;
    case Q4_K: return 144;
    default: return 210;
    }
}

// Elements 64 c … 64 c + 63 of the block at p, as `unpack` gives them.
static inline __attribute__((always_inline)) __m512i bytes_of(const int kind, const int g, const uint8_t *p, const int c) {
    const __m512i flip = _mm512_set1_epi8((char)0x80);
    if (kind == INT8) return _mm512_xor_si512(_mm512_loadu_si512(p + 64 * c), flip);
    if (kind == INT4) return nibbles16(p + 32 * c, p + 32 * c + 16);
    if (kind == Q4_0) return nibbles16(p + 36 * c + 2, p + 36 * c + 20);
    if (kind == Q4_1) return nibbles16(p + 40 * c + 4, p + 40 * c + 24);
    if (kind == Q8_0) {
        __m512i v = _mm512_castsi256_si512(_mm256_loadu_si256((const void *)(p + 68 * c + 2)));
        return _mm512_xor_si512(_mm512_inserti64x4(v, _mm256_loadu_si256((const void *)(p + 68 * c + 36)), 1), flip);
    }
    if (kind == Q4_K) return nibbles32(p + 16 + 32 * c);
    // Q6_K: four bits in ql, two more in qh.
    const __m512i two = _mm512_set1_epi8(0x30);
    const __m256i half = _mm256_loadu_si256((const void *)(p + 128 + c / 2 * 32));
    const __m512i high = _mm512_inserti64x4(_mm512_castsi256_si512(half), half, 1);
    __m512i low = _mm512_loadu_si512(p + c / 2 * 64);
    if (c & 1) {
        const __m512i by = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(2), 1);
        return _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi16(low, 4), LOW),
                               _mm512_and_si512(_mm512_srlv_epi16(high, by), two));
    }
    const __m512i by = _mm512_inserti64x4(_mm512_set1_epi16(4), _mm256_set1_epi16(2), 1);
    return _mm512_or_si512(_mm512_and_si512(low, LOW), _mm512_and_si512(_mm512_sllv_epi16(high, by), two));
}

// A value for every 16 elements from one for every `g`, 32 or at least 256.
static inline __attribute__((always_inline)) __m512 by_group(const int g, __m512 v) {
    return _mm512_permutexvar_ps(g == 32 ? PAIRS : _mm512_setzero_si512(), v);
}

static inline uint32_t word_at(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}
static inline __m512 half_at(const uint8_t *p) {
    f16 h;
    memcpy(&h, p, 2);
    return _mm512_set1_ps((float)h);
}

// Scale and, where `offset` is wanted, offset for every 16 elements of the block at p, which has
// `chunks` times 64 elements. `group` counts the groups before it.
static inline __attribute__((always_inline)) __m512 scales_of(
    const int kind, const int g, const int chunks, const uint8_t *p, const float *scale, const uint8_t *zero,
    long group, __m512 *offset) {
    if (kind == INT8 || kind == INT4) {
        const int count = g >= 256 ? 1 : (chunks * 64 + g - 1) / g;
        const __mmask16 m = (__mmask16)((1 << count) - 1);
        __m512 s = _mm512_maskz_loadu_ps(m, scale + group);
        _mm_prefetch((const char *)(scale + group) + AHEAD / 6, HINT); // a slower stream beside
        if (zero) {
            __m128i z = _mm_maskz_loadu_epi8(m, zero + group);
            *offset = by_group(g, _mm512_mul_ps(s, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(z))));
        }
        return by_group(g, s);
    }
    if (kind == Q4_0 || kind == Q8_0 || kind == Q4_1) {
        const long step = kind == Q4_0 ? 18 : kind == Q8_0 ? 34 : 20;
#define AT(k) (2 * chunks > (k) ? p + (k) * step : p)
        if (kind == Q4_1) {
            __m128i a = _mm_set_epi32(word_at(AT(3)), word_at(AT(2)), word_at(AT(1)), word_at(AT(0)));
            __m128i b = _mm_set_epi32(word_at(AT(7)), word_at(AT(6)), word_at(AT(5)), word_at(AT(4)));
            __m512 both = _mm512_cvtph_ps(_mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1));
            const __m512i even = _mm512_set_epi32(14, 14, 12, 12, 10, 10, 8, 8, 6, 6, 4, 4, 2, 2, 0, 0);
            const __m512i odd = _mm512_or_si512(even, _mm512_set1_epi32(1));
            *offset = _mm512_sub_ps(_mm512_set1_ps(-0.0f), _mm512_permutexvar_ps(odd, both));
            return _mm512_permutexvar_ps(even, both);
        }
#define HALF(k) (short)(word_at(AT(k)) & 0xffff)
        __m128i v = _mm_set_epi16(HALF(7), HALF(6), HALF(5), HALF(4), HALF(3), HALF(2), HALF(1), HALF(0));
        return _mm512_permutexvar_ps(PAIRS, _mm512_castps256_ps512(_mm256_cvtph_ps(v)));
    }
    if (kind == Q4_K) { // eight scales and eight offsets of six bits in twelve bytes
        const uint32_t a = word_at(p + 4), b = word_at(p + 8), c = word_at(p + 12), six = 0x3f3f3f3f;
        const uint32_t four = 0x0f0f0f0f, top = 0x30303030;
        uint64_t s = (a & six) | (uint64_t)((c & four) | ((a >> 2) & top)) << 32;
        uint64_t z = (b & six) | (uint64_t)(((c >> 4) & four) | ((b >> 2) & top)) << 32;
        __m512 both = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_set_epi64x((long long)z, (long long)s)));
        const __m512i other = _mm512_add_epi32(PAIRS, _mm512_set1_epi32(8));
        *offset = _mm512_mul_ps(half_at(p + 2), _mm512_permutexvar_ps(other, both));
        return _mm512_mul_ps(half_at(p), _mm512_permutexvar_ps(PAIRS, both));
    }
    __m128i s = _mm_loadu_si128((const void *)(p + 192));
    return _mm512_mul_ps(half_at(p + 208), _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(s)));
}

// One block: its products added to `acc`, those of its offsets to `taken`.
static inline __attribute__((always_inline)) void block_by(
    const int kind, const int g, const int zeros, const int chunks, const uint8_t *p, const float *scale,
    const uint8_t *zero, long i, const packed_row *x, __m512 *acc, __m512 *taken) {
    const int centre = zeros ? -1 : kind == INT8 || kind == Q8_0 ? 7 : kind == Q6_K ? 5 : 3;
    const __mmask16 m = (__mmask16)(chunks == 4 ? 0xffff : (1 << chunks * 4) - 1);
    __m512 offset = _mm512_setzero_ps();
    __m512 s = scales_of(kind, g, chunks, p, scale, zeros ? zero : NULL, g ? i / g : 0, &offset);
    if (zeros) {
        __m512 sums = _mm512_maskz_loadu_ps(m, x->sum + i / 16);
        *taken = _mm512_fmadd_ps(_mm512_maskz_mov_ps(m, offset), sums, *taken);
    }
    s = _mm512_mul_ps(s, _mm512_maskz_loadu_ps(m, x->scale + i / 16));
#pragma GCC unroll 4
    for (int c = 0; c < chunks; c++) {
        FETCH(p + block_bytes(kind, 256) / 4 * c);
        __m512i start = centre < 0 ? _mm512_setzero_si512()
                                   : _mm512_slli_epi32(_mm512_loadu_si512(x->four + (i + c * 64) / 4), MOST(centre, 0));
        __m512i d = _mm512_dpbusd_epi32(start, bytes_of(kind, g, p, c), _mm512_loadu_si512(x->q + i + c * 64));
        const __m512i of = _mm512_add_epi32(
            _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0), _mm512_set1_epi32(4 * c));
        *acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(d), _mm512_permutexvar_ps(of, s), *acc);
    }
}

// Four rows, one after another.
static inline __attribute__((always_inline)) void rows_of(
    const int kind, const int g, const int zeros, const packed_row *x, const weight *w, long row, long in, float *y) {
    __m512 acc[4], taken[4];
    const long size = block_bytes(kind, kind == Q4_K || kind == Q6_K ? 256 : in) *
                      (kind == Q4_K || kind == Q6_K ? in / 256 : 1);
    const long groups = kind == INT4 || kind == INT8 ? in / w->group : 0;
#pragma GCC unroll 4
    for (int o = 0; o < 4; o++) {
        const uint8_t *p = (const uint8_t *)w->data + (row + o) * size;
        const float *scale = (const float *)w->scale + (row + o) * groups;
        const uint8_t *zero = (const uint8_t *)w->zero + (row + o) * groups;
        __m512 a = _mm512_setzero_ps(), t = _mm512_setzero_ps();
        long i = 0;
        if (kind == INT8 && g >= 256) { // long groups: i / g with g as it is
            for (; i + 256 <= in; i += 256, p += 256)
                block_by(kind, g, zeros, 4, p, scale + i / w->group, zero, 0, &(packed_row){
                    x->q + i, x->scale + i / 16, x->sum + i / 16, x->four + i / 4, NULL}, &a, &t);
        } else {
            for (; i + 256 <= in; i += 256, p += block_bytes(kind, 256))
                block_by(kind, g, zeros, 4, p, scale, zero, i, x, &a, &t);
            switch ((in - i) / 64) {
            case 1: block_by(kind, g, zeros, 1, p, scale, zero, i, x, &a, &t); break;
            case 2: block_by(kind, g, zeros, 2, p, scale, zero, i, x, &a, &t); break;
            case 3: block_by(kind, g, zeros, 3, p, scale, zero, i, x, &a, &t); break;
            }
        }
        acc[o] = a, taken[o] = t;
    }
    v4 sum = lanes_sum4((v16)acc[0], (v16)acc[1], (v16)acc[2], (v16)acc[3]);
    if (zeros) sum -= lanes_sum4((v16)taken[0], (v16)taken[1], (v16)taken[2], (v16)taken[3]);
    *(v4 *)y = sum;
}

#endif

int packed_dot_few(int rows, int outs, const packed_row *x, const weight *w, long row, long in, float *y) {
#ifdef HAVE_VNNI
    if (wide_of(w, in)) {
        wide_few(rows, outs, x, w, row, in, y);
        return 1;
    }
    if (rows != 1 || outs != 4 || in % 64) return 0;
    const int g = w->group;
    switch (w->kind) {
    case INT8:
        if (g == 32) rows_of(INT8, 32, 0, x, w, row, in, y);
        else if (g % 256 == 0) rows_of(INT8, 256, 0, x, w, row, in, y);
        else return 0;
        return 1;
    case INT4:
        if (g != 32) return 0;
        if (w->zero) rows_of(INT4, 32, 1, x, w, row, in, y);
        else rows_of(INT4, 32, 0, x, w, row, in, y);
        return 1;
    case Q4_0: rows_of(Q4_0, 0, 0, x, w, row, in, y); return 1;
    case Q4_1: rows_of(Q4_1, 0, 1, x, w, row, in, y); return 1;
    case Q8_0: rows_of(Q8_0, 0, 0, x, w, row, in, y); return 1;
    case Q4_K: rows_of(Q4_K, 0, 1, x, w, row, in, y); return 1;
    case Q6_K: rows_of(Q6_K, 0, 0, x, w, row, in, y); return 1;
    }
#elif defined(HAVE_256)
    return rows == 1 && packed_dot_one256(outs, x, w, row, in, y);
#endif
    (void)rows, (void)outs, (void)x, (void)w, (void)row, (void)in, (void)y;
    return 0;
}
