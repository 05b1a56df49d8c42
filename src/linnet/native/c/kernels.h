// The kernels that generated code calls. Every thread of the team calls them together; `hazard` as
// for `step_begin`. Types: T_BF16, T_F32, T_F16. Strides count elements.
#pragma once
#include "runtime.h"

void k_linear(ctx *c, int hazard, const weight *w, int type, const void *x, long ldx, void *y, long ldy,
              int ytype, long n, long in, long out, const void *bias, char *shared);
void k_experts(ctx *c, int hazard, const weight *w, int type, const void *x, long ldx, long share,
               const int64_t *experts, long slots, long count, long in, long out, void *y, int ytype,
               char *shared);
void k_combine(ctx *c, int hazard, int type, const float *x, const void *weights, void *y, long n,
               long k, long out);
void k_embedding(ctx *c, int hazard, const weight *w, int type, const void *ids, int wide, long n,
                 long width, void *y, long ldy);
void k_attention(ctx *c, int hazard, int type, const void *q, const long *qs, const void *k,
                 const long *ks, const void *v, const long *vs, void *y, const long *ys, long batch,
                 long heads, long kv, long queries, long keys, long dim, float scale, int mask,
                 long at, const void *rows, int wide, const uint8_t *seen, long seen_batch);
void k_delta_rule(ctx *c, int hazard, const float *q, const long *qs, const float *k, const long *ks,
                  const float *v, const long *vs, const float *decay, const float *beta,
                  const float *initial, float *final, float *out, long batch, long length, long kh,
                  long vh, long dk, long dv, float scale);
void k_delta_step(ctx *c, int hazard, const float *q, const long *qs, const float *k, const long *ks,
                  const float *v, const long *vs, const float *decay, const float *beta,
                  const float *initial, float *final, float *out, long batch, long kh, long vh, long dk,
                  long dv, float scale);
void k_conv(ctx *c, int hazard, int type, const void *x, const long *xs, const void *history,
            const long *hs, const void *taps, float *y, long batch, long length, long channels,
            long width);
void k_top_k(ctx *c, int hazard, int type, const void *x, long n, long extent, long k, int descending,
             void *values, void *indices, int wide);
void k_rank(ctx *c, int hazard, int type, const void *x, long n, long extent, int descending,
            void *ranks, int bytes);
void k_take(ctx *c, int hazard, int bytes, const void *x, const void *index, int wide, long n,
            long extent, long k, void *y);
void k_softmax(ctx *c, int hazard, int type, const void *x, void *y, long n, long extent);
// value[m][h][n] rows of `width` elements to state[row(m, n)][h][position(m, n)]. `slots` or `positions`
// may be null: row m and position at + n. `tokens`: both count along n.
void k_write(ctx *c, int hazard, int bytes, void *state, const long *ss, const void *value,
             const long *vs, long m, long heads, long n, long width, const void *slots,
             const void *positions, int wide, long at, int tokens);
// The same for caches of 8 bits (cache8.c): `first` is the first row. `room` holds the parts of a
// single query's sum over spans of 1,024 keys, `(dim + 31) / 16 * 16` floats for each and a head.
void k_write8(ctx *c, int hazard, int type, const weight *state, long keys, long first, const void *value,
              const long *vs, long m, long heads, long count, long width, const void *slots,
              const void *positions, int wide, long at, int tokens);
void k_attention8(ctx *c, int hazard, int type, const void *q, const long *qs, const weight *k,
                  const weight *v, void *y, const long *ys, long batch, long heads, long kv, long queries,
                  long keys, long dim, float scale, int mask, long at, const void *rows, int wide,
                  const uint8_t *seen, long seen_batch, char *room);
