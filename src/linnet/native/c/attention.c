// Attention over `[B, heads, positions, D]` by blocks of keys, with the softmax kept up on the way
// (Milakov and Gimelshein 2018, arXiv 1805.02867). Blocks begin at multiples of KEYS, whatever the
// queries are, so a query's result is the same alone and in any prompt. Scores and sums are f32.
#include "dot.h"
#include "kernels.h"

#define KEYS 64
#define ROWS 24 // query rows of one piece of work

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

// acc[r] += p[r][0 … n[r]) v, one row after another of v, `rows` rows at once.
static inline __attribute__((always_inline)) void weigh(
    const int rows, float *const *acc, float *const *p, const float *v, long dim, const int *n) {
    int all = n[0];
    for (int r = 1; r < rows; r++) all = LEAST(all, n[r]);
    long d = 0;
    for (; d + 16 <= dim; d += 16) {
        v16 a[4];
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) a[r] = *(v16 *)(acc[r] + d);
        int j = 0;
        for (; j < all; j++) {
            v16 x = *(const v16 *)(v + j * dim + d);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) a[r] += p[r][j] * x;
        }
        for (int r = 0; r < rows; r++)
            for (int k = all; k < n[r]; k++) a[r] += p[r][k] * *(const v16 *)(v + k * dim + d);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) *(v16 *)(acc[r] + d) = a[r];
    }
    for (; d < dim; d++)
        for (int r = 0; r < rows; r++)
            for (int j = 0; j < n[r]; j++) acc[r][d] = FMA(p[r][j], v[j * dim + d], acc[r][d]);
}

void k_attention(ctx *c, int hazard, int type, const void *q, const long *qs, const void *k,
                 const long *ks, const void *v, const long *vs, void *y, const long *ys, long batch,
                 long heads, long kv, long queries, long keys, long dim, float scale, int mask,
                 long at, const void *rows, int wide, const uint8_t *seen, long seen_batch) {
    long share = heads / kv, bytes = type == T_F32 ? 4 : 2;
    long per = MOST(1, ROWS / share);              // queries of one piece of work
    long pieces = (queries + per - 1) / per, groups = (share + ROWS - 1) / ROWS;
    if (batch * heads * queries * dim == 0) return;
    long reach = mask == 1 ? LEAST(keys, at + queries) : keys;
    const int parallel = (double)batch * heads * queries * MOST(reach, 1) * dim > 60000.0;
    step_begin(c, hazard, parallel);
    if (!parallel && c->thread) return;
    atomic_long *next = parallel ? work_counter(c) : NULL;
    size_t row = (dim * 3 + KEYS + 16) * sizeof(float);
    char *own = scratch(c, ROWS * (row + 128) + 2 * KEYS * dim * sizeof(float) + 4096);
    float *values = (float *)own, *keys_f = values + KEYS * dim;
    char *room = (char *)(keys_f + KEYS * dim);
    float *acc[ROWS], *p[ROWS], *qf[ROWS];
    for (int r = 0; r < ROWS; r++) {
        acc[r] = (float *)(room + r * row);
        p[r] = acc[r] + dim;
        qf[r] = p[r] + KEYS + 8;
    }
    long total = batch * kv * pieces * groups;
    for (long task = next ? work_next(next) : 0; task < total; task = next ? work_next(next) : task + 1) {
        long piece = pieces - 1 - task % pieces, g = task / pieces; // the longest first
        long group = g % groups, h = g / groups % kv, b = g / groups / kv;
        long q0 = piece * per, qn = LEAST(per, queries - q0);
        long h0 = group * ROWS, hn = LEAST(ROWS, share - h0);
        int n = 0;
        long limit[ROWS], longest = 0;
        int none[ROWS];
        float peak[ROWS], sum[ROWS];
        const void *qrow[ROWS];
        void *to[ROWS];
        const uint8_t *allowed[ROWS];
        long start = mask == 2 ? (wide ? ((const int64_t *)rows)[b] : ((const int32_t *)rows)[b]) + at : at;
        for (long i = 0; i < qn; i++)
            for (long j = 0; j < hn; j++, n++) {
                long head = h * share + h0 + j;
                qrow[n] = (const char *)q + (b * qs[0] + head * qs[1] + (q0 + i) * qs[2]) * bytes;
                to[n] = (char *)y + (b * ys[0] + head * ys[1] + (q0 + i) * ys[2]) * bytes;
                limit[n] = mask == 1 || mask == 2 ? LEAST(keys, start + q0 + i + 1) : keys;
                allowed[n] = mask == 3 ? seen + b * seen_batch + (q0 + i) * keys : NULL;
                none[n] = limit[n] <= 0;
                if (mask == 3) {
                    int any = 0;
                    long last = 0;
                    for (long s = 0; s < keys; s++)
                        if (allowed[n][s]) any = 1, last = s + 1;
                    none[n] = !any;
                    limit[n] = last;
                }
                if (none[n]) limit[n] = keys, allowed[n] = NULL; // every value alike
                longest = MOST(longest, limit[n]);
                peak[n] = -INFINITY;
                sum[n] = 0;
                memset(acc[n], 0, dim * sizeof(float));
                if (type == T_F16)
                    for (long d = 0; d < dim; d++) qf[n][d] = get(qrow[n], type, d);
            }
        for (long s0 = 0; s0 < longest; s0 += KEYS) {
            long sn = LEAST(KEYS, longest - s0);
            const char *kp = (const char *)k + (b * ks[0] + h * ks[1] + s0 * ks[2]) * bytes;
            const char *vp = (const char *)v + (b * vs[0] + h * vs[1] + s0 * vs[2]) * bytes;
            for (long s = 0; s < sn; s++)
                for (long d = 0; d < dim; d++) values[s * dim + d] = get(vp, type, s * vs[2] + d);
            if (type == T_F16)
                for (long s = 0; s < sn; s++)
                    for (long d = 0; d < dim; d++) keys_f[s * dim + d] = get(kp, type, s * ks[2] + d);
            for (int r = 0; r < n; r += TILE_ROWS) {
                int count = LEAST(TILE_ROWS, n - r);
                for (long s = 0; s < sn; s += TILE_OUTS) {
                    int outs = (int)LEAST(TILE_OUTS, sn - s);
                    float part[TILE_ROWS * TILE_OUTS];
                    if (type == T_BF16)
                        dot_bf16(count, outs, (const bf16 *const *)qrow + r, (const bf16 *)kp + s * ks[2], ks[2], dim, part);
                    else if (type == T_F32)
                        dot_f32(count, outs, (const float *const *)qrow + r, (const float *)kp + s * ks[2], ks[2], dim, part);
                    else
                        dot_f32(count, outs, (const float *const *)qf + r, keys_f + s * dim, dim, dim, part);
                    for (int i = 0; i < count; i++)
                        for (int j = 0; j < outs; j++) p[r + i][s + j] = part[i * TILE_OUTS + j];
                }
            }
            int used[ROWS];
            for (int r = 0; r < n; r++) {
                long m = LEAST(sn, limit[r] - s0);
                used[r] = m < 0 ? 0 : (int)m;
                if (used[r] == 0) continue;
                float top = peak[r];
                for (int s = 0; s < used[r]; s++) {
                    float value = none[r] ? 0.0f : p[r][s] * scale;
                    if (allowed[r] && !allowed[r][s0 + s]) value = -1e30f;
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
            for (long d = 0; d < dim; d++) put(to[r], type, d, acc[r][d] * by);
        }
    }
}
