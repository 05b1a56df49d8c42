"""Optionals, enums, structs, and the choices between them."""

from programs import Program, cases, run


@cases(r"""
-- an optional is matched
fn f(x: f32?) -> f32 { return match x { some(v) => v + 1  none => 0 } }
-- the cases in any order, with a wildcard
fn f(x: f32?) -> f32 { return match x { none => 0  some(v) => v } }
fn g(x: f32?) -> f32 { return match x { none => 0  _ => 1 } }
fn h(x: f32?) -> f32 { return match x { some(v) => v  _ => 1 } }
-- a missing case
fn f(x: f32?) -> f32 { return match x { some(v) => v } }  // error: E2118 says: none
-- the other missing case
fn f(x: f32?) -> f32 { return match x { none => 1 } }  // error: E2118 says: some
-- a case twice
fn f(x: f32?) -> f32 { return match x { none => 1  some(v) => v  none => 2 } }  // error: E2117
-- a variant for an optional
enum E { A }
fn f(x: f32?) -> f32 { return match x { E.A => 1  none => 2 } }  // error: E2117
-- a match of a number
fn f(x: f32) -> f32 { return match x { some(v) => v  none => 2 } }  // error: E2117
-- branches of one type
fn f(x: f32?, y: i32) -> f32 { return match x { some(v) => v  none => y } }  // error: E2115
-- none and some in the branches
fn f(c: bool, x: f32) -> f32? { return if c { some(x) } else { none } }
fn g(c: bool, x: f32) -> f32? { return if c { none } else { some(1) } }
fn h(c: bool, x: f32) -> f32 {
    let y = if c { none } else { some(x) }
    return match y { some(v) => v  none => 0 }
}
-- none in all branches
fn f(c: bool) -> i64 {
    let y = if c { none } else { none }  // error: E2113
    return 1
}
-- an optional tensor
fn f<N: Dim>(x: Tensor[N; f32]?) -> Tensor[N; f32] {
    return match x { some(v) => v  none => fill<f32>([N], 0) }
}
-- an optional of another shape
fn f<N: Dim>(x: Tensor[N; f32]?) -> Tensor[N + 1; f32]? { return x }  // error: E2202
-- an optional of an optional
fn f(x: f32?) -> f32?? { return some(x) }
fn g(x: f32??) -> f32 {
    return match x { some(y) => match y { some(z) => z  none => 1 }  none => 2 }
}
-- some takes its hint
fn f() -> f16? { return some(1) }
-- some of a wrong value
fn f(x: i32) -> f32? { return some(x) }  // error: E2103
-- if chains
fn f(x: f32) -> f32 { return if x > 1 { 1 } else if x > 0 { x } else { -1 } }
-- if over a tensor
fn f(c: Tensor[3; bool], x: f32) -> f32 { return if c { x } else { 1 } }  // error: E2114 says: select
-- if over a number
fn f(c: i32, x: f32) -> f32 { return if c { x } else { 1 } }  // error: E2114
-- if with branches of different shapes
fn f(c: bool, x: Tensor[3; f32], y: Tensor[4; f32]) -> Tensor[3; f32] {
    return if c { x } else { y }  // error: E2115
}
-- if with branches of provably equal shapes
fn f<N: Dim>(c: bool, x: Tensor[N + N; f32], y: Tensor[2 * N; f32]) -> Tensor[2 * N; f32] {
    return if c { x } else { y }
}
-- if with tuples
fn f(c: bool, x: f32) -> (f32, i32) { return if c { (x, 1) } else { (2, 3) } }
-- if without else
fn f(c: bool, x: f32) -> f32 { return if c { x } }  // error: E1101
-- an error in a branch
fn f(c: bool, x: f32) -> f32 { return if c { missing } else { x } }  // error: E1201
-- an enum
enum Kind { Small, Large }
fn g(k: Kind) -> f32 { return match k { Kind.Small => 1  Kind.Large => 2 } }
fn f(k: Kind) -> f32 { return g(Kind.Small) + g(k) }
-- an enum is compared
enum Kind { Small, Large }
fn f(k: Kind) -> bool { return k == Kind.Small || k != Kind.Large }
-- an enum is not ordered
enum Kind { Small, Large }
fn f(k: Kind) -> bool { return k < Kind.Large }  // error: E2104
-- two enums are two types
enum A { X }
enum B { X }
fn f(a: A) -> bool { return a == B.X }  // error: E2104
fn g(a: A) -> B { return a }  // error: E2101
-- an unknown variant
enum Kind { Small, Large }
fn f() -> Kind { return Kind.Smal }  // error: E2107 says: did you mean `Small`?
-- an enum not covered
enum Kind { Small, Medium, Large }
fn f(k: Kind) -> f32 { return match k { Kind.Small => 1  Kind.Large => 2 } }  // error: E2118 says: Kind.Medium
-- an enum with a wildcard
enum Kind { Small, Medium, Large }
fn f(k: Kind) -> f32 { return match k { Kind.Small => 1  _ => 2 } }
-- a wildcard that covers nothing
enum Kind { Small }
fn f(k: Kind) -> f32 { return match k { Kind.Small => 1  _ => 2 } }  // error: E2117
-- a case after the wildcard
enum Kind { Small, Large }
fn f(k: Kind) -> f32 { return match k { _ => 1  Kind.Large => 2 } }  // error: E2117
-- a variant twice
enum Kind { Small, Large }
fn f(k: Kind) -> f32 { return match k { Kind.Small => 1  Kind.Small => 2  Kind.Large => 3 } }  // error: E2117
-- a variant of another enum
enum Kind { Small, Large }
enum Other { Small, Large }
fn f(k: Kind) -> f32 { return match k { Other.Small => 1  Kind.Large => 2 } }  // error: E2117
-- a variant that does not exist
enum Kind { Small, Large }
fn f(k: Kind) -> f32 { return match k { Kind.Smal => 1  Kind.Large => 2 } }  // error: E2117 says: did you mean
-- some of an enum
enum Kind { Small, Large }
fn f(k: Kind) -> f32 { return match k { some(v) => 1  none => 2 } }  // error: E2117
-- an enum through an alias
enum Kind { Small, Large }
type Size = Kind
fn f(k: Size) -> f32 { return match k { Size.Small => 1  Kind.Large => 2 } }
fn g() -> Kind { return Size.Large }
-- an enum as an argument and in a struct
enum Kind { Small, Large }
struct P { kind: Kind, x: f32 }
fn f(p: P) -> f32 { return match p.kind { Kind.Small => p.x  Kind.Large => 2 } }
fn g(x: f32) -> P { return P(kind = Kind.Large, x = x) }
-- an empty match
fn f(x: f32?) -> f32 { return match x { } }  // error: E2118
-- a struct
struct Pair<N: Dim, T: Float = f32> { left: Tensor[N; T], right: Tensor[N; T] }
fn swap<N: Dim, T: Float>(p: Pair<N, T>) -> Pair<N, T> { return Pair(left = p.right, right = p.left) }
fn f(x: Tensor[3; f32]) -> Tensor[3; f32] { return swap(Pair(left = x, right = x + 1)).left }
-- fields in any order
struct P { a: f32, b: i32 }
fn f() -> P { return P(b = 2, a = 1) }
-- a field that is missing
struct P { a: f32, b: i32 }
fn f() -> P { return P(a = 1) }  // error: E2102 says: needs `b`
-- a field that does not exist
struct P { a: f32 }
fn f() -> P { return P(a = 1, c = 2) }  // error: E2102
-- a field given twice
struct P { a: f32 }
fn f() -> P { return P(a = 1, a = 2) }  // error: E2102
-- fields are named
struct P { a: f32 }
fn f() -> P { return P(1) }  // error: E2102 says: P(a = …)
-- a field of the wrong type
struct P { a: f32, b: Tensor[3; f32] }
fn f(x: i32, y: Tensor[4; f32]) -> P { return P(a = x, b = y) }  // error: E2103 E2202
-- a field read that does not exist
struct P { alpha: f32 }
fn f(p: P) -> f32 { return p.alpa }  // error: E2107 says: did you mean `alpha`?
-- a generic struct, inferred
struct P<N: Dim> { a: Tensor[N; f32], b: Tensor[2 * N; f32] }
fn f(x: Tensor[3; f32], y: Tensor[6; f32]) -> P<3> { return P(a = x, b = y) }
fn g(x: Tensor[3; f32]) -> P<3> { return P(a = x, b = x) }  // error: E2202
-- a generic struct, written
struct P<N: Dim> { b: Tensor[2 * N; f32] }
fn f(y: Tensor[6; f32]) -> P<3> { return P<3>(b = y) }
fn g(y: Tensor[6; f32]) -> P<3> { return P(b = y) }  // error: E2110
fn h(y: Tensor[6; f32]) -> P<3> { return P<3, 4>(b = y) }  // error: E2111
-- a generic struct with a constraint
struct P<T: Float> { a: T }
fn f(x: i32) -> f32 {
    let p = P(a = x)  // error: E2112
    return 1
}
-- a generic struct of literals
struct P<T: Float> { a: T, b: T }
fn f(x: f16) -> f16 {
    let p = P(a = x, b = 1)
    let q = P(a = 1, b = 2.5)
    return p.b
}
-- two structs with the same fields are two types
struct P { a: f32 }
struct Q { a: f32 }
fn f(p: P) -> Q { return p }  // error: E2101
-- a struct of other sizes
struct P<N: Dim> { a: Tensor[N; f32] }
fn f<N: Dim>(p: P<N>) -> P<N + 1> { return p }  // error: E2101
fn g<N: Dim>(p: P<N + N>) -> P<2 * N> { return p }
-- a struct through an alias
struct P<N: Dim> { a: Tensor[N; f32] }
type Three = P<3>
fn f(x: Tensor[3; f32]) -> P<3> { return Three(a = x) }
fn g(x: Tensor[4; f32]) -> P<4> { return Three(a = x) }  // error: E2202
-- a struct of a struct
struct P { a: f32 }
struct Q { p: P, o: P? }
fn f(q: Q) -> f32 { return q.p.a + match q.o { some(p) => p.a  none => 1 } }
fn g() -> Q { return Q(p = P(a = 1), o = none) }
-- a struct inside itself
struct P { a: P }  // error: E2122
-- a struct inside itself through an optional
struct P { a: P? }  // error: E2122
-- structs inside each other
struct P { a: Q }  // error: E2122
struct Q { a: P }
-- a struct with a broken field
struct P { a: Missing }  // error: E1201
fn f(p: P) -> f32 { return p.a }
fn g() -> P { return P(a = 1) }
-- a struct does not hold a block
pub block B { param w: f32 }
struct P { b: B }  // error: E4101
-- a struct with a dimension that may vanish
struct P<N: Dim, M: Dim> { a: Tensor[N / M; f32] }  // error: E2205
-- tuples in structs and structs in tuples
struct P { a: (f32, i32) }
fn f(p: P) -> (P, i32) {
    let (x, n) = p.a
    return (P(a = (x, n)), n)
}
-- matches nest and bind
fn f(x: f32?, y: f32?) -> f32 {
    return match x {
        some(a) => match y { some(b) => a + b  none => a }
        none => match y { some(a) => a  none => 0 }
    }
}
""")
def test_choices(program: Program) -> None:
    run(program)
