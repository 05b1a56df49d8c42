// One token of the gated delta rule (`delta.c` has prompts), and the short causal convolution before it.
#include "dot.h"
#include "kernels.h"

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

// to[i] (+)= the sum over up to four rows of w[j][i] row[j][i], in order.
static inline __attribute__((always_inline)) void add_taps(
    const int type, const int taken, const int first, const char *const *row, const float *w, float *to, long n) {
    if (taken == 4) { // the common width, in registers
        const char *const p0 = row[0], *const p1 = row[1], *const p2 = row[2], *const p3 = row[3];
#pragma GCC ivdep
        for (long i = 0; i < n; i++) {
            float sum = FMA(w[i], get(p0, type, i), first ? 0.0f : to[i]);
            sum = FMA(w[512 + i], get(p1, type, i), sum);
            sum = FMA(w[1024 + i], get(p2, type, i), sum);
            to[i] = FMA(w[1536 + i], get(p3, type, i), sum);
        }
        return;
    }
    for (int j = 0; j < taken; j++)
#pragma GCC ivdep
        for (long i = 0; i < n; i++)
            to[i] = FMA(w[j * 512 + i], get(row[j], type, i), first && j == 0 ? 0.0f : to[i]);
}

static inline __attribute__((always_inline)) void conv(
    ctx *c, const int type, const void *x, const long *xs, const void *history, const long *hs,
    const void *taps, float *y, long batch, long length, long channels, long width, int parallel) {
    long pieces = (channels + 511) / 512, total = batch * pieces;
    long lo = parallel ? total * c->thread / c->threads : 0, hi = parallel ? total * (c->thread + 1) / c->threads : total;
    const long bytes = type == T_F32 ? 4 : 2;
    float *weight = scratch(c, width * 512 * 4);
    for (long task = lo; task < hi; task++) {
        long b = task / pieces, c0 = task % pieces * 512, n = LEAST(512, channels - c0);
        for (long j = 0; j < width; j++)
            for (long i = 0; i < n; i++) weight[j * 512 + i] = get(taps, type, (c0 + i) * width + j);
        for (long s = 0; s < length; s++) {
            float *to = y + (b * length + s) * channels + c0;
            for (long j = 0; j < width; j += 4) {
                const char *row[4];
                const long taken = LEAST(4, width - j);
                for (long i = 0; i < taken; i++) {
                    long t = s + j + i - (width - 1);
                    row[i] = t >= 0 ? (const char *)x + (b * xs[0] + t * xs[1] + c0) * bytes
                                    : (const char *)history + (b * hs[0] + (t + width - 1) * hs[1] + c0) * bytes;
                }
                add_taps(type, (int)taken, j == 0, row, weight + j * 512, to, n);
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
