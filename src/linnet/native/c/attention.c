// Attention over `[B, heads, positions, D]` by blocks of keys, with the softmax kept up on the way
// (Milakov and Gimelshein 2018, arXiv 1805.02867). Blocks begin at multiples of KEYS, whatever the
// queries are, so a query's result is the same alone and in any prompt. Scores and sums are f32.
#include "attention.h"
#include "dot.h"
#include "values.h"

#define FEW_ROWS (ROWS / 4)

// acc[r] += p[r][0 … n[r]) v, one row after another of v, `rows` rows at once.
static inline __attribute__((always_inline)) void weigh(
    const int rows, float *const *acc, float *const *p, const float *v, long dim, const int *n) {
    int all = n[0];
    for (int r = 1; r < rows; r++) all = LEAST(all, n[r]);
    long d = 0;
    for (; d + 2 * WIDE <= dim; d += 2 * WIDE) {
        vec a[4][2];
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) a[r][0] = *(vec *)(acc[r] + d), a[r][1] = *(vec *)(acc[r] + d + WIDE);
        int j = 0;
        for (; j < all; j++) {
            const vec x0 = *(const vec *)(v + j * dim + d), x1 = *(const vec *)(v + j * dim + d + WIDE);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) a[r][0] += p[r][j] * x0, a[r][1] += p[r][j] * x1;
        }
        for (int r = 0; r < rows; r++)
            for (int k = all; k < n[r]; k++)
                a[r][0] += p[r][k] * *(const vec *)(v + k * dim + d),
                    a[r][1] += p[r][k] * *(const vec *)(v + k * dim + d + WIDE);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) *(vec *)(acc[r] + d) = a[r][0], *(vec *)(acc[r] + d + WIDE) = a[r][1];
    }
    for (; d < dim; d++)
        for (int r = 0; r < rows; r++)
            for (int j = 0; j < n[r]; j++) acc[r][d] = FMA(p[r][j], v[j * dim + d], acc[r][d]);
}

static size_t attend_bytes(const attention *a, int rows) {
    return rows * ((a->dim * 3 + KEYS + 16) * sizeof(float) + 128) + 2 * KEYS * a->dim * sizeof(float) + 4096;
}

