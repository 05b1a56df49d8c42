// The gated delta rule (Yang, Kautz and Hatamizadeh 2024, arXiv 2412.06464) and the short causal
// convolution before it.
//
// Over a prompt the rule runs by chunks of 64 tokens from its start. With G the running sum of the
// decays in a chunk and S the state before it, the corrections u_t that the tokens write satisfy
//     u_t = beta_t (v_t - e^{G_t} S^T k_t) - sum_{j<t} beta_t e^{G_t - G_j} (k_t . k_j) u_j,
// and the outputs are  scale (e^{G_t} S^T q_t + sum_{j<=t} e^{G_t - G_j} (q_t . k_j) u_j).
// Each token's sums run over the tokens before it in order, so that a token's result depends only on
// those, and a prompt cut at a multiple of 64 gives the same bits.
#include "dot.h"
#include "kernels.h"

#define CHUNK 64

// y[r][0 … n) (+)= a[r][0 … k) b, where b is [k][n]; rows of a may have fewer terms than `k`.
static inline __attribute__((always_inline)) void rows_by(
    const int rows, float *const *y, const float *const *a, const int *terms, const float *b, long ldb, long n) {
    int all = terms[0];
    for (int r = 1; r < rows; r++) all = LEAST(all, terms[r]);
    long d = 0;
    for (; d + 2 * WIDE <= n; d += 2 * WIDE) {
        vec s[4][2];
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) s[r][0] = *(vec *)(y[r] + d), s[r][1] = *(vec *)(y[r] + d + WIDE);
        int j = 0;
        for (; j < all; j++) {
            vec b0 = *(const vec *)(b + j * ldb + d), b1 = *(const vec *)(b + j * ldb + d + WIDE);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++) s[r][0] += a[r][j] * b0, s[r][1] += a[r][j] * b1;
        }
        for (int r = 0; r < rows; r++)
            for (int i = all; i < terms[r]; i++)
                s[r][0] += a[r][i] * *(const vec *)(b + i * ldb + d),
                    s[r][1] += a[r][i] * *(const vec *)(b + i * ldb + d + WIDE);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) *(vec *)(y[r] + d) = s[r][0], *(vec *)(y[r] + d + WIDE) = s[r][1];
    }
    for (; d < n; d++)
        for (int r = 0; r < rows; r++) {
            float sum = y[r][d];
            for (int j = 0; j < terms[r]; j++) sum = FMA(a[r][j], b[j * ldb + d], sum);
            y[r][d] = sum;
        }
}

static void product(float *y, long ldy, const float *a, long lda, const int *terms, const float *b, long ldb,
                    long m, long n) {
    for (long r = 0; r < m; r += 4) {
        float *yr[4];
        const float *ar[4];
        int count = (int)LEAST(4, m - r);
        for (int i = 0; i < count; i++) yr[i] = y + (r + i) * ldy, ar[i] = a + (r + i) * lda;
        switch (count) {
        case 1: rows_by(1, yr, ar, terms + r, b, ldb, n); break;
        case 2: rows_by(2, yr, ar, terms + r, b, ldb, n); break;
        case 3: rows_by(3, yr, ar, terms + r, b, ldb, n); break;
        default: rows_by(4, yr, ar, terms + r, b, ldb, n);
        }
    }
}

// s[t][j] = x_t . y_j for j below terms[t].
static void overlaps(float *s, const float *x, long ldx, const float *y, long ldy, long m, long dim) {
    for (long t = 0; t < m; t += TILE_ROWS) {
        const float *rows[TILE_ROWS];
        int count = (int)LEAST(TILE_ROWS, m - t);
        for (int i = 0; i < count; i++) rows[i] = x + (t + i) * ldx;
        for (long j = 0; j < t + count; j += TILE_OUTS) {
            float part[TILE_ROWS * TILE_OUTS];
            int outs = (int)LEAST(TILE_OUTS, m - j);
            dot_f32(count, outs, rows, y + j * ldy, ldy, dim, part);
            for (int i = 0; i < count; i++)
                for (int o = 0; o < outs; o++) s[(t + i) * CHUNK + j + o] = part[i * TILE_OUTS + o];
        }
    }
}

