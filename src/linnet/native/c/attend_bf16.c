// Attention in bf16 with products of bf16 pairs, for any number of query rows.
//
// A block of keys is turned to pairs of features with the keys along the lanes, and its values to
// pairs of keys with the features along the lanes; so scores and sums come out in lanes and nothing
// is added across. Scores are added over the features in order, values over the keys in order, two at
// a time, whatever else is in the piece. A weight meets the values as the sum of two bf16 numbers, which
// hold 16 of its bits.
#include "attention.h"
#include "dot.h"

#ifdef HAVE_DPBF16
#include "attend_block.h"

int attend_bf16_here(const attention *a) { return a->type == T_BF16; }

size_t attend_bf16_bytes(const attention *a) {
    const size_t dim = wide32(a->dim);
    // Keys and values as pairs, sums, scores, weights, queries, sixteen keys.
    return KEYS * dim * 2 + KEYS * dim * 2 + ROWS * (dim * 4 + KEYS * 4 + KEYS * 4 + dim * 2) + dim * 32 + 4096;
}

#define ROWS_OF(f, ...)               \
    switch (rows) {                   \
    case 1: f(1, __VA_ARGS__); break; \
    case 2: f(2, __VA_ARGS__); break; \
    case 3: f(3, __VA_ARGS__); break; \
    case 4: f(4, __VA_ARGS__); break; \
    case 5: f(5, __VA_ARGS__); break; \
    default: f(6, __VA_ARGS__);       \
    }

static void scores4(int rows, const uint32_t *q, long ldq, const uint32_t *keys, long pairs, float *s) {
    ROWS_OF(scores, 4, q, ldq, keys, pairs, s)
}
static void scores2(int rows, const uint32_t *q, long ldq, const uint32_t *keys, long pairs, float *s) {
    ROWS_OF(scores, 2, q, ldq, keys, pairs, s)
}
static void weigh_pairs(int rows, float *acc, long wide, const float *fade, const uint32_t *p, const int *used,
                        const values *from) {
    long d = 0;
    for (; d + 64 <= wide; d += 64) ROWS_OF(weigh, 1, 4, acc, wide, d, fade, p, used, from)
    if (d < wide) ROWS_OF(weigh, 1, 2, acc, wide, d, fade, p, used, from)
}
static void weigh_rows(int rows, float *acc, long wide, const float *fade, const uint32_t *p, const int *used,
                       const values *from) {
    long d = 0;
    for (; d + 64 <= wide; d += 64) ROWS_OF(weigh, 0, 4, acc, wide, d, fade, p, used, from)
    if (d < wide) ROWS_OF(weigh, 0, 2, acc, wide, d, fade, p, used, from)
}

