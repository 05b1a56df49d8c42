"""Calls of the standard library, most of which backends have kernels for."""

from __future__ import annotations

from differences.statement import Statement
from differences.value import FLOATS, INTEGERS, NUMERIC, Value
from differences.writer import Writer

IMPORTS = """
use std.nn.activations::{gelu, gelu_erf, relu, sigmoid, silu}
use std.nn.softmax::{softmax}
use std.nn.linear::{linear}
use std.nn.norm::{layer_norm, rms_norm}
use std.nn.decoding::{argmax, sort, top_k}
use std.nn.embedding::{embedding}
use std.nn.loss::{log_softmax}
use std.nn.attention::{causal_mask, grouped_attention, grouped_attention_rows}
use std.nn.cache::{write_at, write_rows, write_span}
use std.nn.moe::{combine_experts, linear_experts, linear_experts_shared}
use std.nn.rope::{rope}
use std.nn.recurrent::{causal_conv, gated_delta_rule}
use std.linalg::{batched_matmul, dot, matmul, outer}
use std.random
"""


def _last(w: Writer, x: Value) -> bool:
    return not (w.rows and len(x.dims) == 1 and x.dims[0] == "B")


def _float(w: Writer) -> Value | None:
    return w.tensor(lambda v: v.dtype in ("f32", "bf16", "f16") and _last(w, v))


def _made(w: Writer, text: str, dtype: str, dims: tuple[str, ...], exact: bool = False) -> bool:
    return w.let(text, dtype, dims, exact) is not None


def _shared(w: Writer, dtype: str, dims: tuple[str, ...]) -> str:
    """A tensor of that type that no row has of its own: a weight."""
    found = w.pick(lambda v: v.dtype == dtype and v.dims == dims)
    if found is not None:
        return found.name
    name = w.fresh("w")
    indices = [w.fresh("j") for _ in dims]
    number = " + ".join(
        f"iota<f32>({d})[{i}] * {k}.0" for k, (d, i) in enumerate(zip(dims, indices), 1)
    )
    text = f"cast<{dtype}>(sin(({number}) * 0.73))"
    w.statements.append(
        Statement(
            f"let {name}[{', '.join(indices)}] = {text}", (name,),
            types={name: Value(name, dtype, dims).type},
        )
    )  # fmt: skip
    w.pool.append(Value(name, dtype, dims, not w.close))
    return name


def activation(w: Writer) -> bool:
    x = _float(w)
    if x is None:
        return False
    return _made(
        w, f"{w.one(('gelu', 'gelu_erf', 'relu', 'sigmoid', 'silu'))}({x.name})", x.dtype, x.dims
    )


def last_axis(w: Writer) -> bool:
    x = _float(w)
    if x is None:
        return False
    op = w.one(("softmax", "softmax", "log_softmax", "rms_norm", "layer_norm"))
    if op == "log_softmax":
        return _made(w, f"log_softmax({x.name})", "f32", x.dims)
    if op == "softmax":
        return _made(w, f"softmax({x.name})", x.dtype, x.dims)
    weight = _shared(w, x.dtype, x.dims[-1:])
    extra = ""
    if op == "layer_norm" and w.chance(0.5):
        extra = f", some({_shared(w, x.dtype, x.dims[-1:])})"
    elif w.chance(0.3):
        extra = ", eps = 1e-3"
    return _made(w, f"{op}({x.name}, {weight}{extra})", x.dtype, x.dims)


def projection(w: Writer) -> bool:
    x = _float(w)
    if x is None:
        return False
    out = w.any_dim()
    weight = _shared(w, x.dtype, (out, x.dims[-1]))
    extra = f", some({_shared(w, x.dtype, (out,))})" if w.chance(0.3) else ""
    return _made(w, f"linear({x.name}, {weight}{extra})", x.dtype, (*x.dims[:-1], out))


