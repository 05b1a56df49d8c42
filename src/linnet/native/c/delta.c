// The gated delta rule over a prompt (Yang, Kautz and Hatamizadeh 2024, arXiv 2412.06464), by chunks
// of 64 tokens from its start.
//
// With G the running sum of the decays in a chunk and S the state before it, the corrections u_t that
// the tokens write satisfy
//     u_t = beta_t (v_t - e^{G_t} S^T k_t - sum_{j<t} e^{G_t - G_j} (k_t . k_j) u_j),
// and the outputs are  scale (e^{G_t} S^T q_t + sum_{j<=t} e^{G_t - G_j} (q_t . k_j) u_j).
// Each token's sums run over the features and then over the tokens before it in order, so that a
// token's result depends only on those, and a prompt cut at a multiple of 64 gives the same bits.
//
// Columns of the state don't meet: a block of them stays in the first cache through a chunk's three
// products, whose sums stay in registers.
#include "dot.h"
#include "kernels.h"

#define CHUNK 64
#define COLUMNS 64 // of a block of the state
#if defined(__AVX512F__)
#define HIGH 6 // rows of a tile
#define BROAD 4 // vectors of a tile's row
#elif defined(__AVX2__)
#define HIGH 6
#define BROAD 2
#else
#define HIGH 2
#define BROAD 2
#endif
#define WHOLE(n) (((n) + HIGH - 1) / HIGH * HIGH)
#define ROWS WHOLE(CHUNK)

typedef vec tile[HIGH][BROAD];

// s[r] += a[r][0 … n) b, a's row r at `a + r * row` with its terms `step` apart.
static inline __attribute__((always_inline)) void add_product(
    const int vecs, tile s, const float *a, long row, long step, const float *b, long ldb, long n) {
    for (long j = 0; j < n; j++) {
        vec x[BROAD];
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++) x[v] = *(const vec *)(b + j * ldb + v * WIDE);
#pragma GCC unroll 6
        for (int r = 0; r < HIGH; r++)
#pragma GCC unroll 4
            for (int v = 0; v < vecs; v++) s[r][v] += a[r * row + j * step] * x[v];
    }
}

#define EACH                       \
    _Pragma("GCC unroll 6")        \
    for (int r = 0; r < HIGH; r++) \
        _Pragma("GCC unroll 4")    \
        for (int v = 0; v < BROAD; v++)

// s[t][j] = x_t . y_j for j up to t at least.
static void overlaps(float *s, const float *x, const float *y, long ld, long m, long dim) {
    for (long t = 0; t < m; t += TILE_ROWS) {
        const float *rows[TILE_ROWS];
        int count = (int)LEAST(TILE_ROWS, m - t);
        for (int i = 0; i < count; i++) rows[i] = x + (t + i) * ld;
        for (long j = 0; j < t + count; j += TILE_OUTS) {
            float part[TILE_ROWS * TILE_OUTS];
            int outs = (int)LEAST(TILE_OUTS, m - j);
            dot_f32(count, outs, rows, y + j * ld, ld, dim, part);
            for (int i = 0; i < count; i++)
                for (int o = 0; o < outs; o++) s[(t + i) * CHUNK + j + o] = part[i * TILE_OUTS + o];
        }
    }
}

// What a chunk of one head's tokens has, whichever the columns.
typedef struct chunk {
    long m, dk, ld; // tokens, features, step of q and k
    const float *q, *k;
    const float *near_k, *near_q;             // [token][earlier token], with its decay and rate
    const float *rate, *seen_k, *seen_q, *fade; // by token
    float last;                               // what is left of the state
} chunk;

// Vectors [d, d + BROAD) of a block: u[t] = the corrections, from the values there; o[t] = the outputs.
static void chunk_columns(const chunk *c, float *state, float *u, float *o) {
    for (long t = 0; t < c->m; t += HIGH) {
        tile s = {0};
        add_product(BROAD, s, c->k + t * c->ld, c->ld, 1, state, COLUMNS, c->dk);
        EACH s[r][v] = c->rate[t + r] * *(vec *)(u + (t + r) * COLUMNS + v * WIDE) - c->seen_k[t + r] * s[r][v];
        add_product(BROAD, s, c->near_k + t * CHUNK, CHUNK, 1, u, COLUMNS, t);
#pragma GCC unroll 6
        for (int j = 0; j < HIGH; j++) // forward substitution
#pragma GCC unroll 6
            for (int r = j + 1; r < HIGH; r++)
#pragma GCC unroll 4
                for (int v = 0; v < BROAD; v++) s[r][v] += c->near_k[(t + r) * CHUNK + t + j] * s[j][v];
        EACH *(vec *)(u + (t + r) * COLUMNS + v * WIDE) = s[r][v];
    }
    for (long t = 0; t < c->m; t += HIGH) {
        tile s = {0};
        add_product(BROAD, s, c->q + t * c->ld, c->ld, 1, state, COLUMNS, c->dk);
        EACH s[r][v] *= c->seen_q[t + r];
        add_product(BROAD, s, c->near_q + t * CHUNK, CHUNK, 1, u, COLUMNS, t);
#pragma GCC unroll 6
        for (int j = 0; j < HIGH; j++)
#pragma GCC unroll 6
            for (int r = j; r < HIGH; r++)
#pragma GCC unroll 4
                for (int v = 0; v < BROAD; v++)
                    s[r][v] += c->near_q[(t + r) * CHUNK + t + j] * *(vec *)(u + (t + j) * COLUMNS + v * WIDE);
        EACH *(vec *)(o + (t + r) * COLUMNS + v * WIDE) = s[r][v];
    }
    for (long t = 0; t < c->m; t++)
        for (int v = 0; v < BROAD; v++) *(vec *)(u + t * COLUMNS + v * WIDE) *= c->fade[t];
    for (long i = 0; i < c->dk; i += HIGH) {
        tile s;
        EACH s[r][v] = c->last * *(vec *)(state + (i + r) * COLUMNS + v * WIDE);
        add_product(BROAD, s, c->k + i, 1, c->ld, u, COLUMNS, c->m);
        EACH *(vec *)(state + (i + r) * COLUMNS + v * WIDE) = s[r][v];
    }
}

