"""Blocks and their members, methods and effects; optional blocks; entries."""

from programs import Program, cases, run


@cases(r"""
-- members of every kind
pub block Linear<In: Dim, Out: Dim, T: Float = bf16> {
    param weight: Tensor[Out, In; T]
    param bias: Tensor[Out; T]? = none
    param scale: f32
    buffer table: Tensor[In; i32]
    state count: Tensor[Out; f32]
    pub fn forward<*S: Shape>(x: Tensor[*S, In; T]) -> Tensor[*S, Out; T] {
        let y[*s, o] = sum[i] x[*s, i] * weight[o, i]
        let z = y * cast<T>(scale)
        return match bias { some(b) => z + b  none => z }
    }
}
-- methods in any order, bare names inside
pub block B<N: Dim> {
    pub fn f(x: Tensor[N; f32]) -> Tensor[N; f32] { return g(x) * w }
    fn g(x: Tensor[N; f32]) -> Tensor[N; f32] { return x + w }
    param w: Tensor[N; f32]
}
-- a block's clauses hold in its members and methods
pub block B<H: Dim, N: Dim> where N > 0, H % N == 0 {
    param w: Tensor[N, H / N; f32]
    pub fn f(x: Tensor[H; f32]) -> Tensor[N, H / N; f32] { return reshape(x, [N, H / N]) * w }
}
-- a member that divides without a clause
pub block B<H: Dim, N: Dim> {
    param w: Tensor[H / N; f32]  // error: E2205
}
-- a sub's clauses are proven where it is named
pub block A<N: Dim> where N > 0 { param w: Tensor[N; f32] }
pub block B<M: Dim> {
    sub one: A<M + 1>
    sub two: A<M>  // error: E2206 says: add `where M > 0`
    sub three: A<0>  // error: E2206 says: which is false
}
-- a sub's clauses proven from the block's own
pub block A<N: Dim> where N % 2 == 0 { param w: Tensor[N; f32] }
pub block B<M: Dim> where M % 4 == 0 {
    sub one: A<M>
    sub many: [A<M / 2>; 3]
}
-- a sub with too few arguments
pub block A<N: Dim, M: Dim> { param w: Tensor[N, M; f32] }
pub block B { sub a: A<3> }  // error: E2111
-- a sub with defaults
pub block A<N: Dim, T: Float = f32> { param w: Tensor[N; T] }
pub block B {
    sub a: A<3>
    sub b: A<3, f16>
}
-- a sub of a wrong kind of argument
pub block A<N: Dim, T: Float> { param w: Tensor[N; T] }
pub block B {
    sub a: A<f32, 3>  // error: E2123 E2111
}
-- a sub that breaks a constraint
pub block A<T: Float> { param w: Tensor[3; T] }
pub block B { sub a: A<i32> }  // error: E2112
-- a sub through an alias
type Small = A<3>
pub block A<N: Dim> {
    param w: Tensor[N; f32]
    pub fn f() -> Tensor[N; f32] { return w }
}
pub block B {
    sub a: Small
    pub fn f() -> Tensor[3; f32] { return a.f() }
}
-- a sub that is no block
pub block B {
    sub a: Tensor[3; f32]  // error: E4101
    sub b: f32  // error: E4101
}
-- a sub of an unknown block
pub block B { sub a: Missing<3> }  // error: E1201
-- a param that is a block
pub block A { param w: Tensor[3; f32] }
pub block B { param a: A }  // error: E4101
-- members with types they cannot have
struct P { a: f32 }
enum E { X }
pub block B {
    param a: (f32, f32)  // error: E4101
    buffer b: P  // error: E4101
    state c: E  // error: E4101
    state d: Tensor[3; f32]?  // error: E4101
}
-- a param with a value
pub block B {
    param w: Tensor[3; f32] = 1.0  // error: E4102
    param v: Tensor[3; f32] = none  // error: E4102
    state s: f32 = 0  // error: E4102
    param u: Tensor[3; f32]? = none
}
-- an op in a block
pub block B {
    pub op f(x: f32) -> f32 { return x }  // error: E1101
}
-- a method of a sub
pub block A<N: Dim> {
    param w: Tensor[N; f32]
    pub fn f<M: Dim>(x: Tensor[M, N; f32]) -> Tensor[M, N; f32] { return x * w }
}
pub block B<H: Dim> {
    sub a: A<2 * H>
    pub fn f(x: Tensor[5, 2 * H; f32]) -> Tensor[5, H + H; f32] { return a.f(x) }
}
-- a wrong argument points to the sub
pub block A<N: Dim> {
    param w: Tensor[N; f32]
    pub fn f<M: Dim>(x: Tensor[M, N; f32]) -> Tensor[M, N; f32] { return x * w }
}
pub block B<H: Dim> {
    sub a: A<2 * H>
    pub fn f(x: Tensor[5, H; f32]) -> Tensor[5, H; f32] {
        return a.f(x)  // error: E2202 says: of the block named here
    }
}
-- a method's clauses, in the sub's sizes
pub block A<N: Dim> {
    pub fn f<M: Dim>(x: Tensor[M; f32]) -> Tensor[M; f32]
    where M % N == 0, N > 0 {
        return x
    }
}
pub block B {
    sub a: A<4>
    sub z: A<0>
    pub fn f(x: Tensor[8; f32], y: Tensor[6; f32]) -> f32 {
        let p = a.f(x)
        let q = a.f(y)  // error: E2206
        let r = z.f(x)  // error: E2206
        return 1
    }
}
-- a private method of another block
pub block A { fn f() -> f32 { return 1 } }
pub block B {
    sub a: A
    pub fn f() -> f32 { return a.f() }  // error: E1203
}
-- an unknown method
pub block A { pub fn forward() -> f32 { return 1 } }
pub block B {
    sub a: A
    pub fn f() -> f32 { return a.foward() }  // error: E2107 says: did you mean `forward`?
}
-- a param of another block
pub block A { param w: f32 }
pub block B {
    sub a: A
    pub fn f() -> f32 { return a.w }  // error: E1203 says: only that block reads it
}
-- a sub of a sub
pub block A { pub fn f() -> f32 { return 1 } }
pub block B {
    sub a: A
    sub many: [A; 2]
}
pub block C {
    sub b: B
    pub fn f() -> f32 { return b.a.f() + b.many[1].f() + b.c.f() }  // error: E2107
}
-- a method called without parentheses
pub block A { pub fn f() -> f32 { return 1 } }
pub block B {
    sub a: A
    pub fn f() -> f32 { return a.f }  // error: E1208
}
-- a block as a value
pub block A { pub fn f() -> f32 { return 1 } }
pub block B {
    sub a: A
    sub xs: [A; 2]
    pub fn f() -> f32 { return a }  // error: E1208
    pub fn g() -> f32 { return exp(xs) }  // error: E1208
}
-- an array of blocks has no methods
pub block A { pub fn f() -> f32 { return 1 } }
pub block B {
    sub xs: [A; 2]
    pub fn f() -> f32 { return xs.f() }  // error: E2107 says: static for
}
-- an array of blocks is chosen from at compile time
pub block A { pub fn f() -> f32 { return 1 } }
pub block B {
    sub xs: [A; 2]
    pub fn f(i: i64) -> f32 { return xs[i].f() }  // error: E2123
    pub fn g() -> f32 { return xs[2].f() }  // error: E2209
    pub fn h() -> f32 { return xs[0, 1].f() }  // error: E2209
    pub fn k() -> f32 { return xs[0:1].f() }  // error: E2209
}
-- a member outside of its block
pub block A { param w: f32 }
fn f() -> f32 { return w }  // error: E1201
-- a method outside of its block
pub block A { pub fn g() -> f32 { return 1 } }
fn f() -> f32 { return g() }  // error: E1201
-- a state is assigned by its block
pub block B<N: Dim> {
    state s: Tensor[N; f32]
    param w: Tensor[N; f32]
    pub fn f(x: Tensor[N; f32]) -> Tensor[N; f32] {
        s = s + x
        return s * w
    }
}
-- a state keeps its type
pub block B<N: Dim> {
    state s: Tensor[N; f32]
    pub fn f(x: Tensor[N, 1; f32]) -> f32 {
        s = x  // error: E2202 says: declared `Tensor[N; f32]`
        s = 1.0  // error: E2101
        return 1
    }
}
-- only a state is assigned
pub block A { state s: f32 }
pub block B {
    param w: f32
    buffer b: f32
    sub a: A
    pub fn f() -> f32 {
        w = 1  // error: E2108
        b = 1  // error: E2108
        a = 1  // error: E2108
        a.s = 1  // error: E2108
        return 1
    }
}
-- a state assigned in a loop
pub block B {
    state s: f32
    pub fn f(x: f32) -> f32 {
        for i in 0..3 {
            s = s + x
        }
        return s
    }
}
-- a state assigned outside of a block
fn f() -> f32 {
    s = 1  // error: E1201
    return 1
}
-- optional blocks are matched
pub block A { pub fn f(x: f32) -> f32 { return x } }
pub block B {
    sub a: A? = none
    pub fn f(x: f32) -> f32 {
        return match a { some(b) => b.f(x)  none => x }
    }
}
-- optional blocks are not called
pub block A { pub fn f(x: f32) -> f32 { return x } }
pub block B {
    sub a: A? = none
    pub fn f(x: f32) -> f32 { return a.f(x) }  // error: E2107 says: this block is optional
    pub fn g() -> f32 { return a }  // error: E1208
}
-- an optional block of another block
pub block A { pub fn f(x: f32) -> f32 { return x } }
pub block B { sub a: A? = none }
pub block C {
    sub b: B
    pub fn f(x: f32) -> f32 {
        return match b.a { some(b) => b.f(x)  none => x }  // error: E2117
    }
}
-- an optional block's clauses
pub block A<N: Dim> where N > 3 { param w: Tensor[N; f32] }
pub block B<N: Dim> { sub a: A<N>? = none }  // error: E2206
-- optional parameters are matched
pub block B<N: Dim> {
    param b: Tensor[N; f32]?
    pub fn f(x: Tensor[N; f32]) -> Tensor[N; f32] { return x + b }  // error: E2104
    pub fn g(x: Tensor[N; f32]) -> Tensor[N; f32] {
        return match b { none => x  some(offset) => x + offset }
    }
}
-- an array of optional blocks
pub block A { pub fn f(x: f32) -> f32 { return x } }
pub block B {
    sub xs: [A?; 3]  // error: E4101
    sub ys: [A; 3]? = none  // error: E4101
}
-- a negative number of blocks
pub block A { param w: f32 }
pub block B { sub xs: [A; 1 - 2] }  // error: E2208
-- a block inside itself
pub block A<N: Dim> { sub a: A<N + 1> }  // error: E2119
-- blocks inside each other
pub block A { sub b: B }  // error: E2119
pub block B { sub c: C }
pub block C { sub a: [A; 0] }
-- a method that calls itself
pub block A {
    pub fn f(x: f32) -> f32 { return g(x) }  // error: E2119
    fn g(x: f32) -> f32 { return f(x) }
}
-- entries
pub block M<V: Dim, T: Float> {
    param table: Tensor[V, 4; T]
    state seen: Tensor[V; i32]
    pub entry forward<S: Dim>(tokens: Tensor[S; i32]) -> Tensor[S, 4; T] {
        let y[s, d] = table[tokens[s], d]
        return y
    }
    pub entry step(token: i32) -> Tensor[4; T]
    where V > 0 {
        seen = seen + 1
        return table[token]
    }
}
-- generics of a block with a wrong kind
pub block B<H: Size, N: Dim> {  // error: E1201
    param w: Tensor[H, N; f32]
    pub fn f(x: Tensor[H; f32]) -> Tensor[H; f32] { return x }
}
pub block C { sub b: B<3, 4> }
-- a pack as a block's generic
pub block B<*S: Shape, T: Float> {
    param w: Tensor[*S; T]
    pub fn f(x: Tensor[*S; T]) -> Tensor[*S; T] { return x * w }
}
pub block C {
    sub b: B<[2, 3], f32>
    pub fn f(x: Tensor[2, 3; f32]) -> Tensor[2, 3; f32] { return b.f(x) }
}
-- a broken member is silent where it is used
pub block B {
    param w: Tensor[Missing; f32]  // error: E1201
    state s: Other  // error: E1201
    pub fn f(x: Tensor[3; f32]) -> Tensor[3; f32] {
        s = x * w
        return s
    }
}
-- a loop over blocks with state
pub block A {
    state s: f32
    pub fn f(x: f32) -> f32 {
        s = s + x
        return s
    }
}
pub block B<N: Dim> {
    sub xs: [A; N]
    pub fn f(x: f32) -> f32 {
        var y = x
        static for a in xs { y = a.f(y) }
        return if y > 1 { xs_first(y) } else { y }
    }
    fn xs_first(x: f32) -> f32 { return x }
}
""")
def test_blocks(program: Program) -> None:
    run(program)