void k_delta_rule(ctx *c, int hazard, const float *q, const long *qs, const float *k, const long *ks,
                  const float *v, const long *vs, const float *decay, const float *beta,
                  const float *initial, float *final, float *out, long batch, long length, long kh,
                  long vh, long dk, long dv, float scale) {
    const int parallel = (double)batch * vh * length * dk * dv > 60000.0;
    step_begin(c, hazard, parallel);
    if (!parallel && c->thread) return;
    atomic_long *next = parallel ? work_counter(c) : NULL;
    float *own = scratch(c, ((size_t)dk * dv + 4 * CHUNK * CHUNK + CHUNK * (3 * dv + 3 * dk) + 4 * CHUNK) * 4);
    float *state = own, *kk = state + dk * dv, *qk = kk + CHUNK * CHUNK;
    float *u = qk + CHUNK * CHUNK, *o = u + CHUNK * dv, *kd = o + CHUNK * dv, *qd = kd + CHUNK * dk;
    float *kt = qd + CHUNK * dk, *sum = kt + CHUNK * dk, *grow = sum + CHUNK, *fade = grow + CHUNK;
    for (long task = next ? work_next(c, next) : 0; task < batch * vh; task = next ? work_next(c, next) : task + 1) {
        long b = task / vh, h = task % vh, g = h / (vh / kh);
        if (initial) memcpy(state, initial + task * dk * dv, dk * dv * 4);
        else memset(state, 0, dk * dv * 4);
        for (long t0 = 0; t0 < length; t0 += CHUNK) {
            long m = LEAST(CHUNK, length - t0);
            const float *kp = k + b * ks[0] + t0 * ks[1] + g * ks[2];
            const float *qp = q + b * qs[0] + t0 * qs[1] + g * qs[2];
            const float *vp = v + b * vs[0] + t0 * vs[1] + h * vs[2];
            int full[CHUNK], below[CHUNK], upto[CHUNK];
            float total = 0;
            for (long t = 0; t < m; t++) {
                total += decay[(b * length + t0 + t) * vh + h];
                sum[t] = total;
                grow[t] = m_exp(total);
                full[t] = (int)dk, below[t] = (int)t, upto[t] = (int)t + 1;
            }
            overlaps(kk, kp, ks[1], kp, ks[1], m, dk);
            overlaps(qk, qp, qs[1], kp, ks[1], m, dk);
            for (long t = 0; t < m; t++) {
                float rate = beta[(b * length + t0 + t) * vh + h];
                for (long j = 0; j <= t; j++) {
                    float between = m_exp(sum[t] - sum[j]);
                    qk[t * CHUNK + j] *= between * scale;
                    kk[t * CHUNK + j] *= -rate * between;
                }
                for (long i = 0; i < dk; i++) {
                    kd[t * dk + i] = -rate * grow[t] * kp[t * ks[1] + i];
                    qd[t * dk + i] = scale * grow[t] * qp[t * qs[1] + i];
                }
                for (long i = 0; i < dv; i++) {
                    u[t * dv + i] = rate * vp[t * vs[1] + i];
                    o[t * dv + i] = 0;
                }
            }
            product(u, dv, kd, dk, full, state, dv, m, dv);
            for (long t = 1; t < m; t++) { // forward substitution
                float *y[1] = {u + t * dv};
                const float *a[1] = {kk + t * CHUNK};
                rows_by(1, y, a, below + t, u, dv, dv);
            }
            product(o, dv, qd, dk, full, state, dv, m, dv);
            product(o, dv, qk, CHUNK, upto, u, dv, m, dv);
            for (long t = 0; t < m; t++)
                memcpy(out + ((b * length + t0 + t) * vh + h) * dv, o + t * dv, dv * 4);
            float last = grow[m - 1];
            for (long t = 0; t < m; t++) fade[t] = m_exp(sum[m - 1] - sum[t]);
            for (long i = 0; i < dk; i++)
                for (long t = 0; t < m; t++) kt[i * CHUNK + t] = fade[t] * kp[t * ks[1] + i];
            for (long i = 0; i < dk * dv; i++) state[i] *= last;
            int terms[4] = {(int)m, (int)m, (int)m, (int)m};
            for (long i = 0; i < dk; i += 4) {
                long rows = LEAST(4, dk - i);
                product(state + i * dv, dv, kt + i * CHUNK, CHUNK, terms, u, dv, rows, dv);
            }
        }
        memcpy(final + task * dk * dv, state, dk * dv * 4);
    }
}

