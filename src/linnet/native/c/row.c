// Every thread reads one contiguous part of the weights, and then what others have left of theirs:
// short pieces from one counter would break the streams that the machine reads ahead of.
#include "row.h"
#include "ahead.h"
#include "dot.h"
#include "values.h"
#include "wide.h"

#define STEPS 16    // pieces of one thread's part
#define LEAST_PIECE 32768 // bytes of weights worth a piece of its own

packed_row *quantize_all(const weight *w, int type, const void *x, long ldx, long n, long in,
                         char *shared, long lo, long hi) {
    packed_row *rows = (packed_row *)shared;
    char *memory = shared + (n * sizeof(packed_row) + 63) / 64 * 64;
    size_t each = packed_row_bytes(in);
    const int wide = wide_of(w, in);
    for (long r = lo; r < hi; r++) {
        rows[r] = packed_row_at(memory + r * each, in);
#ifdef HAVE_VNNI
        if (wide) quantize_wide(&rows[r], x, type, r * ldx, in, wide);
        else
#endif
            quantize_row(&rows[r], x, type, r * ldx, in, wide ? wide : 32);
    }
    return rows;
}

// The rows quantized, once for all linear maps that read them before anything changes.
static packed_row *quantized(ctx *c, const weight *w, int type, const void *x, long ldx, long n, long in) {
    const int wide = wide_of(w, in);
    struct held *h = &c->held;
    if (h->x == x && h->ldx == ldx && h->n == n && h->in == in && h->type == type && h->wide == wide)
        return (packed_row *)h->memory;
    size_t size = n * (packed_row_bytes(in) + sizeof(packed_row)) + 64;
    if (h->size < size) {
        free(h->memory);
        h->memory = aligned_alloc(64, h->size = (size + 4095) / 4096 * 4096);
    }
    h->x = x, h->ldx = ldx, h->n = n, h->in = in, h->type = type, h->wide = wide;
    return quantize_all(w, type, x, ldx, n, in, h->memory, 0, n);
}

#ifdef HAVE_DPBF16
// Four weight rows, one after another, by n rows of x, in the order of `tile_bf16`.
static inline __attribute__((always_inline)) void stream_bf16(
    const int n, const bf16 *const *x, const bf16 *w, long in, float *y) {
    v16 acc[FEW_ROWS][4];
    const __mmask32 m = (__mmask32)((1ull << (in & 31)) - 1);
#pragma GCC unroll 4
    for (int o = 0; o < 4; o++, w += in) {
        __m512 s[FEW_ROWS];
#pragma GCC unroll 4
        for (int r = 0; r < n; r++) s[r] = _mm512_setzero_ps();
        long i = 0;
        for (; i + 32 <= in; i += 32) {
            __m512bh wv = (__m512bh)_mm512_loadu_si512(w + i);
            _mm_prefetch((const char *)(w + i) + AHEAD, HINT);
#pragma GCC unroll 4
            for (int r = 0; r < n; r++) s[r] = _mm512_dpbf16_ps(s[r], wv, (__m512bh)_mm512_loadu_si512(x[r] + i));
        }
        if (i < in) {
            __m512bh wv = (__m512bh)_mm512_maskz_loadu_epi16(m, w + i);
#pragma GCC unroll 4
            for (int r = 0; r < n; r++)
                s[r] = _mm512_dpbf16_ps(s[r], wv, (__m512bh)_mm512_maskz_loadu_epi16(m, x[r] + i));
        }
#pragma GCC unroll 4
        for (int r = 0; r < n; r++) acc[r][o] = (v16)s[r];
    }
    tile_sums(n, 4, acc, y);
}
#elif defined(DOT_256)
static inline __attribute__((always_inline)) void stream_bf16(
    const int n, const bf16 *const *x, const bf16 *w, long in, float *y) {
    if (n == 1) part_bf16(1, 4, AHEAD, x, w, in, in, y);
    else
        for (int o = 0; o < 4; o += 2)
            for (int r = 0; r < n; r += 2) {
                if (n - r == 1) part_bf16(1, 2, 0, x + r, w + o * in, in, in, y + 4 * r + o);
                else part_bf16(2, 2, AHEAD, x + r, w + o * in, in, in, y + 4 * r + o);
            }
}
#endif