void attend_bf16(const attention *a, const piece *w, const long *after, char *memory) {
    const long dim = a->dim, wide = wide32(dim), pairs = (dim + 1) / 2;
    const int n = w->n, tiles = (n + TILE - 1) / TILE;
    const V by = _mm512_set1_ps(a->scale * 1.44269504f);
    uint32_t *keys = (uint32_t *)(((uintptr_t)memory + 63) & ~(uintptr_t)63);
    uint32_t *paired = keys + KEYS / 2 * wide;
    float *acc = (float *)(paired + KEYS / 2 * wide);
    float *s = acc + ROWS * wide;
    uint32_t *p = (uint32_t *)(s + ROWS * KEYS), *q = p + ROWS * KEYS;
    bf16 *room = (bf16 *)(q + ROWS * wide / 2);
    float peak[ROWS + 16], sum[ROWS + 16] = {0}, fade[ROWS + 16];
    for (int r = 0; r < ROWS + 16; r++) peak[r] = -INFINITY;
    for (int r = 0; r < n; r++) {
        q[r * (wide / 2) + pairs - 1] = 0;
        memcpy(q + r * (wide / 2), w->q[r], dim * 2);
        memset(acc + r * wide, 0, wide * 4);
    }
    const bf16 *const k = (const bf16 *)a->k + w->batch * a->ks[0] + w->head * a->ks[1];
    const bf16 *const v = (const bf16 *)a->v + w->batch * a->vs[0] + w->head * a->vs[1];
    const int direct = tiles <= 2 && dim % 32 == 0; // to pair values first would not pay
    for (long s0 = 0; s0 < w->longest; s0 += KEYS) {
        const long here = LEAST(KEYS, w->longest - s0);
        long ahead = LEAST(KEYS, w->longest - s0 - KEYS);
        const bf16 *kn = k + (s0 + KEYS) * a->ks[2], *vn = v + (s0 + KEYS) * a->vs[2];
        if (ahead <= 0) {
            ahead = after ? after[2] : 0;
            kn = ahead ? (const bf16 *)a->k + after[0] * a->ks[0] + after[1] * a->ks[1] : NULL;
            vn = ahead ? (const bf16 *)a->v + after[0] * a->vs[0] + after[1] * a->vs[1] : NULL;
            if (ahead && here < KEYS) // too short to fetch all of it on the way
                for (long i = (here + 15) / 16 * 16; i < ahead; i++)
                    fetch(kn + i * a->ks[2], dim), fetch(vn + i * a->vs[2], dim);
        }
        turn_keys(k + s0 * a->ks[2], a->ks[2], here, dim, kn, ahead, keys, room);
        values from = {.rows = v + s0 * a->vs[2], .step = a->vs[2], .count = here};
        if (direct)
            for (long i = 0; i < ahead; i++) fetch(vn + i * a->vs[2], dim);
        else pair_values(from.rows, from.step, here, dim, vn, ahead, paired), from.pairs = paired;
        for (int t = 0; t < tiles; t++) {
            const int r0 = n * t / tiles, rows = n * (t + 1) / tiles - r0;
            const uint8_t *allowed[TILE];
            int used[TILE], most = 0, least = KEYS, plain = 1;
            for (int r = 0; r < rows; r++) {
                used[r] = (int)MOST(0, LEAST(here, w->limit[r0 + r] - s0));
                allowed[r] = w->allowed[r0 + r] ? w->allowed[r0 + r] + s0 : NULL;
                most = MOST(most, used[r]), least = LEAST(least, used[r]);
                plain &= !allowed[r];
            }
            if (most == 0) continue;
            running now = {peak + r0, sum + r0, fade + r0};
            const uint32_t *qt = q + r0 * (wide / 2);
            uint32_t *pt = p + r0 * KEYS;
            float *st = s + r0 * KEYS;
            if (most > 32) scores4(rows, qt, wide / 2, keys, pairs, st);
            else scores2(rows, qt, wide / 2, keys, pairs, st);
            for (int r = 0; r < rows; r++)
                if (w->none[r0 + r]) memset(st + r * KEYS, 0, KEYS * 4);
            if (plain && least == KEYS) shares(4, 1, rows, st, by, used, allowed, now, pt);
            else if (most > 32) shares(4, 0, rows, st, by, used, allowed, now, pt);
            else shares(2, 0, rows, st, by, used, allowed, now, pt);
            (direct ? weigh_rows : weigh_pairs)(rows, acc + r0 * wide, wide, now.fade, pt, used, &from);
        }
    }
    for (int r = 0; r < n; r++) {
        const float by = sum[r] > 0 ? 1.0f / sum[r] : 0.0f;
        float *const x = acc + r * wide;
        bf16 *y = w->y[r];
        for (long d = 0; d < wide; d += 32) spread(_mm512_load_ps(x + d), _mm512_load_ps(x + d + 16), x + d);
        for (long d = 0; d < dim; d++) y[d] = to_bf16(x[d] * by);
    }
}

#else

int attend_bf16_here(const attention *a) { return 0; }
size_t attend_bf16_bytes(const attention *a) { return 0; }
void attend_bf16(const attention *a, const piece *p, const long *after, char *memory) {}

#endif
