// Packed rows with scales for 64 or 128 elements, where registers have 512 bits.
//
// Row and weights meet in the same groups. Products within a group are added as integers, which is
// exact, so there the order is free; sums of groups are scaled, and group g is added to sum g mod 4
// of four, which are added as (0 + 2) + (1 + 3). That order holds for one row and for many.
#pragma once
#include "many.h"

#ifdef HAVE_VNNI
#define WIDE_OUTS 32 // weight rows turned at a time
#define FEW_WIDE 3   // rows of x for which that does not pay

void quantize_wide(packed_row *row, const void *x, int type, long at, long in, int group);
// y[r * TILE_OUTS + o] for up to four rows of x and of the weight, from the bytes as stored.
void wide_few(int rows, int outs, const packed_row *x, const weight *w, long row, long in, float *y);
size_t wide_bytes(const weight *w, long in);
// As `many_rows`.
void wide_many(block *b, long base, long lo, long hi);
#endif
