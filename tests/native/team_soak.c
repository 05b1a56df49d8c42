// Calls and calls in slices on one team: compiled with a sanitizer and run, see test_native_team.py.
//
// Every step writes plainly what other threads read in the next one, so that a meeting that is
// missed is a race, and a wrong sum.
#include <stdio.h>
#include "slice.h"

void *team_create(int threads);
void team_run(void *pool, entry_fn fn, call *args);
void team_wake(void *pool, const void *const *lines, long count);
void team_destroy(void *pool);
struct slice *slice_new(void *pool);
void slice_begin(struct slice *s, entry_fn fn, call *args);
int slice_run(void *pool, struct slice *s, int64_t nanoseconds);
void slice_free(struct slice *s);

#define N 61
#define ROUNDS 40

struct job {
    long a[N], b[N], total;
    call args;
    int64_t rounds;
};

static void entry(ctx *c, call *args) {
    struct job *j = (struct job *)args->arena;
    for (long round = 0; round < j->rounds; round++) {
        step_begin(c, 1, 1);
        work first = work_shares(c, N);
        for (long i; (i = work_take(&first)) >= 0;) {
            char *own = scratch(c, 100 + 50 * (i % 7)); // grows while others run
            memset(own, (int)i, 100);
            j->a[i] = j->b[N - 1 - i] + round + own[99] - (char)i;
        }
        step_begin(c, 1, 1);
        work second = work_shares(c, N);
        for (long i; (i = work_take(&second)) >= 0;) j->b[i] = j->a[N - 1 - i] + i;
        step_begin(c, 1, 0);
        if (c->thread == 0) j->total += j->b[0] + j->b[N - 1];
    }
}

static void prepare(struct job *j, long rounds) {
    memset(j, 0, sizeof *j);
    j->rounds = rounds;
    j->args.arena = (char *)j;
}

static long expected(long rounds) {
    static struct job j; // the same on one thread, by hand
    prepare(&j, rounds);
    for (long round = 0; round < rounds; round++) {
        for (long i = 0; i < N; i++) j.a[i] = j.b[N - 1 - i] + round;
        for (long i = 0; i < N; i++) j.b[i] = j.a[N - 1 - i] + i;
        j.total += j.b[0] + j.b[N - 1];
    }
    return j.total;
}

static unsigned long seed = 1;
static long pick(long n) {
    seed = seed * 6364136223846793005ul + 1442695040888963407ul;
    return (long)(seed >> 33) % n;
}

static int wrong(const char *what, const struct job *j) {
    if (j->total == expected(j->rounds)) return 0;
    printf("%s: %ld instead of %ld\n", what, j->total, expected(j->rounds));
    return 1;
}

int main(int count, char **given) {
    static struct job jobs[4];
    const long times = count > 1 ? atol(given[1]) : 20;
    int bad = 0;
    for (int threads = 1; threads <= 4; threads++) {
        void *pool = team_create(threads);
        struct slice *room[2] = {slice_new(pool), slice_new(pool)};
        long left = 0;
        for (long time = 0; time < times; time++) {
            int done[2] = {0, 0};
            for (int i = 0; i < 2; i++) {
                prepare(&jobs[i], 1 + pick(ROUNDS));
                slice_begin(room[i], entry, &jobs[i].args);
            }
            while (!done[0] || !done[1]) {
                const int i = done[0] ? 1 : done[1] ? 0 : (int)pick(2);
                done[i] = slice_run(pool, room[i], pick(9) == 0 ? -1 : pick(20000));
                left += !done[i];
                if (done[i]) bad += wrong("slices", &jobs[i]);
                if (pick(8) == 0) { // given up half-way, and the room is used again
                    const int other = done[0] ? 1 : 0;
                    if (!done[other]) {
                        prepare(&jobs[other], 1 + pick(ROUNDS));
                        slice_begin(room[other], entry, &jobs[other].args);
                    }
                }
                if (pick(3) == 0) {
                    prepare(&jobs[2], pick(5));
                    if (pick(2)) { // lines that are there, and one that is not: only ever fetched
                        const void *const lines[] = {pool, (char *)pool + 64, NULL, (void *)8};
                        team_wake(pool, lines, pick(2) ? 4 : 0);
                    }
                    team_run(pool, entry, &jobs[2].args);
                    bad += wrong("a call", &jobs[2]);
                }
            }
        }
        slice_begin(room[0], entry, &jobs[0].args);
        slice_run(pool, room[0], 0); // what is left half-way goes with its room
        slice_free(room[0]);
        slice_free(room[1]);
        team_destroy(pool);
        printf("%d threads: %ld times left\n", threads, left);
        if (times > 5 && left == 0) bad++;
    }
    return bad != 0;
}