void k_delta_rule(ctx *c, int hazard, const float *q, const long *qs, const float *k, const long *ks,
                  const float *v, const long *vs, const float *decay, const float *beta,
                  const float *initial, float *final, float *out, long batch, long length, long kh,
                  long vh, long dk, long dv, float scale) {
    const int parallel = (double)batch * vh * length * dk * dv > 60000.0;
    step_begin(c, hazard, parallel);
    if (!parallel && c->thread) return;
    // Heads of one key are done together where there are enough of them for the threads.
    const long group = vh / kh, together = parallel && batch * kh < 4 * c->threads ? 1 : group;
    const long ld = WHOLE(dk), blocks = (dv + COLUMNS - 1) / COLUMNS, block = ld * COLUMNS;
    atomic_long *next = parallel ? work_counter(c) : NULL;
    float *own = scratch(c, (together * blocks * block + ROWS * (2 * ld + 2 * COLUMNS + 4 * CHUNK + 6)) * 4 + 64);
    float *states = (float *)(((uintptr_t)own + 63) & ~(uintptr_t)63);
    float *u = states + together * blocks * block, *o = u + ROWS * COLUMNS;
    float *kk = o + ROWS * COLUMNS, *qk = kk + ROWS * CHUNK, *near_k = qk + ROWS * CHUNK, *near_q = near_k + ROWS * CHUNK;
    float *kp = near_q + ROWS * CHUNK, *qp = kp + ROWS * ld;
    float *sum = qp + ROWS * ld, *rate = sum + ROWS, *seen_k = rate + ROWS, *seen_q = seen_k + ROWS, *fade = seen_q + ROWS;
    memset(u, 0, ((char *)(fade + ROWS) - (char *)u));
    chunk at = {.dk = dk, .ld = ld, .q = qp, .k = kp, .near_k = near_k, .near_q = near_q, .rate = rate,
                .seen_k = seen_k, .seen_q = seen_q, .fade = fade};
    for (long task = next ? work_next(c, next) : 0; task < batch * vh / together;
         task = next ? work_next(c, next) : task + 1) {
        const long first = task * together, b = first / vh, g = first % vh / group;
        memset(states, 0, together * blocks * block * 4);
        for (long n = 0; n < together * blocks && initial; n++) {
            const long d = n % blocks * COLUMNS, wide = LEAST(COLUMNS, dv - d);
            for (long i = 0; i < dk; i++)
                memcpy(states + n * block + i * COLUMNS, initial + ((first + n / blocks) * dk + i) * dv + d, wide * 4);
        }
        for (long t0 = 0; t0 < length; t0 += CHUNK) {
            const long m = at.m = LEAST(CHUNK, length - t0);
            for (long t = 0; t < m; t++) {
                memcpy(kp + t * ld, k + b * ks[0] + (t0 + t) * ks[1] + g * ks[2], dk * 4);
                memcpy(qp + t * ld, q + b * qs[0] + (t0 + t) * qs[1] + g * qs[2], dk * 4);
            }
            overlaps(kk, kp, kp, ld, m, dk);
            overlaps(qk, qp, kp, ld, m, dk);
            for (long n = 0; n < together; n++) {
                const long h = first % vh + n;
                float total = 0;
                for (long t = 0; t < m; t++) {
                    total += decay[(b * length + t0 + t) * vh + h];
                    sum[t] = total;
                    rate[t] = beta[(b * length + t0 + t) * vh + h];
                }
                for (long t = 0; t < m; t++) {
                    const float grow = m_exp(sum[t]);
                    seen_k[t] = rate[t] * grow, seen_q[t] = scale * grow, fade[t] = m_exp(total - sum[t]);
                }
                at.last = m_exp(total);
                for (long t = 0; t < m; t++)
                    for (long j = 0; j <= t; j++) {
                        float between = m_exp(sum[t] - sum[j]);
                        near_q[t * CHUNK + j] = qk[t * CHUNK + j] * (between * scale);
                        near_k[t * CHUNK + j] = kk[t * CHUNK + j] * (-rate[t] * between);
                    }
                for (long d0 = 0; d0 < dv; d0 += COLUMNS) {
                    const long wide = LEAST(COLUMNS, dv - d0);
                    for (long t = 0; t < m; t++)
                        memcpy(u + t * COLUMNS, v + b * vs[0] + (t0 + t) * vs[1] + h * vs[2] + d0, wide * 4);
                    for (long d = 0; d < wide; d += BROAD * WIDE)
                        chunk_columns(&at, states + (n * blocks + d0 / COLUMNS) * block + d, u + d, o + d);
                    for (long t = 0; t < m; t++)
                        memcpy(out + ((b * length + t0 + t) * vh + h) * dv + d0, o + t * COLUMNS, wide * 4);
                }
            }
        }
        for (long n = 0; n < together * blocks; n++) {
            const long d = n % blocks * COLUMNS, wide = LEAST(COLUMNS, dv - d);
            for (long i = 0; i < dk; i++)
                memcpy(final + ((first + n / blocks) * dk + i) * dv + d, states + n * block + i * COLUMNS, wide * 4);
        }
    }
}
