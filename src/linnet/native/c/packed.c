#include "packed.h"
#include "dot.h"
#include "packed256.h"

#ifdef HAVE_VNNI
#define SPREAD(v) _mm512_permutexvar_ps(spread, _mm512_castps128_ps512(_mm_loadu_ps(v)))
#define SPREAD_INDEX _mm512_set_epi32(3, 3, 3, 3, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0)
#endif

void quantize_row(packed_row *row, const void *x, int type, long at, long in, int group) {
    long n = packed_length(in);
    for (long g = 0; g < n; g += group) {
        float v[128];
        long count = in - g < 0 ? 0 : LEAST(in - g, group);
        const long size = LEAST(group, n - g);
        if (type == T_BF16) for (long i = 0; i < count; i++) v[i] = from_bf16(((const bf16 *)x)[at + g + i]);
        else if (type == T_F32) for (long i = 0; i < count; i++) v[i] = ((const float *)x)[at + g + i];
        else for (long i = 0; i < count; i++) v[i] = (float)((const f16 *)x)[at + g + i];
        for (long i = count; i < size; i++) v[i] = 0;
        float most = 0;
#pragma omp simd reduction(max : most)
        for (long i = 0; i < size; i++) most = MOST(most, fabsf(v[i]));
        float scale = most / 127.0f, inverse = most > 0 ? 127.0f / most : 0;
        int8_t *restrict q = row->q + g;
        // Adding and taking off 1.5 * 2^23 rounds to the nearest integer.
        for (long i = 0; i < size; i++) q[i] = (int8_t)(int)((v[i] * inverse + 12582912.0f) - 12582912.0f);
        int32_t *restrict four = row->four + g / 4;
        for (long i = 0; i < size / 4; i++) four[i] = -(q[4 * i] + q[4 * i + 1] + q[4 * i + 2] + q[4 * i + 3]);
        for (long i = 0; i < size / 16; i++) {
            int sum = four[4 * i] + four[4 * i + 1] + four[4 * i + 2] + four[4 * i + 3];
            row->scale[g / 16 + i] = scale;
            row->sum[g / 16 + i] = -scale * (float)sum;
        }
        if (group == 128)
            for (int i = 0; i < 16; i++) row->pair[g / 8 + i] = four[i] + four[16 + i];
    }
}

static float half_at(const uint8_t *p) {
    f16 h;
    memcpy(&h, p, 2);
    return (float)h;
}

static void fill2(float *p, float value) { p[0] = p[1] = value; }

static void k4_scale(const uint8_t *s, int j, int *scale, int *least) {
    if (j < 4) {
        *scale = s[j] & 63;
        *least = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | ((s[j - 4] >> 6) << 4);
        *least = (s[j + 4] >> 4) | ((s[j] >> 6) << 4);
    }
}

