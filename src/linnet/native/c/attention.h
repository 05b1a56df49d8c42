// What the loops of attention share: one call, and one piece of it.
#pragma once
#include "kernels.h"

#define KEYS 64 // keys of one block; blocks begin at its multiples
#define ROWS 192 // most query rows of one piece of work

typedef struct attention {
    int type;
    const void *q, *k, *v;
    void *y;
    const long *qs, *ks, *vs, *ys;
    long batch, heads, kv, queries, keys, dim;
    float scale;
    int mask; // 0 none, 1 causal from `at`, 2 causal from `at` + a start for each row, 3 `seen`
    long at;
    const void *starts;
    int wide;
    const uint8_t *seen;
    long seen_batch;
} attention;

// Up to ROWS query rows that share keys: some queries, each in some heads of a group.
typedef struct piece {
    int n;
    long batch, head; // of the keys
    long longest, shortest; // the most keys that a row sees, and the least; this is 0 where masks say
    const void *q[ROWS];
    void *y[ROWS];
    const uint8_t *allowed[ROWS];
    long limit[ROWS]; // keys that a row sees
    int none[ROWS];   // it sees none: every value counts alike
} piece;

// Whether the loops for bf16 products run here, the memory that they need for so many rows, and one piece.
int attend_bf16_here(const attention *a);
size_t attend_bf16_bytes(const attention *a, int rows);
// `after`: the first keys of what this thread does next, to be fetched on the way; or NULL.
void attend_bf16(ctx *c, const attention *a, const piece *p, const long *after, char *memory);
