"""How each intrinsic of `linnet.ir.intrinsics` is spelled in torch."""

from __future__ import annotations

from typing import Any

from linnet.dims import Dim
from linnet.ir import program as ir
from linnet.ir.types import ScalarType, dtype_of, shape_of
from linnet.torch import dtypes
from linnet.torch.block import attribute
from linnet.torch.emit import FunctionEmitter, Handler
from linnet.torch.emit_text import TORCH, literal, scalar_text
from linnet.torch.kernels import cache, order


def constant(f: FunctionEmitter, op: ir.Intrinsic) -> None:
    key, dims = op.attrs["key"], op.attrs.get("dims") or ()
    assert isinstance(key, str) and isinstance(dims, tuple)
    constants = f.module.constants
    if dims:
        texts = ", ".join(f.dim(dim) for dim in dims)
        f.define(op.result, f"C.at({key!r}, {texts})", op.span)
        return
    type = op.result.type
    if isinstance(type, ScalarType):
        value: Any = constants.value(key)
        value = value.item() if hasattr(value, "item") else value
        f.alias(op.result, literal(value, type.dtype))
        return
    f.alias(op.result, f"C.{constants.name(key)}")


def copy(f: FunctionEmitter, op: ir.Intrinsic) -> None:
    x = op.args[0]
    tensor = not isinstance(x.type, ScalarType)
    f.define(op.result, f"{f.ref(x)}.clone()" if tensor else f.ref(x), op.span)


def causal_mask(f: FunctionEmitter, op: ir.Intrinsic) -> None:
    """Nothing here: attention takes the position, and `materialize` makes the rest."""


def rank(f: FunctionEmitter, op: ir.Intrinsic) -> None:
    name = f.module.kernel(order.rank)
    dtype = TORCH[dtype_of(op.result.type)]
    largest = bool(op.attrs.get("descending", True))
    f.define(op.result, f"{name}({f.ref(op.args[0])}, {largest}, {dtype})", op.span)


def top_k(f: FunctionEmitter, op: ir.Intrinsic) -> None:
    name = f.module.kernel(order.top_k)
    k = op.attrs["k"]
    assert isinstance(k, Dim)
    largest = bool(op.attrs.get("descending", True))
    dtype = dtype_of(op.results[1].type)
    pair = f.temporary(f"{name}({f.ref(op.args[0])}, {f.dim(k)}, {largest})", "top")
    f.define(op.results[0], f"{pair}[0]", op.span)
    text = f"{pair}[1]"
    f.define(op.results[1], text if dtype == "i64" else f"{text}.to({TORCH[dtype]})")


def take_along(f: FunctionEmitter, op: ir.Intrinsic) -> None:
    x, at = op.args
    index = f.ref(at)
    if dtype_of(at.type) != "i64":
        index = f"{index}.long()"
    f.define(op.result, f"{f.ref(x)}.gather(-1, {index})", op.span)


def softmax(f: FunctionEmitter, op: ir.Intrinsic) -> None:
    f.define(op.result, f"torch.softmax({f.ref(op.args[0])}, -1)", op.span)


def einsum(f: FunctionEmitter, op: ir.Intrinsic) -> None:
    inputs, output = op.attrs["inputs"], op.attrs["output"]
    assert isinstance(inputs, tuple) and isinstance(output, tuple)
    accumulate, result = str(op.attrs["accumulate"]), dtype_of(op.result.type)
    xs = [f.ref(x) for x in op.args]
    types = [dtype_of(x.type) for x in op.args]
    linear = as_linear(inputs, output)
    if linear is not None and set(types) == {result} and result in dtypes.FLOATS:
        x, weight = (xs[i] for i in linear)
        if isinstance(op.result.type, ScalarType):
            f.define(op.result, f"({x} * {weight}).sum()", op.span)
        else:
            f.define(op.result, f"F.linear({x}, {weight})", op.span)
        return
    letters: dict[str, str] = {}
    for label in [*output, *(name for labels in inputs for name in labels)]:
        letters.setdefault(label, chr(ord("a") + len(letters)))
    left = ",".join("".join(letters[name] for name in labels) for labels in inputs)
    spec = f"{left}->{''.join(letters[name] for name in output)}"
    text = f"rt.einsum('{spec}', [{', '.join(xs)}], '{accumulate}', '{result}')"
    if isinstance(op.result.type, ScalarType):
        text = scalar_text(text, op.result.type)
    f.define(op.result, text, op.span)


def as_linear(
    inputs: tuple[tuple[str, ...], ...], output: tuple[str, ...]
) -> tuple[int, int] | None:
    """Which operand is `x` and which `weight` of `x [.., i]` times `weight [o, i]`."""
    if len(inputs) != 2:
        return None
    for x, weight in ((0, 1), (1, 0)):
        a, w = inputs[x], inputs[weight]
        if len(w) == 2 and len(a) >= 1 and a[-1] == w[1] and output == (*a[:-1], w[0]):
            if w[0] not in a and a[-1] not in output and len(set(a)) == len(a):
                return x, weight
    return None


def write(f: FunctionEmitter, op: ir.Intrinsic) -> None:
    table = cache.FUNCTIONAL if f.options.functional else cache.IN_PLACE
    function = table[op.name]
    name = f.module.kernel(function)
    state = f"self.{attribute(str(op.attrs['state']))}"
    args = ", ".join([state, *(checked(f, op, i) for i in range(len(op.args)))])
    f.line(f"{state} = {name}({args})" if f.options.functional else f"{name}({args})", op.span)


def checked(f: FunctionEmitter, op: ir.Intrinsic, position: int) -> str:
    """An argument of a write; positions that the entry does not cover are checked here."""
    from linnet.torch.kernels.table import uncovered

    text = f.ref(op.args[position])
    callee = f.module.bound.functions[str(op.attrs["callee"])]
    if position == 0 or not uncovered(callee, f):
        return text
    rows, _, span, _ = shape_of(callee.params[0][1])
    value = shape_of(callee.params[1][1])
    name, type = callee.params[position + 1]
    of_rows = name in ("slots", "slot", "rows")
    extent: Any = rows if of_rows else span
    if name == "at" and op.name in ("write_span", "write_slots", "write_slot"):
        extent = extent - value[2] + 1
    generics = op.attrs.get("generics") or ()
    assert isinstance(extent, Dim) and isinstance(generics, tuple)
    limit = f.dim(extent.substitute(dict(zip(callee.dims, generics, strict=True))))
    check = "at" if isinstance(type, ScalarType) else "index"
    text = f"rt.{check}({text}, {limit}, '{op.span}', '{name} of the cache')"
    if name == "slots":
        text = f"rt.distinct({text}, '{op.span}')"
    return text


INTRINSICS: dict[str, Handler] = {
    "constant": constant,
    "copy": copy,
    "causal_mask": causal_mask,
    "rank": rank,
    "top_k": top_k,
    "take_along": take_along,
    "softmax": softmax,
    "einsum": einsum,
    **dict.fromkeys(cache.IN_PLACE, write),
}
