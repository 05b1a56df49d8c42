"""What each pass finds, and what it must leave alone."""

from __future__ import annotations

import pytest

from linnet.dims import Dim
from linnet.ir.passes.pipeline import optimize
from linnet.ir.program import (
    Binary,
    Call,
    Const,
    GReduce,
    Grid,
    Intrinsic,
    Loop,
    Permute,
    ReadMember,
    Slice,
    StateWrite,
    walk_expr,
)

from .programs import CAUSAL_MASK, WRITE_AT, bind, checked, entry, intrinsics, ops, program

HEAD = "pub block crate::Root<N: Dim, K: Dim, T: Float = f32> {{\n  where N > 1\n  {members}\n{methods}}}\n"


def root(body: str, *parts: str, params: str = "", result: str, dims: str = "", members: str = "",
         numerics: str = "fast", n: int = 8, k: int = 3, extra: str = ""):  # fmt: skip
    """The optimized entry `go` of a block with this body."""
    methods = "  method go = crate::Root.go\n" + extra
    text = HEAD.format(members=members, methods=methods) + (
        f"pub entry crate::Root.go{dims}({params}) -> {result} in crate::Root {{\n{body}\n}}\n"
    )
    return entry(checked(bind(program(text, *parts), N=n, K=k), numerics), "go")


# --- masks ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("params", "body", "axes", "offset", "args"),
    [
        ("%at at: i32", "[s: N] le(%p[s]:i32, %at:i32):bool", ("k",), 0, 1),
        ("%at at: i32", "[s: N] lt(%p[s]:i32, %at:i32):bool", ("k",), -1, 1),
        ("%at at: i32", "[s: N] ge(%at:i32, %p[s]:i32):bool", ("k",), 0, 1),
        ("%at at: i32", "[q: K, s: N] le(%p[s]:i32, add(%at:i32, %q[q]:i32):i32):bool",
         ("q", "k"), 0, 1),
        ("%at at: i32", "[q: K, s: N] gt(add(%q[q]:i32, add(%at:i32, 2:i32):i32):i32, %p[s]:i32):bool",
         ("q", "k"), 1, 1),
        ("%at at: i32", "[q: K, s: N] le(add(%p[s]:i32, dim[K]:i32):i32, add(%q[q]:i32, dim[N]:i32):i32):bool",
         ("q", "k"), 5, 0),
        ("%at at: Tensor[5; i32]", "[b: 5, s: N] le(%p[s]:i32, %at[b]:i32):bool", ("b", "k"), 0, 1),
        ("%at at: Tensor[5; i32]", "[b: 5, q: K, s: N] le(%p[s]:i32, add(%at[b]:i32, %q[q]:i32):i32):bool",
         ("b", "q", "k"), 0, 1),
    ],
)  # fmt: skip
def test_masks(params: str, body: str, axes: tuple[str, ...], offset: int, args: int) -> None:
    sizes = {"k": "N", "q": "K", "b": "5"}
    shape = f"Tensor[{', '.join(sizes[a] for a in axes)}; bool]"
    text = f"""
  %p: Tensor[N; i32] = iota
  %q: Tensor[K; i32] = iota
  %m: {shape} = grid {body}
  return %m"""
    (mask,) = intrinsics(root(text, params=params, result=shape), "causal_mask")
    assert mask.attrs == {"axes": axes, "offset": Dim.const(offset)}
    assert len(mask.args) == args


@pytest.mark.parametrize(
    "body",
    [
        "[s: N] le(%at:i32, %p[s]:i32):bool",  # the keys after a position
        "[s: N] le(mul(%p[s]:i32, 2:i32):i32, %at:i32):bool",
        "[s: N] le(%p[s]:i32, mul(%at:i32, %at:i32):i32):bool",
    ],
)
def test_not_masks(body: str) -> None:
    text = f"""
  %p: Tensor[N; i32] = iota
  %m: Tensor[N; bool] = grid {body}
  return %m"""
    found = root(text, params="%at at: i32", result="Tensor[N; bool]")
    masks = intrinsics(found, "causal_mask")
    # A square of the position is an offset as good as any other; the others are no masks.
    assert len(masks) == (1 if "%at:i32, %at" in body else 0)


