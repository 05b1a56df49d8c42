// Caches of keys and values in 8 bits: `[B, heads, positions]` rows of `dim` signed bytes and an f32
// scale. Written by k_write8 and read by k_attention8 alone.
//
// Scores, softmax and sums are f32. Positions are taken by spans; within one the softmax is kept up
// on the way (Milakov and Gimelshein 2018, arXiv 1805.02867), and spans are joined in their order.
// Threads share the spans of a single query, and a query's result is the same however it was shared,
// in any batch and any prompt.
#include "dot.h"
#include "kernels.h"

#define SPAN 1024
#define KEYS 64
#define ROWS 24 // query rows of one piece of work
#define AT_ONCE 8

// The width of these vectors is inside this file only.
#pragma GCC diagnostic ignored "-Wpsabi"
typedef int8_t b16 __attribute__((vector_size(16), aligned(1), may_alias));
static inline __attribute__((always_inline)) v16 widened(const int8_t *x) {
    return __builtin_convertvector(*(const b16 *)x, v16);
}
static inline float get(const void *x, int type, long at) {
    if (type == T_BF16) return from_bf16(((const bf16 *)x)[at]);
    if (type == T_F32) return ((const float *)x)[at];
    return (float)((const f16 *)x)[at];
}
static inline void put(void *y, int type, long at, float value) {
    if (type == T_BF16) ((bf16 *)y)[at] = to_bf16(value);
    else if (type == T_F32) ((float *)y)[at] = value;
    else ((f16 *)y)[at] = (f16)value;
}
static inline long look(const void *p, int wide, long i) {
    return wide ? ((const int64_t *)p)[i] : ((const int32_t *)p)[i];
}

void k_write8(ctx *c, int hazard, int type, const weight *state, long keys, long first, const void *value,
              const long *vs, long m, long heads, long count, long width, const void *slots,
              const void *positions, int wide, long at, int tokens) {
    long n = m * heads * count, size = type == T_F32 ? 4 : 2, each = width + 4;
    int parallel = n > 1 && (double)n * width > PARALLEL_WORK / 4;
    step_begin(c, hazard, parallel);
    if (!parallel && c->thread) return;
    long lo = parallel ? n * c->thread / c->threads : 0;
    long hi = parallel ? n * (c->thread + 1) / c->threads : n;
    for (long t = lo; t < hi; t++) {
        long s = t % count, h = t / count % heads, b = t / count / heads;
        long row = first + (slots ? look(slots, wide, tokens ? s : b) : b);
        long place = positions ? look(positions, wide, tokens ? s : b) + (tokens ? 0 : s) : at + s;
        const void *x = (const char *)value + (b * vs[0] + h * vs[1] + s * vs[2]) * size;
        int8_t *to = (int8_t *)state->data + ((row * heads + h) * keys + place) * each;
        float most = 0;
        int odd = 0;
        for (long d = 0; d < width; d++) {
            float a = fabsf(get(x, type, d));
            odd |= !(a <= 3.0e38f);
            most = MOST(most, a);
        }
        float scale = odd ? NAN : most / 127, by = scale > 0 ? 1 / scale : 0;
        for (long d = 0; d < width; d++) {
            float q = odd ? 0 : rintf(get(x, type, d) * by);
            to[d] = (int8_t)(q > 127 ? 127 : q < -127 ? -127 : q);
        }
        memcpy(to + width, &scale, 4);
    }
}

// What is known of a query row after some keys.
typedef struct row {
    float peak, sum;
    float *acc;
} row;

// p[r][j] = q[r] . key j, for up to AT_ONCE rows, `rows` constant where it is inlined.
static inline __attribute__((always_inline)) void scores(
    const int rows, float *const *q, const int8_t *key, long step, int n, long dim, float *const *p) {
    for (int j = 0; j < n; j++, key += step) {
        float scale;
        memcpy(&scale, key + dim, 4);
        v16 a[AT_ONCE] = {0};
        long d = 0;
        for (; d + 16 <= dim; d += 16) {
            v16 x = widened(key + d);
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) a[r] += *(const v16 *)(q[r] + d) * x;
        }
        float total[AT_ONCE];
        if (rows >= 4) {
#pragma GCC unroll 2
            for (int r = 0; r < rows; r += 4) *(v4 *)(total + r) = lanes_sum4(a[r], a[r + 1], a[r + 2], a[r + 3]);
        } else {
#pragma GCC unroll 2
            for (int r = 0; r < rows; r++) total[r] = lanes_sum(a[r]);
        }
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            for (long k = d; k < dim; k++) total[r] = FMA(q[r][k], (float)key[k], total[r]);
            p[r][j] = total[r] * scale;
        }
    }
}
// acc[r] += p[r][j] value j, key after key.
static inline __attribute__((always_inline)) void weigh(
    const int rows, float *const *acc, float *const *p, const int8_t *value, long step, int n, long dim) {
    long d = 0;
    for (; d + 16 <= dim; d += 16) {
        v16 a[AT_ONCE];
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) a[r] = *(v16 *)(acc[r] + d);
        for (int j = 0; j < n; j++) {
            v16 x = widened(value + j * step + d);
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++) a[r] += p[r][j] * x;
        }
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) *(v16 *)(acc[r] + d) = a[r];
    }
    for (; d < dim; d++)
        for (int r = 0; r < rows; r++)
            for (int j = 0; j < n; j++) acc[r][d] = FMA(p[r][j], (float)value[j * step + d], acc[r][d]);
}
#define BY_ROWS(count, call)                                                                       \
    switch (count) {                                                                               \
    case 1: { enum { N = 1 }; call; break; }                                                       \
    case 2: { enum { N = 2 }; call; break; }                                                       \
    case 3: case 4: { enum { N = 4 }; call; break; }                                               \
    default: { enum { N = 8 }; call; }                                                             \
    }