// One piece in f32, for any type.
static void attend(ctx *c, const attention *a, const piece *w, char *memory) {
    const int type = a->type, n = w->n;
    const long dim = a->dim, bytes = type == T_F32 ? 4 : 2;
    const size_t row = (dim * 3 + KEYS + 16) * sizeof(float);
    float *values = (float *)memory, *keys = values + KEYS * dim;
    char *room = (char *)(keys + KEYS * dim);
    float *acc[ROWS], *p[ROWS], *qf[ROWS], peak[ROWS], sum[ROWS];
    for (int r = 0; r < n; r++) {
        acc[r] = (float *)(room + r * row);
        p[r] = acc[r] + dim;
        qf[r] = p[r] + KEYS + 8;
        peak[r] = -INFINITY;
        sum[r] = 0;
        memset(acc[r], 0, dim * sizeof(float));
        if (type == T_F16)
            for (long d = 0; d < dim; d++) qf[r][d] = get(w->q[r], type, d);
    }
    for (long s0 = 0; s0 < w->longest; s0 += KEYS) {
        may_leave(c);
        const long sn = LEAST(KEYS, w->longest - s0), ks = a->ks[2], vs = a->vs[2];
        const char *kp = (const char *)a->k + (w->batch * a->ks[0] + w->head * a->ks[1] + s0 * ks) * bytes;
        const char *vp = (const char *)a->v + (w->batch * a->vs[0] + w->head * a->vs[1] + s0 * vs) * bytes;
        for (long s = 0; s < sn; s++)
            for (long d = 0; d < dim; d++) values[s * dim + d] = get(vp, type, s * vs + d);
        if (type == T_F16)
            for (long s = 0; s < sn; s++)
                for (long d = 0; d < dim; d++) keys[s * dim + d] = get(kp, type, s * ks + d);
        for (int r = 0; r < n; r += TILE_ROWS) {
            int count = LEAST(TILE_ROWS, n - r);
            for (long s = 0; s < sn; s += TILE_OUTS) {
                int outs = (int)LEAST(TILE_OUTS, sn - s);
                float part[TILE_ROWS * TILE_OUTS];
                if (type == T_BF16)
                    dot_bf16(count, outs, (const bf16 *const *)w->q + r, (const bf16 *)kp + s * ks, ks, dim, part);
                else if (type == T_F32)
                    dot_f32(count, outs, (const float *const *)w->q + r, (const float *)kp + s * ks, ks, dim, part);
                else
                    dot_f32(count, outs, (const float *const *)qf + r, keys + s * dim, dim, dim, part);
                for (int i = 0; i < count; i++)
                    for (int j = 0; j < outs; j++) p[r + i][s + j] = part[i * TILE_OUTS + j];
            }
        }
        int used[ROWS];
        for (int r = 0; r < n; r++) {
            long m = LEAST(sn, w->limit[r] - s0);
            used[r] = m < 0 ? 0 : (int)m;
            if (used[r] == 0) continue;
            const uint8_t *allowed = w->allowed[r];
            float top = peak[r];
            for (int s = 0; s < used[r]; s++) {
                float value = w->none[r] ? 0.0f : p[r][s] * a->scale;
                if (allowed && !allowed[s0 + s]) value = -1e30f;
                p[r][s] = value;
                top = MOST(top, value);
            }
            float fade = peak[r] == -INFINITY ? 0.0f : m_exp(peak[r] - top);
            for (int s = used[r]; s < KEYS; s++) p[r][s] = -INFINITY;
            for (int s = 0; s < KEYS; s++) p[r][s] = m_exp(p[r][s] - top);
            for (int s = used[r]; s < KEYS; s++) p[r][s] = 0;
            float lane[16];
            for (int l = 0; l < 16; l++) lane[l] = ((p[r][l] + p[r][l + 16]) + p[r][l + 32]) + p[r][l + 48];
            sum[r] = sum[r] * fade + lanes_sum(*(v16 *)lane);
            if (fade != 1.0f)
                for (long d = 0; d < dim; d++) acc[r][d] *= fade;
            peak[r] = top;
        }
        for (int r = 0; r < n; r += 4) {
            switch (LEAST(4, n - r)) {
            case 1: weigh(1, acc + r, p + r, values, dim, used + r); break;
            case 2: weigh(2, acc + r, p + r, values, dim, used + r); break;
            case 3: weigh(3, acc + r, p + r, values, dim, used + r); break;
            default: weigh(4, acc + r, p + r, values, dim, used + r);
            }
        }
    }
    for (int r = 0; r < n; r++) {
        float by = sum[r] > 0 ? 1.0f / sum[r] : 0.0f;
        for (long d = 0; d < dim; d++) put(w->y[r], type, d, acc[r][d] * by);
    }
}

// How a call is cut: `per` queries and up to `rows` heads of a group in each piece.
typedef struct cut {
    long share, rows, per, pieces, groups, total;
} cut;

static cut cut_of(const attention *a, int rows) {
    cut by = {.share = a->heads / a->kv, .rows = rows};
    by.per = MOST(1, rows / by.share);
    by.pieces = (a->queries + by.per - 1) / by.per;
    by.groups = (by.share + rows - 1) / rows;
    by.total = a->batch * a->kv * by.pieces * by.groups;
    return by;
}

static long start_of(const attention *a, long b) {
    if (a->mask != 2) return a->at;
    return (a->wide ? ((const int64_t *)a->starts)[b] : ((const int32_t *)a->starts)[b]) + a->at;
}

