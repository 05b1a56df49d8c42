// Tiles of packed weight rows by rows of x, and unpacking, at 256 bits.
#include "packed256.h"

#ifdef HAVE_256
static inline __attribute__((always_inline)) void bytes_of(const int kind, const int g, const uint8_t *p, long in,
                                                          const int step, const long size, uint8_t *u) {
    for (long i = 0; i < in; i += step, p += size)
#pragma GCC unroll 8
        for (int c = 0; c < step / 32; c++) {
            __m256i v = chunk256(kind, g, p, c);
            if (kind == INT8 || kind == Q8_0) v = flip256(v);
            _mm256_storeu_si256((void *)(u + i + 32 * c), v);
        }
}

// The bytes of a row; 0 where its shape has no loop here.
int unpack_bytes256(const weight *w, long row, long in, uint8_t *u) {
    const uint8_t *p = w->data;
    if (in % 32) return 0;
    switch (w->kind) {
    case INT8: bytes_of(INT8, 0, p + row * in, in, 32, 32, u); return 1;
    case INT4:
        p += row * (in / 2);
        if (w->group == 32) bytes_of(INT4, 32, p, in, 32, 16, u);
        else if (w->group == 64) bytes_of(INT4, 64, p, in, 64, 32, u);
        else if (w->group == 128) bytes_of(INT4, 128, p, in, 128, 64, u);
        else return 0;
        return 1;
    case Q4_0: bytes_of(Q4_0, 0, p + row * (in / 32 * 18), in, 32, 18, u); return 1;
    case Q4_1: bytes_of(Q4_1, 0, p + row * (in / 32 * 20), in, 32, 20, u); return 1;
    case Q8_0: bytes_of(Q8_0, 0, p + row * (in / 32 * 34), in, 32, 34, u); return 1;
    case Q4_K: bytes_of(Q4_K, 0, p + row * (in / 256 * 144), in, 256, 144, u); return 1;
    case Q6_K: bytes_of(Q6_K, 0, p + row * (in / 256 * 210), in, 256, 210, u); return 1;
    }
    return 0;
}

static inline __attribute__((always_inline)) __m256i panel256(const int centre, const uint8_t *u) {
    __m256i v = _mm256_loadu_si256((const void *)u);
    return centre == 7 ? flip256(v) : v;
}

static inline __attribute__((always_inline)) void tile256(
    const int rows, const int outs, const packed_row *x, const unpacked *w, const int centre, long in, float *y) {
    const int fine = centre == 5; // Q6_K: scales of 16 elements
    const long n = packed_length(in);
    __m256 acc[PACKED_ROWS][TILE256];
    float by[PACKED_ROWS][TILE256][16];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int o = 0; o < outs; o++) acc[r][o] = _mm256_setzero_ps();
    for (long i0 = 0; i0 < n; i0 += 256) {
        const int count = (int)LEAST(256, n - i0) / 16;
        sixteen ws[TILE256];
#pragma GCC unroll 8
        for (int o = 0; o < outs; o++) {
            ws[o] = load256(w[o].scale + i0 / 16, count);
            if (!fine) ws[o].low = evens256(ws[o].low, ws[o].high);
        }
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            sixteen xs = load256(x[r].scale + i0 / 16, count);
            if (!fine) xs.low = evens256(xs.low, xs.high);
#pragma GCC unroll 8
            for (int o = 0; o < outs; o++) {
                _mm256_storeu_ps(by[r][o], _mm256_mul_ps(ws[o].low, xs.low));
                if (fine) _mm256_storeu_ps(by[r][o] + 8, _mm256_mul_ps(ws[o].high, xs.high));
            }
        }
        for (int c = 0; c < count / 2; c++) {
            const long i = i0 + 32 * c;
            __m256i wv[TILE256];
#pragma GCC unroll 8
            for (int o = 0; o < outs; o++) wv[o] = panel256(centre, w[o].u + i);
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) {
                const __m256i xv = _mm256_loadu_si256((const void *)(x[r].q + i));
                const __m256i start = start256(centre, x[r].four + i / 4);
#pragma GCC unroll 8
                for (int o = 0; o < outs; o++)
                    acc[r][o] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot256(centre, start, wv[o], xv)),
                                                factor256(fine, by[r][o], c), acc[r][o]);
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int o = 0; o < outs; o++) y[r * TILE_OUTS + o] = lanes_sum8((v8)acc[r][o]);
    if (centre >= 0) return;
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int o = 0; o < outs; o++) acc[r][o] = _mm256_setzero_ps();
    for (long i0 = 0; i0 < n; i0 += 256) {
        const int count = (int)LEAST(256, n - i0) / 16;
        __m256 z[TILE256];
#pragma GCC unroll 8
        for (int o = 0; o < outs; o++) {
            sixteen v = load256(w[o].offset + i0 / 16, count);
            z[o] = evens256(v.low, v.high);
        }
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            const __m256 sum = pairs256(load256(x[r].sum + i0 / 16, count));
#pragma GCC unroll 8
            for (int o = 0; o < outs; o++) acc[r][o] = _mm256_fmadd_ps(z[o], sum, acc[r][o]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int o = 0; o < outs; o++) y[r * TILE_OUTS + o] -= lanes_sum8((v8)acc[r][o]);
}