typedef struct piece {
    int n;
    float *q[ROWS], *p[ROWS], *acc[ROWS];
    long limit[ROWS];
    const uint8_t *allowed[ROWS];
    int none[ROWS];
} piece;

// One span of keys for all rows of a piece, from nothing; `at` has peak and sum of each row.
static void span_of(const piece *w, row *at, const int8_t *key, const int8_t *value, long step,
                    long from, long to, long dim, float scale) {
    for (int r = 0; r < w->n; r++) {
        at[r].peak = -INFINITY;
        at[r].sum = 0;
        memset(w->acc[r], 0, dim * sizeof(float));
    }
    for (long s0 = from; s0 < to; s0 += KEYS) {
        int n = (int)LEAST(KEYS, to - s0);
        const int8_t *k = key + s0 * step, *v = value + s0 * step;
        for (int r = 0; r < w->n; r += AT_ONCE)
            BY_ROWS(w->n - r, scores(N, w->q + r, k, step, n, dim, w->p + r))
        float fold[KEYS];
        for (int j = 0; j < n; j++) memcpy(fold + j, v + j * step + dim, 4);
        for (int r = 0; r < w->n; r++) {
            float *p = w->p[r];
            long m = LEAST(n, w->limit[r] - s0);
            int used = m < 0 ? 0 : (int)m;
            float top = at[r].peak;
            for (int s = 0; s < used; s++) {
                float x = w->none[r] ? 0.0f : p[s] * scale;
                if (w->allowed[r] && !w->allowed[r][s0 + s]) x = -1e30f;
                p[s] = x;
                top = MOST(top, x);
            }
            if (used) {
                float fade = at[r].peak == -INFINITY ? 0.0f : m_exp(at[r].peak - top);
                for (int s = used; s < KEYS; s++) p[s] = -INFINITY;
                for (int s = 0; s < KEYS; s++) p[s] = m_exp(p[s] - top);
                for (int s = used; s < KEYS; s++) p[s] = 0;
                float lane[16];
                for (int l = 0; l < 16; l++) lane[l] = ((p[l] + p[l + 16]) + p[l + 32]) + p[l + 48];
                at[r].sum = at[r].sum * fade + lanes_sum(*(v16 *)lane);
                if (fade != 1.0f)
                    for (long d = 0; d < dim; d++) w->acc[r][d] *= fade;
                at[r].peak = top;
            }
            for (int s = 0; s < used; s++) p[s] *= fold[s];
            for (int s = used; s < n; s++) p[s] = 0;
        }
        for (int r = 0; r < w->n; r += AT_ONCE)
            BY_ROWS(w->n - r, weigh(N, w->acc + r, w->p + r, v, step, n, dim))
    }
}
static void join(row *total, const row *part, long dim) {
    if (part->peak == -INFINITY) return;
    float top = MOST(total->peak, part->peak);
    float a = total->peak == -INFINITY ? 0.0f : m_exp(total->peak - top), b = m_exp(part->peak - top);
    total->sum = total->sum * a + part->sum * b;
    for (long d = 0; d < dim; d++) total->acc[d] = total->acc[d] * a + part->acc[d] * b;
    total->peak = top;
}

