"""Dimensions, proof, broadcasting, and the operations that move elements."""

from programs import Program, cases, run


@cases(r"""
-- equal after normalization
fn f<N: Dim, M: Dim>(x: Tensor[N * (M + 1); f32], y: Tensor[1 + N; f32]) -> Tensor[N + M * N; f32] {
    let z: Tensor[N + 1; f32] = y
    return x
}
-- not equal
fn f<N: Dim>(x: Tensor[N + 1; f32]) -> Tensor[N; f32] { return x }  // error: E2202
-- not equal by a constant names an example
fn f<N: Dim, M: Dim>(x: Tensor[N; f32]) -> Tensor[M; f32] {
    return x  // error: E2202 says: add `where N == M`
}
-- equal by a where clause
fn f<N: Dim, M: Dim>(x: Tensor[N; f32]) -> Tensor[M; f32]
where N == M {
    return x
}
-- division of an even number
fn f<N: Dim>(x: Tensor[N / 2, 2; f32], y: Tensor[N / 2 + N / 2; f32]) -> Tensor[N; f32]
where N % 2 == 0 {
    let z: Tensor[N; f32] = y
    return reshape(x, [N])
}
-- division of a number that may be odd
fn f<N: Dim>(y: Tensor[N / 2 + N / 2; f32]) -> Tensor[N; f32] {
    return y  // error: E2202
}
-- a divisor must be positive
fn f<N: Dim, H: Dim>(x: Tensor[N / H; f32]) -> i64 { return 1 }  // error: E2205 says: where H > 0
-- a remainder too
fn f<N: Dim, H: Dim>(x: Tensor[N % H; f32]) -> i64 { return 1 }  // error: E2205
-- a divisor proven by a clause
fn f<N: Dim, H: Dim>(x: Tensor[N / H; f32]) -> i64
where H > 0 {
    return 1
}
-- a divisor by a constant
fn f<N: Dim>(x: Tensor[N / 4; f32]) -> i64 { return 1 }
-- division by nothing
fn f<N: Dim>(x: Tensor[N / 0; f32]) -> i64 { return 1 }  // error: E2205
-- a clause whose divisor is not positive
fn f<N: Dim, H: Dim>(x: Tensor[N; f32]) -> i64
where N % H == 0 {  // error: E2205
    return 1
}
-- the order of clauses does not matter
fn f<N: Dim, H: Dim>(x: Tensor[N; f32]) -> i64
where N % H == 0, H > 0 {
    return 1
}
-- a negative dimension
fn f(x: Tensor[2 - 3; f32]) -> i64 { return 1 }  // error: E2208
-- a dimension proven negative
fn f<N: Dim>(x: Tensor[N - 4; f32]) -> i64  // error: E2208
where N < 4 {
    return 1
}
-- a dimension that is not decided
fn f<N: Dim>(x: Tensor[N - 4; f32], y: Tensor[2 * N - 1; f32]) -> Tensor[N - 4; f32] { return x }
-- min and max in dimensions
fn f<N: Dim>(x: Tensor[min(N, 4); f32], y: Tensor[max(N, 1); f32]) -> Tensor[min(4, N); f32] { return x }
-- a local is no dimension
fn f(x: Tensor[3; f32]) -> i64 {
    let n = 3
    let y = fill<f32>([n], 0)  // error: E2123
    return 1
}
-- a parameter is no dimension
fn f(n: i64) -> i64 {
    let y = fill<f32>([2, n + 1], 0)  // error: E2123
    return 1
}
-- a counter is no dimension
fn f(x: Tensor[3; f32]) -> i64 {
    for i in 0..3 {
        let y = x[i:i + 1]  // error: E2123 E2123
    }
    return 1
}
-- a call is no dimension
fn g() -> i64 { return 3 }
fn f() -> i64 {
    let y = fill<f32>([g()], 0)  // error: E2123
    return 1
}
-- broadcasting aligns at the right
fn f<B: Dim, N: Dim>(x: Tensor[B, N; f32], y: Tensor[N; f32], z: Tensor[B, 1; f32]) -> Tensor[B, N; f32] {
    return x + y * z - 1
}
-- broadcasting both ways
fn f<B: Dim, N: Dim>(x: Tensor[B, 1; f32], y: Tensor[1, N; f32]) -> Tensor[B, N; bool] { return x < y }
-- broadcasting needs a proof
fn f<B: Dim, N: Dim>(x: Tensor[B; f32], y: Tensor[N; f32]) -> Tensor[B; f32] {
    return x + y  // error: E2207 says: add `where
}
-- broadcasting of known extents
fn f(x: Tensor[3; f32], y: Tensor[4; f32]) -> Tensor[3; f32] { return x + y }  // error: E2207
-- broadcasting by a clause
fn f<B: Dim, N: Dim>(x: Tensor[B; f32], y: Tensor[N; f32]) -> Tensor[B; f32]
where N == B {
    return x + y
}
-- broadcasting an axis of one by a clause
fn f<B: Dim, N: Dim>(x: Tensor[B; f32], y: Tensor[N; f32]) -> Tensor[B; f32]
where N == 1 {
    return x + y
}
-- broadcasting at the left does not happen
fn f(x: Tensor[3, 4; f32], y: Tensor[3; f32]) -> Tensor[3, 4; f32] { return x + y }  // error: E2207
-- a pack broadcasts against itself
fn f<*S: Shape, N: Dim>(x: Tensor[*S, N; f32], y: Tensor[*S, 1; f32], w: Tensor[N; f32]) -> Tensor[*S, N; f32] {
    return x * y + w
}
-- a pack against another
fn f<*S: Shape, *R: Shape>(x: Tensor[*S; f32], y: Tensor[*R; f32]) -> Tensor[*S; f32] {
    return x + y  // error: E2207
}
-- a pack against a dimension
fn f<*S: Shape, N: Dim>(x: Tensor[*S, 3; f32], y: Tensor[N, 3; f32]) -> Tensor[*S, 3; f32] {
    return x + y  // error: E2207
}
-- a pack at the left of more axes
fn f<*S: Shape, N: Dim>(x: Tensor[N, *S; f32], y: Tensor[*S; f32]) -> Tensor[N, *S; f32] { return x + y }
-- a pack before what the other lacks
fn f<*S: Shape>(x: Tensor[*S, 3; f32], y: Tensor[*S; f32]) -> Tensor[*S, 3; f32] {
    return x + y  // error: E2207
}
-- select broadcasts all three
fn f(c: Tensor[2, 1; bool], x: Tensor[3; f32], y: f32) -> Tensor[2, 3; f32] { return select(c, x, y) }
-- select that cannot
fn f(c: Tensor[2; bool], x: Tensor[3; f32]) -> Tensor[3; f32] { return select(c, x, 0) }  // error: E2207
-- reshape keeps the count
fn f<B: Dim, H: Dim, D: Dim>(x: Tensor[B, H * D; f32]) -> Tensor[B, D, H; f32] {
    return reshape(x, [B, D, H])
}
-- reshape of another count
fn f(x: Tensor[3, 4; f32]) -> Tensor[13; f32] { return reshape(x, [13]) }  // error: E2203
-- reshape that is not proven
fn f<N: Dim, M: Dim>(x: Tensor[N; f32]) -> Tensor[M; f32] {
    return reshape(x, [M])  // error: E2203 says: if it must hold
}
-- reshape with a pack
fn f<*S: Shape, N: Dim>(x: Tensor[*S, 2 * N; f32]) -> Tensor[*S, N, 2; f32] {
    return reshape(reshape(x, [*S, 2, N]), [*S, N, 2])
}
-- reshape drops a pack
fn f<*S: Shape>(x: Tensor[*S, 2; f32]) -> Tensor[2; f32] { return reshape(x, [2]) }  // error: E2203
-- reshape between a scalar and a tensor of one
fn f(x: f32) -> f32 { return reshape(reshape(x, [1, 1]), []) }
-- reshape by a division
fn f<N: Dim>(x: Tensor[N; f32]) -> Tensor[N / 3, 3; f32] {
    return reshape(x, [N / 3, 3])  // error: E2203
}
-- permute
fn f(x: Tensor[2, 3, 4; f32]) -> Tensor[4, 2, 3; f32] { return permute(x, [2, 0, 1]) }
-- permute of a scalar
fn f(x: f32) -> f32 { return permute(x, []) }
-- permute with an axis twice
fn f(x: Tensor[2, 3; f32]) -> Tensor[2, 3; f32] { return permute(x, [0, 0]) }  // error: E2210
-- permute with too few axes
fn f(x: Tensor[2, 3; f32]) -> Tensor[2, 3; f32] { return permute(x, [0]) }  // error: E2210
-- permute with an axis that does not exist
fn f(x: Tensor[2, 3; f32]) -> Tensor[2, 3; f32] { return permute(x, [0, 2]) }  // error: E2210
-- permute of a pack
fn f<*S: Shape>(x: Tensor[*S; f32]) -> Tensor[*S; f32] { return permute(x, [0]) }  // error: E2210
-- permute by a dimension
fn f<N: Dim>(x: Tensor[2, 3; f32]) -> Tensor[3, 2; f32] { return permute(x, [N, 0]) }  // error: E2123
-- broadcast_to
fn f<N: Dim, *S: Shape>(x: Tensor[N; f32], y: Tensor[*S, 1; f32]) -> Tensor[*S, N; f32] {
    return broadcast_to(x, [*S, N]) + broadcast_to(y, [*S, N]) + broadcast_to(1.0, [N])  // error: E2103
}
-- broadcast_to what does not fit
fn f(x: Tensor[3; f32]) -> Tensor[2, 4; f32] { return broadcast_to(x, [2, 4]) }  // error: E2207
-- broadcast_to does not shrink
fn f(x: Tensor[3; f32]) -> Tensor[1; f32] { return broadcast_to(x, [1]) }  // error: E2207
-- concat along each axis
fn f<N: Dim, M: Dim>(x: Tensor[N, 2; f32], y: Tensor[M, 2; f32]) -> Tensor[N + 2 * M, 2; f32] {
    return concat(x, y, y, axis = 0)
}
fn g<N: Dim>(x: Tensor[2, N; f32]) -> Tensor[2, 2 * N; f32] { return concat(x, x, axis = -1) }
-- concat beside its axis
fn f(x: Tensor[2, 3; f32], y: Tensor[2, 4; f32]) -> Tensor[4, 3; f32] {
    return concat(x, y, axis = 0)  // error: E2202
}
-- concat of different numbers of axes
fn f(x: Tensor[2, 3; f32], y: Tensor[2; f32]) -> Tensor[2, 4; f32] {
    return concat(x, y, axis = 1)  // error: E2202
}
-- concat along an axis that does not exist
fn f(x: Tensor[2, 3; f32]) -> Tensor[2, 6; f32] { return concat(x, x, axis = 2) }  // error: E2210
-- concat of scalars
fn f(x: f32) -> Tensor[2; f32] { return concat(x, x, axis = 0) }  // error: E2210
-- concat of one
fn f(x: Tensor[2; f32]) -> Tensor[2; f32] { return concat(x, axis = 0) }
-- concat behind a pack counts from the back
fn f<*S: Shape>(x: Tensor[*S, 3; f32]) -> Tensor[*S, 6; f32] { return concat(x, x, axis = -1) }
-- concat behind a pack from the front
fn f<*S: Shape>(x: Tensor[*S, 3; f32]) -> Tensor[*S, 6; f32] {
    return concat(x, x, axis = 1)  // error: E2210 says: axis = -1
}
-- concat before a pack
fn f<*S: Shape>(x: Tensor[3, *S; f32]) -> Tensor[6, *S; f32] { return concat(x, x, axis = 0) }
-- concat along a pack
fn f<*S: Shape>(x: Tensor[*S; f32]) -> Tensor[*S; f32] { return concat(x, x, axis = 0) }  // error: E2210
-- concat along a value
fn f(x: Tensor[2; f32], a: i64) -> Tensor[4; f32] { return concat(x, x, axis = a) }  // error: E2123
-- cumsum
fn f<*S: Shape>(x: Tensor[2, *S, 3; i32]) -> Tensor[2, *S, 3; i32] {
    return cumsum(cumsum(x, axis = 0), axis = -1)
}
-- cumsum of bools
fn f(x: Tensor[2; bool]) -> Tensor[2; bool] { return cumsum(x, axis = 0) }  // error: E2104
-- cumsum along nothing
fn f(x: Tensor[2; f32]) -> Tensor[2; f32] { return cumsum(x, axis = -2) }  // error: E2210
-- a fact about a product
fn f<N: Dim, M: Dim>(x: Tensor[N * M; f32]) -> f32
where N > 0, M > 0 {
    return x[N * M - 1]
}
-- a fact that is missing
fn f<N: Dim>(x: Tensor[N; f32]) -> f32 {
    return x[N - 1]  // error: E2209 says: add `where
}
-- substitution of an equality
fn f<C: Dim, K: Dim, V: Dim>(x: Tensor[C; f32]) -> Tensor[V; f32]
where C == 2 * K + V {
    return x[2 * K:C]
}
""")
def test_shapes(program: Program) -> None:
    run(program)


