"""The text form round-trips."""

from __future__ import annotations

from linnet.ir.parse import parse_program
from linnet.ir.print import program_text

from .programs import CAUSAL_MASK, SOFTMAX, WRITE_AT

CONTROL = """
pub block crate::Root<N: Dim, T: Float = f32, *P: Shape = [N, 2]> {
  where N > 0
  where N % 2 == 0
  optional param w: Tensor[N; T]?
  state s: Tensor[N; T]
  sub part: std.x::Part<N, 'T, [*P]>
  sub parts: [std.x::Part<N, bf16, [N / 2, 3]>; N + 1]
  optional sub extra: std.x::Part<N, 'T, []>
  method go = crate::Root.go
}

pub block std.x::Part<N: Dim, T: Float, *P: Shape> {
  param v: Tensor[N; T]
  method step = std.x::Part.step
}

fn std.x::Part.step(%x x: Tensor[N; T]) -> Tensor[N; T] in std.x::Part {
  return %x
}

pub entry crate::Root.go(%x x: Tensor[N; T], %c c: bool, %m m: enum crate::Mode {A, B}) -> (Tensor[N; T], f32) in crate::Root {
  %w: Tensor[N; T]? = read param w
  %y: Tensor[N; T] = match %w some {
    params %v: Tensor[N; T]
    %0: Tensor[N; T] = add %x, %v
    yield %0
  } none {
    yield %x
  }
  %z: Tensor[N; T] = match_sub extra some {
    %1: Tensor[N; T] = call std.x::Part.step(%y) on extra
    yield %1
  } none {
    yield %y
  }
  %p: struct crate::Pair<N, 'T> {a: Tensor[N; T], n: i64} = struct %z, %n
  %a: Tensor[N; T] = field %p a
  %l: Tensor[N; T], %ys: Tensor[N + 1, N; T] = static loop [0] to [N + 1] (%a) {
    params %i: i64, %acc: Tensor[N; T]
    %2: Tensor[N; T] = call std.x::Part.step(%acc) on parts[%i]
    yield %2, %acc
  }
  %k: i32 = while (%i0) {
    params %j: i32
    %3: bool = lt %j, %lim
    yield %3
  } do {
    params %j.2: i32
    %4: i32 = add %j.2, %one
    yield %4
  }
  %q: Tensor[N; T] = if %c {
    yield %l
  } else {
    yield %a
  }
  %r: f32 = match_enum %m arm 0 {
    yield %f
  } arm 1 {
    yield %f
  }
  write s %q
  %t: (Tensor[N; T], f32) = tuple %q, %r
  return %t
}
"""


def test_round_trip() -> None:
    control = CONTROL.replace(
        "  %w: Tensor[N; T]? = read param w\n",
        "  %w: Tensor[N; T]? = read param w\n  %n: i64 = dim [N]\n  %i0: i32 = const 0\n"
        "  %one: i32 = const 1\n  %lim: i32 = const -7\n  %f: f32 = const 1e-06\n",
    )
    text = "program crate\n" + SOFTMAX + WRITE_AT + CAUSAL_MASK + control
    once = program_text(parse_program(text))
    assert program_text(parse_program(once)) == once
    for part in ("match_sub extra", "static loop", "parts[%i]", "[N / 2, 3]", "'T", "-7"):
        assert part in once
