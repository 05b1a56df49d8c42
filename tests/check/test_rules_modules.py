"""Modules of a package, imports and visibility; warnings."""

from programs import Program, cases, run


@cases(r"""
-- imports from other modules
use crate.a::{f, Row as Line}
use crate.b.c
fn g(x: Line<3>) -> f32 { return f(x) + c.h(x) + c.K }
## a
pub type Row<N: Dim> = Tensor[N; f32]
pub fn f(x: Row<3>) -> f32 { return x[0] }
## b.c
pub const K = 2
pub fn h(x: Tensor[3; f32]) -> f32 { return x[1] }
-- the order of modules does not matter
use crate.b::{B}
pub block A<N: Dim> { sub b: B<N> }
## a
use crate::{A}
pub block M { sub a: A<3> }
## b
pub block B<N: Dim> { param w: Tensor[N; f32] }
-- a module that does not exist
use crate.missing::{f}  // error: E1202
use crate.a.b  // error: E1202
fn g() -> f32 { return f() + b.f() }
## a
pub fn f() -> f32 { return 1 }
-- a dot where the names to import follow
use crate.a.{f}  // error: E1101 says: use a.b::{c}
fn g() -> f32 { return f() }
## a
pub fn f() -> f32 { return 1 }
-- an unknown root
use other.a::{f}  // error: E1202
use crat.a::{g}  // error: E1202 says: did you mean `crate`?
## a
pub fn f() -> f32 { return 1 }
-- an item imported like a module
use crate.a.f  // error: E1202 says: use crate.a::{f}
## a
pub fn f() -> f32 { return 1 }
-- an item that does not exist
use crate.a::{g, forword}  // error: E1201 E1201 says: did you mean `forward`?
fn h() -> f32 { return g() }
## a
pub fn forward() -> f32 { return 1 }
-- a private item
use crate.a::{f}  // error: E1203 says: write `pub`
fn g() -> f32 { return f() }
## a
fn f() -> f32 { return 1 }
-- a private item behind a module
use crate.a
fn g() -> f32 { return a.f() }  // error: E1203
## a
fn f() -> f32 { return 1 }
-- an unknown item behind a module
use crate.a
fn g(x: a.Row) -> f32 { return a.h() }  // error: E1201 E1201
## a
pub fn f() -> f32 { return 1 }
-- an imported item is not imported again
use crate.a::{f}  // error: E1201 says: only imports it
## a
use crate.b::{f}
pub fn g() -> f32 { return f() }
## b
pub fn f() -> f32 { return 1 }
-- a module is not a value, a type or a function
use crate.a
fn g() -> f32 { return a }  // error: E1208
fn h(x: a) -> f32 { return a() }  // error: E1208 E2106
## a
pub fn f() -> f32 { return 1 }
-- behind a dot only modules have items
fn g(x: P.Q) -> f32 { return 1 }  // error: E1208
fn h(x: nowhere.Q) -> f32 { return 1 }  // error: E1201
struct P { a: f32 }
-- an import with a taken name
use crate.a::{f}  // error: E1204 says: `as`
fn f() -> f32 { return 2 }
## a
pub fn f() -> f32 { return 1 }
-- two imports with one name
use crate.a::{f}
use crate.b::{f}  // error: E1204
fn g() -> f32 { return f() }
## a
pub fn f() -> f32 { return 1 }
## b
pub fn f() -> f32 { return 1 }
-- an import with a prelude name
use crate.a::{f as exp}  // error: E1207
## a
pub fn f() -> f32 { return 1 }
-- an import of itself
use crate::{f}  // error: E1206
pub fn f() -> f32 { return 1 }
## a
pub fn g() -> f32 { return 1 }
-- an import cycle
use crate.a::{g}
pub fn f() -> f32 { return g() }
## a
use crate.b::{h}
pub fn g() -> f32 { return h() }
## b
use crate::{f}  // error: E1206 says: crate → crate.a → crate.b → crate
pub fn h() -> f32 { return 1 }
-- recursion across modules
use crate.a
pub fn f() -> f32 { return 1 }
## a
pub fn g() -> f32 { return g() }  // error: E2119
-- a module that claims to be the library
module std.nn.mine  // error: E1209
pub fn f() -> f32 { return 1 }
-- a file that stands alone may use the library
use std.nn.linear::{Linear, linear}
use std.nn.activations::{silu}
pub block M<H: Dim, T: Float> {
    sub proj: Linear<H, 2 * H, T>
    pub entry forward<B: Dim>(x: Tensor[B, H; T]) -> Tensor[B, 2 * H; T] {
        return silu(proj.forward(x))
    }
}
-- the library by a module
use std.nn.softmax
fn f(x: Tensor[3; f32]) -> Tensor[3; f32] { return softmax.softmax(x) }
-- the library's own requirements
use std.nn.attention::{grouped_attention}
fn f<B: Dim, H: Dim, Hk: Dim, Q: Dim, D: Dim>(
    q: Tensor[B, H, Q, D; f32],
    k: Tensor[B, Hk, Q, D; f32],
) -> Tensor[B, H, Q, D; f32] {
    return grouped_attention(q, k, k, 1.0)  // error: E2206 E2206
}
-- a module of the library that does not exist
use std.nn.missing::{f}  // error: E1202
use std.nn.liner::{Linear}  // error: E1202 says: did you mean `std.nn.linear`?
use std.nn.linear::{linaer}  // error: E1201
-- an enum, a struct and a block of another module
use crate.a
fn f(k: a.Kind) -> f32 { return match k { a.Kind.Small => 1  a.Kind.Large => 2 } }
fn g() -> a.P { return a.P(kind = a.Kind.Small) }
fn h() -> f32 { return f(a.Kind.Larg) }  // error: E2107
pub block B { sub b: a.A<3> }
## a
pub enum Kind { Small, Large }
pub struct P { kind: Kind }
pub block A<N: Dim> { param w: Tensor[N; f32] }
-- an enum under another name
use crate.a::{Kind as Size}
fn f(k: Size) -> f32 { return match k { Size.Small => 1  Size.Large => 2 } }
## a
pub enum Kind { Small, Large }
-- a constant of another module as a dimension
use crate.a
use crate.a::{K as L}
fn f(x: Tensor[a.K, L; f32]) -> Tensor[3, 3; f32] { return x }
fn g(x: Tensor[a.f; f32]) -> f32 { return 1 }  // error: E2123
## a
pub const K = 3
pub fn f() -> f32 { return 1 }
-- functions of another module on elements
use crate.a
use crate.b::{g}  // error: E1202
fn f(x: Tensor[3; f32]) -> Tensor[3; f32] {
    let y[i] = a.half(x[i]) + g(x[i])
    let z[i] = a.missing(x[i])  // error: E1201
    return y
}
## a
pub fn half(x: f32) -> f32 { return x / 2 }
-- errors of every module are shown
use crate.a::{f}
fn g() -> i32 { return f() }  // error: E2103
## a
pub fn f() -> f32 { return missing }  // error: E1201
## b
fn h() -> f32 { return true }  // error: E2103
-- a name lost with a syntax error in another module
use crate.a::{f, g}
fn h() -> f32 { return f() + g() }
## a
pub fn f( -> f32 { return 1 }  // error: E1101
pub fn g() -> f32 { return 1 }
-- a module path begins with a name of its own
module my.model.lib
use crate.a::{f}
fn g() -> f32 { return f() }
## a
module my.model.a
pub fn f() -> f32 { return 1 }
-- a file without its module line
module test
use crate.a::{f}
fn g() -> f32 { return f() }
## a
// no module line: the test writes one
pub fn f() -> f32 { return 1 }
-- what is declared later may use what is imported
fn f(x: Tensor[3; f32]) -> f32 { return g(x) }
use crate.a::{g}
## a
pub fn g(x: Tensor[3; f32]) -> f32 { return x[0] }
""")
def test_modules(program: Program) -> None:
    run(program)


