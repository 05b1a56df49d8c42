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
