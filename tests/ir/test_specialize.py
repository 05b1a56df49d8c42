"""Binding generics, kinds and presence, the manifest."""

from __future__ import annotations

import re

import pytest

from linnet.dims import Dim
from linnet.errors import BindError
from linnet.ir.manifest import manifest, presence, root_block
from linnet.ir.program import Call, Loop, MatchOptional, MatchSub, ReadMember
from linnet.ir.specialize import specialize

from .programs import bind, entry, ops, program

PARTS = """
pub block crate::Leaf<N: Dim, T: Float> {
  param weight: Tensor[N; T]
  optional param bias: Tensor[N; T]?
  state memory: Tensor[N; f32]
  method step = crate::Leaf.step
}

fn crate::Leaf.step<*S: Shape>(%x x: Tensor[*S, N; T]) -> Tensor[*S, N; T] in crate::Leaf {
  %b: Tensor[N; T]? = read param bias
  %y: Tensor[*S, N; T] = match %b some {
    params %v: Tensor[N; T]
    %0: Tensor[*S, N; T] = grid [*s: [*S], n: N] add(%x[*s, n]:T, %v[n]:T):T
    yield %0
  } none {
    yield %x
  }
  return %y
}

pub block crate::Root<N: Dim, Count: Dim, Half: Dim = N / 2, T: Float = f32> {
  where Count > 0
  where N % 2 == 0
  where Half <= N
  where Half > 0
  sub leaves: [crate::Leaf<N, 'T>; Count]
  sub other: crate::Leaf<N + 1, bf16>
  optional sub extra: crate::Leaf<Half, 'T>
  method go = crate::Root.go
  method twice = crate::Root.twice
}

pub entry crate::Root.go<B: Dim>(%x x: Tensor[B, N; T]) -> Tensor[B, N; T] in crate::Root {
  %l: Tensor[B, N; T] = static loop [0] to [Count] (%x) {
    params %i: i64, %acc: Tensor[B, N; T]
    %2: Tensor[B, N; T] = call crate::Leaf.step<[B]>(%acc) on leaves[%i]
    yield %2
  }
  %h: Tensor[B, Half; T] = slice %l [:, 0 : Half]
  %e: Tensor[B, Half; T] = match_sub extra some {
    %1: Tensor[B, Half; T] = call crate::Leaf.step<[B]>(%h) on extra
    yield %1
  } none {
    yield %h
  }
  %out: Tensor[B, N; T] = grid [b: B, n: N] add(%l[b, n]:T, %e[b, {0}]:T):T
  return %out
}

pub entry crate::Root.twice(%x x: Tensor[N, N; T]) -> Tensor[N, N; T] in crate::Root {
  %1: Tensor[N, N; T] = call crate::Leaf.step<[N]>(%x) on leaves[0]
  return %1
}
"""


def test_binds_and_shares_instances() -> None:
    bound = bind(program(PARTS), N=4, Count=3)
    assert list(bound.kinds) == ["Leaf", "Leaf_2", "Root"]
    root = bound.kinds["Root"]
    assert root.bindings["Half"] == Dim.const(2)
    assert root.member("leaves").length == 3
    assert not root.member("extra").present
    go = entry(bound, "go")
    assert go.dims == ("B",)
    (call,) = ops(go, Call)
    assert isinstance(call, Call)
    assert call.generics == (Dim.name("B"),)
    assert bound.functions[call.callee].dims == ("S0",)
    assert bound.functions[call.callee].name == "leaf_step"
    (bound_call,) = ops(entry(bound, "twice"), Call)
    assert isinstance(bound_call, Call)
    assert bound_call.generics == ()
    for instance in bound.functions.values():
        assert not ops(instance, MatchOptional)
        assert not ops(instance, MatchSub)


