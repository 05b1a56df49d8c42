// Linear maps of a few rows, as in decoding: bound by reading the weights.
#pragma once
#include "kernels.h"
#include "packed.h"

#define FEW_ROWS 4

void few_linear(ctx *c, int hazard, const weight *w, int type, const void *x, long ldx, void *y, long ldy,
                int ytype, long n, long in, long out, const void *bias);
void few_experts(ctx *c, int hazard, const weight *w, int type, const void *x, long ldx, long share,
                 const int64_t *experts, long slots, long in, long out, void *y, int ytype);
// Of one row of the weight, as it lies in memory.
long row_bytes(const weight *w, int type, long in);
packed_row *quantize_all(const weight *w, int type, const void *x, long ldx, long n, long in,
                         char *shared, long lo, long hi);
void dot_f16(int rows, int outs, const f16 *const *x, const f16 *w, long ldw, long k, float *y);