// Formats: INT8 and INT4 as native/packed layouts state them; the others are GGUF's blocks.
void unpack(const weight *w, long row, long in, unpacked *to) {
    uint8_t *restrict u = to->u;
    float *restrict s = to->scale, *restrict z = to->offset;
    long g = w->group;
    int bytes = 1; // still to be unpacked
#ifdef HAVE_256
    bytes = !unpack_bytes256(w, row, in, u);
    if (wide_of(w, in)) { // a scale for each group
        memcpy(s, (const float *)w->scale + row * (in / 128), in / 128 * 4);
        return;
    }
#endif
    switch (w->kind) {
    case INT8: {
        const int8_t *p = (const int8_t *)w->data + row * in;
        const float *scale = (const float *)w->scale + row * (in / g);
        for (long i = 0; bytes && i < in; i++) u[i] = (uint8_t)p[i] ^ 0x80;
        for (long i = 0; i < in / 16; i++) {
            s[i] = scale[i * 16 / g];
            z[i] = 128.0f * s[i];
        }
        break;
    }
    case INT4: {
        const uint8_t *p = (const uint8_t *)w->data + row * (in / 2);
        const float *scale = (const float *)w->scale + row * (in / g);
        const uint8_t *zero = w->zero ? (const uint8_t *)w->zero + row * (in / g) : NULL;
        for (long k = 0; k < in / g; k++) {
            for (long i = 0; bytes && i < g / 2; i++) {
                u[k * g + i] = p[k * (g / 2) + i] & 15;
                u[k * g + g / 2 + i] = p[k * (g / 2) + i] >> 4;
            }
            float offset = scale[k] * (zero ? (float)zero[k] : 8.0f);
            for (long i = 0; i < g / 16; i++) {
                s[k * (g / 16) + i] = scale[k];
                z[k * (g / 16) + i] = offset;
            }
        }
        break;
    }
    case Q4_0:
    case Q4_1: {
        long size = w->kind == Q4_0 ? 18 : 20;
        const uint8_t *p = (const uint8_t *)w->data + row * (in / 32) * size;
        for (long k = 0; k < in / 32; k++, p += size) {
            float d = half_at(p);
            const uint8_t *q = p + size - 16;
            for (int i = 0; bytes && i < 16; i++) {
                u[k * 32 + i] = q[i] & 15;
                u[k * 32 + 16 + i] = q[i] >> 4;
            }
            fill2(s + k * 2, d);
            fill2(z + k * 2, w->kind == Q4_0 ? 8.0f * d : -half_at(p + 2));
        }
        break;
    }
    case Q8_0: {
        const uint8_t *p = (const uint8_t *)w->data + row * (in / 32) * 34;
        for (long k = 0; k < in / 32; k++, p += 34) {
            float d = half_at(p);
            for (int i = 0; bytes && i < 32; i++) u[k * 32 + i] = p[2 + i] ^ 0x80;
            fill2(s + k * 2, d);
            fill2(z + k * 2, 128.0f * d);
        }
        break;
    }
    case Q4_K: {
        const uint8_t *p = (const uint8_t *)w->data + row * (in / 256) * 144;
        for (long k = 0; k < in / 256; k++, p += 144) {
            float d = half_at(p), dmin = half_at(p + 2);
            for (int j = 0; j < 8; j++) {
                int scale, least;
                k4_scale(p + 4, j, &scale, &least);
                const uint8_t *q = p + 16 + j / 2 * 32;
                for (int i = 0; bytes && i < 32; i++) u[k * 256 + j * 32 + i] = j & 1 ? q[i] >> 4 : q[i] & 15;
                fill2(s + k * 16 + j * 2, d * scale);
                fill2(z + k * 16 + j * 2, dmin * least);
            }
        }
        break;
    }
    case Q6_K: {
        const uint8_t *p = (const uint8_t *)w->data + row * (in / 256) * 210;
        for (long k = 0; k < in / 256; k++, p += 210) {
            float d = half_at(p + 208);
            for (int half = 0; bytes && half < 2; half++) {
                const uint8_t *low = p + half * 64, *high = p + 128 + half * 32;
                uint8_t *out = u + k * 256 + half * 128;
                for (int l = 0; l < 32; l++) {
                    out[l] = (low[l] & 15) | ((high[l] & 3) << 4);
                    out[l + 32] = (low[l + 32] & 15) | (((high[l] >> 2) & 3) << 4);
                    out[l + 64] = (low[l] >> 4) | (((high[l] >> 4) & 3) << 4);
                    out[l + 96] = (low[l + 32] >> 4) | ((high[l] >> 6) << 4);
                }
            }
            for (int i = 0; i < 16; i++) {
                s[k * 16 + i] = d * ((const int8_t *)p)[192 + i];
                z[k * 16 + i] = 32.0f * s[k * 16 + i];
            }
        }
        break;
    }
    }
    for (long i = in; i < packed_length(in); i++) u[i] = 0;
    for (long i = in / 16; i < packed_length(in) / 16; i++) s[i] = z[i] = 0;
}

void unpack_row(const weight *w, long row, long in, float *to) {
    char *memory = malloc(unpacked_bytes(in));
    unpacked part = unpacked_at(memory, in);
    unpack(w, row, in, &part);
    if (w->kind == INT8 || (w->kind == INT4 && !w->zero)) { // exact before the scale
        const float centre = w->kind == INT8 ? 128.0f : 8.0f;
#ifdef HAVE_256
        const long each = wide_of(w, in) ? 128 : 16;
#else
        const long each = 16;
#endif
        for (long i = 0; i < in; i++) to[i] = part.scale[i / each] * ((float)part.u[i] - centre);
        free(memory);
        return;
    }
    for (long i = 0; i < in; i++) to[i] = part.scale[i / 16] * part.u[i] - part.offset[i / 16];
    free(memory);
}

