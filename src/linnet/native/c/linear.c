// Linear maps: dense weights of any float type, packed weights through `packed.h`.
#include "dot.h"
#include "kernels.h"
#include "packed.h"
#include "row.h"
#include "values.h"

#define OUT_BLOCK 64   // outputs of one piece of work
#define ROW_BLOCK 192  // rows of one piece of work

// f16 goes through f32 copies of the rows in use.
void dot_f16(int rows, int outs, const f16 *const *x, const f16 *w, long ldw, long k, float *y) {
    for (int r = 0; r < rows; r++)
        for (int o = 0; o < outs; o++) {
            float lane[16] = {0};
            for (long i = 0; i < k; i++) lane[i & 15] += (float)x[r][i] * (float)w[o * ldw + i];
            v16 a;
            memcpy(&a, lane, 64);
            y[r * TILE_OUTS + o] = lanes_sum(a);
        }
}

// Rows `rows[0 … n)` of x (pointers) by weight rows [lo, hi); results to y[dest[r] * ldy + o]. A few
// rows stay in the first-level cache while the weight rows, which stay in the second, pass by.
static void block(ctx *c, const weight *w, int type, const void *const *rows, const packed_row *quant, long n,
                  long base, long lo, long hi, long in, void *y, int ytype, const long *dest, long ldy,
                  const void *bias, char *memory) {
    float part[32]; // at most TILE_ROWS rows of TILE_OUTS, in whole vectors
    const int packed = w->kind != DENSE, tile = packed ? PACKED_ROWS : TILE_ROWS;
    const int centre = centre_of(w), wide = wide_of(w, in);
    unpacked panel[OUT_BLOCK];
    int single = packed && n == 1;
    if (packed && !single) {
        for (long o = lo; o < hi; o++) {
            panel[o - lo] = unpacked_at(memory + (o - lo) * unpacked_bytes(in), in);
            unpack(w, base + o, in, &panel[o - lo]);
        }
    }
    (void)c;
    for (long r = 0; r < n; r += tile) {
        int count = n - r < tile ? (int)(n - r) : tile;
        for (long o = lo; o < hi; o += TILE_OUTS) {
            int outs = hi - o < TILE_OUTS ? (int)(hi - o) : TILE_OUTS;
            long at = (base + o) * in;
            if (packed) {
                if (single && !packed_dot_one(outs, quant, w, base + o, in, part)) {
                    for (int j = 0; j < outs; j++) {
                        panel[j] = unpacked_at(memory + j * unpacked_bytes(in), in);
                        unpack(w, base + o + j, in, &panel[j]);
                    }
                    packed_dot(1, outs, quant, panel, centre, wide, in, part);
                } else if (!single) {
                    packed_dot(count, outs, quant + r, panel + (o - lo), centre, wide, in, part);
                }
            } else if (type == T_BF16)
                dot_bf16(count, outs, (const bf16 *const *)rows + r, (const bf16 *)w->data + at, in, in, part);
            else if (type == T_F32)
                dot_f32(count, outs, (const float *const *)rows + r, (const float *)w->data + at, in, in, part);
            else
                dot_f16(count, outs, (const f16 *const *)rows + r, (const f16 *)w->data + at, in, in, part);
            if (outs == 4 && ytype == T_BF16 && !bias) {
                bf16 out[32];
                narrow16(part, out);
                if (count > 4) narrow16(part + 16, out + 16);
                for (int i = 0; i < count; i++) memcpy((bf16 *)y + dest[r + i] * ldy + o, out + 4 * i, 8);
                continue;
            }
            for (int i = 0; i < count; i++) {
                float *value = part + i * TILE_OUTS;
                long to = dest[r + i] * ldy + o;
                // As the body: the product is rounded, then the offset is added and rounded.
                if (bias)
                    for (int j = 0; j < outs; j++) {
                        if (ytype == T_BF16) value[j] = round_bf16(value[j]);
                        else if (ytype == T_F16) value[j] = round_f16(value[j]);
                        value[j] += get(bias, ytype, o + j);
                    }
                if (outs == 4) put4(y, ytype, to, value);
                else
                    for (int j = 0; j < outs; j++) put(y, ytype, to + j, value[j]);
            }
        }
    }
}

