// What generated code and the kernels share: element types, the thread team, arithmetic.
//
// An entry runs on every thread of a team at once. Each thread walks the same steps; a step is
// either parallel (each thread takes its part) or serial (thread 0 alone), and `step_begin`
// decides whether the threads must meet before it.
#pragma once
#include <math.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint16_t bf16;
typedef _Float16 f16;

// A parameter or state as it lies in memory. Kinds above 0 are packed weights.
enum { DENSE = 0, INT8 = 1, INT4 = 2, Q4_0 = 3, Q4_1 = 4, Q8_0 = 5, Q4_K = 6, Q6_K = 7,
       CACHE8 = 8 };
typedef struct weight {
    void *data, *scale, *zero;
    int32_t kind, group;
} weight;

enum { T_BF16 = 0, T_F32 = 1, T_F16 = 2 };

#define COUNTERS 128
typedef struct counter {
    _Alignas(64) atomic_long next;
} counter;
struct team {
    int size;
    _Alignas(64) atomic_int arrived;
    _Alignas(64) atomic_int generation;
    counter work[COUNTERS];
};

// Rows of x as 8-bit integers, kept for the steps that read the same rows.
struct held {
    const void *x;
    long ldx, n, in;
    int type, wide;
    char *memory;
    size_t size;
};

// One thread's view of the team while an entry runs.
typedef struct ctx {
    struct team *team;
    int thread, threads;
    int state;    // since the last meeting: 1 serial steps, 2 parallel steps, 4 a boundary passed over
    int counter;  // work counters used since the last meeting
    char *scratch;
    size_t scratch_size;
    struct held held; // until a boundary or a meeting
    struct slice *slice; // the call at hand, where it can be left
} ctx;

typedef struct call {
    void **in, **out;
    weight *w;
    char *arena;
    const int64_t *offset, *dim;
    int64_t error;
} call;

void team_meet(ctx *c);
void slice_leave(ctx *c); // where its time is over, until it is taken up again

static inline void may_leave(ctx *c) {
    if (c->slice) slice_leave(c);
}

// Memory of this thread's own, at least `size` bytes; contents do not last.
static inline void *scratch(ctx *c, size_t size) {
    if (c->scratch_size < size) {
        free(c->scratch);
        c->scratch_size = (size + 4095) / 4096 * 4096;
        c->scratch = aligned_alloc(4096, c->scratch_size);
    }
    return c->scratch;
}

// `hazard`: this step touches what an earlier one since the last boundary wrote, or writes what it
// read. Serial steps follow one another on thread 0 without a meeting.
static inline void step_begin(ctx *c, int hazard, int parallel) {
    may_leave(c);
    int st = c->state;
    if (hazard) c->held.x = NULL;
    if (c->threads > 1) {
        if ((hazard && ((parallel && st) || (st & 2))) || (parallel && (st & 4))) {
            team_meet(c);
            st = 0;
        } else if (hazard && st) {
            st |= 4;
        }
    }
    c->state = st | (parallel ? 2 : 1);
}

// `n` counters, one after another, from which the threads of one parallel step draw pieces of work.
static inline counter *work_counters(ctx *c, int n) {
    if (c->counter + n > COUNTERS) {
        int state = c->state;
        team_meet(c);
        c->state = state & 3;
    }
    counter *at = &c->team->work[c->counter];
    c->counter += n;
    return at;
}
static inline atomic_long *work_counter(ctx *c) { return &work_counters(c, 1)->next; }

static inline long work_next(ctx *c, atomic_long *counter) {
    may_leave(c);
    return atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

// Pieces [0, total) in as many parts as threads (eight at most): a thread takes the pieces of its
// part in order, then what is left of the others.
#define PARTS 8
typedef struct work {
    ctx *c;
    counter *next;
    long total;
    int parts, part, left;
} work;

static inline work work_shares(ctx *c, long total) {
    const int parts = c->threads < PARTS ? c->threads : PARTS;
    return (work){c, work_counters(c, parts), total, parts, c->thread % parts, parts};
}

// The next piece, or -1.
static inline long work_take(work *w) {
    for (; w->left > 0; w->left--, w->part = w->part + 1 == w->parts ? 0 : w->part + 1) {
        long at = w->total * w->part / w->parts + work_next(w->c, &w->next[w->part].next);
        if (at < w->total * (w->part + 1) / w->parts) return at;
    }
    return -1;
}

// Operations below which meeting costs more than it saves.
#define PARALLEL_WORK 150000.0

// A loop nest over `n` outer positions, about `work` operations in all.
#define NEST(hazard, n, work, run)                                                                \
    do {                                                                                          \
        long n_ = (n);                                                                            \
        int par_ = n_ > 1 && (double)(work) > PARALLEL_WORK;                                            \
        step_begin(c, hazard, par_);                                                              \
        if (par_) {                                                                               \
            long lo = n_ * c->thread / c->threads, hi = n_ * (c->thread + 1) / c->threads;        \
            run;                                                                                  \
        } else if (c->thread == 0) {                                                              \
            long lo = 0, hi = n_;                                                                 \
            run;                                                                                  \
        }                                                                                         \
    } while (0)

// Where time goes, on thread 0, by step of an entry: with -DLINNET_PROFILE only.
#ifdef LINNET_PROFILE
#include <time.h>
extern double profile_time[8192];
static inline double profile_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}
#define STEP(n, ...)                                                  \
    do {                                                              \
        double start_ = profile_now();                                \
        __VA_ARGS__                                                   \
        if (c->thread == 0) profile_time[n] += profile_now() - start_; \
    } while (0);