// What stays the same for all pieces of a step.
typedef struct job {
    const weight *w;
    int type, ytype;
    long in, ldy;
    const void *bias;
    void *y;
    char *memory; // of this thread, for weight rows unpacked
} job;

// Rows `row + [lo, hi)` of the weight by n rows of x, to y[dest[r] * ldy + o].
static void piece(const job *j, long n, const void *const *rows, const packed_row *quant, const long *dest,
                  long row, long lo, long hi) {
    float part[32]; // at most TILE_ROWS rows of TILE_OUTS, in whole vectors
    const weight *w = j->w;
    const long in = j->in;
    const int type = j->type, packed = w->kind != DENSE, tile = packed ? PACKED_ROWS : TILE_ROWS;
    const int centre = centre_of(w), wide = wide_of(w, in);
    unpacked panel[TILE_OUTS];
    for (long o = lo; o < hi; o += TILE_OUTS) {
        const int outs = (int)LEAST(hi - o, TILE_OUTS);
        int done = packed && n <= PACKED_ROWS && packed_dot_few((int)n, outs, quant, w, row + o, in, part);
#if defined(HAVE_DPBF16) || defined(DOT_256)
        if (!packed && type == T_BF16 && outs == 4) {
            const bf16 *const *x = (const bf16 *const *)rows, *at = (const bf16 *)w->data + (row + o) * in;
            switch (n) {
            case 1: stream_bf16(1, x, at, in, part); break;
            case 2: stream_bf16(2, x, at, in, part); break;
            case 3: stream_bf16(3, x, at, in, part); break;
            default: stream_bf16(4, x, at, in, part);
            }
            done = 1;
        }
#endif
        if (packed && !done)
            for (int k = 0; k < outs; k++) {
                panel[k] = unpacked_at(j->memory + k * unpacked_bytes(in), in);
                unpack(w, row + o + k, in, &panel[k]);
            }
        for (long r = 0; r < n; r += tile) {
            const int count = done ? (int)n : (int)LEAST(n - r, tile);
            const long at = (row + o) * in;
            if (done) {
            } else if (packed)
                packed_dot(count, outs, quant + r, panel, centre, wide, in, part);
            else if (type == T_BF16)
                dot_bf16(count, outs, (const bf16 *const *)rows + r, (const bf16 *)w->data + at, in, in, part);
            else if (type == T_F32)
                dot_f32(count, outs, (const float *const *)rows + r, (const float *)w->data + at, in, in, part);
            else
                dot_f16(count, outs, (const f16 *const *)rows + r, (const f16 *)w->data + at, in, in, part);
            for (int i = 0; i < count; i++) {
                float *value = part + i * TILE_OUTS;
                long to = dest[r + i] * j->ldy + o;
                // As the body: the product is rounded, then the offset is added and rounded.
                if (j->bias)
                    for (int k = 0; k < outs; k++) {
                        if (j->ytype == T_BF16) value[k] = round_bf16(value[k]);
                        else if (j->ytype == T_F16) value[k] = round_f16(value[k]);
                        value[k] += get(j->bias, j->ytype, o + k);
                    }
                if (outs == 4) put4(j->y, j->ytype, to, value);
                else
                    for (int k = 0; k < outs; k++) put(j->y, j->ytype, to + k, value[k]);
            }
            if (done) break;
        }
    }
}

// Tiles of outputs in one piece, for `total` tiles of `bytes` each.
static long tiles_of(const ctx *c, long total, long bytes) {
    long each = total / ((long)c->threads * STEPS), least = LEAST_PIECE / MOST(bytes, 1);
    return MOST(1, MOST(each, LEAST(least, total / c->threads)));
}

long row_bytes(const weight *w, int type, long in) {
    switch (w->kind) {
    case DENSE: return in * (type == T_F32 ? 4 : 2);
    case INT8: return in;
    case Q4_0: return in / 32 * 18;
    case Q4_1: return in / 32 * 20;
    case Q8_0: return in / 32 * 34;
    case Q4_K: return in / 256 * 144;
    case Q6_K: return in / 256 * 210;
    }
    return in / 2;
}

