// The thread team: created once, kept. Threads spin briefly between steps and calls, then sleep.
#include <pthread.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "slice.h"

#if defined(__x86_64__)
#define RELAX() __builtin_ia32_pause()
#else
#define RELAX() ((void)0)
#endif

#ifdef LINNET_PROFILE
double profile_time[8192];
#endif

struct pool {
    struct team team;
    pthread_t handle[256];
    ctx *ctx[256];
    atomic_int job;      // counts calls
    atomic_int bell;     // rung before a call and with it; a worker waits for it to move
    atomic_int finished;
    atomic_int quit;
    entry_fn fn;
    call *args;
    struct slice *slice; // of the call, where it can be left
};

// Spin, then sleep on the word: where other programs use the processors, a thread that spins
// keeps the one that it waits for from running.
#define SPINS 3000
#define READY_SPINS 30000 // after the bell: a caller that prepares its arguments
static atomic_int sleepers;

static void wait_while(atomic_int *word, int value, int spins) {
    for (int i = 0; i < spins; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != value) return;
        RELAX();
    }
    atomic_fetch_add(&sleepers, 1);
    while (atomic_load(word) == value) syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
    atomic_fetch_sub(&sleepers, 1);
}

// The same, at most until a time.
static void wait_until(atomic_int *word, int value, int64_t until) {
    for (int i = 0; i < SPINS; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != value) return;
        RELAX();
    }
    int64_t left = until - slice_now();
    if (left <= 0) return;
    struct timespec t = {left / 1000000000, left % 1000000000};
    atomic_fetch_add(&sleepers, 1);
    if (atomic_load(word) == value) syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, &t, NULL, 0);
    atomic_fetch_sub(&sleepers, 1);
}

static void wake_all(atomic_int *word) {
    if (atomic_load(&sleepers)) syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1 << 30, NULL, NULL, 0);
}

void team_meet(ctx *c) {
    struct team *t = c->team;
    if (c->threads > 1) {
        int g = atomic_load_explicit(&t->generation, memory_order_relaxed);
        if (atomic_fetch_add_explicit(&t->arrived, 1, memory_order_acq_rel) == t->size - 1) {
            atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);
            for (int i = 0; i < c->counter; i++)
                atomic_store_explicit(&t->work[i].next, 0, memory_order_relaxed);
            atomic_store(&t->generation, g + 1);
            wake_all(&t->generation);
        } else if (c->slice) {
            while (atomic_load_explicit(&t->generation, memory_order_acquire) == g) {
                wait_until(&t->generation, g, slice_until(c->slice));
                if (atomic_load_explicit(&t->generation, memory_order_acquire) == g) may_leave(c);
            }
        } else {
            wait_while(&t->generation, g, SPINS);
        }
    } else {
        for (int i = 0; i < c->counter; i++) t->work[i].next = 0;
    }
    c->counter = 0;
    c->state = 0;
    c->held.x = NULL;
}

struct start {
    struct pool *pool;
    int thread;
};

static void work_on(struct pool *p, int thread) {
    if (p->slice) {
        slice_enter(p->slice, thread);
        return;
    }
    ctx *c = p->ctx[thread];
    c->state = c->counter = 0;
    c->held.x = NULL;
    p->fn(c, p->args);
}

static void *worker(void *arg) {
    struct start s = *(struct start *)arg;
    free(arg);
    struct pool *p = s.pool;
    int seen = 0, heard = 0;
    for (;;) {
        while (atomic_load(&p->job) == seen) {
            wait_while(&p->bell, heard, 4 * SPINS);
            heard = atomic_load(&p->bell);
            for (int i = 0; i < READY_SPINS && atomic_load(&p->job) == seen; i++) RELAX();
        }
        seen++;
        if (atomic_load(&p->quit)) return NULL;
        work_on(p, s.thread);
        atomic_fetch_add(&p->finished, 1);
        wake_all(&p->finished);
    }
}

void *team_create(int threads) {
    struct pool *p = aligned_alloc(64, (sizeof(struct pool) + 63) / 64 * 64);
    if (!p) return NULL;
    memset(p, 0, sizeof *p);
    if (threads > 256) threads = 256;
    p->team.size = threads;
    for (int i = 0; i < threads; i++) {
        p->ctx[i] = calloc(1, sizeof(ctx));
        p->ctx[i]->team = &p->team;
        p->ctx[i]->thread = i;
        p->ctx[i]->threads = threads;
        if (i > 0) {
            struct start *s = malloc(sizeof *s);
            *s = (struct start){p, i};
            if (pthread_create(&p->handle[i], NULL, worker, s)) return NULL;
        }
    }
    return p;
}

static void ring(struct pool *p) {
    atomic_fetch_add(&p->bell, 1);
    wake_all(&p->bell);
}

// A call will come at once: workers that sleep wake while the caller prepares it, and what the caller
// reads for that is fetched, many lines at a time where it would wait for one after another.
void team_wake(void *pool, const void *const *lines, long count) {
    struct pool *p = pool;
    if (p->team.size > 1 && atomic_load(&sleepers)) ring(p);
    for (long i = 0; i < count; i++) __builtin_prefetch(lines[i], 0, 3);
}

static void go(struct pool *p) {
    int n = p->team.size;
    p->finished = 0;
    if (n > 1) {
        atomic_fetch_add(&p->job, 1);
        ring(p);
    }
    work_on(p, 0);
    for (int done = atomic_load(&p->finished); done != n - 1; done = atomic_load(&p->finished))
        wait_while(&p->finished, done, SPINS);
}

void team_run(void *pool, entry_fn fn, call *args) {
    struct pool *p = pool;
    for (int i = 0; i < COUNTERS; i++) p->team.work[i].next = 0;
    p->fn = fn;
    p->args = args;
    p->slice = NULL;
    go(p);
}

void team_go(void *pool, struct slice *s) {
    struct pool *p = pool;
    p->slice = s;
    go(p);
}

int team_threads(const void *pool) { return ((const struct pool *)pool)->team.size; }

void team_destroy(void *pool) {
    struct pool *p = pool;
    if (!p) return;
    atomic_store(&p->quit, 1);
    atomic_fetch_add(&p->job, 1);
    ring(p);
    for (int i = 1; i < p->team.size; i++) pthread_join(p->handle[i], NULL);
    for (int i = 0; i < p->team.size; i++) {
        free(p->ctx[i]->scratch);
        free(p->ctx[i]->held.memory);
        free(p->ctx[i]);
    }
    free(p);
}