#else
#define STEP(n, ...) __VA_ARGS__
#endif

// --- element types -----------------------------------------------------------------------------

static inline float bits_float(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static inline uint32_t float_bits(float f) {
    uint32_t u;
    memcpy(&u, &f, 4);
    return u;
}
static inline float from_bf16(bf16 x) { return bits_float((uint32_t)x << 16); }
// To nearest even; a NaN stays one.
static inline bf16 to_bf16(float x) {
    uint32_t u = float_bits(x);
    uint32_t r = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
    return (bf16)(x != x ? 0x7fc0 : r);
}
static inline float round_bf16(float x) { return from_bf16(to_bf16(x)); }
static inline float round_f16(float x) { return (float)(f16)x; }
// f64 to f32 with the last bit set where inexact: a further rounding is then a single one.
static inline float round_odd(double x) {
    float y = (float)x;
    if ((double)y == x || x != x || isinf(y)) return y;
    uint32_t u = float_bits(y);
    if (fabs((double)y) > fabs(x)) u -= 1;
    return bits_float(u | 1);
}

#define LEAST(a, b) ((a) < (b) ? (a) : (b))
#define MOST(a, b) ((a) > (b) ? (a) : (b))
static inline long clamp_index(long i, long n, int64_t *error) {
    if (i < 0 || i >= n) {
        *error = 1;
        return i < 0 || n == 0 ? 0 : n - 1;
    }
    return i;
}

// The same for an element that a branch not taken would read: it fails no check.
static inline long clamp_wanted(int wanted, long i, long n, int64_t *error) {
    return wanted || (i >= 0 && i < n) ? clamp_index(i, n, error) : 0;
}

// --- arithmetic --------------------------------------------------------------------------------

#ifdef __FMA__
#define FMA(a, b, c) __builtin_fmaf(a, b, c)
#else
#define FMA(a, b, c) ((a) * (b) + (c))
#endif

// e^x: 2^n e^r with |r| <= ln 2 / 2, a polynomial of degree 6 (Cephes' coefficients).
static inline float m_exp(float x) {
    float t = x > 88.72284f ? 88.72284f : x < -103.98f ? -103.98f : x;
    float n = FMA(t, 1.44269504f, 12582912.0f) - 12582912.0f;
    float r = FMA(n, -0.693359375f, t);
    r = FMA(n, 2.12194440e-4f, r);
    float p = 1.9875691500e-4f;
    p = FMA(p, r, 1.3981999507e-3f);
    p = FMA(p, r, 8.3334519073e-3f);
    p = FMA(p, r, 4.1665795894e-2f);
    p = FMA(p, r, 1.6666665459e-1f);
    p = FMA(p, r, 5.0000001201e-1f);
    p = FMA(p * r, r, r) + 1.0f;
    // 2^n in two factors, so that subnormal results come out right.
    int k = (int)n, h = k / 2;
    float y = p * bits_float((uint32_t)(h + 127) << 23) * bits_float((uint32_t)(k - h + 127) << 23);
    y = x > 88.72284f ? INFINITY : y;
    return x != x ? x : y;
}

// ln x: mantissa in [sqrt 1/2, sqrt 2), a polynomial of degree 8 (Cephes' coefficients).
static inline float m_log(float x) {
    float s = x < 1.17549435e-38f ? x * 8388608.0f : x;
    uint32_t u = float_bits(s);
    int e = (int)((u >> 23) & 0xff) - 126 - (x < 1.17549435e-38f ? 23 : 0);
    float m = bits_float((u & 0x7fffff) | 0x3f000000);
    int low = m < 0.707106781f;
    float f = low ? m + m - 1.0f : m - 1.0f;
    float n = (float)(low ? e - 1 : e);
    float z = f * f;
    float p = 7.0376836292e-2f;
    p = FMA(p, f, -1.1514610310e-1f);
    p = FMA(p, f, 1.1676998740e-1f);
    p = FMA(p, f, -1.2420140846e-1f);
    p = FMA(p, f, 1.4249322787e-1f);
    p = FMA(p, f, -1.6668057665e-1f);
    p = FMA(p, f, 2.0000714765e-1f);
    p = FMA(p, f, -2.4999993993e-1f);
    p = FMA(p, f, 3.3333331174e-1f);
    float y = p * f * z;
    y = FMA(n, -2.12194440e-4f, y);
    y = FMA(z, -0.5f, y);
    y = FMA(n, 0.693359375f, f + y);
    y = x == INFINITY ? x : y;
    y = x == 0.0f ? -INFINITY : y;
    return x < 0.0f || x != x ? NAN : y;
}

// Sine and cosine: the quarter turns taken out in f64 (Cody and Waite, two parts), good to
// |x| < 2^40, which covers any position.
static inline float m_turn(float x, int quarter) {
    double t = (double)x;
    double n = t * 0.63661977236758134;
    n = (n + 6755399441055744.0) - 6755399441055744.0;
    double r = t - n * 1.5707963267341256;
    r = r - n * 6.0771005065061922e-11;
    int64_t q = (int64_t)n + quarter;
    double z = r * r;
    double s = r + r * z * (-1.6666666666666632e-1 + z * (8.3333333332248946e-3 + z * (-1.9841269829857949e-4 + z * (2.7557313707070068e-6 + z * -2.5050760253406863e-8))));
    double k = 1.0 - 0.5 * z + z * z * (4.1666666666666602e-2 + z * (-1.3888888888874110e-3 + z * (2.4801587289476729e-5 + z * (-2.7557314351390663e-7 + z * 2.0875723212981748e-9))));
    double y = (q & 1) ? k : s;
    y = (q & 2) ? -y : y;
    return isfinite(x) ? (float)y : NAN;
}
static inline float m_sin(float x) { return m_turn(x, 0); }
static inline float m_cos(float x) { return m_turn(x, 1); }

static inline float m_tanh(float x) {
    float a = fabsf(x);
    float z = x * x;
    float p = -5.70498872745e-3f;
    p = FMA(p, z, 2.06390887954e-2f);
    p = FMA(p, z, -5.37397155531e-2f);
    p = FMA(p, z, 1.33314422036e-1f);
    p = FMA(p, z, -3.33332819422e-1f);
    float small = FMA(p * z, x, x);
    float e = m_exp(2.0f * (a > 20.0f ? 20.0f : a));
    float big = 1.0f - 2.0f / (e + 1.0f);
    float y = a < 0.625f ? small : (x < 0.0f ? -big : big);
    return x != x ? x : y;
}
static inline float m_rsqrt(float x) { return 1.0f / sqrtf(x); }
static inline double d_rsqrt(double x) { return 1.0 / sqrt(x); }

static inline int64_t quotient(int64_t a, int64_t b) {
    return b == 0 ? 0 : b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}
static inline int64_t remainder_of(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }
static inline uint64_t quotient_u(uint64_t a, uint64_t b) { return b == 0 ? 0 : a / b; }
static inline uint64_t remainder_u(uint64_t a, uint64_t b) { return b == 0 ? 0 : a % b; }
static inline int64_t shift_left(int64_t a, int64_t n, int bits) {
    return n < 0 || n >= bits ? 0 : (int64_t)((uint64_t)a << n);
}
static inline int64_t shift_right(int64_t a, int64_t n, int bits) {
    return n < 0 || n >= bits ? (a < 0 ? -1 : 0) : a >> n;
}
static inline uint64_t shift_right_u(uint64_t a, int64_t n, int bits) {
    return n < 0 || n >= bits ? 0 : a >> n;
}
// A float toward zero; what no i64 holds gives the lowest value, as the machine's conversion does.
static inline int64_t to_integer(double x) {
    return x >= -9223372036854775808.0 && x < 9223372036854775808.0 ? (int64_t)x : INT64_MIN;
}
static inline uint64_t to_unsigned(double x) {
    return x >= 9223372036854775808.0 ? (uint64_t)to_integer(x - 9223372036854775808.0) ^ (1ull << 63)
                                      : (uint64_t)to_integer(x);
}