def test_mask_op_and_added_axes() -> None:
    text = """
  %m: Tensor[S, N; bool] = call std.nn.attention::causal_mask<S, N>()
  %b: Tensor[K, S, N; bool] = broadcast %m
  return %b"""
    found = root(text, CAUSAL_MASK, dims="<S: Dim>", params="", result="Tensor[K, S, N; bool]")
    (mask,) = intrinsics(found)
    assert mask.attrs["axes"] == ("b", "q", "k")
    assert mask.attrs["offset"] == Dim.const(8) - Dim.name("S")


# --- ranks -----------------------------------------------------------------------------------

TIES = "and(eq(%x[r, j]:T, %x[r, e]:T):bool, lt(%i[j]:i32, %i[e]:i32):bool):bool"
RANK = "[r: S, e: N] sum<i32!>[j: N](cast({}):i32):i32"


@pytest.mark.parametrize(
    ("condition", "descending"),
    [
        (f"or(gt(%x[r, j]:T, %x[r, e]:T):bool, {TIES}):bool", True),
        (f"or(lt(%x[r, e]:T, %x[r, j]:T):bool, {TIES}):bool", True),
        (f"or({TIES}, gt(%x[r, j]:T, %x[r, e]:T):bool):bool", True),
        (f"or(lt(%x[r, j]:T, %x[r, e]:T):bool, {TIES}):bool", False),
        ("select(lt(%i[j]:i32, %i[e]:i32):bool, ge(%x[r, j]:T, %x[r, e]:T):bool, "
         "gt(%x[r, j]:T, %x[r, e]:T):bool):bool", True),
        (f"or(gt(%x[r, j]:T, %x[r, e]:T):bool, {TIES.replace('[j]', '[q]').replace('[e]', '[j]').replace('[q]', '[e]')}):bool", None),
        (f"or(ge(%x[r, j]:T, %x[r, e]:T):bool, {TIES}):bool", None),
    ],
)  # fmt: skip
def test_ranks(condition: str, descending: bool | None) -> None:
    text = f"""
  %i: Tensor[N; i32] = iota
  %y: Tensor[S, N; i32] = grid {RANK.format(condition)}
  return %y"""
    found = root(text, dims="<S: Dim>", params="%x x: Tensor[S, N; T]", result="Tensor[S, N; i32]")
    got = [op.attrs["descending"] for op in intrinsics(found, "rank")]
    assert got == ([] if descending is None else [descending])


@pytest.mark.parametrize("k", [3, 8, 9])
def test_top_k_only_within_the_axis(k: int) -> None:
    text = f"""
  %i: Tensor[N; i32] = iota
  %p: Tensor[K; i32] = iota
  %y: Tensor[S, N; i32] = grid {RANK.format(f"or(gt(%x[r, j]:T, %x[r, e]:T):bool, {TIES}):bool")}
  %c: Tensor[S, K; i32] = grid [r: S, k: K] sum<i32!>[e: N](select(eq(%y[r, e]:i32, %p[k]:i32):bool, %i[e]:i32, 0:i32):i32):i32
  %v: Tensor[S, K; T] = grid [r: S, k: K] sum<T>[e: N](select(eq(%p[k]:i32, %y[r, e]:i32):bool, %x[r, e]:T, 0.0:T):T):T
  %w: Tensor[S, K; f32] = grid [r: S, k: K] sum<f32>[e: N](mul(cast(eq(%y[r, e]:i32, %p[k]:i32):bool):f32, %z[r, e]:f32):f32):f32
  %r: (Tensor[S, K; i32], Tensor[S, K; T], Tensor[S, K; f32]) = tuple %c, %v, %w
  return %r"""
    found = root(text, dims="<S: Dim>", params="%x x: Tensor[S, N; T], %z z: Tensor[S, N; f32]", k=k,
                 result="(Tensor[S, K; i32], Tensor[S, K; T], Tensor[S, K; f32])")  # fmt: skip
    assert len(intrinsics(found, "top_k")) == (1 if k <= 8 else 0)
    assert len(intrinsics(found, "take_along")) == (1 if k <= 8 else 0)
    assert bool(ops(found, Grid)) == (k > 8)


