// Elements of any float type, one and several at a time.
#pragma once
#include "dot.h"

static inline void put(void *y, int type, long at, float value) {
    if (type == T_BF16) ((bf16 *)y)[at] = to_bf16(value);
    else if (type == T_F32) ((float *)y)[at] = value;
    else ((f16 *)y)[at] = (f16)value;
}
static inline float get(const void *x, int type, long at) {
    if (type == T_BF16) return from_bf16(((const bf16 *)x)[at]);
    if (type == T_F32) return ((const float *)x)[at];
    return (float)((const f16 *)x)[at];
}

typedef uint16_t h16 __attribute__((vector_size(32), aligned(2), may_alias));

// To bf16 as `to_bf16`, sixteen at a time.
static inline __attribute__((always_inline)) void narrow16(const float *from, bf16 *to) {
    v16 v = *(const v16 *)from;
    u16v u = (u16v)v, nan = (u16v)(v != v);
    u16v r = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
    r = (r & ~nan) | (nan & 0x7fc0);
    *(h16 *)to = __builtin_convertvector(r, h16);
}

// Four results of one row, converted together.
static inline __attribute__((always_inline)) void put4(void *y, int type, long at, const float *value) {
    if (type == T_F32) {
        memcpy((float *)y + at, value, 16);
    } else if (type == T_BF16) {
        bf16 out[4];
        for (int i = 0; i < 4; i++) out[i] = to_bf16(value[i]);
        memcpy((bf16 *)y + at, out, 8);
    } else {
        for (int i = 0; i < 4; i++) ((f16 *)y)[at + i] = (f16)value[i];
    }
}
