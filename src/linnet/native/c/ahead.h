// Prefetches of one stream through the weights, for loops with 512-bit registers.
#pragma once
#ifndef AHEAD
#define AHEAD 6144 // bytes by which prefetches run before the reads
#endif
#ifndef HINT
#define HINT _MM_HINT_T0
#endif
#define FETCH(p) _mm_prefetch((const char *)(p) + AHEAD, HINT)
