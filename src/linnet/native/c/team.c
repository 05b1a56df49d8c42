// The thread team: created once, kept. Threads spin briefly between steps and calls, then sleep.
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include "runtime.h"

#if defined(__x86_64__)
#define RELAX() __builtin_ia32_pause()
#else
#define RELAX() ((void)0)
#endif

typedef void (*entry_fn)(ctx *, call *);

struct pool {
    struct team team;
    pthread_t handle[256];
    ctx *ctx[256];
    atomic_int job;      // counts calls; a worker waits for it to move
    atomic_int finished;
    atomic_int asleep;
    atomic_int quit;
    entry_fn fn;
    call *args;
    pthread_mutex_t lock;
    pthread_cond_t wake;
};

void team_meet(ctx *c) {
    struct team *t = c->team;
    if (c->threads > 1) {
        int g = atomic_load_explicit(&t->generation, memory_order_relaxed);
        if (atomic_fetch_add_explicit(&t->arrived, 1, memory_order_acq_rel) == t->size - 1) {
            atomic_store_explicit(&t->arrived, 0, memory_order_relaxed);
            for (int i = 0; i < c->counter; i++)
                atomic_store_explicit(&t->next[i], 0, memory_order_relaxed);
            atomic_store_explicit(&t->generation, g + 1, memory_order_release);
        } else {
            int spins = 0;
            while (atomic_load_explicit(&t->generation, memory_order_acquire) == g) {
                RELAX();
                if (++spins > 4000) sched_yield();
            }
        }
    } else {
        for (int i = 0; i < c->counter; i++) t->next[i] = 0;
    }
    c->counter = 0;
    c->state = 0;
}

struct start {
    struct pool *pool;
    int thread;
};

static void *worker(void *arg) {
    struct start s = *(struct start *)arg;
    free(arg);
    struct pool *p = s.pool;
    int seen = 0;
    for (;;) {
        int spins = 0;
        while (atomic_load_explicit(&p->job, memory_order_acquire) == seen) {
            RELAX();
            if (++spins > 20000) {
                pthread_mutex_lock(&p->lock);
                atomic_fetch_add(&p->asleep, 1);
                while (atomic_load(&p->job) == seen) pthread_cond_wait(&p->wake, &p->lock);
                atomic_fetch_sub(&p->asleep, 1);
                pthread_mutex_unlock(&p->lock);
            }
        }
        seen++;
        if (atomic_load(&p->quit)) return NULL;
        ctx *c = p->ctx[s.thread];
        c->state = c->counter = 0;
        p->fn(c, p->args);
        atomic_fetch_add_explicit(&p->finished, 1, memory_order_release);
    }
}

void *team_create(int threads) {
    struct pool *p = aligned_alloc(64, (sizeof(struct pool) + 63) / 64 * 64);
    if (!p) return NULL;
    memset(p, 0, sizeof *p);
    if (threads > 256) threads = 256;
    p->team.size = threads;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wake, NULL);
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

void team_run(void *pool, entry_fn fn, call *args) {
    struct pool *p = pool;
    int n = p->team.size;
    for (int i = 0; i < COUNTERS; i++) p->team.next[i] = 0;
    p->fn = fn;
    p->args = args;
    p->finished = 0;
    if (n > 1) {
        atomic_fetch_add_explicit(&p->job, 1, memory_order_seq_cst);
        if (atomic_load(&p->asleep)) {
            pthread_mutex_lock(&p->lock);
            pthread_cond_broadcast(&p->wake);
            pthread_mutex_unlock(&p->lock);
        }
    }
    p->ctx[0]->state = p->ctx[0]->counter = 0;
    fn(p->ctx[0], args);
    int spins = 0;
    while (atomic_load_explicit(&p->finished, memory_order_acquire) != n - 1) {
        RELAX();
        if (++spins > 4000) sched_yield();
    }
}

void team_destroy(void *pool) {
    struct pool *p = pool;
    if (!p) return;
    atomic_store(&p->quit, 1);
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->job, 1);
    pthread_cond_broadcast(&p->wake);
    pthread_mutex_unlock(&p->lock);
    for (int i = 1; i < p->team.size; i++) pthread_join(p->handle[i], NULL);
    for (int i = 0; i < p->team.size; i++) {
        free(p->ctx[i]->scratch);
        free(p->ctx[i]);
    }
    free(p);
}
