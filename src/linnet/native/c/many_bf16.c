// Many rows by bf16 weights with `vdpbf16ps`. The sums of long rows are kept from one block of k to
// the next, so that six rows of x stay in the first-level cache; every lane adds in the order of
// `tile_bf16`, whatever the blocks.
//
// The weights read next are fetched meanwhile. A processor drops prefetches when too many are under
// way, so they are spread evenly over the products, and they follow two pages at a time, which come
// in faster than one.
#include "many.h"
#include "dot.h"

#ifdef HAVE_DPBF16
#define K_BLOCK 2048 // elements of a row of x
#define APART 4096   // bytes between the two streams
#define SUMS (TILE_ROWS * TILE_OUTS * 64L)

size_t many_bf16_bytes(long in) { return in > K_BLOCK ? OUT_BLOCK / TILE_OUTS * SUMS : 0; }

// Weights to fetch while `steps` vectors of k are multiplied: `lines` of each of two pages.
typedef struct fetch {
    const char *at;
    long lines, steps;
} fetch;

// Elements [0, k) of the rows at x and w into `acc`.
static inline __attribute__((always_inline)) void products(
    const int rows, const bf16 *const *x, long from, const bf16 *w, long ldw, long k, const fetch *f,
    __m512 acc[][TILE_OUTS]) {
    const bf16 *at[TILE_ROWS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) at[r] = x[r] + from;
    const long lines = f->lines, steps = f->steps, by = ldw * 2, by3 = ldw * 6;
    const char *ahead = f->at, *row = (const char *)w;
    long i = 0, left = 0;
    for (; i + 32 <= k; i += 32, row += 64) {
        __asm__("" : "+r"(row)); // one pointer to the four rows: there are registers for no more
        __m512bh wv[TILE_OUTS];
#pragma GCC unroll 8
        for (int o = 0; o < TILE_OUTS; o++) wv[o] = (__m512bh)_mm512_loadu_si512(row + (o < 3 ? o * by : by3));
        for (left += lines; left > 0; left -= steps, ahead += 64) {
            _mm_prefetch(ahead, _MM_HINT_T1);
            _mm_prefetch(ahead + APART, _MM_HINT_T1);
        }
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            const __m512bh xv = (__m512bh)_mm512_loadu_si512(at[r] + i);
#pragma GCC unroll 8
            for (int o = 0; o < TILE_OUTS; o++) acc[r][o] = _mm512_dpbf16_ps(acc[r][o], wv[o], xv);
        }
    }
    if (i < k) {
        const __mmask32 m = (__mmask32)((1ull << (k - i)) - 1);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
            for (int o = 0; o < TILE_OUTS; o++)
                acc[r][o] = _mm512_dpbf16_ps(acc[r][o], (__m512bh)_mm512_maskz_loadu_epi16(m, row + o * by),
                                             (__m512bh)_mm512_maskz_loadu_epi16(m, at[r] + i));
    }
}

// The sums of a tile to rows of y, each in the order of `lanes_sum4`; four rows together, so that
// fewer lanes move across a register.
static inline __attribute__((always_inline)) void add_lanes(const int rows, __m512 acc[][TILE_OUTS], float *y) {
    __m512 part[TILE_ROWS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) part[r] = lanes_part4(acc[r][0], acc[r][1], acc[r][2], acc[r][3]);
    const int four = rows / 4 * 4;
    if (four) {
        const __m512 sums = lanes_whole(lanes_half(part[0], part[1]), lanes_half(part[2], part[3]));
        _mm_storeu_ps(y, _mm512_castps512_ps128(sums));
        _mm_storeu_ps(y + OUT_BLOCK, _mm512_extractf32x4_ps(sums, 1));
        _mm_storeu_ps(y + 2 * OUT_BLOCK, _mm512_extractf32x4_ps(sums, 2));
        _mm_storeu_ps(y + 3 * OUT_BLOCK, _mm512_extractf32x4_ps(sums, 3));
    }
    if (rows - four >= 2) {
        const __m512 half = lanes_half(part[four], part[four + 1]);
        const __m512 sums = _mm512_add_ps(half, _mm512_shuffle_f32x4(half, half, 0xb1));
        _mm_storeu_ps(y + four * OUT_BLOCK, _mm512_castps512_ps128(sums));
        _mm_storeu_ps(y + (four + 1) * OUT_BLOCK, _mm512_extractf32x4_ps(sums, 2));
    }
    if (rows & 1) _mm_storeu_ps(y + (rows - 1) * OUT_BLOCK, lanes_rest(part[rows - 1]));
}