// Piece number `task`: the longest first.
static void piece_of(const attention *a, const cut *by, long task, piece *w) {
    const long bytes = a->type == T_F32 ? 4 : 2;
    const long part = by->pieces - 1 - task % by->pieces, g = task / by->pieces;
    const long group = g % by->groups, h = g / by->groups % a->kv, b = g / by->groups / a->kv;
    const long q0 = part * by->per, qn = LEAST(by->per, a->queries - q0);
    const long h0 = group * by->rows, hn = LEAST(by->rows, by->share - h0), start = start_of(a, b);
    int n = 0;
    w->batch = b, w->head = h, w->longest = 0, w->shortest = a->keys;
    for (long i = 0; i < qn; i++)
        for (long j = 0; j < hn; j++, n++) {
            long head = h * by->share + h0 + j;
            w->q[n] = (const char *)a->q + (b * a->qs[0] + head * a->qs[1] + (q0 + i) * a->qs[2]) * bytes;
            w->y[n] = (char *)a->y + (b * a->ys[0] + head * a->ys[1] + (q0 + i) * a->ys[2]) * bytes;
            w->limit[n] = a->mask == 1 || a->mask == 2 ? LEAST(a->keys, start + q0 + i + 1) : a->keys;
            w->allowed[n] = a->mask == 3 ? a->seen + b * a->seen_batch + (q0 + i) * a->keys : NULL;
            w->none[n] = w->limit[n] <= 0;
            if (a->mask == 3) {
                long last = a->keys;
                while (last > 0 && !w->allowed[n][last - 1]) last--;
                w->none[n] = last == 0;
                w->limit[n] = last;
            }
            if (w->none[n]) w->limit[n] = a->keys, w->allowed[n] = NULL;
            w->longest = MOST(w->longest, w->limit[n]);
            w->shortest = LEAST(w->shortest, w->allowed[n] ? 0 : w->limit[n]);
        }
    w->n = n;
}

void k_attention(ctx *c, int hazard, int type, const void *q, const long *qs, const void *k,
                 const long *ks, const void *v, const long *vs, void *y, const long *ys, long batch,
                 long heads, long kv, long queries, long keys, long dim, float scale, int mask,
                 long at, const void *starts, int wide, const uint8_t *seen, long seen_batch) {
    const attention a = {type, q, k, v, y, qs, ks, vs, ys, batch, heads, kv, queries, keys, dim, scale,
                         mask, at, starts, wide, seen, seen_batch};
    if (batch * heads * queries * dim == 0) return;
    const int bf = attend_bf16_here(&a);
    // More rows share what is done to their keys, as long as there are enough pieces for all threads.
    int rows = bf ? ROWS : FEW_ROWS;
    while (rows > FEW_ROWS && cut_of(&a, rows).total < 16 * c->threads) rows /= 2;
    const cut by = cut_of(&a, rows);
    long reach = mask == 1 ? LEAST(keys, at + queries) : keys;
    const int parallel = (double)batch * heads * queries * MOST(reach, 1) * dim > 60000.0;
    step_begin(c, hazard, parallel);
    if (!parallel && c->thread) return;
    atomic_long *next = parallel ? work_counter(c) : NULL;
    char *own = scratch(c, bf ? attend_bf16_bytes(&a, rows) : attend_bytes(&a, rows));
    piece w[2];
    long task = next ? work_next(c, next) : 0;
    int now = 0;
    if (task < by.total) piece_of(&a, &by, task, &w[now]);
    while (task < by.total) {
        task = next ? work_next(c, next) : task + 1;
        long after[3] = {0};
        if (task < by.total) {
            piece_of(&a, &by, task, &w[!now]);
            after[0] = w[!now].batch, after[1] = w[!now].head, after[2] = LEAST(KEYS, w[!now].longest);
        }
        if (bf) attend_bf16(c, &a, &w[now], task < by.total ? after : NULL, own);
        else attend(c, &a, &w[now], own);
        now = !now;
    }
}