void k_attention8(ctx *c, int hazard, int type, const void *q, const long *qs, const weight *k,
                  const weight *v, void *y, const long *ys, long batch, long heads, long kv, long queries,
                  long keys, long dim, float scale, int mask, long at, const void *rows, int wide,
                  const uint8_t *seen, long seen_batch, char *room) {
    long share = heads / kv, bytes = type == T_F32 ? 4 : 2, each = dim + 4;
    long per = MOST(1, ROWS / share);
    long pieces = (queries + per - 1) / per, groups = (share + ROWS - 1) / ROWS;
    if (batch * heads * queries * dim == 0) return;
    long reach = keys;
    if (mask == 1) reach = LEAST(keys, at + queries);
    if (mask == 2) {
        reach = 1;
        for (long b = 0; b < batch; b++) {
            long start = look(rows, wide, b) + at;
            reach = start < 0 ? keys : MOST(reach, LEAST(keys, start + queries));
            if (reach == keys) break;
        }
    }
    if (reach <= 0) reach = keys;
    long spans = room ? (reach + SPAN - 1) / SPAN : 1; // shared between pieces of work
    const int parallel = (double)batch * heads * queries * reach * dim > 60000.0;
    step_begin(c, hazard, parallel);
    atomic_long *next = parallel ? work_counter(c) : NULL;
    long wide_dim = (dim + 15) / 16 * 16, cell = wide_dim + 16;
    size_t own = ((size_t)(3 * wide_dim + KEYS + 16)) * sizeof(float);
    char *mine = scratch(c, ROWS * own + 4096);
    piece w;
    row part[ROWS], total[ROWS];
    for (int r = 0; r < ROWS; r++) {
        float *place = (float *)(mine + r * own);
        w.q[r] = place, w.acc[r] = part[r].acc = place + wide_dim;
        total[r].acc = place + 2 * wide_dim, w.p[r] = place + 3 * wide_dim;
        memset(place, 0, own);
    }
    long tasks = !parallel && c->thread ? 0 : batch * kv * pieces * groups * spans;
    for (long task = next ? work_next(c, next) : 0; task < tasks; task = next ? work_next(c, next) : task + 1) {
        long span = task % spans, left = task / spans;
        long number = pieces - 1 - left % pieces, g = left / pieces; // the longest first
        long group = g % groups, h = g / groups % kv, b = g / groups / kv;
        long q0 = number * per, qn = LEAST(per, queries - q0);
        long h0 = group * ROWS, hn = LEAST(ROWS, share - h0);
        long start = mask == 2 ? look(rows, wide, b) + at : at, longest = 0;
        w.n = 0;
        for (long i = 0; i < qn; i++)
            for (long j = 0; j < hn; j++, w.n++) {
                int n = w.n;
                long head = h * share + h0 + j;
                const void *from = (const char *)q + (b * qs[0] + head * qs[1] + (q0 + i) * qs[2]) * bytes;
                for (long d = 0; d < dim; d++) w.q[n][d] = get(from, type, d);
                w.limit[n] = mask == 1 || mask == 2 ? LEAST(keys, start + q0 + i + 1) : keys;
                w.allowed[n] = mask == 3 ? seen + b * seen_batch + (q0 + i) * keys : NULL;
                if (mask == 3) {
                    long last = 0;
                    for (long s = 0; s < keys; s++)
                        if (w.allowed[n][s]) last = s + 1;
                    w.limit[n] = last;
                }
                w.none[n] = w.limit[n] <= 0;
                if (w.none[n]) w.limit[n] = keys, w.allowed[n] = NULL; // every value alike
                longest = MOST(longest, w.limit[n]);
                total[n].peak = -INFINITY;
                total[n].sum = 0;
                memset(total[n].acc, 0, dim * sizeof(float));
            }
        const int8_t *key = (const int8_t *)k->data + (b * kv + h) * keys * each;
        const int8_t *value = (const int8_t *)v->data + (b * kv + h) * keys * each;
        for (long s0 = room ? span * SPAN : 0; s0 < longest; s0 += SPAN) {
            span_of(&w, part, key, value, each, s0, LEAST(longest, s0 + SPAN), dim, scale);
            if (room) break;
            for (int r = 0; r < w.n; r++) join(total + r, part + r, dim);
        }
        for (int r = 0; r < w.n; r++) {
            long i = q0 + r / hn, head = h * share + h0 + r % hn;
            if (room) { // one query a row of the batch
                float *to = (float *)room + ((b * heads + head) * spans + span) * cell;
                int empty = span * SPAN >= w.limit[r];
                to[0] = empty ? -INFINITY : part[r].peak, to[1] = part[r].sum;
                if (!empty) memcpy(to + 16, part[r].acc, dim * sizeof(float));
                continue;
            }
            char *out = (char *)y + (b * ys[0] + head * ys[1] + i * ys[2]) * bytes;
            float by = total[r].sum > 0 ? 1.0f / total[r].sum : 0.0f;
            for (long d = 0; d < dim; d++) put(out, type, d, total[r].acc[d] * by);
        }
    }
    if (!room) return;
    int share_rows = (double)batch * heads * spans * dim > 60000.0;
    step_begin(c, 1, share_rows);
    long n = !share_rows && c->thread ? 0 : batch * heads;
    long lo = share_rows ? n * c->thread / c->threads : 0;
    long hi = share_rows ? n * (c->thread + 1) / c->threads : n;
    for (long t = lo; t < hi; t++) {
        row all = {-INFINITY, 0, total[0].acc};
        memset(all.acc, 0, dim * sizeof(float));
        for (long span = 0; span < spans; span++) {
            float *from = (float *)room + (t * spans + span) * cell;
            row one = {from[0], from[1], from + 16};
            join(&all, &one, dim);
        }
        char *out = (char *)y + (t / heads * ys[0] + t % heads * ys[1]) * bytes;
        float by = all.sum > 0 ? 1.0f / all.sum : 0.0f;
        for (long d = 0; d < dim; d++) put(out, type, d, all.acc[d] * by);
    }
}
