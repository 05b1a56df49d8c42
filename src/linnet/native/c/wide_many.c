// Many rows of x: prompts and batches, bound by arithmetic. Weight rows are turned, sixteen at a time,
// so that outputs lie along the lanes: a group's sums then need no adding across lanes, and one scale
// a lane is one multiplication for sixteen outputs.
#include "wide.h"
#include "dot.h"
#include "row.h"
#include "turn.h"
#include "values.h"

#ifdef HAVE_VNNI
#define INLINE static inline __attribute__((always_inline))
#define WIDE_ROWS 6 // rows of one tile: its sums, two weights and a part of x are 15 registers
#define LANES 16

// By name: GCC copies the sum before and after the intrinsic, which takes half of the speed.
#define ADD_PRODUCTS(sum, w, x) __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x))

// 16 weight rows turned: for four bytes of a row after another, those of all rows; scales and
// offsets of a group after another likewise.
typedef struct panel {
    uint8_t *bytes;  // as stored (INT8: plus 128)
    float *scale;
    int32_t *offset; // multiples of the scale
} panel;

static size_t panel_bytes(const weight *w, long in) {
    return LANES * (row_bytes(w, 0, in) + 8 * (in / w->group));
}
size_t wide_bytes(const weight *w, long in) { return WIDE_OUTS / LANES * panel_bytes(w, in); }

static panel panel_at(char *memory, const weight *w, long in) {
    char *scale = memory + LANES * row_bytes(w, 0, in);
    return (panel){(uint8_t *)memory, (float *)scale, (int32_t *)(scale + LANES * 4 * (in / w->group))};
}

// 64 bytes from i of each row, or the last 32 (`words` of four bytes).
INLINE void turn_bytes(uint8_t *to, const uint8_t *data, const int kind, const int words, int outs, long size, long i) {
    __m512i v[16];
#pragma GCC unroll 16
    for (int o = 0; o < 16; o++) {
        const uint8_t *at = data + (outs == 16 ? o : LEAST(o, outs - 1)) * size + i;
        v[o] = words == 16 ? _mm512_loadu_si512(at) : _mm512_maskz_loadu_epi32(0xff, at);
        if (kind == INT8) v[o] = _mm512_xor_si512(v[o], _mm512_set1_epi8((char)0x80));
    }
    turn16(v);
#pragma GCC unroll 16
    for (int j = 0; j < words; j++) _mm512_storeu_si512(to + i * LANES + 64 * j, v[j]);
}

INLINE void fill_bytes(uint8_t *to, const uint8_t *data, const int kind, int outs, long size) {
    long i = 0;
    if (outs == 16)
        for (; i + 64 <= size; i += 64) turn_bytes(to, data, kind, 16, 16, size, i);
    for (; i + 64 <= size; i += 64) turn_bytes(to, data, kind, 16, outs, size, i);
    if (i < size) turn_bytes(to, data, kind, 8, outs, size, i);
}

// Rows of the weight from `row`; past `outs` the last one stands again, and is not used.
static void fill(panel *to, const weight *w, long row, int outs, long in) {
    const long groups = in / w->group, size = row_bytes(w, 0, in);
    const uint8_t *data = (const uint8_t *)w->data + row * size;
    if (w->kind == INT8) fill_bytes(to->bytes, data, INT8, outs, size);
    else fill_bytes(to->bytes, data, INT4, outs, size);
    __m512i v[16];
    const float *scale = (const float *)w->scale + row * groups;
    const uint8_t *zero = w->kind == INT4 && w->zero ? (const uint8_t *)w->zero + row * groups : NULL;
    for (long g = 0; g < groups; g += 16) {
        const long count = LEAST(16, groups - g);
        const __mmask16 m = (__mmask16)((1u << count) - 1);
#pragma GCC unroll 16
        for (int o = 0; o < 16; o++) v[o] = _mm512_maskz_loadu_epi32(m, scale + LEAST(o, outs - 1) * groups + g);
        turn16(v);
        for (long j = 0; j < count; j++) _mm512_storeu_si512(to->scale + (g + j) * LANES, v[j]);
        for (int o = 0; o < 16; o++)
            v[o] = zero ? _mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(m, zero + LEAST(o, outs - 1) * groups + g))
                        : _mm512_set1_epi32(w->kind == INT8 ? 128 : 8);
        if (zero) turn16(v);
        for (long j = 0; j < count; j++) _mm512_storeu_si512(to->offset + (g + j) * LANES, v[j]);
    }
}

