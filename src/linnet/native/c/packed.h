// Packed weights against rows quantized to 8 bits.
//
// Whatever its format, a weight row is used as unsigned bytes q with a scale s and an offset z for
// every 16 elements: the value is s q - z; where z is the same multiple of s throughout (`centre`), it
// is taken off in integers. A row of x becomes signed bytes with a scale for every 32 elements, or
// for every group of the weight where those are longer (`wide`; with 512 bits wide.h has these).
// Products of bytes are exact; lane by lane they are scaled and added in f32, in the same order for
// any number of rows.
#pragma once
#include "runtime.h"

#if defined(__AVX512VNNI__) && defined(__AVX512BW__) && !defined(LINNET_NO_BF16)
#define HAVE_VNNI 1
#elif defined(__AVX2__) && defined(__FMA__)
#define HAVE_256 1 // packed256.h
#endif

#define PACKED_ROWS 4

typedef struct packed_row {
    int8_t *q;
    float *scale; // one for every 16 elements (equal in pairs)
    float *sum;   // the scaled sum of every 16 elements
    int32_t *four; // minus the sum of every 4 bytes
    int32_t *pair; // of every 128 elements, the sums of both halves added
    // Where wide.h has the row, these alone, zeros up to a multiple of four groups:
    float *factor; // the scale of a group
    int32_t *less; // minus its sum, in the lower 16 bits
} packed_row;

static inline long packed_length(long in) { return (in + 63) / 64 * 64; }
static inline size_t packed_row_bytes(long in) { return packed_length(in) * 3 + 512; }
static inline packed_row packed_row_at(char *memory, long in) {
    long n = packed_length(in);
    float *factor = (float *)(memory + n);
    return (packed_row){(int8_t *)memory, (float *)(memory + n * 2), (float *)(memory + n * 2) + n / 16,
                        (int32_t *)(memory + n), (int32_t *)(memory + n * 2 + n / 2), factor,
                        (int32_t *)factor + n / 64 + 4};
}
void quantize_row(packed_row *row, const void *x, int type, long at, long in, int group);

// One weight row unpacked: `u` bytes, `scale` and `offset` every 16 elements, padded to 64.
typedef struct unpacked {
    uint8_t *u;
    float *scale, *offset;
} unpacked;
static inline size_t unpacked_bytes(long in) { return packed_length(in) + packed_length(in) / 16 * 8; }
static inline unpacked unpacked_at(char *memory, long in) {
    long n = packed_length(in);
    return (unpacked){(uint8_t *)memory, (float *)(memory + n), (float *)(memory + n) + n / 16};
}
// The power of two that is every offset over its scale, or -1 where it varies.
static inline int centre_of(const weight *w) {
    switch (w->kind) {
    case INT8: case Q8_0: return 7;
    case Q4_0: return 3;
    case INT4: return w->zero ? -1 : 3;
    case Q6_K: return 5;
    }
    return -1;
}
// The weight's groups where x has the same, or 0.
static inline int wide_of(const weight *w, long in) {
#ifdef HAVE_VNNI
    if (w->group != 64 && w->group != 128) return 0;
    return in % w->group == 0 && (w->kind == INT8 || w->kind == INT4) ? w->group : 0;
#else
    return w->group == 128 && in % 128 == 0 && (w->kind == INT8 || (w->kind == INT4 && !w->zero)) ? 128 : 0;
#endif
}
void unpack(const weight *w, long row, long in, unpacked *to);
void unpack_row(const weight *w, long row, long in, float *to);
// y[r * TILE_OUTS + o] for up to PACKED_ROWS rows and `outs` unpacked weight rows.
void packed_dot(int rows, int outs, const packed_row *x, const unpacked *w, int centre, int wide, long in,
                float *y);
// The same straight from memory, for the formats that have a loop of their own for so few rows (at
// most PACKED_ROWS): false where this one has none.
int packed_dot_few(int rows, int outs, const packed_row *x, const weight *w, long row, long in, float *y);
