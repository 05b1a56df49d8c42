"""Programs as text, small enough to read beside the test that uses them."""

from __future__ import annotations

from linnet.ir.bound import Bound, Instance
from linnet.ir.effects import walk_ops
from linnet.ir.parse import parse_program
from linnet.ir.passes.pipeline import optimize
from linnet.ir.program import Intrinsic, Op, Program
from linnet.ir.specialize import specialize
from linnet.ir.verify import verify_instance, verify_program

SOFTMAX = """
pub op std.nn.softmax::softmax<*S: Shape, N: Dim, T: Float>(%x x: Tensor[*S, N; T]) -> Tensor[*S, N; T] {
  %m: Tensor[*S; T] = grid [*s: [*S]] max<T>[n: N](%x[*s, n]:T):T
  %e: Tensor[*S, N; T] = grid [*s: [*S], n: N] exp(sub(%x[*s, n]:T, %m[*s]:T):T):T
  %t: Tensor[*S; T] = grid [*s: [*S]] sum<T>[n: N](%e[*s, n]:T):T
  %y: Tensor[*S, N; T] = grid [*s: [*S], n: N] div(%e[*s, n]:T, %t[*s]:T):T
  return %y
}
"""

WRITE_AT = """
pub op std.nn.cache::write_at<B: Dim, H: Dim, S: Dim, D: Dim, T: Float>(%cache cache: Tensor[B, H, S, D; T], %value value: Tensor[B, H, 1, D; T], %at at: i32) -> Tensor[B, H, S, D; T] {
  %p: Tensor[S; i32] = iota
  %y: Tensor[B, H, S, D; T] = grid [b: B, h: H, s: S, d: D] select(eq(%p[s]:i32, %at:i32):bool, %value[b, h, {0}, d]:T, %cache[b, h, s, d]:T):T
  return %y
}
"""

CAUSAL_MASK = """
pub op std.nn.attention::causal_mask<Q: Dim, K: Dim>() -> Tensor[Q, K; bool] {
  %q: Tensor[Q; i64] = iota
  %k: Tensor[K; i64] = iota
  %y: Tensor[Q, K; bool] = grid [q: Q, k: K] le(add(%k[k]:i64, dim[Q]:i64):i64, add(%q[q]:i64, dim[K]:i64):i64):bool
  return %y
}
"""


def program(*parts: str) -> Program:
    """Parse and verify."""
    made = parse_program("program crate\n" + "\n".join(parts))
    verify_program(made)
    return made


def bind(made: Program, root: str = "crate::Root", **generics: int | str) -> Bound:
    bound = specialize(made, root, generics)
    for instance in bound.functions.values():
        verify_instance(instance, bound)
    return bound


def checked(bound: Bound, numerics: str = "fast", in_place: bool = True) -> Bound:
    """Optimized, the verifier after every pass."""

    def check(name: str, instance: Instance, now: Bound) -> None:
        try:
            verify_instance(instance, now)
        except AssertionError as error:
            raise AssertionError(f"after {name}: {error}") from error

    return optimize(bound, numerics, in_place=in_place, check=check)


def entry(bound: Bound, name: str) -> Instance:
    return bound.functions[bound.entries[name]]


def ops(instance: Instance, kind: type[Op] = Op) -> list[Op]:
    return [op for op in walk_ops(instance.body) if isinstance(op, kind)]


def intrinsics(instance: Instance, name: str | None = None) -> list[Intrinsic]:
    found = [op for op in walk_ops(instance.body) if isinstance(op, Intrinsic)]
    return [op for op in found if name is None or op.name == name]