INLINE void fetch(block *b, long bytes) {
    const char *end = LEAST(b->ahead + bytes, b->ahead_end);
    for (; b->ahead < end; b->ahead += 64) _mm_prefetch(b->ahead, _MM_HINT_T1);
}

INLINE void tile(const int kind, const int rows, const packed_row *x, const panel *w, long in, long group,
                 float *y, block *b, long each) {
    const long groups = in / group, half = group / 2;
    const __m512i low = _mm512_set1_epi8(15);
    __m512 acc[4][WIDE_ROWS][2];
    const int8_t *q[WIDE_ROWS];
    for (long k = groups; k < 4; k++)
        for (int r = 0; r < rows; r++) acc[k][r][0] = acc[k][r][1] = _mm512_setzero_ps();
#pragma GCC unroll 6
    for (int r = 0; r < rows; r++) q[r] = x[r].q;
    const uint8_t *p0 = w[0].bytes, *p1 = w[1].bytes;
    for (long g = 0; g < groups; g++) {
        __m512i d[WIDE_ROWS][2];
        fetch(b, each);
        const __m512i z0 = _mm512_loadu_si512(w[0].offset + g * LANES), z1 = _mm512_loadu_si512(w[1].offset + g * LANES);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            const __m512i less = _mm512_set1_epi32(x[r].less[g]);
            d[r][0] = _mm512_dpwssd_epi32(_mm512_setzero_si512(), z0, less);
            d[r][1] = _mm512_dpwssd_epi32(_mm512_setzero_si512(), z1, less);
        }
        const long end = (g + 1) * group - (kind == INT4 ? half : 0);
#pragma GCC unroll 1
        for (long i = g * group; i < end; i += 4, p0 += 64, p1 += 64) {
            __m512i w0 = _mm512_loadu_si512(p0), w1 = _mm512_loadu_si512(p1), h0, h1;
            if (kind == INT4) {
                h0 = _mm512_and_si512(_mm512_srli_epi16(w0, 4), low);
                h1 = _mm512_and_si512(_mm512_srli_epi16(w1, 4), low);
                w0 = _mm512_and_si512(w0, low);
                w1 = _mm512_and_si512(w1, low);
            }
#pragma GCC unroll 6
            for (int r = 0; r < rows; r++) {
                const __m512i part = _mm512_set1_epi32(*(const int32_t *)(q[r] + i));
                ADD_PRODUCTS(d[r][0], w0, part);
                ADD_PRODUCTS(d[r][1], w1, part);
            }
            if (kind == INT4)
#pragma GCC unroll 6
                for (int r = 0; r < rows; r++) {
                    const __m512i part = _mm512_set1_epi32(*(const int32_t *)(q[r] + i + half));
                    ADD_PRODUCTS(d[r][0], h0, part);
                    ADD_PRODUCTS(d[r][1], h1, part);
                }
        }
        const __m512 s0 = _mm512_loadu_ps(w[0].scale + g * LANES), s1 = _mm512_loadu_ps(w[1].scale + g * LANES);
#pragma GCC unroll 6
        for (int r = 0; r < rows; r++) {
            const __m512 factor = _mm512_set1_ps(x[r].factor[g]);
            __m512 *to = acc[g & 3][r], a0 = _mm512_setzero_ps(), a1 = a0;
            if (g >= 4) a0 = to[0], a1 = to[1];
            to[0] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(d[r][0]), _mm512_mul_ps(s0, factor), a0);
            to[1] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(d[r][1]), _mm512_mul_ps(s1, factor), a1);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int k = 0; k < 2; k++)
            _mm512_storeu_ps(y + r * WIDE_OUTS + LANES * k,
                             _mm512_add_ps(_mm512_add_ps(acc[0][r][k], acc[2][r][k]),
                                           _mm512_add_ps(acc[1][r][k], acc[3][r][k])));
}