void few_linear(ctx *c, int hazard, const weight *w, int type, const void *x, long ldx, void *y, long ldy,
                int ytype, long n, long in, long out, const void *bias) {
    const int parallel = (double)n * in * out > 60000.0;
    step_begin(c, hazard, parallel);
    if (!parallel && c->thread) return;
    const int packed = w->kind != DENSE;
    const long bytes = type == T_F32 ? 4 : 2;
    packed_row *quant = packed ? quantized(c, w, type, x, ldx, n, in) : NULL;
    job j = {w, type, ytype, in, ldy, bias, y, packed ? scratch(c, TILE_OUTS * unpacked_bytes(in)) : NULL};
    const void *rows[FEW_ROWS];
    long dest[FEW_ROWS];
    for (long r = 0; r < n; r++) rows[r] = (const char *)x + r * ldx * bytes, dest[r] = r;
    if (!parallel) {
        piece(&j, n, rows, quant, dest, 0, 0, out);
        return;
    }
    const long tiles = (out + TILE_OUTS - 1) / TILE_OUTS;
    const long each = tiles_of(c, tiles, TILE_OUTS * row_bytes(w, type, in)), total = (tiles + each - 1) / each;
    work s = work_shares(c, total);
    for (long at; (at = work_take(&s)) >= 0;)
        piece(&j, n, rows, quant, dest, 0, at * each * TILE_OUTS, LEAST((at + 1) * each * TILE_OUTS, out));
}

// As `k_experts`, for at most FEW_ROWS rows of x.
void few_experts(ctx *c, int hazard, const weight *w, int type, const void *x, long ldx, long share,
                 const int64_t *experts, long slots, long in, long out, void *y, int ytype) {
    const int parallel = (double)slots * in * out > 60000.0;
    step_begin(c, hazard, parallel);
    if (!parallel && c->thread) return;
    const int packed = w->kind != DENSE;
    const long bytes = type == T_F32 ? 4 : 2, xrows = slots / share;
    const size_t panels = TILE_OUTS * unpacked_bytes(in), lists = (slots * 24 + 63) / 64 * 64;
    char *own = scratch(c, panels + lists);
    long *order = (long *)(own + panels), *first = order + slots, *dest = first + slots;
    // Slots of the same expert together: its rows are read once.
    long groups = 0, count = 0;
    for (long s = 0; s < slots; s++) order[s] = -1;
    for (long s = 0; s < slots; s++) {
        if (order[s] >= 0) continue;
        first[groups] = count;
        for (long t = s; t < slots; t++)
            if (order[t] < 0 && experts[t] == experts[s]) order[t] = groups, dest[count++] = t;
        groups++;
    }
    packed_row *quant = packed ? quantized(c, w, type, x, ldx, xrows, in) : NULL;
    job j = {w, type, ytype, in, out, NULL, y, own};
    const long tiles = (out + TILE_OUTS - 1) / TILE_OUTS;
    const long each = LEAST(tiles, tiles_of(c, tiles * groups, TILE_OUTS * row_bytes(w, type, in)));
    const long pieces = (tiles + each - 1) / each, total = pieces * groups;
    work s = parallel ? work_shares(c, total) : (work){0};
    for (long at = 0; at >= 0;) {
        if (parallel && (at = work_take(&s)) < 0) break;
        const long g = at / pieces, lo = at % pieces * each * TILE_OUTS;
        const long end = g + 1 < groups ? first[g + 1] : slots;
        for (long r0 = first[g]; r0 < end; r0 += FEW_ROWS) {
            const long n = LEAST(FEW_ROWS, end - r0);
            const void *rows[FEW_ROWS];
            packed_row part[FEW_ROWS];
            for (long r = 0; r < n; r++) {
                const long row = dest[r0 + r] / share;
                rows[r] = (const char *)x + row * ldx * bytes;
                if (packed) part[r] = quant[row];
            }
            piece(&j, n, rows, part, dest + r0, experts[dest[r0]] * out, lo, LEAST(lo + each * TILE_OUTS, out));
        }
        if (!parallel && ++at == total) break;
    }
}