def algebra(w: Writer) -> bool:
    x = w.tensor(lambda v: v.dtype in NUMERIC and len(v.dims) == 2 and not w.batched(v))
    if x is None:
        return False
    exact = x.exact and x.dtype not in FLOATS
    y = w.tensor(lambda v: v.dtype == x.dtype and len(v.dims) == 2 and v.dims[0] == x.dims[1])
    if y is not None and not w.rows:
        return _made(
            w, f"matmul({x.name}, {y.name})", x.dtype, (x.dims[0], y.dims[1]), exact and y.exact
        )
    text = (
        f"dot({x.name}[0], {x.name}[0])"
        if w.floor(x.dims[0])
        else f"outer({x.name}[:, 0], {x.name}[:, 0])"
    )
    if text.startswith("dot"):
        return _made(w, text, x.dtype, (), exact)
    return w.floor(x.dims[1]) > 0 and _made(w, text, x.dtype, (x.dims[0],) * 2, exact)


def attend(w: Writer) -> bool:
    """Queries, keys and values cut out of one tensor, with a mask by position or none."""
    if w.rows:
        x = w.tensor(lambda v: v.dtype in ("f32", "bf16") and len(v.dims) == 3 and w.batched(v))
        if x is None:
            return False
        b, s, d = x.dims
    else:
        x = w.tensor(lambda v: v.dtype in ("f32", "bf16") and len(v.dims) == 2)
        if x is None:
            return False
        b, (s, d) = "1", x.dims
    if s.isdigit() and d.isdigit() and int(s) * int(d) == 0:
        return False
    q, k, v = w.fresh("q"), w.fresh("k"), w.fresh("h")
    heads, keys = w.one((("2", "1"), ("2", "2"), ("4", "2"), ("1", "1")))
    i, j, n, m = (w.fresh("j") for _ in range(4))
    read = f"{x.name}[{i}, {n}, {m}]" if w.rows else f"{x.name}[{n}, {m}]"
    first = "" if w.rows else f" + 0.0 * cast<{x.dtype}>(iota<f32>(1)[{i}])"
    for name, count, scale in ((q, heads, "1.0"), (k, keys, "0.5"), (v, keys, "-1.0")):
        body = f"{read} * {scale} + cast<{x.dtype}>(iota<f32>({count})[{j}]){first}"
        w.statements.append(
            Statement(f"let {name}[{i}, {j}, {n}, {m}] = {body}", (name,),
                      types={name: f"Tensor[{b}, {count}, {s}, {d}; {x.dtype}]"})
        )  # fmt: skip
    mask = w.one(("", f", some(causal_mask<{s}, {s}>())"))
    return _made(w, f"grouped_attention({q}, {k}, {v}, 0.4{mask})", x.dtype, (b, heads, s, d))


def experts(w: Writer) -> bool:
    x = w.tensor(lambda v: v.dtype in ("f32", "bf16") and len(v.dims) == 2 and _last(w, v))
    if x is None:
        return False
    r, n = x.dims
    e, out = w.one(("2", "3")), w.one(("1", "4", "5"))
    weight = _shared(w, x.dtype, (e, out, n))
    if any(v.name == weight and v.dims != (e, out, n) for v in w.pool):
        return False
    chosen = w.fresh("c")
    i, j = w.fresh("j"), w.fresh("j")
    number = f"iota<i64>({r})[{i}] + " if not w.rows else ""
    # Without rows of their own, the choice is the same for all of them.
    text = (
        f"abs(({number}iota<i64>(2)[{j}] + cast<i64>({x.name}[{i}, 0] != {x.name}[{i}, 0])) % {e})"
    )
    if not w.floor(n):
        return False
    w.statements.append(
        Statement(
            f"let {chosen}[{i}, {j}] = {text}", (chosen,), types={chosen: f"Tensor[{r}, 2; i64]"}
        )
    )
    return _made(w, f"linear_experts_shared({x.name}, {weight}, {chosen})", x.dtype, (r, "2", out))