def test_exact_keeps_the_counting() -> None:
    text = f"""
  %i: Tensor[N; i32] = iota
  %y: Tensor[S, N; i32] = grid {RANK.format(f"or(gt(%x[r, j]:T, %x[r, e]:T):bool, {TIES}):bool")}
  return %y"""
    found = root(text, dims="<S: Dim>", params="%x x: Tensor[S, N; T]", result="Tensor[S, N; i32]",
                 numerics="exact")  # fmt: skip
    assert not intrinsics(found, "rank")


# --- states --------------------------------------------------------------------------------------

CACHE = "state cache: Tensor[1, 1, N, 2; T]"
READ = "  %old: Tensor[1, 1, N, 2; T] = read state cache\n"
WRITE = (
    READ
    + """  %new: Tensor[1, 1, N, 2; T] = call std.nn.cache::write_at<1, 1, N, 2, 'T>(%old, %v, %at)
  write cache %new
"""
)
VALUE = "%v v: Tensor[1, 1, 1, 2; T], %at at: i32"
WHOLE = "Tensor[1, 1, N, 2; T]"


def test_write_in_place() -> None:
    found = root(WRITE + "  return %at", WRITE_AT, params=VALUE, result="i32", members=CACHE)
    assert [op.name for op in intrinsics(found)] == ["write_at"]
    assert not ops(found, (Call, StateWrite, ReadMember))  # type: ignore[arg-type]


def test_an_older_value_is_copied_when_still_needed() -> None:
    text = WRITE + "  %d: Tensor[1, 1, N, 2; T] = sub %new, %old\n  return %d"
    found = root(text, WRITE_AT, params=VALUE, result=WHOLE, members=CACHE)
    kinds = [op.name if isinstance(op, Intrinsic) else type(op).__name__ for op in ops(found)]
    assert kinds == ["ReadMember", "copy", "write_at", "ReadMember", "Binary"]


def test_an_entry_never_gives_the_state_itself() -> None:
    found = root(WRITE + "  return %new", WRITE_AT, params=VALUE, result=WHOLE, members=CACHE)
    assert [op.name for op in intrinsics(found)] == ["write_at", "copy"]


def test_a_shift_of_a_state_within_itself_is_copied() -> None:
    text = (
        READ
        + """  %s: Tensor[1, 1, N - 1, 2; T] = slice %old [:, :, 1 : N, :]
  %f: Tensor[1, 1, N - 1, 2; T] = slice %old [:, :, 0 : N - 1, :]
  write half %s
  return %f"""
    )
    members = CACHE.replace("cache", "half").replace("N,", "N - 1,") + "\n  " + CACHE
    found = root(text, params="%at at: i32", result="Tensor[1, 1, N - 1, 2; T]", members=members)
    assert len(intrinsics(found, "copy")) == 1  # the result; `half` is another state
    text = (
        READ
        + """  %p: Tensor[1, 1, N, 2; T] = permute %old [1, 0, 2, 3]
  write cache %p
  return %at"""
    )
    found = root(text, params="%at at: i32", result="i32", members=CACHE)
    kinds = [op.name if isinstance(op, Intrinsic) else type(op).__name__ for op in ops(found)]
    assert kinds == ["ReadMember", "Permute", "copy", "StateWrite"]


def test_reads_are_shared_only_between_writes() -> None:
    text = (
        READ
        + """  %a: Tensor[1, 1, N, 2; T] = read state cache
  %x: Tensor[1, 1, N, 2; T] = add %old, %a
  write cache %x
  %b: Tensor[1, 1, N, 2; T] = read state cache
  %y: Tensor[1, 1, N, 2; T] = mul %b, %b
  return %y"""
    )
    found = root(text, params="%at at: i32", result=WHOLE, members=CACHE)
    kinds = [type(op).__name__ for op in ops(found)]
    assert kinds == ["ReadMember", "Binary", "StateWrite", "ReadMember", "Binary"]


# --- the rest ----------------------------------------------------------------------------------