// One block of k: from zero or from `sums`, and there again or, at the end, added up in the rows `y`.
static inline __attribute__((always_inline)) void tile(
    const int rows, const bf16 *const *x, long from, const bf16 *w, long ldw, long k, const fetch *ahead,
    float *sums, int first, int last, float *y) {
    __m512 acc[TILE_ROWS][TILE_OUTS];
    if (first) {
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
            for (int o = 0; o < TILE_OUTS; o++) acc[r][o] = _mm512_setzero_ps();
    } else {
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
            for (int o = 0; o < TILE_OUTS; o++) acc[r][o] = _mm512_load_ps(sums + (r * TILE_OUTS + o) * 16);
    }
    products(rows, x, from, w, ldw, k, ahead, acc);
    if (last) {
        add_lanes(rows, acc, y);
    } else {
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 8
            for (int o = 0; o < TILE_OUTS; o++) _mm512_store_ps(sums + (r * TILE_OUTS + o) * 16, acc[r][o]);
    }
}

static void tiles(int rows, const bf16 *const *x, long from, const bf16 *w, long ldw, long k, const fetch *ahead,
                  float *sums, int first, int last, float *y) {
#define CASE(R) tile(R, x, from, w, ldw, k, ahead, sums, first, last, y); break
    switch (rows) {
    case 1: CASE(1);
    case 2: CASE(2);
    case 3: CASE(3);
    case 4: CASE(4);
    case 5: CASE(5);
    default: CASE(6);
    }
#undef CASE
}

// A row's results, which are written at once: they are whole lines of memory.
static void results(const block *b, long row, long o, long n, float *value) {
    const long to = b->dest[row] * b->ldy + o;
    if (b->bias) many_offset(b, o, (int)n, value);
    if (b->ytype == T_F32) {
        memcpy((float *)b->y + to, value, n * 4);
        return;
    }
    long i = 0;
    if (b->ytype == T_BF16)
        for (; i + 16 <= n; i += 16) narrow16(value + i, (bf16 *)b->y + to + i);
    for (; i < n; i++) put(b->y, b->ytype, to + i, value[i]);
}

void many_bf16(block *b, long base, long lo, long hi) {
    _Alignas(64) float value[TILE_ROWS][OUT_BLOCK];
    const long in = b->in, row_tiles = (b->n + TILE_ROWS - 1) / TILE_ROWS; // as even as can be
    const long blocks = MOST(1, (in + K_BLOCK - 1) / K_BLOCK), each = (in + blocks * 32 - 1) / (blocks * 32) * 32;
    const long outs_tiles = (hi - lo + TILE_OUTS - 1) / TILE_OUTS;
    const long calls = row_tiles * blocks * outs_tiles, lines = (b->ahead_end - b->ahead + 63) / 64;
    const long stream = (lines + calls * 2 - 1) / (calls * 2);
    long left = APART / 64;
    for (long t = 0; t < row_tiles; t++) {
        const long r = b->n * t / row_tiles;
        const int count = (int)(b->n * (t + 1) / row_tiles - r);
        const bf16 *const *x = (const bf16 *const *)b->x + r;
        for (long k = 0; k < blocks; k++) {
            const long from = k * each, size = LEAST(each, in - from);
            float *sums = (float *)b->memory;
            for (long o = lo; o < hi; o += TILE_OUTS, sums += SUMS / 4) {
                const bf16 *w = (const bf16 *)b->w->data + (base + o) * in + from;
                fetch ahead = {b->ahead, 0, MOST(size / 32, 1)};
                if (b->ahead < b->ahead_end) {
                    ahead.lines = LEAST(stream, left);
                    b->ahead += ahead.lines * 64, left -= ahead.lines;
                    if (!left) b->ahead += APART, left = APART / 64;
                }
                float *y = &value[0][o - lo];
                if (hi - o >= TILE_OUTS) tiles(count, x, from, w, in, size, &ahead, sums, !k, k + 1 == blocks, y);
                else if (k + 1 == blocks)
                    for (int i = 0; i < count; i++) {
                        float part[TILE_OUTS];
                        dot_bf16(1, (int)(hi - o), x + i, w - from, in, in, part);
                        memcpy(y + i * OUT_BLOCK, part, (hi - o) * 4);
                    }
            }
        }
        for (int i = 0; i < count; i++) results(b, r + i, lo, hi - lo, value[i]);
    }
}
#endif