def convolve(w: Writer) -> bool:
    x = w.tensor(lambda v: v.dtype in ("f32", "bf16") and len(v.dims) == 3)
    if x is None or w.floor(x.dims[1]) == 0:
        return False
    b, s, c = x.dims
    width = w.one(("2", "3", "4"))
    history = f"fill<{x.dtype}>([{b}, {int(width) - 1}, {c}], 0.5)"
    taps = _shared(w, x.dtype, (c, width))
    return _made(w, f"causal_conv({x.name}, {history}, {taps})", "f32", (b, s, c))


PRODUCTIONS = (
    activation,
    last_axis,
    last_axis,
    projection,
    projection,
    algebra,
    attend,
    experts,
    convolve,
)


# --- Those that give the same bits everywhere -------------------------------------------------


def order(w: Writer) -> bool:
    # Only numbers have an order: of what is none the body counts whatever compares.
    x = w.tensor(lambda v: v.dtype in INTEGERS and v.exact and _last(w, v))
    y = w.tensor(lambda v: v.dtype in FLOATS and v.exact and _last(w, v))
    if y is not None and w.chance(0.5):
        x = w.let(f"select({y.name} == {y.name}, {y.name}, 0.0)", y.dtype, y.dims)
    if x is None:
        return False
    op = w.one(("argmax", "sort", "top_k"))
    if op == "argmax":
        if w.floor(x.dims[-1]) == 0:
            return False
        return _made(w, f"argmax({x.name})", "i32", x.dims[:-1], True)
    k = x.dims[-1]
    head = f"sort({x.name})"
    if op == "top_k":
        floor = w.floor(x.dims[-1])
        k = str(w.random.randint(0, min(floor, 4)))
        head = f"top_k<{k}>({x.name})"
    dims = (*x.dims[:-1], k)
    a, b = w.fresh(), w.fresh()
    w.statements.append(
        Statement(f"let ({a}, {b}) = {head}", (a, b),
                  types={a: Value(a, x.dtype, dims).type, b: Value(b, "i64", dims).type})
    )  # fmt: skip
    w.pool += [Value(a, x.dtype, dims, True), Value(b, "i64", dims, True)]
    return True


def look_up(w: Writer) -> bool:
    table = w.tensor(lambda v: v.dtype in FLOATS and len(v.dims) == 2 and not w.batched(v))
    ids = w.tensor(lambda v: v.dtype == "i32")
    if table is None or ids is None or w.floor(table.dims[0]) == 0:
        return False
    text = ids.name if w.chance(0.15) else f"min(max({ids.name}, 0), {table.dims[0]} - 1)"
    return _made(
        w, f"embedding({text}, {table.name})", table.dtype, (*ids.dims, table.dims[1]), table.exact
    )


def numbers(w: Writer) -> bool:
    if w.rows:
        return False
    dim = w.any_dim()
    seed = w.pick(lambda v: v.dtype == "i32" and not v.dims)
    key = f"random.fold_in(fill<i64>([2], {w.random.randint(0, 2**31)}), {seed.name if seed else '7'})"
    if w.chance(0.5):
        return _made(w, f"random.bits<{dim}>({key})", "i64", (dim,), True)
    return _made(w, f"random.uniform<{dim}, f32>({key})", "f32", (dim,), not w.close)


def store(w: Writer) -> bool:
    """A span of a cache replaced, at a place read at run time."""
    x = w.tensor(lambda v: v.dtype in ("f32", "bf16", "f16") and len(v.dims) == 2)
    at = w.pick(lambda v: v.dtype == "i32" and not v.dims)
    if x is None or at is None or w.rows or not w.floor(x.dims[0]):
        return False
    n, d = x.dims
    cache = f"fill<{x.dtype}>([1, 1, 6, {d}], 0.25)"
    value = f"reshape({x.name}, [1, 1, {n}, {d}])"
    place = at.name if w.chance(0.2) else f"min(max({at.name}, 0), 6 - {n})"
    return _made(w, f"write_span({cache}, {value}, {place})", x.dtype, ("1", "1", "6", d), x.exact)


EXACT = (order, look_up, numbers, store)