@cases(r"""
-- nothing to warn of!
fn f(x: f32) -> f32 {
    let y = x + 1
    return y
}
-- an unused import!
use std.nn.activations::{relu, silu as swish}  // warning: W1001
fn f(x: Tensor[3; f32]) -> Tensor[3; f32] { return swish(x) }
-- an unused module import!
use std.nn.softmax  // warning: W1001
-- an import used in a type, a constant or a pattern!
use crate.a::{Row, K, Kind, A}
fn f(x: Row<K>, k: Kind) -> f32 { return match k { Kind.Small => x[0]  Kind.Large => 1 } }
pub block B { sub a: A  pub fn f() -> f32 { return a.f() } }
## a
pub type Row<N: Dim> = Tensor[N; f32]
pub const K = 3
pub enum Kind { Small, Large }
pub block A { pub fn f() -> f32 { return 1 } }
-- an import with an underscore!
use std.nn.activations::{relu as _relu}
-- an unused local!
fn f(x: f32) -> f32 {
    let y = x + 1  // warning: W1002
    let _z = x
    let _ = x
    let (a, b) = (x, 2)  // warning: W1002
    return a
}
-- an unused indexed local!
fn f(x: Tensor[3; f32]) -> f32 {
    let y[i] = x[i]  // warning: W1002
    return x[0]
}
-- a variable that is only assigned!
fn f(x: f32) -> f32 {
    var y = x  // warning: W1002
    y = x + 1
    return x
}
-- a variable that is read in a loop!
fn f(x: f32) -> f32 {
    var y = x
    for i in 0..3 {
        y = y + 1
    }
    return y
}
-- an unused local in a loop!
fn f(x: f32) -> f32 {
    for i in 0..3 {
        let y = x  // warning: W1002
    }
    return x
}
-- a shadowed local!
fn f(x: f32) -> f32 {
    let y = x  // warning: W1002
    let y = 2 * x
    return y
}
-- an unused binding of a match!
fn f(x: f32?) -> f32 { return match x { some(v) => 1  none => 2 } }  // warning: W1002
-- an unused loop block!
pub block A { pub fn f(x: f32) -> f32 { return x } }
pub block B {
    sub xs: [A; 2]
    pub fn f(x: f32) -> f32 {
        static for layer in xs {  // warning: W1002
        }
        return x
    }
}
-- counters and parameters may be unused!
fn f(x: f32, unused: f32) -> f32 {
    var y = x
    for i in 0..3 { y = y * 2 }
    static for i in 0..3 { y = y * 2 }
    return y
}
-- an unused member!
pub block B {
    param w: f32  // warning: W1003
    state s: f32  // warning: W1003
    param _kept: f32
    param v: f32
    pub fn f() -> f32 { return v }
}
-- a state that is only assigned is a member in use!
pub block B {
    state s: f32
    pub fn f(x: f32) -> f32 {
        s = x
        return x
    }
}
-- an unused private method!
pub block B {
    fn g() -> f32 { return 1 }  // warning: W1003
    pub fn f() -> f32 { return 1 }
    pub entry e() -> f32 { return 1 }
}
-- a sub that is used through another block!
pub block A { pub fn f() -> f32 { return 1 } }
pub block B { sub a: A }
pub block C {
    sub b: B
    pub fn f() -> f32 { return b.a.f() }
}
-- no warnings beside errors!
use std.nn.activations::{relu}
fn f(x: f32) -> f32 {
    let y = x
    return missing  // error: E1201
}
""")
def test_warnings(program: Program) -> None:
    run(program)
