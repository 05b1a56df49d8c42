"""Calls: arguments, generics and their inference, `where` clauses at a use."""

from programs import Program, cases, run


@cases(r"""
-- positional, then named
fn g(a: f32, b: f32, c: f32 = 1.0) -> f32 { return a + b + c }
fn f(x: f32) -> f32 { return g(x, b = x) + g(x, c = x, b = 2.0) + g(b = x, a = 1) }
-- too many arguments
fn g(a: f32) -> f32 { return a }
fn f(x: f32) -> f32 { return g(x, x) }  // error: E2102 says: takes 1 argument, 2 given
-- too few arguments
fn g(a: f32, b: f32, c: f32) -> f32 { return a }
fn f(x: f32) -> f32 { return g(x) }  // error: E2102 says: needs `b` and `c`
-- an argument that does not exist
fn g(alpha: f32) -> f32 { return alpha }
fn f(x: f32) -> f32 { return g(alhpa = x) }  // error: E2102 says: did you mean `alpha`?
-- an argument given twice
fn g(a: f32) -> f32 { return a }
fn f(x: f32) -> f32 { return g(x, a = x) }  // error: E2102
-- positional after named
fn g(a: f32, b: f32) -> f32 { return a }
fn f(x: f32) -> f32 { return g(a = x, x) }  // error: E2102
-- a wrong argument points to the parameter
fn g(a: Tensor[3; f32]) -> f32 { return a[0] }
fn f(x: Tensor[4; f32]) -> f32 { return g(x) }  // error: E2202 says: `a` is declared `Tensor[3; f32]`
-- defaults: literals, constants, none, minus
const SMALL: f32 = 1e-5
fn g(x: f32, a: f32 = SMALL, b: i32 = -1, c: f32? = none, d: bool = true) -> f32 { return x + a }
fn f(x: f32) -> f32 { return g(x) }
-- a default of another type
fn g(x: f32 = true) -> f32 { return x }  // error: E2103
-- a default that does not fit
fn g(x: u8 = 256) -> u8 { return x }  // error: E2105
-- a default that is computed
fn h() -> f32 { return 1.0 }
fn g(x: f32 = h()) -> f32 { return x }  // error: E2102 says: a literal, `none` or a const
-- a default from another parameter
fn g(x: f32, y: f32 = x) -> f32 { return x }  // error: E2102
-- a default in a dtype generic
fn g<T: Float>(x: T, eps: T = 1e-5) -> T { return x + eps }
fn f(x: f16) -> f16 { return g(x) }
-- inference of dimensions, dtypes and packs
fn g<*S: Shape, N: Dim, T: Float>(x: Tensor[*S, N; T], w: Tensor[N; T]) -> Tensor[*S, N; T] {
    return x * w
}
fn f<A: Dim>(x: Tensor[2, A, 5; f16], w: Tensor[5; f16], y: Tensor[5; f16]) -> f16 {
    let a = g(x, w)
    let b = g(w, y)
    return a[1, 0, 0] + b[4]  // error: E2209
}
-- a pack in front, in the middle, at the end
fn g<*S: Shape, N: Dim>(x: Tensor[*S, N; f32]) -> Tensor[N; f32] { return fill<f32>([N], 0) }
fn h<*S: Shape, N: Dim>(x: Tensor[N, *S; f32]) -> Tensor[N; f32] { return fill<f32>([N], 0) }
fn k<*S: Shape, N: Dim, M: Dim>(x: Tensor[N, *S, M; f32]) -> Tensor[N, M; f32] {
    return fill<f32>([N, M], 0)
}
fn f(x: Tensor[2, 3, 4; f32]) -> (Tensor[4; f32], Tensor[2; f32], Tensor[2, 4; f32]) {
    return (g(x), h(x), k(x))
}
-- a pack cannot take more than there is
fn k<*S: Shape, N: Dim, M: Dim>(x: Tensor[N, *S, M; f32]) -> Tensor[N, M; f32] {
    return fill<f32>([N, M], 0)
}
fn f(x: Tensor[2; f32]) -> i64 {
    let a = k(x)  // error: E2202 says: expected `[N, *S, M]`
    return 1
}
-- one generic, two extents
fn g<N: Dim>(x: Tensor[N; f32], y: Tensor[N; f32]) -> f32 { return 0.0 }
fn f(x: Tensor[3; f32], y: Tensor[4; f32]) -> f32 {
    return g(x, y)  // error: E2202 says: here with N = 3
}
-- one dtype generic, two dtypes
fn g<T: Float>(x: T, y: T) -> T { return x }
fn f(x: f32, y: f16) -> f32 { return g(x, y) }  // error: E2103
-- a pack and its repetition
fn g<*S: Shape>(x: Tensor[*S; f32], y: Tensor[*S; f32]) -> f32 { return 0.0 }
fn f(x: Tensor[3, 4; f32], y: Tensor[4, 3; f32]) -> f32 { return g(x, y) }  // error: E2202
-- compound dimensions are compared once all is known
fn g<N: Dim>(x: Tensor[2 * N; f32], y: Tensor[N; f32]) -> f32 { return 0.0 }
fn f<M: Dim>(x: Tensor[M + M; f32], y: Tensor[M; f32], z: Tensor[M + 1; f32]) -> f32 {
    let a = g(x, y)
    return a + g(x, z)  // error: E2202
}
-- an argument of another build
fn g<N: Dim>(x: Tensor[N; f32]) -> f32 { return 0.0 }
fn f(x: Tensor[3, 4; f32], y: (f32, f32), z: Tensor[3; f32]?) -> f32 {
    let a = g(x)  // error: E2202 says: 2 axes where 1 axis
    let b = g(y)  // error: E2101 says: Tensor[N; f32]
    let c = g(z)  // error: E2101
    return a
}
-- nothing determines a generic
fn g<N: Dim>(x: Tensor[2 * N; f32]) -> f32 { return 0.0 }
fn f(x: Tensor[4; f32]) -> f32 { return g(x) }  // error: E2110 says: g<N>(…)
-- it can be written
fn g<N: Dim>(x: Tensor[2 * N; f32]) -> f32 { return 0.0 }
fn f(x: Tensor[4; f32]) -> f32 { return g<2>(x) }
-- written wrongly
fn g<N: Dim>(x: Tensor[2 * N; f32]) -> f32 { return 0.0 }
fn f(x: Tensor[4; f32]) -> f32 { return g<3>(x) }  // error: E2202
-- a prefix may be written, the rest inferred
fn g<N: Dim, M: Dim, T: Float>(x: Tensor[M; T]) -> Tensor[N, M; T] {
    return broadcast_to(x, [N, M])
}
fn f(x: Tensor[4; f16]) -> Tensor[3, 4; f16] { return g<3>(x) }
-- too many generic arguments
fn g<N: Dim>(x: Tensor[N; f32]) -> f32 { return 0.0 }
fn f(x: Tensor[4; f32]) -> f32 { return g<4, 5>(x) }  // error: E2111
-- generic arguments of a function without any
fn g(x: f32) -> f32 { return x }
fn f(x: f32) -> f32 { return g<f32>(x) }  // error: E2111
-- a pack written as a shape
fn g<*S: Shape, T: Float>(x: f32) -> Tensor[*S; T] { return fill<T>([*S], cast<T>(x)) }
fn f<*R: Shape>(x: f32) -> Tensor[2, *R; f16] { return g<[2, *R], f16>(x) }
fn h(x: f32) -> f64 { return g<[], f64>(x) }
-- a default for what is neither written nor inferred
fn g<N: Dim, T: Float = bf16, M: Dim = 2 * N>(x: Tensor[N; f32]) -> Tensor[M; T] {
    return fill<T>([M], 0)
}
fn f(x: Tensor[3; f32]) -> Tensor[6; bf16] { return g(x) }
-- a written generic gives literals their dtype
fn g<T: Float>(x: T) -> T { return x }
fn f() -> f16 { return g<f16>(1) + g(1) }  // error: E2103
-- literals bind a dtype generic to their default
fn g<T: Float>(x: T) -> T { return x }
fn h<T: Integer>(x: T) -> T { return x }
fn f() -> (f64, i64) { return (g(1.5), h(1)) }
-- a literal takes what a later argument determines
fn g<T: Float>(x: T, y: T) -> T { return x }
fn f(y: f16) -> f16 { return g(1, y) }
-- a constraint at a call
fn g<T: Float>(x: T) -> T { return x }
fn f(x: i32) -> i32 { return g(x) }  // error: E2112
-- a constraint of the caller's own generic
fn g<T: Float>(x: T) -> T { return x }
fn f<T: Numeric>(x: T) -> T { return g(x) }  // error: E2112 says: constrain it alike
-- optional parameters
fn g(x: f32, y: f32? = none) -> f32 { return x }
fn f(x: f32, y: f32?) -> f32 { return g(x) + g(x, y) + g(x, none) + g(x, some(x)) + g(x, some(1)) }
-- an optional parameter takes no bare value
fn g(x: f32, y: f32? = none) -> f32 { return x }
fn f(x: f32) -> f32 { return g(x, x) }  // error: E2101 says: some(…)
-- a bare parameter takes no optional value
fn g(x: f32) -> f32 { return x }
fn f(x: f32?) -> f32 { return g(x) }  // error: E2101 says: take it out
-- inference through an optional, a tuple and a struct
struct P<N: Dim, T: Float> { a: Tensor[N; T] }
fn g<N: Dim, T: Float>(x: Tensor[N; T]?) -> Tensor[N; T] { return fill<T>([N], 0) }
fn h<N: Dim>(x: (f32, Tensor[N; f32])) -> Tensor[N; f32] { return fill<f32>([N], 0) }
fn k<N: Dim, T: Float>(x: P<N, T>) -> Tensor[N; T] { return x.a }
fn f(x: Tensor[3; f32], p: P<4, f16>) -> (Tensor[3; f32], Tensor[3; f32], Tensor[4; f16]) {
    return (g(some(x)), h((x[0], x)), k(p))
}
-- where clauses hold inside
fn g<N: Dim, H: Dim>(x: Tensor[N; f32]) -> Tensor[H, N / H; f32]
where H > 0, N % H == 0 {
    return reshape(x, [H, N / H])
}
-- and must be proven at a use
fn g<N: Dim>(x: Tensor[N; f32]) -> f32
where N % 2 == 0 {
    return 0.0
}
fn f<M: Dim>(x: Tensor[4; f32], y: Tensor[2 * M; f32], z: Tensor[M; f32], w: Tensor[5; f32]) -> f32 {
    let a = g(x) + g(y)
    let b = g(z)  // error: E2206 says: add `where
    return a + g(w)  // error: E2206 says: which is false
}
-- proven from the caller's own clauses
fn g<N: Dim>(x: Tensor[N; f32]) -> f32
where N > 2, N % 4 == 0 {
    return 0.0
}
fn f<M: Dim>(x: Tensor[M * 8; f32]) -> f32
where M >= 1 {
    return g(x)
}
-- every comparison may stand in a where clause
fn g<A: Dim, B: Dim>(x: Tensor[A, B; f32]) -> f32
where A == B, A != 0, A < 10, A <= 9, B > 1, B >= 2 {
    return 0.0
}
fn f(x: Tensor[3, 3; f32], y: Tensor[3, 4; f32]) -> f32 {
    return g(x) + g(y)  // error: E2206
}
-- a where clause that compares nothing
fn g<N: Dim>(x: Tensor[N; f32]) -> f32
where N {  // error: E2101
    return 0.0
}
-- a where clause over a value
fn g(x: f32) -> f32
where x > 1 {  // error: E2123
    return 0.0
}
-- a where clause over a dtype
fn g<T: Float>(x: T) -> T
where T == 1 {  // error: E1208
    return x
}
-- a zero where the callee divides
fn g<N: Dim, H: Dim>(x: Tensor[N; f32]) -> Tensor[N / H; f32]
where H > 0 {
    return fill<f32>([N / H], 0)
}
fn f(x: Tensor[4; f32]) -> i64 {
    let a = g<4, 0>(x)  // error: E2206
    return 1
}
-- recursion
fn f(x: f32) -> f32 { return f(x) }  // error: E2119
-- recursion through others
fn f(x: f32) -> f32 { return g(x) }  // error: E2119 says: f → g → h → f
fn g(x: f32) -> f32 { return h(x) }
fn h(x: f32) -> f32 { return f(x) }
-- recursion with other generics
fn f<N: Dim>(x: Tensor[N; f32]) -> f32 { return f(concat(x, x, axis = 0)) }  // error: E2119
-- two recursions
fn f(x: f32) -> f32 { return f(x) }  // error: E2119
fn g(x: f32) -> f32 { return g(x) }  // error: E2119
-- recursion inside index notation
fn f(x: f32) -> f32 {  // error: E2119
    let v = fill<f32>([3], x)
    let y[i] = f(v[i])
    return y[0]
}
-- entries outside of blocks
pub entry f() -> Tensor[3; f32] { return fill<f32>([3], 1) }
pub entry g<N: Dim>(x: Tensor[N; f32]) -> Tensor[N; f32] { return x + 1 }
-- a function without a result
fn f(x: f32) { return x }  // error: E2120
-- grad is reserved
op f(x: f32) -> f32 { return x } grad(y, dy) { return dy }  // error: E1103
-- kernel is reserved
kernel f(x: f32) -> f32 { return x }  // error: E1103
-- wrong arguments of prelude functions
fn f(x: Tensor[3; f32]) -> i64 {
    let a = exp(x, x)  // error: E2102
    let b = select(x)  // error: E2102
    let c = reshape(x)  // error: E2102
    let d = concat(x, x)  // error: E2102
    let e = min(x)  // error: E2102
    let g = iota()  // error: E2102
    let h = cumsum(x)  // error: E2102
    let i = exp<f32>(x)  // error: E2111
    let j = fill([3], 1)  // error: E2110
    let k = exp(x, axis = 1)  // error: E2102
    return 1
}
-- the prelude's own defaults
fn f() -> (Tensor[3; i64], Tensor[3; f32]) { return (iota(3), iota<f32>(3)) }
-- iota of a bool
fn f() -> Tensor[2; bool] { return iota<bool>(2) }  // error: E2112
-- iota of a negative length
fn f() -> i64 {
    let a = iota(2 - 3)  // error: E2208
    return 1
}
-- iota of a value
fn f(n: i64) -> i64 {
    let a = iota(n)  // error: E2123
    return 1
}
-- fill with a value
fn f<T: Float>(x: T) -> Tensor[2, 3; T] { return fill<T>([2, 3], x * 2) }
-- fill with another dtype
fn f(x: f16) -> Tensor[2; f32] { return fill<f32>([2], x) }  // error: E2103
-- fill without dimensions
fn f(x: f32) -> f32 { return fill<f32>([], x) }
-- a shape that is none
fn f(x: Tensor[4; f32]) -> Tensor[4; f32] { return reshape(x, 4) }  // error: E2101
""")
def test_calls(program: Program) -> None:
    run(program)
