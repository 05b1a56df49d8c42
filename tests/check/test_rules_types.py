"""Types: scalars, tensors, aggregates, aliases, and what operators take."""

from programs import Program, cases, run


@cases(r"""
-- all scalars
fn f(a: bool, b: i8, c: i16, d: i32, e: i64, g: u8, h: u16, i: u32, j: u64) -> i64 { return e }
fn g(a: f16, b: bf16, c: f32, d: f64) -> f64 { return d }
-- a tensor left without dimensions is the scalar
fn f(x: Tensor[; f32]) -> f32 { return x }
-- Tensor without a shape
fn f(x: Tensor) -> i64 { return 1 }  // error: E1101
-- a scalar with generic arguments
fn f(x: f32<3>) -> i64 { return 1 }  // error: E2111
-- a tensor of tensors
fn f(x: Tensor[3; Tensor[2; f32]]) -> i64 { return 1 }  // error: E2111
-- a tensor of an enum
enum E { A }
fn f(x: Tensor[3; E]) -> i64 { return 1 }  // error: E2111
-- wrong scalar
fn f(x: i32) -> f32 { return x }  // error: E2103 says: convert it: `cast<f32>(…)`
-- wrong dtype of a tensor
fn f(x: Tensor[3; f16]) -> Tensor[3; f32] { return x }  // error: E2103
-- tensor for a scalar
fn f(x: Tensor[3; f32]) -> f32 { return x }  // error: E2202
-- scalar for a tensor
fn f(x: f32) -> Tensor[3; f32] { return x }  // error: E2202
-- literal for a tensor
fn f() -> Tensor[3; f32] { return 1.0 }  // error: E2101 says: fill<f32>
-- tuple types
fn f(x: (f32, Tensor[3; i32])) -> (Tensor[3; i32], f32) {
    let (a, b) = x
    return (b, a)
}
-- tuple of the wrong length
fn f(x: (f32, f32)) -> (f32, f32, f32) { return x }  // error: E2101
-- one item of a tuple is wrong
fn f(x: f32, y: i32) -> (f32, f32) { return (x, y) }  // error: E2103 says: item 1
-- more names than items
fn f(x: (f32, f32)) -> f32 {
    let (a, b, c) = x  // error: E2101
    return a
}
-- names for what is no tuple
fn f(x: f32) -> f32 {
    let (a, b) = x  // error: E2101
    return a
}
-- tuples nest
fn f(x: ((f32, i32), bool)) -> i32 {
    let (a, _) = x
    let (_, b) = a
    return b
}
-- literals inside a tuple take the dtypes asked for
fn f() -> (f16, u8) { return (1, 2) }
-- aliases are transparent
type Row<N: Dim, T: Float = f32> = Tensor[N; T]
fn f(x: Row<3>) -> Tensor[3; f32] { return x }
fn g(x: Tensor[4; f16]) -> Row<4, f16> { return x }
-- alias of an alias, in any order
type A<N: Dim> = B<N, N>
type B<N: Dim, M: Dim> = Tensor[N, M; i32]
fn f(x: A<3>) -> Tensor[3, 3; i32] { return x }
-- alias with too few arguments
type Row<N: Dim, M: Dim> = Tensor[N, M; f32]
fn f(x: Row<3>) -> i64 { return 1 }  // error: E2111 says: M
-- alias with too many arguments
type Row<N: Dim> = Tensor[N; f32]
fn f(x: Row<3, 4>) -> i64 { return 1 }  // error: E2111
-- alias by itself
type A = B  // error: E2122
type B = A
-- alias of a pack
type Batched<*S: Shape> = Tensor[2, *S; f32]
fn f(x: Batched<[3, 4]>) -> Tensor[2, 3, 4; f32] { return x }
fn g<*S: Shape>(x: Batched<[*S]>) -> Tensor[2, *S; f32] { return x }
-- a pack generic takes a shape
type Batched<*S: Shape> = Tensor[2, *S; f32]
fn f(x: Batched<3>) -> i64 { return 1 }  // error: E2111
-- a dimension generic takes no shape
type Row<N: Dim> = Tensor[N; f32]
fn f(x: Row<[3]>) -> i64 { return 1 }  // error: E2123
-- a dtype generic takes a dtype
type Row<T: Float> = Tensor[3; T]
fn f(x: Row<3>) -> i64 { return 1 }  // error: E2111
-- a constraint on an argument
type Row<T: Float> = Tensor[3; T]
fn f(x: Row<i32>) -> i64 { return 1 }  // error: E2112
-- a constraint on a generic passed along
type Row<T: Float> = Tensor[3; T]
fn f<U: Numeric>(x: Row<U>) -> i64 { return 1 }  // error: E2112 says: (any Numeric)
-- a narrower constraint passes
type Row<T: Numeric> = Tensor[3; T]
fn f<U: Float>(x: Row<U>) -> i64 { return 1 }
-- a default that breaks its own constraint
type Row<T: Float = i32> = Tensor[3; T]  // error: E2112
-- a default in terms of an earlier generic
type Square<N: Dim, M: Dim = N> = Tensor[N, M; f32]
fn f(x: Square<3>) -> Tensor[3, 3; f32] { return x }
-- a dtype generic is a scalar type
op dot<N: Dim, T: Numeric>(a: Tensor[N; T], b: Tensor[N; T]) -> T {
    return sum[i] a[i] * b[i]
}
-- two dtype generics are two types
fn f<T: Float, U: Float>(x: T, y: U) -> T { return x + y }  // error: E2103
-- arithmetic on numbers only
fn f(x: bool) -> bool { return x + x }  // error: E2104
-- arithmetic on a DType generic
fn f<T: DType>(x: T) -> T { return x + x }  // error: E2104
-- minus of a bool
fn f(x: bool) -> bool { return -x }  // error: E2104
-- order of bools
fn f(x: bool, y: bool) -> bool { return x < y }  // error: E2104
-- equality of bools
fn f(x: Tensor[3; bool], y: bool) -> Tensor[3; bool] { return x == y }
-- equality of a DType generic
fn f<T: DType>(x: T, y: T) -> bool { return x == y }
-- bits of integers and bools
fn f(x: i32, y: Tensor[3; bool]) -> Tensor[3; bool] { return y & (x | 1 ^ 6 == 7) }
-- bits of floats
fn f(x: f32) -> f32 { return x & x }  // error: E2104
-- bits of a Numeric generic
fn f<T: Numeric>(x: T) -> T { return x | x }  // error: E2104
-- remainder of floats
fn f(x: f32) -> f32 { return x % 2.0 }
-- logic on scalars only
fn f(x: Tensor[3; bool]) -> Tensor[3; bool] { return x && x }  // error: E2116 says: use `&`
-- logic on numbers
fn f(x: i32) -> bool { return x && true }  // error: E2116
-- not of a tensor
fn f(x: Tensor[3; bool]) -> Tensor[3; bool] { return !x }  // error: E2116
-- not of a number
fn f(x: i32) -> bool { return !x }  // error: E2116
-- logic, comparison and arithmetic bind as stated
fn f(a: i32, b: i32) -> bool { return a + 1 * b < 3 && !(a == b) || b & 1 == 1 }
-- dtypes never meet in silence
fn f(x: f32, y: f64) -> f32 { return x + y }  // error: E2103 says: never converted in silence
-- dtypes of a comparison
fn f(x: i32, y: i64) -> bool { return x < y }  // error: E2103
-- dtypes of a select
fn f(c: bool, x: f32, y: f16) -> f32 { return select(c, x, y) }  // error: E2103
-- dtypes of a concat
fn f(x: Tensor[2; f32], y: Tensor[2; f16]) -> Tensor[4; f32] {
    return concat(x, y, axis = 0)  // error: E2103
}
-- an operator on a tuple
fn f(x: (f32, f32)) -> f32 { return x + 1.0 }  // error: E2104
-- an operator on an optional
fn f(x: f32?) -> f32 { return x + 1.0 }  // error: E2104
-- strings are not values
fn f() -> i64 { return "abc" }  // error: E2101
-- a list is not a value
fn f() -> Tensor[2; i64] { return [1, 2] }  // error: E2101
-- indexing a scalar
fn f(x: f32) -> f32 { return x[0] }  // error: E2104
-- a member of a tensor
fn f(x: Tensor[3; f32]) -> i64 { return x.shape }  // error: E2107
-- a method of a tensor
fn f(x: Tensor[3; f32]) -> Tensor[3; f32] { return x.exp() }  // error: E2107 says: exp(…)
-- casts between all kinds
fn f(x: Tensor[3; f32], b: bool) -> Tensor[3; u8] {
    let n = cast<i32>(x) + cast<i32>(b)
    return cast<u8>(select(cast<bool>(n), n, -n))
}
-- cast of a DType generic
fn f<T: DType, U: DType>(x: T) -> U { return cast<U>(x) }
-- cast without a dtype
fn f(x: f32) -> f16 { return cast(x) }  // error: E2110
-- cast to a dimension
fn f<N: Dim>(x: f32) -> f16 { return cast<N>(x) }  // error: E2111
-- cast to what does not exist
fn f(x: f32) -> f16 { return cast<half>(x) }  // error: E1201
-- cast of a tuple
fn f(x: (f32, f32)) -> f16 { return cast<f16>(x) }  // error: E2104
-- mathematics on floats only
fn f(x: i32) -> i32 { return exp(x) }  // error: E2104
-- mathematics on a Numeric generic
fn f<T: Numeric>(x: T) -> T { return sqrt(x) }  // error: E2104
-- all of the prelude's mathematics
fn f<T: Float>(x: Tensor[3; T]) -> Tensor[3; T] {
    return exp(log(sqrt(rsqrt(sin(cos(tanh(abs(x))))))))
}
-- abs, min and max of integers
fn f(x: i32) -> i32 { return min(abs(x), max(x, 3)) }
-- shifts of integers only
fn f(x: i32, y: f32) -> f32 {
    let a = shl(x, 3)
    let b = shr(a, x)
    return shl(y, 1.0)  // error: E2104
}
-- select by a number
fn f(x: i32) -> i32 { return select(x, 1, 2) }  // error: E2114
-- a block is not a value
pub block B { param w: Tensor[3; f32] }
fn f(b: B) -> i64 { return 1 }  // error: E4101
-- a block array is not a type of values
pub block B { param w: Tensor[3; f32] }
fn f(b: [B; 3]) -> i64 { return 1 }  // error: E4101
-- an array of numbers
fn f(b: [f32; 3]) -> i64 { return 1 }  // error: E4101 says: Tensor[N; f32]
-- more axes than a tensor may have
type A<*S: Shape> = Tensor[*S, *S, *S, *S, *S, *S, *S, *S; f32]
fn f(x: A<[1, 2, 3, 4, 5, 6, 7, 8, 9]>) -> i64 { return 1 }  // error: E2101
""")
def test_types(program: Program) -> None:
    run(program)


