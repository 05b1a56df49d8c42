// What the machine can do: memory read by all threads, and products from registers and the first
// cache. Compiled alone, for `linnet bench`; models use nothing of it.
#include "runtime.h"
#if defined(__AVX2__)
#include <immintrin.h>
#endif

// in[0]: `dim[0]` bytes, a multiple of 256 for each thread, which reads a stretch of its own.
// out[0]: a word a thread, so that nothing is optimized away.
typedef uint64_t words __attribute__((vector_size(64)));
void rate_read(ctx *c, call *k) {
    long each = k->dim[0] / c->threads / 256 * 256;
    const words *p = (const words *)((const char *)k->in[0] + each * c->thread);
    words a = {0}, b = {0}, d = {0}, e = {0};
    for (long i = 0; i < each / 64; i += 4) {
        a += p[i];
        b += p[i + 1];
        d += p[i + 2];
        e += p[i + 3];
    }
    a += b + d + e;
    ((uint64_t *)k->out[0])[c->thread * 8] = a[0] ^ a[3] ^ a[7];
}

// dim[0] times a block of 4 rows times 6 rows of 256 elements, all in the first cache. Returns the
// operations of one block in out[1][0]. Each pair of rows has one register that is added to.
#define DEPTH 256
#define TILE(type, load, step, lanes)                                              \
    do {                                                                           \
        for (long r = 0; r < k->dim[0]; r++) {                                     \
            for (int i = 0; i < DEPTH; i += lanes) {                               \
                type x0 = load(x, i), x1 = load(x, DEPTH + i);                     \
                type x2 = load(x, 2 * DEPTH + i), x3 = load(x, 3 * DEPTH + i);     \
                for (int j = 0; j < COLUMNS; j++) {                                \
                    type w = load(y, j * DEPTH + i);                               \
                    step(sum[0][j], x0, w);                                        \
                    step(sum[1][j], x1, w);                                        \
                    step(sum[2][j], x2, w);                                        \
                    step(sum[3][j], x3, w);                                        \
                }                                                                  \
            }                                                                      \
        }                                                                          \
    } while (0)

static void report(ctx *c, call *k, int columns, float kept) {
    ((uint64_t *)k->out[0])[c->thread * 8] = (uint64_t)kept;
    if (c->thread == 0) ((uint64_t *)k->out[1])[0] = 2ul * 4 * columns * DEPTH;
}

void rate_f32(ctx *c, call *k) {
    _Alignas(64) float x[4 * DEPTH], y[6 * DEPTH];
    for (int i = 0; i < 4 * DEPTH; i++) x[i] = 0.001f * (i % 7);
    for (int i = 0; i < 6 * DEPTH; i++) y[i] = 0.001f * (i % 5);
    float kept = 0;
#if defined(__AVX512F__)
#define COLUMNS 6
    __m512 sum[4][COLUMNS] = {0};
#define LOAD(p, i) _mm512_load_ps(p + (i))
#define ADD(s, a, b) s = _mm512_fmadd_ps(a, b, s)
    TILE(__m512, LOAD, ADD, 16);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < COLUMNS; j++) kept += _mm512_reduce_add_ps(sum[i][j]);
#elif defined(__AVX2__) && defined(__FMA__)
#define COLUMNS 3
    __m256 sum[4][COLUMNS] = {0};
#define LOAD(p, i) _mm256_load_ps(p + (i))
#define ADD(s, a, b) s = _mm256_fmadd_ps(a, b, s)
    TILE(__m256, LOAD, ADD, 8);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < COLUMNS; j++) kept += _mm256_cvtss_f32(sum[i][j]);
#else
#define COLUMNS 2
    typedef float lanes4 __attribute__((vector_size(16)));
    lanes4 sum[4][COLUMNS] = {0};
#define LOAD(p, i) (*(const lanes4 *)(p + (i)))
#define ADD(s, a, b) s += a * b
    TILE(lanes4, LOAD, ADD, 4);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < COLUMNS; j++) kept += sum[i][j][0];
#endif
    report(c, k, COLUMNS, kept);
#undef COLUMNS
#undef LOAD
#undef ADD
}

// Products of bf16 added up in f32, where the machine has an instruction for them; else of f32.
void rate_bf16(ctx *c, call *k) {
#if defined(__AVX512BF16__)
#define COLUMNS 6
    _Alignas(64) bf16 x[4 * DEPTH], y[6 * DEPTH];
    for (int i = 0; i < 4 * DEPTH; i++) x[i] = to_bf16(0.001f * (i % 7));
    for (int i = 0; i < 6 * DEPTH; i++) y[i] = to_bf16(0.001f * (i % 5));
    __m512 sum[4][COLUMNS] = {0};
#define LOAD(p, i) ((__m512bh)_mm512_load_si512(p + (i)))
#define ADD(s, a, b) s = _mm512_dpbf16_ps(s, a, b)
    TILE(__m512bh, LOAD, ADD, 32);
    float kept = 0;
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < COLUMNS; j++) kept += _mm512_reduce_add_ps(sum[i][j]);
    report(c, k, COLUMNS, kept);
#else
    rate_f32(c, k);
#endif
}
