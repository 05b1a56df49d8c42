// Linear maps of many rows, as in prompts and batches: bound by arithmetic.
#pragma once
#include "packed.h"

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

size_t many_bytes(const weight *w, long in);
long many_step(const weight *w, long in); // outputs that are made together
// Outputs [lo, hi) from weight rows base + [lo, hi), at most OUT_BLOCK of them.
void many_rows(block *b, long base, long lo, long hi);
#define OUT_BLOCK 64
