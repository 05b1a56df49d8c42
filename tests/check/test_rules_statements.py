"""Statements: variables, loops, `return` and `yield`."""

from programs import Program, cases, run


@cases(r"""
-- a variable
fn f(x: f32) -> f32 {
    var y = x
    y = y + 1
    y = y * y
    return y
}
-- a variable keeps its type
fn f(x: f32, n: i32, v: Tensor[3; f32]) -> f32 {
    var y = x
    y = n  // error: E2109 says: declared here as `f32`
    y = v  // error: E2109
    y = none  // error: E2109
    return y
}
-- a variable keeps its shape
fn f<N: Dim>(x: Tensor[N; f32]) -> Tensor[N; f32] {
    var y = x
    y = concat(y, y, axis = 0)  // error: E2109
    return y
}
-- a variable's shape may be spelt otherwise
fn f<N: Dim>(x: Tensor[2 * N; f32], z: Tensor[N; f32]) -> Tensor[2 * N; f32] {
    var y = x
    y = concat(z, z, axis = 0)
    return y
}
-- a variable with a type
fn f(x: f16) -> f16 {
    var y: f16 = 1
    var z: f32 = x  // error: E2103
    y = 2.5
    return y * x
}
-- an assignment to a let
fn f(x: f32) -> f32 {
    let y = x
    y = 1  // error: E2108 says: var y = …
    return y
}
-- an assignment to a parameter
fn f(x: f32) -> f32 {
    x = 1  // error: E2108
    return x
}
-- an assignment to nothing
fn f(x: f32) -> f32 {
    y = x  // error: E1201 says: var y = …
    return x
}
-- an assignment to an element
fn f(x: Tensor[3; f32]) -> Tensor[3; f32] {
    var y = x
    y[0] = 1.0  // error: E2108
    return y
}
-- an assignment to a const
const N = 1
fn f() -> i64 {
    N = 2  // error: E2108 says: `N` is a const
    return N
}
-- an assignment to a generic and to a function
fn g() -> i64 { return 1 }
fn f<N: Dim>() -> i64 {
    N = 2  // error: E2108
    g = 2  // error: E2108
    return 1
}
-- an assignment to a counter
fn f() -> i64 {
    for i in 0..3 {
        i = 1  // error: E2108
    }
    return 1
}
-- an error in an assignment is reported once
fn f(x: f32) -> f32 {
    var y = missing  // error: E1201
    y = x
    y = y + other  // error: E1201
    return y
}
-- the end of a function is a return
fn f(x: f32) -> f32 {
    let y = x
}  // error: E2120
-- an empty body
fn f(x: f32) -> f32 { }  // error: E2120
-- nothing follows a return
fn f(x: f32) -> f32 {
    return x
    let y = x  // error: E2120
}
-- no return from inside a loop
fn f(x: f32) -> f32 {
    for i in 0..3 {
        return x  // error: E2120
    }
    return x
}
-- the returned value has the stated type
fn f(x: Tensor[3; f32]) -> Tensor[4; f32] {
    return x  // error: E2202 says: the result is declared `Tensor[4; f32]`
}
-- a counted loop
fn f<N: Dim>(x: Tensor[N; f32]) -> f32 {
    var total = 0.0
    for i in 0..N {
        total = total + x[i]  // error: E2103
    }
    return cast<f32>(total)
}
-- a counted loop carries variables
fn f<N: Dim>(x: Tensor[N; f32]) -> f32 {
    var total: f32 = 0
    var last = x
    for i in 0..N {
        total = total + x[i] * cast<f32>(i)
        last = last * total
    }
    return total + sum[i] last[i]
}
-- a loop's variable changes its type inside
fn f(x: Tensor[4; f32]) -> i64 {
    var y = x
    for i in 0..3 {
        y = y[0:3]  // error: E2109
    }
    return 1
}
-- the counter is an i64 value
fn f() -> i32 {
    var n: i32 = 0
    for i in 1..4 {
        n = n + i  // error: E2103
    }
    return n
}
-- bounds are compile-time integers
fn f(n: i64) -> i64 {
    for i in 0..n {  // error: E2123
    }
    return n
}
-- bounds that run backwards
fn f<N: Dim>() -> i64 {
    for i in 3..1 {  // error: E2208
    }
    for i in N + 1..N {  // error: E2208
    }
    return 1
}
-- bounds of dimensions and constants
const K = 2
fn f<N: Dim>(x: Tensor[N + 2; f32]) -> f32 {
    var t: f32 = 0
    for i in K..N + K {
        t = t + x[i]
    }
    static for i in 0..K {
        t = t * x[i]
    }
    return t
}
-- loops nest
fn f(x: Tensor[3, 4; f32]) -> f32 {
    var t: f32 = 0
    for i in 0..3 {
        var row: f32 = 0
        for j in 0..4 {
            row = row + x[i, j]
        }
        t = t + row
    }
    return t
}
-- while
fn f(x: f32) -> (f32, i32) {
    var y = x
    var n: i32 = 0
    while y > 1 && n < 10 {
        y = y / 2
        n = n + 1
    }
    return (y, n)
}
-- while over a number
fn f(x: f32) -> f32 {
    var y = x
    while y {  // error: E2114
        y = y / 2
    }
    return y
}
-- while over a tensor
fn f(x: Tensor[3; bool]) -> i64 {
    while x {  // error: E2114
    }
    return 1
}
-- yield stacks tensors
fn f<N: Dim>(x: Tensor[N, 3; f32]) -> Tensor[N, 3; f32] {
    let ys = for i in 0..N {
        let row = x[i] * 2
        yield row + 1
    }
    return ys
}
-- yield stacks scalars and tuples
fn f(x: Tensor[4; f32]) -> (Tensor[3; f32], Tensor[3, 4; f32]) {
    let (a, b) = for i in 1..4 {
        yield (x[i], x * x[i])
    }
    return (a, b)
}
-- yield with a carried variable
fn f<N: Dim>(x: Tensor[N; f32]) -> (Tensor[N; f32], f32) {
    var t: f32 = 0
    let sums = for i in 0..N {
        t = t + x[i]
        yield t
    }
    return (sums, t)
}
-- yield must come last
fn f(x: f32) -> i64 {
    let ys = for i in 0..3 {
        yield x  // error: E2120
        let z = x
    }
    return 1
}
-- yield must come at all
fn f(x: f32) -> i64 {
    let ys = for i in 0..3 {  // error: E2120
        let z = x
    }
    return 1
}
-- yield outside of such a loop
fn f(x: f32) -> i64 {
    for i in 0..3 {
        yield x  // error: E2120
    }
    return 1
}
-- yield of an optional
fn f(x: f32?) -> i64 {
    let ys = for i in 0..3 {  // error: E2101
        yield x
    }
    return 1
}
-- for as an expression stands alone
fn f(x: f32) -> i64 {
    let ys = exp(for i in 0..3 { yield x })  // error: E1101
    return 1
}
-- static for over a range
fn f(x: Tensor[3; f32]) -> f32 {
    var t: f32 = 0
    static for i in 0..3 {
        t = t + x[i]
    }
    return t
}
-- static for over a tensor
fn f(x: Tensor[3; f32]) -> i64 {
    static for i in x {  // error: E2121
    }
    return 1
}
-- static for over a number
fn f() -> i64 {
    static for i in 3 {  // error: E2121 says: 0..N
    }
    return 1
}
-- static for over blocks
pub block A { pub fn f(x: f32) -> f32 { return x } }
pub block B<N: Dim> {
    sub layers: [A; N]
    pub fn f(x: f32) -> f32 {
        var y = x
        static for layer in layers {
            y = layer.f(y)
        }
        static for i in 0..N {
            y = layers[i].f(y)
        }
        return y
    }
}
-- a counted loop over blocks
pub block A { pub fn f(x: f32) -> f32 { return x } }
pub block B<N: Dim> {
    sub layers: [A; N]
    pub fn f(x: f32) -> f32 {
        var y = x
        for i in 0..N {
            y = layers[i].f(y)  // error: E2123
        }
        return y
    }
}
-- a static counter past the blocks
pub block A { pub fn f(x: f32) -> f32 { return x } }
pub block B<N: Dim> {
    sub layers: [A; N]
    pub fn f(x: f32) -> f32 {
        var y = x
        static for i in 0..N + 1 {
            y = layers[i].f(y)  // error: E2209
        }
        return y
    }
}
-- blocks by constants
pub block A { pub fn f(x: f32) -> f32 { return x } }
pub block B<N: Dim> where N > 1 {
    sub layers: [A; N]
    pub fn f(x: f32) -> f32 { return layers[0].f(layers[N - 1].f(x)) }
    pub fn g(x: f32) -> f32 { return layers[2].f(x) }  // error: E2209
}
-- an expression is no statement
fn f(x: f32) -> f32 {
    exp(x)  // error: E1101
    return x
}
-- a semicolon
fn f(x: f32) -> f32 {
    let y = x;  // error: E1101
    return y
}
-- a let may break lines anywhere
fn f(x: f32) -> f32 {
    let y
        =
        x +
            1
    return
        y
}
-- types of lets
fn f(x: f32) -> f32 {
    let y: f32 = x
    let z: i32 = x  // error: E2103 says: declared `i32`
    let (a, b): (f32, i32) = (x, 1)
    return y + a
}
-- none needs a type
fn f() -> i64 {
    let x = none  // error: E2113
    let y: f32? = none
    return 1
}
-- a block is not bound by a let
pub block A { pub fn f(x: f32) -> f32 { return x } }
pub block B {
    sub a: A
    pub fn f(x: f32) -> f32 {
        let b = a  // error: E1208
        return a.f(x)
    }
}
""")
def test_statements(program: Program) -> None:
    run(program)