static inline __attribute__((always_inline)) float offsets(const float *a, const float *b, long n) {
    v16 acc = {0};
    long i = 0;
#ifdef HAVE_VNNI
    // Fused by name, as in the loops of one row: a compiler may or may not fuse `a * b + c`.
    for (; i + 16 <= n; i += 16)
        acc = (v16)_mm512_fmadd_ps(_mm512_loadu_ps(a + i), _mm512_loadu_ps(b + i), (__m512)acc);
    const __mmask16 m = (__mmask16)((1 << (n - i)) - 1);
    acc = (v16)_mm512_fmadd_ps(_mm512_maskz_loadu_ps(m, a + i), _mm512_maskz_loadu_ps(m, b + i), (__m512)acc);
#else
    for (; i + 16 <= n; i += 16) acc += *(const v16 *)(a + i) * *(const v16 *)(b + i);
    float rest[16] = {0};
    for (long j = 0; i + j < n; j++) rest[j] = a[i + j] * b[i + j];
    acc += *(v16 *)rest;
#endif
    return lanes_sum(acc);
}

static inline __attribute__((always_inline)) void packed_tile(
    const int rows, const int outs, const packed_row *x, const unpacked *w, const int centre, long in, float *y) {
    long n = packed_length(in);
    v16 acc[PACKED_ROWS][TILE_OUTS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int o = 0; o < outs; o++) acc[r][o] = (v16){0};
#ifdef HAVE_VNNI
    const __m512i spread = SPREAD_INDEX;
    for (long i = 0; i < n; i += 64) {
        __m512i wv[TILE_OUTS];
        __m512 ws[TILE_OUTS];
#pragma GCC unroll 8
        for (int o = 0; o < outs; o++) {
            wv[o] = _mm512_loadu_si512(w[o].u + i);
            ws[o] = SPREAD(w[o].scale + i / 16);
        }
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            __m512i xv = _mm512_loadu_si512(x[r].q + i);
            __m512i start = centre < 0 ? _mm512_setzero_si512()
                                       : _mm512_slli_epi32(_mm512_loadu_si512(x[r].four + i / 4), centre);
            __m512 xs = SPREAD(x[r].scale + i / 16);
#pragma GCC unroll 8
            for (int o = 0; o < outs; o++) {
                __m512i d = _mm512_dpbusd_epi32(start, wv[o], xv);
                acc[r][o] = (v16)_mm512_fmadd_ps(_mm512_cvtepi32_ps(d), _mm512_mul_ps(ws[o], xs),
                                                 (__m512)acc[r][o]);
            }
        }
    }
#else
    for (long i = 0; i < n; i += 64)
        for (int r = 0; r < rows; r++)
            for (int o = 0; o < outs; o++) {
                const int8_t *q = x[r].q + i;
                const uint8_t *u = w[o].u + i;
                float lane[16];
                for (int l = 0; l < 16; l++) {
                    int d = centre < 0 ? 0 : x[r].four[i / 4 + l] * (1 << centre);
                    for (int j = 0; j < 4; j++) d += u[4 * l + j] * q[4 * l + j];
                    lane[l] = (float)d * (w[o].scale[i / 16 + l / 4] * x[r].scale[i / 16 + l / 4]);
                }
                acc[r][o] += *(v16 *)lane;
            }
#endif
    tile_sums(rows, outs, acc, y);
    if (centre < 0)
        for (int r = 0; r < rows; r++)
            for (int o = 0; o < outs; o++) y[r * TILE_OUTS + o] -= offsets(w[o].offset, x[r].sum, n / 16);
}

#define ROWS_OF(tile, ...)               \
    switch (rows) {                      \
    case 1: tile(1, __VA_ARGS__); break; \
    case 2: tile(2, __VA_ARGS__); break; \
    case 3: tile(3, __VA_ARGS__); break; \
    default: tile(4, __VA_ARGS__);       \
    }

void packed_dot(int rows, int outs, const packed_row *x, const unpacked *w, int centre, int wide, long in,
                float *y) {
#ifdef HAVE_256
    packed_dot256(rows, outs, x, w, centre, wide, in, y);
    return;
#endif
    if (outs == TILE_OUTS) {
        if (centre < 0) ROWS_OF(packed_tile, TILE_OUTS, x, w, -1, in, y)
        else if (centre == 7) ROWS_OF(packed_tile, TILE_OUTS, x, w, 7, in, y)
        else ROWS_OF(packed_tile, TILE_OUTS, x, w, centre, in, y)
        return;
    }
    for (int o = 0; o < outs; o++)
        for (int r = 0; r < rows; r++) {
            float part[TILE_OUTS];
            packed_tile(1, 1, x + r, w + o, centre, in, part);
            y[r * TILE_OUTS + o] = part[0];
        }
}