def test_constants_are_shared_by_structure() -> None:
    text = """
  %i: Tensor[S; i64] = iota
  %j: Tensor[K; i64] = iota
  %t: Tensor[S, K; f32] = grid [s: S, k: K] cos(mul(cast(%i[s]:i64):f32, cast(%j[k]:i64):f32):f32):f32
  %y: Tensor[S, K; f32] = mul %x, %t
  return %y"""
    other = text.replace("S", "M")
    extra = "  method also = crate::Root.also\n"
    also = f"pub entry crate::Root.also<M: Dim>(%x x: Tensor[M, K; f32]) -> Tensor[M, K; f32] in crate::Root {{{other}\n}}\n"
    text_of = HEAD.format(members="", methods="  method go = crate::Root.go\n" + extra) + (
        "pub entry crate::Root.go<S: Dim>(%x x: Tensor[S, K; f32]) -> Tensor[S, K; f32] in crate::Root"
        f" {{{text}\n}}\n"
    )
    bound = checked(bind(program(text_of, also), N=2, K=3))
    assert len(bound.constants) == 1
    for name in ("go", "also"):
        (use,) = intrinsics(entry(bound, name), "constant")
        assert use.attrs["dims"] == (Dim.name("S" if name == "go" else "M"),)


def test_folding() -> None:
    text = """
  %a: i64 = dim [N]
  %b: f32 = cast %a
  %c: f32 = rsqrt %b
  %t: (f32, f32) = tuple %b, %c
  %d: f32 = get %t 1
  %y: Tensor[K; f32] = mul %x, %d
  %z: Tensor[1, K; f32] = reshape %y
  %w: Tensor[K; f32] = reshape %z
  return %w"""
    found = root(text, params="%x x: Tensor[K; f32]", result="Tensor[K; f32]", n=16)
    assert [type(op) for op in ops(found)] == [Const, Binary]
    (const,) = ops(found, Const)
    assert const.value == 0.25  # type: ignore[attr-defined]


def test_grids_that_only_move() -> None:
    text = """
  %i: Tensor[3; i32] = iota
  %s: i32 = dim [2]
  %y: Tensor[K, N; f32] = grid [k: K, n: N] %x[n, k]:f32
  %z: Tensor[3, N; f32] = grid [j: 3, n: N] %w[(cast(add(%s:i32, %i[j]:i32):i32):i64), n]:f32
  %r: (Tensor[K, N; f32], Tensor[3, N; f32]) = tuple %y, %z
  return %r"""
    found = root(text, params="%x x: Tensor[N, K; f32], %w w: Tensor[5, N; f32]",
                 result="(Tensor[K, N; f32], Tensor[3, N; f32])")  # fmt: skip
    assert [type(op) for op in ops(found)][:2] == [Permute, Slice]


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("[m: S, n: N] sum<f32>[k: K](mul(%a[m, k]:f32, %b[k, n]:f32):f32):f32", True),
        (
            "[m: S, n: N] sum<f32>[k: K](mul(%a[m, k]:f32, mul(%s:f32, %b[k, n]:f32):f32):f32):f32",
            True,
        ),
        ("[m: S, n: N] sum<f32>[k: K](mul(%a[m, k]:f32, %a[m, k]:f32):f32):f32", False),
        ("[m: S, n: N] max<f32>[k: K](mul(%a[m, k]:f32, %b[k, n]:f32):f32):f32", False),
    ],
)
def test_contractions(body: str, found: bool) -> None:
    shape = "Tensor[S, N; f32]"
    text = f"\n  %y: {shape} = grid {body}\n  return %y"
    params = "%a a: Tensor[S, K; f32], %b b: Tensor[K, N; f32], %s s: f32"
    instance = root(text, dims="<S: Dim>", params=params, result=shape)
    assert bool(intrinsics(instance, "einsum")) == found
    assert bool(ops(instance, Grid)) != found