def test_presence_makes_kinds() -> None:
    made = program(PARTS)
    have = frozenset({"leaves.0.bias", "leaves.2.bias", "extra", "extra.bias"})
    bound = specialize(made, "crate::Root", {"N": 4, "Count": 3}, have)
    leaves = bound.kinds["Root"].member("leaves")
    assert leaves.sub is None
    assert leaves.each is not None
    assert leaves.each[0] == leaves.each[2] != leaves.each[1]
    go = entry(bound, "go")
    assert not ops(go, Loop)
    assert [type(c).__name__ for c in ops(go, Call)] == ["Call"] * 4
    with_bias = bound.functions[ops(go, Call)[0].callee]  # type: ignore[attr-defined]
    assert [r.name for r in ops(with_bias, ReadMember)] == ["bias"]  # type: ignore[attr-defined]
    same = specialize(
        made, "crate::Root", {"N": 4, "Count": 2}, frozenset({"leaves.0.bias", "leaves.1.bias"})
    )
    assert same.kinds["Root"].member("leaves").each is None


@pytest.mark.parametrize(
    ("generics", "words"),
    [
        ({"N": 4}, "`Root` needs a value for `Count`"),
        ({"N": 4, "Count": 1, "M": 2}, "no generic `M`; it has `N`, `Count`, `Half`, `T`"),
        ({"N": "f32", "Count": 1}, "`N` of `Root` is a dimension: expected an integer, found 'f32'"),
        ({"N": -4, "Count": 1}, "expected at least 0, found -4"),
        ({"N": True, "Count": 1}, "expected an integer, found True"),
        ({"N": 4, "Count": 1, "T": "i32"}, "`T` of `Root` is a dtype: expected one of bf16, f16, f32, f64"),
        ({"N": 4, "Count": 1, "T": 3}, "found 3"),
        ({"N": 3, "Count": 1}, "requires `N % 2 == 0`, which fails at N = 3"),
        ({"N": 4, "Count": 0}, "requires `Count > 0`, which fails at Count = 0"),
    ],
)  # fmt: skip
def test_refusals_name_the_generic(generics: dict[str, int | str], words: str) -> None:
    with pytest.raises(BindError, match=re.escape(words)):
        specialize(program(PARTS), "crate::Root", generics)


def test_negative_dimension() -> None:
    text = """
pub block crate::Root<W: Dim> {
  param taps: Tensor[W - 1; f32]
  method go = crate::Root.go
}
pub entry crate::Root.go(%x x: i32) -> i32 in crate::Root {
  return %x
}
"""
    with pytest.raises(BindError, match=r"`Root.taps`: a dimension of .*W - 1.* is -1"):
        specialize(program(text), "crate::Root", {"W": 0})


def test_manifest() -> None:
    made = program(PARTS)
    assert root_block(made) == "crate::Root"
    listed = manifest(made, "crate::Root", {"N": 4, "Count": 2})
    assert [p.path for p in listed[:3]] == ["leaves.0.weight", "leaves.0.bias", "leaves.0.memory"]
    by_path = {p.path: p for p in listed}
    assert by_path["other.weight"].shape == (5,)
    assert by_path["other.weight"].dtype == "bf16"
    assert by_path["leaves.1.memory"].kind == "state"
    assert by_path["extra.weight"].optional
    assert by_path["extra.weight"].within == ("extra",)
    here = manifest(made, "crate::Root", {"N": 4, "Count": 2}, frozenset({"leaves.0.bias"}))
    assert "extra.weight" not in [p.path for p in here]
    assert [p.path for p in here if p.path.endswith("bias")] == ["leaves.0.bias"]


def test_presence_from_a_checkpoint() -> None:
    listed = manifest(program(PARTS), "crate::Root", {"N": 4, "Count": 1})
    have = {"leaves.0.weight", "other.weight", "extra.weight", "leaves.0.bias"}
    assert presence(listed, have) == (frozenset({"leaves.0.bias", "extra"}), [])
    present, problems = presence(listed, {"leaves.0.weight", "extra.bias"})
    assert "extra" in present
    assert problems == [
        "optional `extra` is only partly there: extra.bias is present, missing are extra.weight"
    ]