@cases(r"""
-- an index drops its axis
fn f(x: Tensor[2, 3; f32]) -> (Tensor[3; f32], f32, Tensor[2; f32]) { return (x[0], x[1, 2], x[:, 0]) }
-- an index past its axis
fn f(x: Tensor[2, 3; f32]) -> f32 { return x[0, 3] }  // error: E2209
-- a negative index
fn f(x: Tensor[3; f32]) -> f32 { return x[-1] }  // error: E2209
-- an index that may be past
fn f<N: Dim>(x: Tensor[N; f32]) -> f32 { return x[0] }  // error: E2209 says: add `where
-- a value as an index reads at run time
fn f(x: Tensor[2, 3; f32], i: i32, j: u8) -> f32 { return x[i, j] + x[i][j] }
-- an index of the wrong kind
fn f(x: Tensor[3; f32], i: f32, j: bool, k: Tensor[3; i32]) -> i64 {
    let a = x[i]  // error: E2209
    let b = x[j]  // error: E2209
    let c = x[k]  // error: E2209
    let d = x[1.5]  // error: E2209
    return 1
}
-- too many indices
fn f(x: Tensor[3; f32]) -> f32 { return x[0, 0] }  // error: E2204
-- slices
fn f<N: Dim>(x: Tensor[N + 4, 6; f32]) -> Tensor[N + 2, 3; f32] { return x[2:, :3] }
-- a slice to the end
fn f<N: Dim>(x: Tensor[N; f32]) -> Tensor[N; f32] { return x[0:N] }
-- a slice past the end
fn f(x: Tensor[3; f32]) -> Tensor[4; f32] { return x[0:4] }  // error: E2209
-- a slice that may be past the end
fn f<N: Dim>(x: Tensor[N; f32]) -> Tensor[4; f32] { return x[0:4] }  // error: E2209 says: where
-- a slice that runs backwards
fn f(x: Tensor[3; f32]) -> Tensor[1; f32] { return x[2:1] }  // error: E2209
-- a slice from before the start
fn f(x: Tensor[3; f32]) -> Tensor[1; f32] { return x[-1:] }  // error: E2209
-- an empty slice
fn f(x: Tensor[3; f32]) -> Tensor[0; f32] { return x[3:3] }
-- steps
fn f(x: Tensor[7; f32]) -> (Tensor[4; f32], Tensor[3; f32], Tensor[2; f32]) { return (x[::2], x[1::2], x[1:6:3]) }
-- the halves of an even axis
fn f<N: Dim>(x: Tensor[N; f32]) -> Tensor[N / 2; f32]
where N % 2 == 0 {
    return x[0::2] + x[1::2]  // error: E2209
}
-- the halves of an even axis that has elements
fn f<N: Dim>(x: Tensor[N; f32]) -> Tensor[N / 2; f32]
where N % 2 == 0, N > 0 {
    return x[0::2] + x[1::2]
}
-- a step that is not positive
fn f(x: Tensor[3; f32]) -> i64 {
    let a = x[::0]  // error: E2209
    let b = x[::-1]  // error: E2209
    return 1
}
-- a step that is not constant
fn f<N: Dim>(x: Tensor[3; f32]) -> i64 {
    let a = x[::N]  // error: E2209
    return 1
}
-- the rest in the middle
fn f<B: Dim>(x: Tensor[B, 2, 3, 4; f32]) -> Tensor[B, 2, 3, 2; f32] { return x[..., 0:2] }
fn g<B: Dim>(x: Tensor[2, B, 3; f32]) -> Tensor[B; f32] { return x[0, ..., 1] }
-- the rest may be nothing
fn f(x: Tensor[3; f32]) -> f32 { return x[..., 1] + x[1, ...] }
-- the rest twice
fn f(x: Tensor[3; f32]) -> Tensor[3; f32] { return x[..., ...] }  // error: E2209
-- axes not written are kept
fn f(x: Tensor[2, 3, 4; f32]) -> Tensor[3, 4; f32] { return x[1] }
-- a pack is kept by the rest
fn f<*S: Shape>(x: Tensor[*S, 4; f32]) -> Tensor[*S; f32] { return x[..., 3] }
fn g<*S: Shape>(x: Tensor[4, *S; f32]) -> Tensor[*S; f32] { return x[3] }
-- a pack cannot be indexed
fn f<*S: Shape>(x: Tensor[*S, 4; f32]) -> i64 {
    let a = x[0]  // error: E3106
    return 1
}
-- an index list with a pack outside of index notation
fn f<*S: Shape>(x: Tensor[*S, 4; f32]) -> i64 {
    let a = x[*S, 0]  // error: E3106
    return 1
}
-- slices by names of generics
fn f<H: Dim, D: Dim>(x: Tensor[2 * H * D; f32]) -> Tensor[H * D; f32] { return x[H * D:2 * H * D] + x[:H * D] }
-- a quarter and the rest
fn f<D: Dim>(x: Tensor[D; f32]) -> Tensor[D; f32] {
    return concat(x[0:D / 4], x[D / 4:D], axis = 0)
}
-- indexing the result of a call and of a choice
fn g() -> Tensor[3; f32] { return fill<f32>([3], 1) }
fn f(c: bool, x: Tensor[3; f32]) -> f32 { return g()[0] + (if c { x } else { g() })[1] }
-- indexing a tuple
fn f(x: (f32, f32)) -> f32 { return x[0] }  // error: E2104
""")
def test_slices(program: Program) -> None:
    run(program)
