#include "row.h"
#include "dot.h"
#include "values.h"

#define PIECE 64 // most outputs of one piece of work

// Bytes that `shared` must have for `n` rows of `in` elements: the rows as 8-bit integers.
packed_row *quantize_all(const weight *w, int type, const void *x, long ldx, long n, long in,
                                char *shared, long lo, long hi) {
    packed_row *rows = (packed_row *)shared;
    char *memory = shared + (n * sizeof(packed_row) + 63) / 64 * 64;
    size_t each = packed_row_bytes(in);
    for (long r = lo; r < hi; r++) {
        rows[r] = packed_row_at(memory + r * each, in);
        quantize_row(&rows[r], x, type, r * ldx, in, wide_of(w, in) ? 128 : 32);
    }
    return rows;
}


// Weight rows [lo, hi) by all n rows.
static void piece_of(const weight *w, int type, const void *x, long ldx, const packed_row *quant, long n,
                     long lo, long hi, long in, void *y, long ldy, int ytype, const void *bias, char *memory) {
    float part[32]; // at most TILE_ROWS rows of TILE_OUTS, in whole vectors
    const long bytes = type == T_F32 ? 4 : 2;
    const int packed = w->kind != DENSE, tile = packed ? PACKED_ROWS : TILE_ROWS;
    const int centre = centre_of(w), wide = wide_of(w, in);
    const void *rows[FEW_ROWS];
    for (long r = 0; r < n; r++) rows[r] = (const char *)x + r * ldx * bytes;
    unpacked panel[TILE_OUTS];
    for (long o = lo; o < hi; o += TILE_OUTS) {
        const int outs = (int)LEAST(hi - o, TILE_OUTS);
        const int direct = packed && n == 1 && packed_dot_one(outs, quant, w, o, in, part);
        if (packed && !direct)
            for (int j = 0; j < outs; j++) {
                panel[j] = unpacked_at(memory + j * unpacked_bytes(in), in);
                unpack(w, o + j, in, &panel[j]);
            }
        for (long r = 0; r < n; r += tile) {
            const int count = (int)LEAST(n - r, tile);
            if (direct) {
            } else if (packed)
                packed_dot(count, outs, quant + r, panel, centre, wide, in, part);
            else if (type == T_BF16)
                dot_bf16(count, outs, (const bf16 *const *)rows + r, (const bf16 *)w->data + o * in, in, in, part);
            else if (type == T_F32)
                dot_f32(count, outs, (const float *const *)rows + r, (const float *)w->data + o * in, in, in, part);
            else
                dot_f16(count, outs, (const f16 *const *)rows + r, (const f16 *)w->data + o * in, in, in, part);
            for (int i = 0; i < count; i++) {
                float *value = part + i * TILE_OUTS;
                long to = (r + i) * ldy + o;
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

void few_linear(ctx *c, int hazard, const weight *w, int type, const void *x, long ldx, void *y, long ldy,
                int ytype, long n, long in, long out, const void *bias) {
    const int parallel = (double)n * in * out > 60000.0;
    step_begin(c, hazard, parallel);
    if (!parallel && c->thread) return;
    packed_row *quant = NULL;
    const int packed = w->kind != DENSE;
    size_t rows = packed ? n * (packed_row_bytes(in) + sizeof(packed_row)) + 64 : 0;
    char *own = scratch(c, rows + 64 + (packed ? TILE_OUTS * unpacked_bytes(in) : 0));
    if (packed) quant = quantize_all(w, type, x, ldx, n, in, own, 0, n);
    long piece = (out / (8 * c->threads) + TILE_OUTS) / TILE_OUTS * TILE_OUTS;
    piece = LEAST(piece, PIECE);
    const long total = (out + piece - 1) / piece;
    atomic_long *next = parallel ? work_counter(c) : NULL;
    for (long task = next ? work_next(next) : 0; task < total; task = next ? work_next(next) : task + 1)
        piece_of(w, type, x, ldx, quant, n, task * piece, LEAST((task + 1) * piece, out), in, y, ldy, ytype,
                 bias, own + (rows + 63) / 64 * 64);
}