// Groups of 128 on both sides: one scaled sum for every 128 elements.
static inline __attribute__((always_inline)) void wide_tile256(
    const int rows, const int outs, const packed_row *x, const unpacked *w, const int centre, long in, float *y) {
    const long groups = in / 128;
    __m256 acc[PACKED_ROWS][TILE256];
    float by[PACKED_ROWS][TILE256][8];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int o = 0; o < outs; o++) acc[r][o] = _mm256_setzero_ps();
    for (long g0 = 0; g0 < groups; g0 += 8) {
        const int count = (int)LEAST(8, groups - g0);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            const __m256 xs = count == 8 ? apart256(x[r].scale + g0 * 8, 8) : apart256(x[r].scale + g0 * 8, count);
#pragma GCC unroll 8
            for (int o = 0; o < outs; o++)
                _mm256_storeu_ps(by[r][o], _mm256_mul_ps(load256(w[o].scale + g0, count == 8 ? 16 : count).low, xs));
        }
        for (int g = 0; g < count; g++) {
            const long i = (g0 + g) * 128;
            __m256i start[PACKED_ROWS];
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) start[r] = wide_start256(centre, x[r].pair + i / 8);
#pragma GCC unroll 8
            for (int o = 0; o < outs; o++) {
                __m256i wv[4];
#pragma GCC unroll 8
                for (int k = 0; k < 4; k++) wv[k] = panel256(centre, w[o].u + i + 32 * k);
#pragma GCC unroll 8
                for (int r = 0; r < rows; r++)
                    acc[r][o] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(wide256(centre, start[r], wv, x[r].q + i)),
                                                _mm256_broadcast_ss(by[r][o] + g), acc[r][o]);
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
        for (int o = 0; o < outs; o++) y[r * TILE_OUTS + o] = lanes_sum8((v8)acc[r][o]);
}

#define ROWS_OF(tile, outs, ...)               \
    switch (rows) {                            \
    case 1: tile(1, outs, __VA_ARGS__); break; \
    case 2: tile(2, outs, __VA_ARGS__); break; \
    case 3: tile(3, outs, __VA_ARGS__); break; \
    default: tile(4, outs, __VA_ARGS__);       \
    }
#define OUTS_OF(tile, ...)                            \
    do {                                              \
        if (many == 2) ROWS_OF(tile, 2, __VA_ARGS__)  \
        else ROWS_OF(tile, 1, __VA_ARGS__)            \
    } while (0)

void packed_dot256(int rows, int outs, const packed_row *x, const unpacked *w, int centre, int wide, long in, float *y) {
    for (int o = 0; o < outs; o += TILE256, w += TILE256, y += TILE256) {
        const int many = (int)LEAST(TILE256, outs - o);
        if (wide && centre == 3) OUTS_OF(wide_tile256, x, w, 3, in, y);
        else if (wide) OUTS_OF(wide_tile256, x, w, 7, in, y);
        else if (centre < 0) OUTS_OF(tile256, x, w, -1, in, y);
        else if (centre == 3) OUTS_OF(tile256, x, w, 3, in, y);
        else if (centre == 5) OUTS_OF(tile256, x, w, 5, in, y);
        else OUTS_OF(tile256, x, w, 7, in, y);
    }
}
#endif