#define TILES(name, kind)                                                                          \
    static void name(int rows, const packed_row *x, const panel *w, long in, long group, float *y, \
                     block *b, long each) {                                                        \
        switch (rows) {                                                                            \
        case 1: tile(kind, 1, x, w, in, group, y, b, each); break;                                 \
        case 2: tile(kind, 2, x, w, in, group, y, b, each); break;                                 \
        case 3: tile(kind, 3, x, w, in, group, y, b, each); break;                                 \
        case 4: tile(kind, 4, x, w, in, group, y, b, each); break;                                 \
        case 5: tile(kind, 5, x, w, in, group, y, b, each); break;                                 \
        default: tile(kind, 6, x, w, in, group, y, b, each);                                       \
        }                                                                                          \
    }
TILES(tile_int8, INT8)
TILES(tile_int4, INT4)

// Results of one row, `outs` of them from o.
static void result(const block *b, long r, long o, int outs, float *value) {
    const long to = b->dest[r] * b->ldy + o;
    if (b->bias)
        for (int j = 0; j < outs; j++) { // as the body: the product is rounded first
            if (b->ytype == T_BF16) value[j] = round_bf16(value[j]);
            else if (b->ytype == T_F16) value[j] = round_f16(value[j]);
            value[j] += get(b->bias, b->ytype, o + j);
        }
    int j = 0;
    if (b->ytype == T_BF16)
        for (; j + 16 <= outs; j += 16) narrow16(value + j, (bf16 *)b->y + to + j);
    for (; j + 4 <= outs; j += 4) put4(b->y, b->ytype, to + j, value + j);
    for (; j < outs; j++) put(b->y, b->ytype, to + j, value[j]);
}

void wide_many(block *b, long base, long lo, long hi) {
    const weight *w = b->w;
    const long in = b->in;
    float y[WIDE_ROWS * WIDE_OUTS];
    if (b->n <= FEW_WIDE) { // turning the weights costs more than it saves
        for (long o = lo; o < hi; o += TILE_OUTS) {
            const int outs = (int)LEAST(TILE_OUTS, hi - o);
            wide_few((int)b->n, outs, b->quant, w, base + o, in, y);
            for (long r = 0; r < b->n; r++) result(b, r, o, outs, y + r * TILE_OUTS);
        }
        return;
    }
    panel turned[2] = {panel_at(b->memory, w, in), panel_at(b->memory + panel_bytes(w, in), w, in)};
    const long tiles = (b->n + WIDE_ROWS - 1) / WIDE_ROWS; // of rows, as even as can be
    // The next weights are asked for little by little: a burst would wait for the memory.
    const long steps = tiles * ((hi - lo + WIDE_OUTS - 1) / WIDE_OUTS) * (in / w->group);
    const long each = (b->ahead_end - b->ahead) / steps + 64;
    for (long o = lo; o < hi; o += WIDE_OUTS) {
        const int outs = (int)LEAST(WIDE_OUTS, hi - o);
        fill(&turned[0], w, base + o, LEAST(outs, LANES), in);
        if (outs > LANES) fill(&turned[1], w, base + o + LANES, outs - LANES, in);
        const panel both[2] = {turned[0], turned[outs > LANES]};
        for (long t = 0; t < tiles; t++) {
            const long r = b->n * t / tiles;
            const int count = (int)(b->n * (t + 1) / tiles - r);
            (w->kind == INT8 ? tile_int8 : tile_int4)(count, b->quant + r, both, in, w->group, y, b, each);
            for (int i = 0; i < count; i++) result(b, r + i, o, outs, y + i * WIDE_OUTS);
        }
    }
}
#endif