void k_delta_step(ctx *c, int hazard, const float *q, const long *qs, const float *k, const long *ks,
                  const float *v, const long *vs, const float *decay, const float *beta,
                  const float *initial, float *final, float *out, long batch, long kh, long vh, long dk,
                  long dv, float scale) {
    const int parallel = (double)batch * vh * dk * dv > 60000.0;
    step_begin(c, hazard, parallel);
    if (!parallel && c->thread) return;
    long total = batch * vh;
    float *seen = scratch(c, dv * 8);
    float *change = seen + dv;
    long first = parallel ? total * c->thread / c->threads : 0;
    long last = parallel ? total * (c->thread + 1) / c->threads : total;
    for (long task = first; task < last; task++) {
        long b = task / vh, h = task % vh, g = h / (vh / kh);
        const float *kp = k + b * ks[0] + g * ks[2], *qp = q + b * qs[0] + g * qs[2];
        const float *vp = v + b * vs[0] + h * vs[2];
        const float *from = initial + task * dk * dv;
        float *to = final + task * dk * dv, *y = out + task * dv;
        float keep = m_exp(decay[task]), rate = beta[task];
        for (long j = 0; j < dv; j++) seen[j] = 0;
        for (long i = 0; i < dk; i++)
            for (long j = 0; j < dv; j++) seen[j] = FMA(kp[i], from[i * dv + j], seen[j]);
        for (long j = 0; j < dv; j++) change[j] = rate * (vp[j] - keep * seen[j]), seen[j] = 0;
        for (long i = 0; i < dk; i++) {
            float ki = kp[i], qi = qp[i];
            const float *f = from + i * dv;
            float *w = to + i * dv;
#pragma GCC ivdep
            for (long j = 0; j < dv; j++) {
                float s = FMA(ki, change[j], keep * f[j]);
                w[j] = s;
                seen[j] = FMA(qi, s, seen[j]);
            }
        }
        for (long j = 0; j < dv; j++) y[j] = scale * seen[j];
    }
}

static inline float get(const void *x, int type, long at) {
    if (type == T_BF16) return from_bf16(((const bf16 *)x)[at]);
    if (type == T_F32) return ((const float *)x)[at];
    return (float)((const f16 *)x)[at];
}

static inline __attribute__((always_inline)) void conv(
    ctx *c, const int type, const void *x, const long *xs, const void *history, const long *hs,
    const void *taps, float *y, long batch, long length, long channels, long width, int parallel) {
    long pieces = (channels + 511) / 512, total = batch * pieces;
    long lo = parallel ? total * c->thread / c->threads : 0, hi = parallel ? total * (c->thread + 1) / c->threads : total;
    float *weight = scratch(c, width * 512 * 4);
    for (long task = lo; task < hi; task++) {
        long b = task / pieces, c0 = task % pieces * 512, n = LEAST(512, channels - c0);
        for (long j = 0; j < width; j++)
            for (long i = 0; i < n; i++) weight[j * 512 + i] = get(taps, type, (c0 + i) * width + j);
        for (long s = 0; s < length; s++) {
            float *to = y + (b * length + s) * channels + c0;
            for (long i = 0; i < n; i++) to[i] = 0;
            for (long j = 0; j < width; j++) {
                long t = s + j - (width - 1);
                const float *w = weight + j * 512;
                if (t >= 0) {
                    long at = b * xs[0] + t * xs[1] + c0;
                    for (long i = 0; i < n; i++) to[i] = FMA(w[i], get(x, type, at + i), to[i]);
                } else {
                    long at = b * hs[0] + (t + width - 1) * hs[1] + c0;
                    for (long i = 0; i < n; i++) to[i] = FMA(w[i], get(history, type, at + i), to[i]);
                }
            }
        }
    }
}

void k_conv(ctx *c, int hazard, int type, const void *x, const long *xs, const void *history,
            const long *hs, const void *taps, float *y, long batch, long length, long channels,
            long width) {
    int parallel = (double)batch * length * channels * width > PARALLEL_WORK / 8;
    step_begin(c, hazard, parallel);
    if (!parallel && c->thread) return;
    if (type == T_BF16) conv(c, T_BF16, x, xs, history, hs, taps, y, batch, length, channels, width, parallel);
    else if (type == T_F32) conv(c, T_F32, x, xs, history, hs, taps, y, batch, length, channels, width, parallel);
    else conv(c, T_F16, x, xs, history, hs, taps, y, batch, length, channels, width, parallel);
}