void k_linear(ctx *c, int hazard, const weight *w, int type, const void *x, long ldx, void *y, long ldy,
              int ytype, long n, long in, long out, const void *bias, char *shared) {
    if (n == 0 || out == 0) return;
    if (n <= FEW_ROWS) {
        few_linear(c, hazard, w, type, x, ldx, y, ldy, ytype, n, in, out, bias);
        return;
    }
    long bytes = type == T_F32 ? 4 : 2;
    packed_row *quant = NULL;
    const int parallel = w->kind != DENSE || (double)n * in * out > 60000.0;
    step_begin(c, hazard, parallel);
    if (w->kind != DENSE) {
        quant = quantize_all(w, type, x, ldx, n, in, shared, n * c->thread / c->threads,
                             n * (c->thread + 1) / c->threads);
        step_begin(c, 1, 1);
    } else if (!parallel && c->thread) return;
    size_t panels = w->kind != DENSE ? OUT_BLOCK * unpacked_bytes(in) : 0;
    char *own = scratch(c, ROW_BLOCK * 16 + 512 + panels);
    const void **rows = (const void **)own;
    long *dest = (long *)(own + ROW_BLOCK * 8);
    char *memory = own + (ROW_BLOCK * 16 + 511) / 64 * 64;
    long piece = (out / (8 * c->threads) + TILE_OUTS) / TILE_OUTS * TILE_OUTS;
    piece = LEAST(piece, OUT_BLOCK);
    long out_blocks = (out + piece - 1) / piece, row_blocks = (n + ROW_BLOCK - 1) / ROW_BLOCK;
    atomic_long *next = parallel ? work_counter(c) : NULL;
    long total = out_blocks * row_blocks;
    for (long task = next ? work_next(next) : 0; task < total; task = next ? work_next(next) : task + 1) {
        long r0 = task / out_blocks * ROW_BLOCK, o0 = task % out_blocks * piece;
        long count = n - r0 < ROW_BLOCK ? n - r0 : ROW_BLOCK;
        for (long r = 0; r < count; r++) {
            rows[r] = (const char *)x + (r0 + r) * ldx * bytes;
            dest[r] = r0 + r;
        }
        block(c, w, type, rows, quant ? quant + r0 : NULL, count, 0, o0, LEAST(o0 + piece, out),
              in, y, ytype, dest, ldy, bias, memory);
    }
}

// Counting sort of the slots by expert, stable.
static void sort_slots(const int64_t *experts, long slots, long count, int32_t *order, int32_t *start) {
    memset(start, 0, (count + 1) * 4);
    for (long s = 0; s < slots; s++) start[experts[s] + 1]++;
    for (long e = 0; e < count; e++) start[e + 1] += start[e];
    for (long s = 0; s < slots; s++) order[start[experts[s]]++] = (int32_t)s;
    for (long e = count; e > 0; e--) start[e] = start[e - 1];
    start[0] = 0;
}

