"""Index notation: indices and their extents, reductions, what may stand in it."""

from programs import Program, cases, run


@cases(r"""
-- a matrix product
op matmul<M: Dim, K: Dim, N: Dim, T: Numeric>(a: Tensor[M, K; T], b: Tensor[K, N; T]) -> Tensor[M, N; T] {
    let c[m, n] = sum[k] a[m, k] * b[k, n]
    return c
}
-- one index, two extents
fn f<M: Dim, K: Dim, L: Dim>(a: Tensor[M, K; f32], b: Tensor[L, M; f32]) -> Tensor[M, M; f32] {
    let c[m, n] = sum[k] a[m, k] * b[k, n]  // error: E2201 says: index `k` has two extents: `K` and `L`
    return c
}
-- two extents made one by a clause
fn f<M: Dim, K: Dim, L: Dim>(a: Tensor[M, K; f32], b: Tensor[L, M; f32]) -> Tensor[M, M; f32]
where K == L {
    let c[m, n] = sum[k] a[m, k] * b[k, n]
    return c
}
-- extents that are equal after normalization
fn f<N: Dim>(a: Tensor[2 * N; f32], b: Tensor[N + N; f32]) -> Tensor[N * 2; f32] {
    let c[i] = a[i] + b[i]
    return c
}
-- the result's shape follows the order on the left
fn f<A: Dim, B: Dim>(x: Tensor[A, B; f32]) -> Tensor[B, A; f32] {
    let y[j, i] = x[i, j]
    return y
}
-- the result's shape is what it is
fn f<A: Dim, B: Dim>(x: Tensor[A, B; f32]) -> Tensor[A, B; f32] {
    let y[j, i] = x[i, j]
    return y  // error: E2202
}
-- an annotation on an indexed let
fn f<A: Dim>(x: Tensor[A; f32]) -> Tensor[A; f32] {
    let y[i]: Tensor[A; f32] = x[i]
    let z[i]: Tensor[A + 1; f32] = x[i]  // error: E2202
    return y
}
-- an index that is neither output nor bound
fn f(x: Tensor[2, 3; f32]) -> Tensor[2; f32] {
    let y[i] = x[i, j]  // error: E3101 says: sum[j]
    return y
}
-- an output index that indexes nothing
fn f(x: Tensor[3; f32]) -> i64 {
    let y[i, j] = x[i]  // error: E3103
    return 1
}
-- a reduction index that indexes nothing
fn f(x: Tensor[3; f32]) -> Tensor[3; f32] {
    let y[i] = sum[k] x[i]  // error: E3102
    return y
}
-- an output index listed twice
fn f(x: Tensor[3, 3; f32]) -> i64 {
    let y[i, i] = x[i, i]  // error: E3105
    return 1
}
-- a reduction index that is an output
fn f(x: Tensor[3; f32]) -> Tensor[3; f32] {
    let y[i] = sum[i] x[i]  // error: E3105
    return y
}
-- a reduction index listed twice
fn f(x: Tensor[3; f32]) -> f32 { return sum[i, i] x[i] }  // error: E3105
-- two reductions may use one name
fn f(x: Tensor[3; f32], y: Tensor[4; f32]) -> f32 { return (sum[i] x[i]) + (sum[i] y[i]) }
-- a reduction reaches as far right as it can
fn f(x: Tensor[3; f32], y: Tensor[3; f32]) -> f32 { return sum[i] x[i] * y[i] + 1.0 }
-- outside of its reduction an index is gone
fn f(x: Tensor[3; f32]) -> f32 { return (sum[i] x[i]) + x[i] }  // error: E1201
-- a diagonal
fn f<N: Dim>(x: Tensor[N, N; f32]) -> (Tensor[N; f32], f32) {
    let d[i] = x[i, i]
    return (d, sum[i] x[i, i])
}
-- a diagonal of what is not square
fn f<N: Dim, M: Dim>(x: Tensor[N, M; f32]) -> Tensor[N; f32] {
    let d[i] = x[i, i]  // error: E2201
    return d
}
-- every axis is indexed
fn f(x: Tensor[2, 3; f32]) -> Tensor[2; f32] {
    let y[i] = x[i]  // error: E2204
    return y
}
-- a whole tensor does not stand beside elements
fn f(x: Tensor[3; f32], y: Tensor[3; f32]) -> Tensor[3; f32] {
    let z[i] = x[i] + y  // error: E3104
    return z
}
-- scalars stand beside elements
fn f<N: Dim>(x: Tensor[N; f32], s: f32) -> Tensor[N; f32] {
    let y[i] = x[i] * s + 1 / cast<f32>(N)
    return y
}
-- constants and dimensions as indices
const K = 1
fn f<N: Dim>(x: Tensor[N, N, 3; f32]) -> Tensor[N; f32]
where N > 2 {
    let y[i] = x[i, N - 1, K] + x[i, 2, 0]
    return y
}
-- a constant past its axis
fn f(x: Tensor[3, 2; f32]) -> Tensor[3; f32] {
    let y[i] = x[i, 2]  // error: E2209
    return y
}
-- a run-time gather
fn f<V: Dim, B: Dim, D: Dim>(table: Tensor[V, D; f32], pos: Tensor[B; i32]) -> Tensor[B, D; f32] {
    let y[b, d] = table[cast<i64>(pos[b]), d] + table[pos[b] + 1, d]
    return y
}
-- a gather through a gather
fn f(x: Tensor[5; f32], a: Tensor[4; u8], b: Tensor[3; i64]) -> Tensor[3; f32] {
    let y[i] = x[a[b[i]]]
    return y
}
-- a gather by a scalar
fn f(x: Tensor[5, 3; f32], at: i32) -> Tensor[3; f32] {
    let y[i] = x[at, i]
    return y
}
-- a gather by a float
fn f(x: Tensor[5; f32], a: Tensor[4; f32]) -> Tensor[4; f32] {
    let y[i] = x[a[i]]  // error: E2209
    return y
}
-- an index is not a value
fn f(x: Tensor[5; i64]) -> Tensor[5; i64] {
    let y[i] = x[i] + i  // error: E3104 says: iota(N)[i]
    return y
}
-- an index is not part of an index expression
fn f(x: Tensor[5; i64]) -> Tensor[5; i64] {
    let y[i] = x[i] + x[i + 1]  // error: E3104
    return y
}
-- its number is
fn f<N: Dim>(x: Tensor[N; i32]) -> Tensor[N; i32] {
    let y[i] = x[i] + iota<i32>(N)[i]
    return y
}
-- any expression may be accessed
fn g() -> Tensor[3; f32] { return fill<f32>([3], 1) }
fn f(x: Tensor[3; f32]) -> Tensor[3; f32] {
    let y[i] = (x + 1)[i] * g()[i] + exp(x)[i]
    return y
}
-- an accessed expression uses no index
fn f(x: Tensor[3, 3; f32]) -> Tensor[3; f32] {
    let y[i] = (x[i, :])[i]  // error: E3104
    return y
}
-- slices do not stand in it
fn f(x: Tensor[3, 3; f32], z: Tensor[3; f32]) -> Tensor[3; f32] {
    let y[i] = z[i] * x[i, 0:1]  // error: E3104
    return y
}
-- an access of a scalar
fn f(x: Tensor[3; f32], s: f32) -> Tensor[3; f32] {
    let y[i] = x[i] + s[i]  // error: E2104
    return y
}
-- all reductions
fn f(x: Tensor[3; f32], b: Tensor[3; bool]) -> f32 {
    let lo = min[i] x[i]
    let hi = max[i] x[i]
    let p = prod[i] x[i]
    return select((any[i] b[i]) && all[i] x[i] > lo, p, hi)
}
-- a reduction over several indices
fn f(x: Tensor[3, 4; f32]) -> f32 { return sum[i, j] x[i, j] }
-- nested reductions
fn f(x: Tensor[3, 4; f32]) -> f32 { return max[i] sum[j] x[i, j] }
-- a stated accumulator
fn f(x: Tensor[3; f16]) -> f32 { return sum<f32>[i] cast<f32>(x[i]) }
-- a stated accumulator of another dtype
fn f(x: Tensor[3; f16]) -> f32 { return sum<f32>[i] x[i] }  // error: E2103 says: cast<f32>
-- a stated accumulator gives literals their dtype
fn f(x: Tensor[3; bool]) -> f16 { return sum<f16>[i] select(x[i], 1, 0) }
-- a stated accumulator that is no dtype
fn f(x: Tensor[3; f16]) -> f16 { return sum<Missing>[i] x[i] }  // error: E1201
-- a sum of bools
fn f(x: Tensor[3; bool]) -> i64 { return sum[i] x[i] }  // error: E2104
-- any of numbers
fn f(x: Tensor[3; i32]) -> bool { return any[i] x[i] }  // error: E2104
-- a maximum of a DType generic
fn f<T: DType>(x: Tensor[3; T]) -> T { return max[i] x[i] }  // error: E2104
-- a sum called like a function
fn f(x: Tensor[3; f32]) -> f32 { return sum(x) }  // error: E1201 says: sum[i] x[i]
-- dtypes of elements
fn f(x: Tensor[3; f32], y: Tensor[3; f64]) -> Tensor[3; f32] {
    let z[i] = x[i] + y[i]  // error: E2103
    return z
}
-- logic on elements
fn f(x: Tensor[3; f32], b: Tensor[3; bool]) -> Tensor[3; bool] {
    let y[i] = x[i] > 0 && !b[i] || b[i] & (x[i] == 1)
    return y
}
-- logic on numbers
fn f(x: Tensor[3; i32]) -> Tensor[3; bool] {
    let y[i] = x[i] && true  // error: E2116
    let z[i] = !x[i]  // error: E2116
    return y
}
-- bits of float elements
fn f(x: Tensor[3; f32]) -> Tensor[3; f32] {
    let y[i] = x[i] ^ x[i]  // error: E2104
    return y
}
-- minus of a bool element
fn f(x: Tensor[3; bool]) -> Tensor[3; bool] {
    let y[i] = -x[i]  // error: E2104
    return y
}
-- choices on elements
fn f(x: Tensor[3; f32], c: bool) -> Tensor[3; f32] {
    let y[i] = if x[i] > 0 { x[i] } else if c { 0 } else { -1 }
    let z[i] = select(c, x[i], y[i])
    return z
}
-- choices that differ
fn f(x: Tensor[3; f32], z: Tensor[3; f16]) -> Tensor[3; f32] {
    let y[i] = if x[i] > 0 { x[i] } else { z[i] }  // error: E2115
    return y
}
-- a choice by a number
fn f(x: Tensor[3; f32]) -> Tensor[3; f32] {
    let y[i] = if x[i] { x[i] } else { 0 }  // error: E2114
    return y
}
-- casts, shifts and mathematics on elements
fn f<T: Float>(x: Tensor[3; T], n: Tensor[3; i32]) -> Tensor[3; f32] {
    let y[i] = cast<f32>(exp(-abs(x[i]))) + cast<f32>(shl(n[i], 2) + min(n[i], 7))
    return y
}
-- mathematics on integer elements
fn f(x: Tensor[3; i32]) -> Tensor[3; i32] {
    let y[i] = exp(x[i])  // error: E2104
    return y
}
-- shapes do not change element by element
fn f(x: Tensor[3; f32]) -> Tensor[3; f32] {
    let y[i] = reshape(x[i], [1])  // error: E3104
    return y
}
-- functions of scalars on elements
fn twice<T: Float>(x: T, by: T = 2) -> T { return x * by }
fn f(x: Tensor[3; f16]) -> Tensor[3; f16] {
    let y[i] = twice(x[i]) + twice<f16>(x[i], by = 3)
    return y
}
-- functions of scalars with the wrong dtype
fn half(x: f32) -> f32 { return x / 2 }
fn f(x: Tensor[3; f16]) -> Tensor[3; f32] {
    let y[i] = half(x[i])  // error: E2103
    return y
}
-- functions of scalars with a constraint
fn half<T: Float>(x: T) -> T { return x / 2 }
fn f(x: Tensor[3; i32]) -> Tensor[3; i32] {
    let y[i] = half(x[i])  // error: E2112
    return y
}
-- functions of packs on elements
fn half<*S: Shape>(x: Tensor[*S; f32]) -> Tensor[*S; f32] { return x / 2 }
fn f(x: Tensor[3; f32]) -> Tensor[3; f32] {
    let y[i] = half(x[i])
    return y
}
-- functions of tensors on elements
fn g(x: Tensor[3; f32]) -> f32 { return x[0] }
fn f(x: Tensor[3; f32]) -> Tensor[3; f32] {
    let y[i] = g(x[i])  // error: E3104
    return y
}
-- an unknown function on elements
fn f(x: Tensor[3; f32]) -> Tensor[3; f32] {
    let y[i] = missing(x[i])  // error: E1201
    return y
}
-- too few arguments on elements
fn g(a: f32, b: f32) -> f32 { return a }
fn f(x: Tensor[3; f32]) -> Tensor[3; f32] {
    let y[i] = g(x[i])  // error: E2102
    return y
}
-- methods on elements
pub block B {
    fn g(x: f32) -> f32 { return x }
    pub fn f(x: Tensor[3; f32]) -> Tensor[3; f32] {
        let y[i] = g(x[i])  // error: E3104
        return y
    }
}
-- a match on elements
fn f(x: Tensor[3; f32], b: f32?) -> Tensor[3; f32] {
    let y[i] = match b { some(v) => v * x[i]  none => x[i] }  // error: E3104
    return y
}
-- a match beside elements
fn f(x: Tensor[3; f32], b: f32?) -> Tensor[3; f32] {
    let y[i] = x[i] * match b { some(v) => v  none => 1 }
    return y
}
-- packs of indices
fn f<*S: Shape, N: Dim>(x: Tensor[*S, N; f32], w: Tensor[N; f32]) -> (Tensor[*S; f32], Tensor[N, *S; f32]) {
    let total[*s] = sum[n] x[*s, n] * w[n]
    let turned[n, *s] = x[*s, n]
    return (total, turned)
}
-- a pack over known axes
fn f(x: Tensor[2, 3, 4; f32]) -> Tensor[2, 3; f32] {
    let y[*s] = sum[i] x[*s, i]
    return y
}
-- a pack over no axes
fn f(x: Tensor[3; f32]) -> f32 {
    let y[*s] = sum[i] x[*s, i]
    return y
}
-- a pack with two extents
fn f(x: Tensor[2, 3; f32], y: Tensor[2, 4; f32]) -> Tensor[2, 3; f32] {
    let z[*s] = x[*s] + y[*s]  // error: E2201
    return z
}
-- a reduction over a pack
fn f<*S: Shape>(x: Tensor[*S; f32]) -> f32 { return sum[*s] x[*s] }
-- a pack without its star
fn f<*S: Shape>(x: Tensor[*S, 3; f32]) -> i64 {
    let y[*s] = x[s, 0]  // error: E3106
    return 1
}
-- an index with a star
fn f(x: Tensor[3; f32]) -> i64 {
    let y[i] = x[*i]  // error: E3106
    return 1
}
-- two packs in one access
fn f(x: Tensor[2, 3; f32]) -> i64 {
    let y[*s, *t] = x[*s, *t]  // error: E3106
    return 1
}
-- a pack indexed by an index
fn f<*S: Shape>(x: Tensor[*S; f32]) -> i64 {
    let y[i] = x[i]  // error: E3106
    return 1
}
-- an unbound pack
fn f<*S: Shape>(x: Tensor[*S, 2; f32]) -> i64 {
    let y[i] = x[*s, i]  // error: E3101
    return 1
}
-- too many indices beside a pack
fn f(x: Tensor[2; f32]) -> i64 {
    let y[*s, i, j] = x[*s, i, j]  // error: E2204
    return 1
}
-- an index shadows a local and an item
const k = 3
fn f(x: Tensor[3; f32], i: f32) -> Tensor[3; f32] {
    let y[i] = x[i] + sum[k] x[k]
    return y
}
-- names of reductions as tensors
fn f(max: Tensor[3; f32]) -> Tensor[3; f32] { return max }  // error: E1207
fn g(any: Tensor[3; f32]) -> f32 { return (any)[0] }
-- an unknown tensor
fn f(x: Tensor[3; f32]) -> Tensor[3; f32] {
    let y[i] = missing[i] + x[i]  // error: E1201
    return y
}
-- an error in a let is not repeated where it is used
fn f(x: Tensor[3; f32]) -> f32 {
    let y[i] = x[i] + 1.5 * missing  // error: E1201
    let z[i] = y[i] * x[i]
    return sum[i] z[i] * y[i]
}
-- a grid's literal takes the annotated dtype
fn f(x: Tensor[3; bool]) -> Tensor[3; f16] {
    let y[i]: Tensor[3; f16] = select(x[i], 1, 0)
    return y
}
-- a grid's literal without context
fn f(x: Tensor[3; bool]) -> (Tensor[3; i64], Tensor[3; f64]) {
    let y[i] = select(x[i], 1, 0)
    let z[i] = select(x[i], 1.5, 0)
    return (y, z)
}
-- a literal that does not fit beside an element
fn f(x: Tensor[3; u8]) -> Tensor[3; u8] {
    let y[i] = x[i] + 256  // error: E2105
    return y
}
-- compile-time integers beside elements
fn f<N: Dim>(x: Tensor[N; i32]) -> Tensor[N; bool] {
    let y[i] = x[i] < N && x[i] != N * 2 - 1
    return y
}
-- indexing a block array by an index
pub block A { pub fn f() -> f32 { return 1.0 } }
pub block B {
    sub xs: [A; 3]
    pub fn f(x: Tensor[3; f32]) -> Tensor[3; f32] {
        let y[i] = x[i] + xs[i].f()  // error: E3104
        return y
    }
}
-- a state and a parameter as tensors
pub block B<N: Dim> {
    param w: Tensor[N; f32]
    state s: Tensor[N; f32]
    pub fn f() -> Tensor[N; f32] {
        let y[i] = w[i] * s[i]
        s = y
        return y
    }
}
-- a long product of many tensors
fn f<A: Dim, B: Dim, C: Dim, D: Dim>(x: Tensor[A, B; f32], y: Tensor[B, C; f32], z: Tensor[C, D; f32]) -> Tensor[A, D; f32] {
    let w[a, d] = sum[b, c] x[a, b] * y[b, c] * z[c, d]
    return w
}
-- a convolution
fn f<B: Dim, L: Dim, K: Dim>(x: Tensor[B, L; f32], w: Tensor[K; f32]) -> Tensor[B, L - K + 1; f32]
where K > 0, K <= L {
    let at[o, k] = iota(L - K + 1)[o] + iota(K)[k]
    let y[b, o] = sum[k] x[b, at[o, k]] * w[k]
    return y
}
""")
def test_index_notation(program: Program) -> None:
    run(program)
