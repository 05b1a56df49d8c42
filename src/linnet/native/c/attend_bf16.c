// Attention in bf16 with products of bf16 pairs, for any number of query rows.
//
// A block of keys is turned to pairs of features with the keys along the lanes, and its values to
// pairs of keys with the features along the lanes; so scores and sums come out in lanes and nothing
// is added across. Scores are added over the features in order, values over the keys in order, two at
// a time, whatever else is in the piece. A weight meets the values as the sum of two bf16 numbers where it
// is large, else as one (attend_softmax.h): first the high halves of a block, then the low ones that count.
#include "attention.h"
#include "dot.h"

#ifdef HAVE_DPBF16
#include "attend_softmax.h"

int attend_bf16_here(const attention *a) { return a->type == T_BF16; }

#define TILES (ROWS / TILE)

size_t attend_bf16_bytes(const attention *a, int rows) {
    const size_t dim = wide32(a->dim);
    // Keys and values as pairs; sums and queries; scores and weights of two tiles; sixteen keys.
    return KEYS * dim * 4 + rows * dim * 6 + 4 * TILE * KEYS * 4 + dim * 32 + 4096;
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
static void low_pairs(float *acc, long wide, const uint32_t *p, uint64_t pairs, int used, const values *from) {
    long d = 0;
    for (; d + 128 <= wide; d += 128) weigh_low(1, 8, acc, wide, d, p, pairs, used, from);
    for (; d + 64 <= wide; d += 64) weigh_low(1, 4, acc, wide, d, p, pairs, used, from);
    if (d < wide) weigh_low(1, 2, acc, wide, d, p, pairs, used, from);
}
static void low_rows(float *acc, long wide, const uint32_t *p, uint64_t pairs, int used, const values *from) {
    long d = 0;
    for (; d + 128 <= wide; d += 128) weigh_low(0, 8, acc, wide, d, p, pairs, used, from);
    for (; d + 64 <= wide; d += 64) weigh_low(0, 4, acc, wide, d, p, pairs, used, from);
    if (d < wide) weigh_low(0, 2, acc, wide, d, p, pairs, used, from);
}

static void weigh_tile(const tile *t, int direct, float *acc, long wide, const uint32_t *p, const values *from) {
    (direct ? weigh_rows : weigh_pairs)(t->rows, acc, wide, t->fade, p, t->used, from);
    for (int left = t->sharp; left; left &= left - 1) {
        const int r = __builtin_ctz(left);
        (direct ? low_rows : low_pairs)(acc + r * wide, wide, p + r * KEYS + PAIRS, t->low[r], t->used[r], from);
    }
}

// What the steps of a tile share in one block.
typedef struct block {
    const piece *w;
    const uint32_t *q, *keys;
    long wide, pairs;
    V by;
} block;

#define STEPS(f, ...)                                                \
    do {                                                             \
        if (t->whole && t->rows == TILE) f(4, 1, TILE, __VA_ARGS__); \
        else if (t->most > 32) f(4, t->whole, t->rows, __VA_ARGS__); \
        else f(2, 0, t->rows, __VA_ARGS__);                          \
    } while (0)

static void tile_scores(const block *b, tile *t, float *s) {
    const uint32_t *q = b->q + t->first * (b->wide / 2);
    if (t->most > 32) scores4(t->rows, q, b->wide / 2, b->keys, b->pairs, s);
    else scores2(t->rows, q, b->wide / 2, b->keys, b->pairs, s);
    for (int r = 0; r < t->rows; r++)
        if (b->w->none[t->first + r]) memset(s + r * KEYS, 0, KEYS * 4);
    STEPS(tops, t, s, b->by);
}
static void tile_weights(const block *b, tile *t, float *s, uint32_t *p) { STEPS(weights, t, s, b->by, p); }
static void tile_lows(tile *t, const float *s, uint32_t *p) { STEPS(lows, t, s, p); }

// What each row of the tiles sees of the `here` keys from s0 on. How many tiles see any: those in the list.
static int tiles_see(tile *tiles, tile **list, int count, const piece *w, long s0, long here) {
    if (s0 > 0 && s0 + KEYS <= w->shortest) return count; // all and everything, as before
    int some = 0;
    for (int i = 0; i < count; i++) {
        tile *t = tiles + i;
        int least = KEYS, plain = 1;
        t->most = 0;
        for (int r = 0; r < t->rows; r++) {
            const int at = t->first + r;
            t->used[r] = (int)MOST(0, LEAST(here, w->limit[at] - s0));
            t->allowed[r] = w->allowed[at] ? w->allowed[at] + s0 : NULL;
            t->most = MOST(t->most, t->used[r]), least = LEAST(least, t->used[r]);
            plain &= !t->allowed[r];
        }
        t->whole = plain && least == KEYS;
        if (t->most) list[some++] = t;
    }
    return some;
}

void attend_bf16(ctx *c, const attention *a, const piece *w, const long *after, char *memory) {
    const long dim = a->dim, wide = wide32(dim), pairs = (dim + 1) / 2;
    const int n = w->n, count = (n + TILE - 1) / TILE;
    uint32_t *keys = (uint32_t *)(((uintptr_t)memory + 63) & ~(uintptr_t)63);
    uint32_t *paired = keys + KEYS / 2 * wide;
    float *s = (float *)(paired + KEYS / 2 * wide);
    uint32_t *p = (uint32_t *)(s + 2 * TILE * KEYS);
    float *acc = (float *)(p + 2 * TILE * KEYS);
    uint32_t *q = (uint32_t *)(acc + n * wide);
    bf16 *room = (bf16 *)(q + n * wide / 2);
    tile tiles[TILES], *list[TILES];
    // Scores are of the queries times the sign of the scale: so the highest of them has the highest weight.
    const uint32_t sign = a->scale < 0 ? 0x80008000 : 0;
    for (int r = 0; r < n; r++) {
        uint32_t *to = q + r * (wide / 2);
        to[pairs - 1] = 0;
        memcpy(to, w->q[r], dim * 2);
        if (sign)
            for (long i = 0; i < pairs; i++) to[i] ^= sign;
        memset(acc + r * wide, 0, wide * 4);
    }
    for (int i = 0; i < count; i++) {
        tile *t = tiles + i;
        t->first = n * i / count, t->rows = n * (i + 1) / count - t->first;
        for (int l = 0; l < 16; l++) t->peak[l] = -INFINITY, t->sum[l] = 0;
    }
    const block b = {w, q, keys, wide, pairs, _mm512_set1_ps(fabsf(a->scale) * 1.44269504f)};
    const bf16 *const k = (const bf16 *)a->k + w->batch * a->ks[0] + w->head * a->ks[1];
    const bf16 *const v = (const bf16 *)a->v + w->batch * a->vs[0] + w->head * a->vs[1];
    const int direct = count <= 2 && dim % 32 == 0; // to pair values first would not pay
    for (long s0 = 0; s0 < w->longest; s0 += KEYS) {
        may_leave(c);
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
        const int some = tiles_see(tiles, list, count, w, s0, here);
        // Between a tile's steps come another's products, during which its softmax comes about.
        for (int i = 0; i <= some; i++) {
            const int own = i % 2 * TILE * KEYS, other = TILE * KEYS - own;
            if (i < some) tile_scores(&b, list[i], s + own);
            if (i > 0) {
                tile *t = list[i - 1];
                if (t->sharp) tile_lows(t, s + other, p + other);
                weigh_tile(t, direct, acc + t->first * wide, wide, p + other, &from);
            }
            if (i < some) tile_weights(&b, list[i], s + own, p + own);
        }
    }
    for (int i = 0; i < count; i++)
        for (int j = 0; j < tiles[i].rows; j++) {
            const int r = tiles[i].first + j;
            const float sum = tiles[i].sum[j];
            finish_row(acc + r * wide, sum > 0 ? 1.0f / sum : 0.0f, dim, w->y[r]);
        }
}

#else

int attend_bf16_here(const attention *a) { return 0; }
size_t attend_bf16_bytes(const attention *a, int rows) { return 0; }
void attend_bf16(ctx *c, const attention *a, const piece *p, const long *after, char *memory) {}

#endif
