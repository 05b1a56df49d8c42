// Order along the last axis, softmax, and writes into caches.
#include "kernels.h"

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
#define SPLIT(work)                                                                        \
    int parallel = n > 1 && (double)n * (work) > PARALLEL_WORK;                                  \
    step_begin(c, hazard, parallel);                                                       \
    if (!parallel && c->thread) return;                                                    \
    long lo = parallel ? n * c->thread / c->threads : 0;                                   \
    long hi = parallel ? n * (c->thread + 1) / c->threads : n;

// The first `k` in order, equal elements by their position.
void k_top_k(ctx *c, int hazard, int type, const void *x, long n, long extent, long k, int descending,
             void *values, void *indices, int wide) {
    SPLIT(extent * 4)
    float *row = scratch(c, (extent + k + 1) * 4 + (k + 1) * 8);
    float *best = row + extent;
    long *where = (long *)(((uintptr_t)(best + k + 1) + 7) & ~(uintptr_t)7);
    for (long r = lo; r < hi; r++) {
        for (long i = 0; i < extent; i++) row[i] = descending ? get(x, type, r * extent + i) : -get(x, type, r * extent + i);
        long have = 0;
        for (long i = 0; i < extent; i++) {
            float value = row[i];
            if (have == k && !(value > best[k - 1])) continue;
            long p = have < k ? have++ : k - 1;
            for (; p > 0 && value > best[p - 1]; p--) best[p] = best[p - 1], where[p] = where[p - 1];
            best[p] = value, where[p] = i;
        }
        for (long j = 0; j < k; j++) {
            put(values, type, r * k + j, descending ? best[j] : -best[j]);
            if (wide) ((int64_t *)indices)[r * k + j] = where[j];
            else ((int32_t *)indices)[r * k + j] = (int32_t)where[j];
        }
    }
}

void k_rank(ctx *c, int hazard, int type, const void *x, long n, long extent, int descending,
            void *ranks, int bytes) {
    SPLIT(extent * extent)
    float *row = scratch(c, extent * 4);
    for (long r = lo; r < hi; r++) {
        for (long i = 0; i < extent; i++) row[i] = descending ? get(x, type, r * extent + i) : -get(x, type, r * extent + i);
        for (long i = 0; i < extent; i++) {
            long before = 0;
            for (long j = 0; j < extent; j++) before += (row[j] > row[i]) | ((row[j] == row[i]) & (j < i));
            long at = r * extent + i;
            if (bytes == 8) ((int64_t *)ranks)[at] = before;
            else if (bytes == 4) ((int32_t *)ranks)[at] = (int32_t)before;
            else if (bytes == 2) ((int16_t *)ranks)[at] = (int16_t)before;
            else ((int8_t *)ranks)[at] = (int8_t)before;
        }
    }
}

void k_take(ctx *c, int hazard, int bytes, const void *x, const void *index, int wide, long n,
            long extent, long k, void *y) {
    SPLIT(k * 4)
    for (long r = lo; r < hi; r++)
        for (long j = 0; j < k; j++) {
            long i = wide ? ((const int64_t *)index)[r * k + j] : ((const int32_t *)index)[r * k + j];
            memcpy((char *)y + (r * k + j) * bytes, (const char *)x + (r * extent + i) * bytes, bytes);
        }
}

void k_softmax(ctx *c, int hazard, int type, const void *x, void *y, long n, long extent) {
    SPLIT(extent * 20)
    float *row = scratch(c, extent * 4);
    for (long r = lo; r < hi; r++) {
        float peak = -INFINITY, total = 0;
        for (long i = 0; i < extent; i++) {
            row[i] = get(x, type, r * extent + i);
            peak = MOST(peak, row[i]);
        }
        for (long i = 0; i < extent; i++) row[i] = m_exp(row[i] - peak);
        for (long i = 0; i < extent; i++) total += row[i];
        for (long i = 0; i < extent; i++) put(y, type, r * extent + i, row[i] / total);
    }
}

void k_write(ctx *c, int hazard, int bytes, void *state, const long *ss, const void *value,
             const long *vs, long m, long heads, long count, long width, const void *slots,
             const void *positions, int wide, long at, int tokens) {
    long n = m * heads * count;
    SPLIT(width)
#define LOOK(p, i) (wide ? ((const int64_t *)(p))[i] : ((const int32_t *)(p))[i])
    for (long t = lo; t < hi; t++) {
        long s = t % count, h = t / count % heads, b = t / count / heads;
        long row = slots ? LOOK(slots, tokens ? s : b) : b;
        long place = positions ? LOOK(positions, tokens ? s : b) + (tokens ? 0 : s) : at + s;
        memcpy((char *)state + (row * ss[0] + h * ss[1] + place * ss[2]) * bytes,
               (const char *)value + (b * vs[0] + h * vs[1] + s * vs[2]) * bytes, width * bytes);
    }
}