@cases(r"""
-- an integer literal takes any numeric dtype
fn f(a: i8, b: u64, c: f16, d: bf16, e: f64) -> bool {
    return a == 1 && b < 2 && c + 3 > 4 && 5 - d != 6 && e / 7 >= 8
}
-- a float literal takes any float dtype
fn f(a: f16, b: bf16, c: f64) -> bool { return a < 1.5 && 1e-5 * b > 0.1 == (c * 0.5 < 1) }
-- a float literal in an integer
fn f(x: i32) -> i32 { return x + 1.5 }  // error: E2105
-- an integer literal in a bool
fn f(x: bool) -> bool { return x == 1 }  // error: E2105
-- an integer that does not fit
fn f() -> i8 { return 128 }  // error: E2105 says: -128 … 127
-- the ends of the ranges
fn f() -> (i8, i8, u8, u8) { return (-128, 127, 0, 255) }
-- a negative unsigned
fn f() -> u8 { return -1 }  // error: E2105
-- the smallest i64
fn f() -> i64 { return -9223372036854775808 }
-- past i64
fn f() -> i64 { return 9223372036854775808 }  // error: E1005
-- arithmetic on literals is exact, its result must fit
fn f() -> u8 { return 1000 - 900 }
fn g() -> u8 { return 100 * 3 }  // error: E2105
-- a float that overflows
fn f() -> f16 { return 65520.0 }  // error: E2105
-- a float that rounds down to the largest
fn f() -> f16 { return 65519.0 }
-- a generic float that some dtype holds
fn f<T: Float>(x: T) -> T { return max(x, -1e30) }
-- a generic float that none holds
fn f<T: Float>(x: T) -> T { return x + 1e999 }  // error: E2105
-- a generic integer that some dtype holds
fn f<T: Integer>(x: T) -> T { return x + 200 }
-- a float in a Numeric generic
fn f<T: Numeric>(x: T) -> T { return x + 0.5 }  // error: E2105
-- an integer in a Numeric generic
fn f<T: Numeric>(x: T) -> T { return x * 2 + 1 }
-- an integer in a DType generic
fn f<T: DType>(x: T) -> bool { return x == 0 }  // error: E2105
-- without context i64 and f64
fn f() -> (i64, f64) {
    let a = 1
    let b = 1.5
    return (a, b)
}
-- a let fixes the dtype
fn f(x: f32) -> f32 {
    let half = 0.5
    return x * half  // error: E2103
}
-- context through select, min, max and parentheses
fn f(c: bool, x: f32) -> f32 { return x + select(c, 1.0, (2)) * min(1, max(x, 0)) }
-- context of a parameter
fn g(x: f16, n: u8) -> f16 { return x }
fn f() -> f16 { return g(1, 2) }
-- context of an annotation
fn f() -> f16 {
    let x: f16 = 1
    var y: f16 = -2.5
    return x + y
}
-- context through a choice
fn f(c: bool) -> f16 { return if c { 1 } else { 2.5 } }
-- a sibling branch gives the dtype
fn f(c: bool, x: f16) -> f16 {
    let y = if c { 0 } else { x }
    return y
}
-- minus of a literal is a literal
fn f(x: f16) -> f16 { return -1 * x - -0.5 }
-- a scalar lifts over a tensor of its dtype
fn f(x: Tensor[3; f32], s: f32) -> Tensor[3; f32] { return s * x + 1.0 }
-- a scalar of another dtype does not
fn f(x: Tensor[3; f32], s: f64) -> Tensor[3; f32] { return s * x }  // error: E2103
-- dimensions act like literals
fn f<N: Dim>(x: Tensor[N; f32], n: i32) -> Tensor[N; f32] {
    let inside = n < N && N > 3
    return select(inside, x / N, cast<f32>(N + 1) - x)
}
-- integer constants act like literals
const K = 3
fn f(x: f16, n: u8) -> f16 { return select(n < K, x * K, 1 - K) }
-- an annotated constant has its dtype
const K: i32 = 3
fn f(x: i64) -> i64 { return x + K }  // error: E2103
-- an annotated integer constant is still a dimension
const K: i32 = 3
fn f(x: Tensor[K; f32]) -> Tensor[3; f32] { return x }
-- constants of floats and bools
const HALF = 0.5
const SMALL: f32 = 1e-6
const ON = true
fn f(x: f32, y: f64) -> f64 { return select(ON, y * HALF, cast<f64>(x + SMALL)) }
-- constants from constants, in any order
const C = A * B + 1
const A = 2
const B = min(A, 5) << 1  // error: E1101
-- constant arithmetic
const A = (7 + 3) * 2 / 3 % 4
const B = shl(1, 4) | 3 & 2 ^ 1
const C = max(A, B)
const D: f32 = 1.0 / 3
fn f() -> i64 { return A + B + C }
-- a constant by itself
const A = B + 1  // error: E2122
const B = A
-- a constant that does not fit
const A: u8 = 256  // error: E2105
-- a constant of a float for an integer
const A: i32 = 1.5  // error: E2123
-- a constant that is no number
const A: bool = 1  // error: E2101
-- a constant tensor
const A: Tensor[3; f32] = 1.0  // error: E2101
-- a constant from a call
fn g() -> i64 { return 1 }
const A = g()  // error: E2123
-- a constant of an unknown name
const A = missing  // error: E1201
-- a constant float of an unknown name
const A: f32 = missing  // error: E1201
-- a float constant as a dimension
const A = 1.5
fn f(x: Tensor[A; f32]) -> i64 { return 1 }  // error: E2123
-- division by a constant zero
const A = 3 / 0  // error: E2205
-- a constant that runs out of bounds
const A = 9223372036854775807
const B = A * A * A * A
fn f() -> i64 { return B }  // error: E2105
-- a shift too far
const A = shl(1, 64)  // error: E2105
-- a failed constant is silent where it is used
const A = missing  // error: E1201
fn f(x: Tensor[A; f32]) -> i64 { return A + 1 }
""")
def test_literals_and_constants(program: Program) -> None:
    run(program)
