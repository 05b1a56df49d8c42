// A call that can be left and taken up again, by the threads of a team (`slice.c`).
#pragma once
#include "runtime.h"

typedef void (*entry_fn)(ctx *, call *);

void team_go(void *pool, struct slice *s);     // every thread enters `s` and comes back
int team_threads(const void *pool);
void slice_enter(struct slice *s, int thread); // until the thread's part ends or its time is over
int64_t slice_until(const struct slice *s);
int64_t slice_now(void);
