// A call in slices: it can be left when a time is over, and taken up again where it was.
//
// Each thread runs its part on a stack of the call's own, and the call has its own meeting point,
// counters and scratch memory. So a thread may leave by itself, at the next step, piece of work or
// meeting, wherever the others are; nothing of the call is lost, and other calls run on the team
// meanwhile.
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>
#include "slice.h"

#define STACK (8l << 20) // as a thread's own; pages that nothing touches cost nothing
#define GUARD 4096l

struct part {
    ctx ctx;
    ucontext_t here, back; // where the call goes on, and where it was entered from
    struct slice *of;
    char *stack;
    int done;
};

struct slice {
    struct team team;
    int64_t until; // nanoseconds of the monotonic clock
    entry_fn fn;
    call *args;
    struct part *part;
};

int64_t slice_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000l + t.tv_nsec;
}

int64_t slice_until(const struct slice *s) { return s->until; }

void slice_leave(ctx *c) {
    struct slice *s = c->slice;
    if (slice_now() < s->until) return;
    struct part *p = &s->part[c->thread];
    swapcontext(&p->here, &p->back);
}

void slice_enter(struct slice *s, int thread) {
    struct part *p = &s->part[thread];
    if (!p->done) swapcontext(&p->back, &p->here);
}

// makecontext passes ints alone: the address in two halves.
static void begin(unsigned high, unsigned low) {
    struct part *p = (struct part *)(((uintptr_t)high << 32) | low);
    p->of->fn(&p->ctx, p->of->args);
    p->done = 1;
}

void slice_free(struct slice *s) {
    if (!s) return;
    for (int i = 0; s->part && i < s->team.size; i++) {
        if (s->part[i].stack) munmap(s->part[i].stack, STACK + GUARD);
        free(s->part[i].ctx.scratch);
        free(s->part[i].ctx.held.memory);
    }
    free(s->part);
    free(s);
}

// Room for one call at a time; NULL where there is no memory.
struct slice *slice_new(void *pool) {
    struct slice *s = aligned_alloc(64, (sizeof *s + 63) / 64 * 64);
    if (!s) return NULL;
    memset(s, 0, sizeof *s);
    s->team.size = team_threads(pool);
    s->part = calloc(s->team.size, sizeof *s->part);
    for (int i = 0; i < s->team.size; i++) {
        char *made = !s->part ? MAP_FAILED
                              : mmap(NULL, STACK + GUARD, PROT_READ | PROT_WRITE,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
        if (made == MAP_FAILED) {
            slice_free(s);
            return NULL;
        }
        mprotect(made, GUARD, PROT_NONE);
        s->part[i].stack = made;
        s->part[i].of = s;
        s->part[i].ctx.team = &s->team;
        s->part[i].ctx.slice = s;
        s->part[i].ctx.thread = i;
        s->part[i].ctx.threads = s->team.size;
    }
    return s;
}

// The next call in this room, from its start; one that was left there is forgotten.
void slice_begin(struct slice *s, entry_fn fn, call *args) {
    s->fn = fn;
    s->args = args;
    s->team.arrived = s->team.generation = 0;
    for (int i = 0; i < COUNTERS; i++) s->team.work[i].next = 0;
    for (int i = 0; i < s->team.size; i++) {
        struct part *p = &s->part[i];
        p->ctx.state = p->ctx.counter = 0;
        p->ctx.held.x = NULL;
        p->done = 0;
        getcontext(&p->here);
        p->here.uc_stack.ss_sp = p->stack + GUARD;
        p->here.uc_stack.ss_size = STACK;
        p->here.uc_link = &p->back;
        makecontext(&p->here, (void (*)(void))begin, 2, (unsigned)((uintptr_t)p >> 32),
                    (unsigned)(uintptr_t)p);
    }
}

// Runs it for about so many nanoseconds, a negative number: to its end. Whether it has ended.
int slice_run(void *pool, struct slice *s, int64_t nanoseconds) {
    s->until = nanoseconds < 0 ? INT64_MAX : slice_now() + nanoseconds;
    team_go(pool, s);
    int done = 1;
    for (int i = 0; i < s->team.size; i++) done &= s->part[i].done;
    return done;
}
