"""Names: what they mean, where they are seen, how often they may be declared."""

from programs import Program, cases, run


@cases(r"""
-- order of items does not matter
fn f() -> i64 { return g() + N }
fn g() -> i64 { return N }
const N = 3
-- unknown value
fn f() -> i64 { return missing }  // error: E1201 says: unknown name `missing`
-- misspelt value gets a suggestion
fn f(weight: f32) -> f32 { return wieght }  // error: E1201 says: did you mean `weight`?
-- unknown function, its arguments are still looked at
fn f(x: f32) -> f32 {
    return missing(x, other)  // error: E1201 E1201
}
-- unknown type
fn f(x: Matrix) -> f32 { return 1.0 }  // error: E1201 says: unknown type `Matrix`
-- unknown dtype in a tensor
fn f(x: Tensor[3; float]) -> i64 { return 1 }  // error: E1201
-- unknown dimension
fn f(x: Tensor[N; f32]) -> i64 { return 1 }  // error: E1201 says: `<N: Dim>`
-- unknown pack
fn f(x: Tensor[*S; f32]) -> i64 { return 1 }  // error: E1201
-- unknown kind of generic
fn f<N: Size>(x: Tensor[N; f32]) -> i64 { return 1 }  // error: E1201
-- misspelt kind of generic
fn f<N: dim>(x: Tensor[N; f32]) -> i64 { return 1 }  // error: E1201 says: `Dim`
-- a misspelt kind is taken for the one that is meant
fn f<T: Flot>(x: T) -> T { return x }  // error: E1201 says: `Float`
-- item declared twice
fn f() -> i64 { return 1 }
fn f() -> i64 { return 2 }  // error: E1204 says: first declared here
-- items of two kinds share one space of names
const f = 1
fn f() -> i64 { return 2 }  // error: E1204
-- parameter declared twice
fn f(x: f32, x: f32) -> f32 { return x }  // error: E1205
-- generic declared twice
fn f<N: Dim, N: Dim>(x: Tensor[N; f32]) -> i64 { return 1 }  // error: E1205
-- field declared twice
struct S { a: f32, a: f32 }  // error: E1205
-- variant declared twice
enum E { A, B, A }  // error: E1205
-- member declared twice
pub block B {
    param w: Tensor[3; f32]
    state w: Tensor[3; f32]  // error: E1205
}
-- method with the name of a member
pub block B {
    param w: Tensor[3; f32]
    pub fn w() -> i64 { return 1 }  // error: E1205
}
-- method declared twice
pub block B {
    pub fn f() -> i64 { return 1 }
    pub fn f() -> i64 { return 2 }  // error: E1205
}
-- parameter with the name of a generic
fn f<N: Dim>(N: f32) -> i64 { return 1 }  // error: E1205
-- local with the name of a generic
fn f<N: Dim>() -> i64 {
    let N = 3  // error: E1205
    return 1
}
-- generic of a method with the name of one of its block
pub block B<H: Dim> {
    pub fn f<H: Dim>(x: Tensor[H; f32]) -> i64 { return 1 }  // error: E1205
}
-- member with the name of a generic
pub block B<H: Dim> {
    param H: Tensor[3; f32]  // error: E1205
}
-- name twice in one let
fn f() -> i64 {
    let (a, a) = (1, 2)  // error: E1205
    return a
}
-- underscore twice in one let
fn f() -> i64 {
    let (_, _) = (1, 2)
    return 1
}
-- a later let shadows
fn f(x: f32) -> f32 {
    let y = x + 1.0
    let y = y * 2.0
    let x = y
    return x
}
-- a local shadows an item
const N = 3
fn f(x: f32) -> f32 {
    let N = x
    return N
}
-- a local shadows a member of the block
pub block B {
    param w: Tensor[3; f32]
    pub fn f() -> Tensor[2; i32] {
        let w = fill<i32>([2], 1)
        return w
    }
}
-- what a loop declares ends with it
fn f() -> i64 {
    for i in 0..3 {
        let inner = i
    }
    return inner  // error: E1201
}
-- a counter ends with its loop
fn f() -> i64 {
    for i in 0..3 {
    }
    return i  // error: E1201
}
-- what a match binds stays in its arm
fn f(x: f32?) -> f32 {
    return match x { some(v) => v  none => v }  // error: E1201
}
-- a let is not seen on its own right side
fn f() -> i64 {
    let a = a + 1  // error: E1201
    return a
}
-- prelude function redeclared
fn exp(x: f32) -> f32 { return x }  // error: E1207
-- reserved prelude function redeclared
fn gather(x: f32) -> f32 { return x }  // error: E1207
-- dtype redeclared
const f32 = 1  // error: E1207
-- Tensor redeclared
struct Tensor { a: f32 }  // error: E1207
-- prelude name as a parameter
fn f(min: f32) -> f32 { return 1.0 }  // error: E1207
-- prelude name as a local
fn f() -> i64 {
    let select = 1  // error: E1207
    return 1
}
-- prelude name as a generic
fn f<cast: Dim>() -> i64 { return 1 }  // error: E1207
-- prelude name as a member
pub block B {
    param abs: Tensor[3; f32]  // error: E1207
}
-- prelude name as a method
pub block B {
    pub fn max(x: f32) -> f32 { return x }  // error: E1207
}
-- names of reductions are ordinary
fn sum(x: f32) -> f32 { return x }
fn f(any: f32, all: f32) -> f32 {
    let prod = any * all
    return sum(prod)
}
-- reserved prelude function called
fn f(x: Tensor[3; f32]) -> Tensor[3; f32] { return pad(x) }  // error: E1103
-- reserved prelude function on elements
fn f(x: Tensor[3; f32]) -> Tensor[3; f32] {
    let y[i] = gather(x[i])  // error: E1103
    return y
}
-- function as a value
fn g() -> i64 { return 1 }
fn f() -> i64 { return g }  // error: E1208 says: call it: `g(…)`
-- prelude function as a value
fn f() -> i64 { return exp }  // error: E1208
-- dtype as a value
fn f() -> i64 { return f32 }  // error: E1208
-- dtype generic as a value
fn f<T: Float>(x: T) -> T { return T }  // error: E1208
-- pack as a value
fn f<*S: Shape>(x: Tensor[*S; f32]) -> i64 { return S }  // error: E1208
-- struct as a value
struct P { a: f32 }
fn f() -> i64 { return P }  // error: E1208
-- enum as a value
enum E { A }
fn f() -> E { return E }  // error: E1208
-- method as a value
pub block B {
    fn g() -> i64 { return 1 }
    pub fn f() -> i64 { return g }  // error: E1208
}
-- const as a type
const N = 3
fn f(x: N) -> i64 { return 1 }  // error: E1208
-- dimension as a type
fn f<N: Dim>(x: N) -> i64 { return 1 }  // error: E1208
-- dtype generic as a dimension
fn f<T: Float>(x: Tensor[T; f32]) -> i64 { return 1 }  // error: E1208
-- pack without its star
fn f<*S: Shape>(x: Tensor[S; f32]) -> i64 { return 1 }  // error: E1208 says: write `*S`
-- dimension with a star
fn f<N: Dim>(x: Tensor[*N; f32]) -> i64 { return 1 }  // error: E1208
-- pack declared as a dimension
fn f<*S: Dim>(x: Tensor[*S; f32]) -> i64 { return 1 }  // error: E1208
-- dimension declared as a shape
fn f<S: Shape>(x: Tensor[*S; f32]) -> i64 { return 1 }  // error: E1208
-- a value called
fn f(x: f32) -> f32 { return x(1.0) }  // error: E2106
-- a const called
const N = 3
fn f() -> i64 { return N() }  // error: E2106
-- an enum called
enum E { A }
fn f() -> E { return E(1) }  // error: E2106
-- a block called
pub block B { param w: Tensor[3; f32] }
fn f() -> i64 { return B(1) }  // error: E2106
-- a member called
pub block B {
    param w: Tensor[3; f32]
    pub fn f() -> i64 { return w(1) }  // error: E2106
}
-- the result of a call called
fn g() -> i64 { return 1 }
fn f() -> i64 { return g()(1) }  // error: E2106
-- every error of a file, none that follows from another
fn f(x: Missing) -> f32 {  // error: E1201
    let a = x + 1.0
    let b = unknown  // error: E1201
    let c = a * b
    return c
}
fn g() -> f32 { return f(2.0) }
fn h() -> i32 { return other() }  // error: E1201
-- a broken signature silences its calls
fn g(x: Tensor[Missing; f32]) -> f32 { return 1.0 }  // error: E1201
fn f() -> f32 {
    let a = g(1, 2, 3)
    return a
}
-- a syntax error does not hide the rest
fn f(x: f32) -> f32 {
    let y = x +  // error: E1101
    return y
}
fn g() -> f32 { return 1 + true }  // error: E2105
""")
def test_names(program: Program) -> None:
    run(program)
