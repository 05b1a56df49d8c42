// A few rows of x stay in the first-level cache while a block of weight rows, which stays in the
// second, passes by; meanwhile the next block is fetched from memory.
#include "many.h"
#include "dot.h"
#include "row.h"
#include "values.h"
#include "wide.h"

size_t many_bytes(const weight *w, long in) {
#ifdef HAVE_VNNI
    if (w->kind != DENSE && wide_of(w, in)) return wide_bytes(w, in);
#endif
#ifdef HAVE_DPBF16
    if (w->kind == DENSE) return many_bf16_bytes(in);
#endif
    return w->kind == DENSE ? 0 : OUT_BLOCK * unpacked_bytes(in);
}

long many_step(const weight *w, long in) {
#ifdef HAVE_VNNI
    if (w->kind != DENSE && wide_of(w, in)) return WIDE_OUTS;
#endif
    return TILE_OUTS;
}

static inline __attribute__((always_inline)) void results(const block *b, long r, int count, long o, int outs, float *part) {
    if (outs == 4 && b->ytype == T_BF16 && !b->bias) {
        bf16 out[32];
        narrow16(part, out);
        if (count > 4) narrow16(part + 16, out + 16);
        for (int i = 0; i < count; i++) memcpy((bf16 *)b->y + b->dest[r + i] * b->ldy + o, out + 4 * i, 8);
        return;
    }
    for (int i = 0; i < count; i++) {
        float *value = part + i * TILE_OUTS;
        const long to = b->dest[r + i] * b->ldy + o;
        if (b->bias) many_offset(b, o, outs, value);
        if (outs == 4) put4(b->y, b->ytype, to, value);
        else
            for (int j = 0; j < outs; j++) put(b->y, b->ytype, to + j, value[j]);
    }
}

static inline void fetch(block *b, long bytes) {
    const char *end = LEAST(b->ahead + bytes, b->ahead_end);
    for (; b->ahead < end; b->ahead += 64) __builtin_prefetch(b->ahead, 0, 2);
}

void many_rows(block *b, long base, long lo, long hi) {
#ifdef HAVE_VNNI
    if (b->w->kind != DENSE && wide_of(b->w, b->in)) {
        wide_many(b, base, lo, hi);
        return;
    }
#endif
#ifdef HAVE_DPBF16
    if (b->w->kind == DENSE && b->type == T_BF16) {
        many_bf16(b, base, lo, hi);
        return;
    }
#endif
    float part[32]; // at most TILE_ROWS rows of TILE_OUTS, in whole vectors
    const weight *w = b->w;
    const long in = b->in;
    const int packed = w->kind != DENSE, most = packed ? PACKED_ROWS : TILE_ROWS;
    const int centre = centre_of(w), wide = wide_of(w, in);
    unpacked panel[OUT_BLOCK];
    if (packed)
        for (long o = lo; o < hi; o++) {
            panel[o - lo] = unpacked_at(b->memory + (o - lo) * unpacked_bytes(in), in);
            unpack(w, base + o, in, &panel[o - lo]);
        }
    const long tiles = (b->n + most - 1) / most; // of rows, as even as can be
    const long outs_tiles = (hi - lo + TILE_OUTS - 1) / TILE_OUTS;
    const long each = (b->ahead_end - b->ahead) / (tiles * outs_tiles) + 64;
    for (long t = 0; t < tiles; t++) {
        const long r = b->n * t / tiles;
        const int count = (int)(b->n * (t + 1) / tiles - r);
        for (long o = lo; o < hi; o += TILE_OUTS) {
            const int outs = (int)LEAST(TILE_OUTS, hi - o);
            const long at = (base + o) * in;
            fetch(b, each);
            if (packed)
                packed_dot(count, outs, b->quant + r, panel + (o - lo), centre, wide, in, part);
            else if (b->type == T_BF16)
                dot_bf16(count, outs, (const bf16 *const *)b->x + r, (const bf16 *)w->data + at, in, in, part);
            else if (b->type == T_F32)
                dot_f32(count, outs, (const float *const *)b->x + r, (const float *)w->data + at, in, in, part);
            else
                dot_f16(count, outs, (const f16 *const *)b->x + r, (const f16 *)w->data + at, in, in, part);
            results(b, r, count, o, outs, part);
        }
    }
}