// Slot s reads row s / share of x and writes row s of y through expert experts[s].
void k_experts(ctx *c, int hazard, const weight *w, int type, const void *x, long ldx, long share,
               const int64_t *experts, long slots, long count, long in, long out, void *y, int ytype,
               char *shared) {
    if (slots == 0 || out == 0) return;
    if (slots <= 8 * FEW_ROWS) {
        few_experts(c, hazard, w, type, x, ldx, share, experts, slots, in, out, y, ytype);
        return;
    }
    long bytes = type == T_F32 ? 4 : 2;
    long xrows = slots / share;
    long out_blocks = (out + OUT_BLOCK - 1) / OUT_BLOCK;
    packed_row *quant = NULL;
    const int parallel = (double)slots * in * out > 60000.0, few = slots <= 64;
    step_begin(c, hazard, parallel);
    if (!parallel && c->thread) return;
    size_t panels = w->kind != DENSE ? OUT_BLOCK * unpacked_bytes(in) : 0;
    size_t lists = ((slots + count + 1) * 4 + 63) / 64 * 64;
    size_t quants = few ? xrows * (packed_row_bytes(in) + sizeof(packed_row)) + 64 : 0;
    char *own = scratch(c, ROW_BLOCK * (16 + sizeof(packed_row)) + 128 + panels + (few ? lists + quants : 0));
    const void **rows = (const void **)own;
    long *dest = (long *)(own + ROW_BLOCK * 8);
    packed_row *part = (packed_row *)(own + ROW_BLOCK * 16);
    char *memory = own + (ROW_BLOCK * (16 + sizeof(packed_row)) + 127) / 64 * 64;
    // With few slots every thread makes its own lists: less work than meeting.
    char *place = few ? memory + panels : shared;
    int32_t *order = (int32_t *)place, *start = order + slots;
    if (few || c->thread == 0) sort_slots(experts, slots, count, order, start);
    if (w->kind != DENSE)
        quant = quantize_all(w, type, x, ldx, xrows, in, place + lists,
                             parallel && !few ? xrows * c->thread / c->threads : 0,
                             parallel && !few ? xrows * (c->thread + 1) / c->threads : xrows);
    if (parallel && !few) step_begin(c, 1, 1);
    atomic_long *next = parallel ? work_counter(c) : NULL;
    long task = next ? work_next(next) : 0, at = 0;
    for (long e = 0; e < count; e++) {
        long n = start[e + 1] - start[e];
        if (n == 0) continue;
        for (long o = 0; o < out_blocks; o++, at++) {
            if (at != task) continue;
            task = next ? work_next(next) : task + 1;
            for (long r0 = 0; r0 < n; r0 += ROW_BLOCK) {
                long m = n - r0 < ROW_BLOCK ? n - r0 : ROW_BLOCK;
                for (long r = 0; r < m; r++) {
                    long slot = order[start[e] + r0 + r];
                    rows[r] = (const char *)x + slot / share * ldx * bytes;
                    if (quant) part[r] = quant[slot / share];
                    dest[r] = slot;
                }
                long hi = (o + 1) * OUT_BLOCK < out ? (o + 1) * OUT_BLOCK : out;
                block(c, w, type, rows, part, m, e * out, o * OUT_BLOCK, hi, in, y, ytype, dest, out, NULL, memory);
            }
        }
    }
}

// y[r][o] = sum over k of weights[r][k] x[r][k][o], added in order, rounded once.
void k_combine(ctx *c, int hazard, int type, const float *x, const void *weights, void *y, long n,
               long k, long out) {
    int parallel = (double)n * k * out > PARALLEL_WORK;
    step_begin(c, hazard, parallel);
    if (!parallel && c->thread) return;
    long total = n * out;
    long lo = parallel ? total * c->thread / c->threads : 0, hi = parallel ? total * (c->thread + 1) / c->threads : total;
    for (long at = lo; at < hi;) {
        long r = at / out, o = at % out, end = LEAST(out, o + hi - at);
        float part[256];
        for (; o < end; o += 256) {
            long m = end - o < 256 ? end - o : 256;
            memset(part, 0, sizeof part);
            for (long j = 0; j < k; j++) {
                float s = get(weights, type, r * k + j);
                const float *row = x + (r * k + j) * out + o;
                for (long i = 0; i < m; i++) part[i] = part[i] + s * row[i];
            }
            for (long i = 0; i < m; i++) put(y, type, r * out + o + i, part[i]);
        }
        at = r * out + end;
    }
}

void k_embedding(ctx *c, int hazard, const weight *w, int type, const void *ids, int wide, long n,
                 long width, void *y, long ldy) {
    int parallel = n * width > 40000;
    step_begin(c, hazard, parallel);
    if (!parallel && c->thread) return;
    long lo = parallel ? n * c->thread / c->threads : 0, hi = parallel ? n * (c->thread + 1) / c->threads : n;
    long bytes = type == T_F32 ? 4 : 2;
    for (long r = lo; r < hi; r++) {
        long id = wide ? ((const int64_t *)ids)[r] : ((const int32_t *)ids)[r];
        char *to = (char *)y + r * ldy * bytes;
        if (w->kind == DENSE) {
            memcpy(to, (const char *)w->data + id * width * bytes, width * bytes);
        } else {
            float *row = scratch(c, width * 4);
            unpack_row(w, id, width, row);
            for (long i = 0; i < width; i++) put(to, type, i, row[i]);
        }
    }
}