def test_invariants_leave_methods_and_loops() -> None:
    text = """
pub block crate::Leaf<N: Dim> {
  param w: Tensor[N; f32]
  method step = crate::Leaf.step
}
fn crate::Leaf.step<S: Dim>(%x x: Tensor[S, N; f32], %at at: i32) -> Tensor[S, N; f32] in crate::Leaf {
  %i: Tensor[S; i32] = iota
  %j: Tensor[N; i32] = iota
  %row: Tensor[S, N; f32] = grid [s: S, n: N] cos(mul(cast(add(%at:i32, %i[s]:i32):i32):f32, cast(%j[n]:i32):f32):f32):f32
  %w: Tensor[N; f32] = read param w
  %y: Tensor[S, N; f32] = grid [s: S, n: N] add(mul(%row[s, n]:f32, %w[n]:f32):f32, %x[s, n]:f32):f32
  return %y
}
pub block crate::Root<N: Dim, K: Dim> {
  sub a: [crate::Leaf<N>; K]
  sub b: crate::Leaf<N>
  method go = crate::Root.go
}
pub entry crate::Root.go<S: Dim>(%x x: Tensor[S, N; f32], %at at: i32) -> Tensor[S, N; f32] in crate::Root {
  %y: Tensor[S, N; f32] = static loop [0] to [K] (%x) {
    params %i: i64, %h: Tensor[S, N; f32]
    %2: Tensor[S, N; f32] = call crate::Leaf.step<S>(%h, %at) on a[%i]
    yield %2
  }
  %z: Tensor[S, N; f32] = call crate::Leaf.step<S>(%y, %at) on b
  return %z
}
"""
    bound = bind(program(text), N=4, K=3)
    done = checked(bound)
    go = entry(done, "go")
    kinds = [op.name if isinstance(op, Intrinsic) else type(op).__name__ for op in go.body.ops]
    assert kinds == ["constant", "constant", "Grid", "Loop", "Call"]
    step = done.functions[ops(go, Call)[0].callee]  # type: ignore[attr-defined]
    assert [name for name, _ in step.params] == ["x", "at", "row"]
    assert len(ops(step, Grid)) == 1
    alone = optimize(bound, across_calls=False)
    assert [type(op) for op in entry(alone, "go").body.ops] == [Loop, Call]
    none = checked(bind(program(text), N=4, K=0))
    assert [type(op) for op in entry(none, "go").body.ops][-1] is Call


def test_rows_of_a_large_table() -> None:
    text = """
  %i: Tensor[N; i64] = iota
  %j: Tensor[K; i64] = iota
  %a: Tensor[N, K; f32] = grid [s: N, k: K] mul(cast(%i[s]:i64):f32, cast(%j[k]:i64):f32):f32
  %c: Tensor[N, 2 * K; f32] = concat %a, %a axis 1
  %t: Tensor[N, 2 * K; f32] = cos %c
  %y: Tensor[S, 2 * K; f32] = grid [s: S, d: 2 * K] %t[(cast(%p[s]:i32):i64), d]:f32
  return %y"""
    for n in (1 << 10, 1 << 20):
        found = root(text, dims="<S: Dim>", params="%p p: Tensor[S; i32]", n=n, k=3,
                     result="Tensor[S, 2 * K; f32]")  # fmt: skip
        shapes = [str(r.type) for op in ops(found) for r in op.results]
        assert any(str(n) in shape for shape in shapes) == (n < 1 << 20)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ("select(eq(%i[e]:i32, %p[s]:i32):bool, %x[e, k]:f32, 0.0:f32):f32", True),
        ("mul(cast(eq(%p[s]:i32, %i[e]:i32):bool):f32, %x[e, k]:f32):f32", True),
        ("select(eq(%i[e]:i32, %p[s]:i32):bool, %x[e, k]:f32, 1.0:f32):f32", False),
        ("select(eq(%i[e]:i32, %q[e]:i32):bool, %x[e, k]:f32, 0.0:f32):f32", False),
        ("select(lt(%i[e]:i32, %p[s]:i32):bool, %x[e, k]:f32, 0.0:f32):f32", False),
    ],
)
def test_one_hot_sums(body: str, found: bool) -> None:
    text = f"""
  %i: Tensor[N; i32] = iota
  %y: Tensor[S, K; f32] = grid [s: S, k: K] sum<f32>[e: N]({body}):f32
  %z: Tensor[S, K; f32] = grid [s: S, k: K] add(%y[s, k]:f32, cast(%p[s]:i32):f32):f32
  return %z"""
    params = "%x x: Tensor[N, K; f32], %p p: Tensor[S; i32], %q q: Tensor[N; i32]"
    instance = root(text, dims="<S: Dim>", params=params, result="Tensor[S, K; f32]")
    sums = [n for op in ops(instance, Grid) for n in walk_expr(op.body)]  # type: ignore[attr-defined]
    assert any(isinstance(n, GReduce) for n in sums) != found
