// Linear maps of many rows, as in prompts and batches: bound by arithmetic.
#pragma once
#include "dot.h"
#include "packed.h"
#include "values.h"

// A block of rows, by the rows of one weight.
typedef struct block {
    const weight *w;
    int type, ytype;
    long n, in, ldy;
    const void *const *x;    // the rows, or
    const packed_row *quant; // the same in 8 bits where the weight is packed
    const long *dest;        // row r of the result goes to y + dest[r] * ldy
    const void *bias;
    void *y;
    char *memory; // many_bytes(w, in) of this thread's own
    const char *ahead, *ahead_end; // weights that this thread reads next
} block;

// Rows a multiple of 4,096 bytes apart share a few places of the first-level cache, and those of a
// tile push each other out: bytes apart at which copies of them lie, or 0 where rows may stay.
static inline long many_apart(const weight *w, int type, long in) {
    return w->kind == DENSE && type == T_BF16 && in && in % 2048 == 0 && in <= 8192 ? in * 2 + 192 : 0;
}
size_t many_bytes(const weight *w, long in);
long many_step(const weight *w, long in); // outputs that are made together
// Outputs [lo, hi) from weight rows base + [lo, hi), at most OUT_BLOCK of them.
void many_rows(block *b, long base, long lo, long hi);
#define OUT_BLOCK 64
#ifdef HAVE_DPBF16
void many_bf16(block *b, long base, long lo, long hi); // the same of dense bf16
size_t many_bf16_bytes(long in);
#endif

// As the body: the product is rounded, then the offset is added and rounded.
static inline void many_offset(const block *b, long o, int outs, float *value) {
    for (int j = 0; j < outs; j++) {
        if (b->ytype == T_BF16) value[j] = round_bf16(value[j]);
        else if (b->ytype == T_F16) value[j] = round_f16(value[j]);
        value[j] += get(b->bias, b->ytype, o + j);
    }
}
