// Linear maps: dense weights of any float type, packed weights through `packed.h`.
#include "dot.h"
#include "kernels.h"
#include "many.h"
#include "row.h"
#include "values.h"

#define ROW_BLOCK 192           // rows of one piece of work
#define EVEN_ROWS 64            // at least, where pieces are made smaller so that threads get as many
#define BLOCK_BYTES (512 << 10) // most of a piece's weights
#define STAY_BYTES (8 << 20)    // weights that stay in the third-level cache
#define LINE_OUTS 32            // results of two bytes that are a line of memory

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
    // Copying a row costs what a dozen of its products do.
    const long apart = out >= 1024 ? many_apart(w, type, in) : 0;
    const size_t panels = (many_bytes(w, in) + 63) / 64 * 64;
    char *own = scratch(c, ROW_BLOCK * (16 + apart) + 512 + panels);
    const void **rows = (const void **)own;
    long *dest = (long *)(own + ROW_BLOCK * 8);
    // A block of weights is to stay in the second-level cache. Blocks of rows are as many for each
    // thread where all weights stay in the third, since every block reads them, else as large as can
    // be; in whole tiles.
    const long size = row_bytes(w, type, in), step = many_step(w, in), fit = BLOCK_BYTES / MOST(size, 1);
    long row_blocks = (n + ROW_BLOCK - 1) / ROW_BLOCK, tile = TILE_ROWS, piece = 0;
    if (w->kind == DENSE) {
        const long even = (row_blocks + c->threads - 1) / c->threads * c->threads;
        if (n / even >= EVEN_ROWS && size * out <= STAY_BYTES) row_blocks = even, tile = 1;
        // Whole lines of memory are written at once, where that leaves pieces for all. The more of
        // them, the less often a row of x is fetched.
        for (long most = OUT_BLOCK; most >= LINE_OUTS && !piece; most -= LINE_OUTS)
            if (out / most * row_blocks >= 8 * c->threads && fit >= most) piece = most;
    }
    const long rows_each = ((n + row_blocks - 1) / row_blocks + tile - 1) / tile * tile;
    if (!piece) {
        piece = LEAST(out / (8 * c->threads) + 1, MOST(16, fit));
        piece = LEAST((piece + step - 1) / step * step, OUT_BLOCK);
    }
    row_blocks = (n + rows_each - 1) / rows_each;
    const long out_blocks = (out + piece - 1) / piece;
    const long total = out_blocks * row_blocks;
    block b = {.w = w, .type = type, .ytype = ytype, .in = in, .ldy = ldy, .x = rows, .dest = dest, .bias = bias,
               .y = y, .memory = own + (ROW_BLOCK * 16 + 511) / 64 * 64};
    char *copies = b.memory + panels;
    long listed = -1;
    work share = {0};
    if (parallel) share = work_shares(c, total);
    long task = parallel ? work_take(&share) : 0;
    while (task >= 0) {
        const long r0 = task / out_blocks * rows_each, o0 = task % out_blocks * piece;
        task = parallel ? work_take(&share) : task + 1 < total ? task + 1 : -1;
        if (task >= 0) {
            const long after = task % out_blocks * piece;
            b.ahead = (const char *)w->data + after * size;
            b.ahead_end = (const char *)w->data + LEAST(after + piece, out) * size;
        } else b.ahead = b.ahead_end = NULL;
        b.n = LEAST(rows_each, n - r0);
        b.quant = quant ? quant + r0 : NULL;
        for (long r = 0; r < b.n && listed != r0; r++) {
            rows[r] = (const char *)x + (r0 + r) * ldx * bytes;
            if (apart) rows[r] = memcpy(copies + r * apart, rows[r], in * bytes);
            dest[r] = r0 + r;
        }
        listed = r0;
        many_rows(&b, 0, o0, LEAST(o0 + piece, out));
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

// Slots of one expert that are multiplied at once: [first, end) of the order. They stay in the caches while all
// of the expert's outputs come by.
typedef struct some_rows {
    long expert, first, end;
} some_rows;

// Slot s reads row s / share of x and writes row s of y through expert experts[s].
void k_experts(ctx *c, int hazard, const weight *w, int type, const void *x, long ldx, long share,
               const int64_t *experts, long slots, long count, long in, long out, void *y, int ytype,
               char *shared) {
    if (slots == 0 || out == 0) return;
    if (slots <= 8 * FEW_ROWS) {
        few_experts(c, hazard, w, type, x, ldx, share, experts, slots, in, out, y, ytype);
        return;
    }
    const long bytes = type == T_F32 ? 4 : 2, xrows = slots / share;
    const long out_blocks = (out + OUT_BLOCK - 1) / OUT_BLOCK;
    packed_row *quant = NULL;
    const int parallel = (double)slots * in * out > 60000.0, few = slots <= 64;
    step_begin(c, hazard, parallel);
    if (!parallel && c->thread) return;
    const size_t panels = (many_bytes(w, in) + 63) / 64 * 64;
    const size_t used = ((LEAST(count, slots) + slots / ROW_BLOCK) * sizeof(some_rows) + 63) / 64 * 64;
    const size_t lists = ((slots + count + 1) * 4 + 63) / 64 * 64;
    const size_t quants = few ? xrows * (packed_row_bytes(in) + sizeof(packed_row)) + 64 : 0;
    const long apart = many_apart(w, type, in);
    char *own = scratch(c, ROW_BLOCK * (16 + sizeof(packed_row) + apart) + 192 + panels + used + (few ? lists + quants : 0));
    const void **rows = (const void **)own;
    long *dest = (long *)(own + ROW_BLOCK * 8);
    packed_row *part = (packed_row *)(own + ROW_BLOCK * 16);
    char *memory = own + (ROW_BLOCK * (16 + sizeof(packed_row)) + 127) / 64 * 64;
    some_rows *chosen = (some_rows *)(memory + panels);
    char *copies = (char *)(((uintptr_t)(memory + panels + used + (few ? lists + quants : 0)) + 63) / 64 * 64);
    // With few slots every thread makes its own lists: less work than meeting.
    char *place = few ? memory + panels + used : shared;
    int32_t *order = (int32_t *)place, *start = order + slots;
    if (few || c->thread == 0) sort_slots(experts, slots, count, order, start);
    if (w->kind != DENSE)
        quant = quantize_all(w, type, x, ldx, xrows, in, place + lists,
                             parallel && !few ? xrows * c->thread / c->threads : 0,
                             parallel && !few ? xrows * (c->thread + 1) / c->threads : xrows);
    if (parallel && !few) step_begin(c, 1, 1);
    long total = 0;
    for (long e = 0; e < count; e++) {
        const long n = start[e + 1] - start[e], cuts = (n + ROW_BLOCK - 1) / ROW_BLOCK;
        for (long i = 0; i < cuts; i++)
            chosen[total++] = (some_rows){e, start[e] + n * i / cuts, start[e] + n * (i + 1) / cuts};
    }
    total *= out_blocks;
    // Each thread walks the experts of its part in the order in which they lie in memory.
    const char *data = w->data;
    const long size = row_bytes(w, type, in);
    block b = {.w = w, .type = type, .ytype = ytype, .in = in, .ldy = out, .x = rows, .quant = quant ? part : NULL,
               .dest = dest, .y = y, .memory = memory};
    work parts = {0};
    if (parallel) parts = work_shares(c, total);
    long task = parallel ? work_take(&parts) : 0, listed = -1;
    while (task >= 0) {
        const some_rows now = chosen[task / out_blocks];
        const long o = task % out_blocks * OUT_BLOCK;
        b.n = now.end - now.first;
        for (long r = 0; r < b.n && listed != now.first; r++) {
            const long slot = order[now.first + r];
            rows[r] = (const char *)x + slot / share * ldx * bytes;
            if (apart) rows[r] = memcpy(copies + r * apart, rows[r], in * bytes);
            if (quant) part[r] = quant[slot / share];
            dest[r] = slot;
        }
        listed = now.first;
        task = parallel ? work_take(&parts) : task + 1 < total ? task + 1 : -1;
        b.ahead = b.ahead_end = NULL;
        if (task >= 0) {
            const long after = task % out_blocks * OUT_BLOCK, first = chosen[task / out_blocks].expert * out;
            b.ahead = data + (first + after) * size;
            b.ahead_end = data + (first + LEAST(after + OUT_BLOCK, out)) * size;
        }
        many_rows(&b, now.expert * out, o, LEAST(o + OUT_BLOCK, out));
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
