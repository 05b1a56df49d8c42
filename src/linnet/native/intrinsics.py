"""The intrinsics that passes put in place of index notation, as steps, kernels or expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from linnet.dims import Dim
from linnet.ir import program as ir
from linnet.ir.types import dtype_of
from linnet.native.elements import BYTES, c_dim
from linnet.native.kernels import TYPES, WIDE, rows_of, shared, strides, weight_of
from linnet.native.node import (
    ONE,
    Causal,
    Comprehension,
    Counted,
    Node,
    Unsupported,
    volume,
)
from linnet.native.views import pointer, shape

if TYPE_CHECKING:
    from linnet.native.emit import Emitter
    from linnet.native.frame import Frame


def constant(e: Emitter, f: Frame, op: ir.Intrinsic) -> None:
    """Made once at the start of the entry, unless it costs nothing where it is used."""
    key = str(op.attrs["key"])
    dims = tuple(d.substitute(f.bind) for d in op.attrs["dims"])  # type: ignore[attr-defined]
    known = e.constants.get((key, dims))
    if known is None:
        instance = e.bound.constants[key]
        bind = dict(zip(instance.dims, dims, strict=True))
        known = e.at_start(lambda: settled(e, e.inline(instance, [], bind, None)))
        e.constants[key, dims] = known
    f.env[op.result] = known


def settled(e: Emitter, value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(settled(e, item) for item in value)
    if (
        isinstance(value, Node)
        and value.shape
        and value.cost > 2
        and not isinstance(value, Counted)
    ):
        return e.memory(value)
    return value


def copy(e: Emitter, f: Frame, op: ir.Intrinsic) -> None:
    source = e.node(f, op.args[0])
    made = e.new(source.shape, source.dtype)
    e.copy(source, made)
    f.env[op.result] = made


def causal_mask(e: Emitter, f: Frame, op: ir.Intrinsic) -> None:
    at = e.simple(e.node(f, op.args[0])) if op.args else None
    offset = op.attrs["offset"].substitute(f.bind)  # type: ignore[attr-defined]
    axes: tuple[str, ...] = op.attrs["axes"]  # type: ignore[assignment]
    f.env[op.result] = Causal(axes, at, offset, shape(f, op.result.type))


def floats(dtype: str) -> str:
    if dtype not in TYPES:
        raise Unsupported(f"order of {dtype}")
    return TYPES[dtype]


def top_k(e: Emitter, f: Frame, op: ir.Intrinsic) -> None:
    x = e.packed(e.node(f, op.args[0]))
    type = floats(x.dtype)
    k: Dim = op.attrs["k"].substitute(f.bind)  # type: ignore[attr-defined]
    first, second = op.results
    to = shape(f, first.type)
    values, indices = e.new(to, x.dtype), e.new(to, dtype_of(second.type))
    hazard = e.step([x.buffer], [values.buffer, indices.buffer])
    e.line(
        f"k_top_k(c, {hazard}, {type}, {pointer(x)}, {c_dim(volume(to[:-1]))},"
        f" {c_dim(x.shape[-1])}, {c_dim(k)}, {int(bool(op.attrs['descending']))},"
        f" {pointer(values)}, {pointer(indices)},"
        f" {WIDE[indices.dtype]});"
    )
    e.in_range.add(indices.buffer)
    f.env[first], f.env[second] = values, indices


def rank(e: Emitter, f: Frame, op: ir.Intrinsic) -> None:
    x = e.packed(e.node(f, op.args[0]))
    made = e.new(x.shape, dtype_of(op.result.type))
    hazard = e.step([x.buffer], [made.buffer])
    e.line(
        f"k_rank(c, {hazard}, {floats(x.dtype)}, {pointer(x)}, {c_dim(volume(x.shape[:-1]))},"
        f" {c_dim(x.shape[-1])}, {int(bool(op.attrs['descending']))}, {pointer(made)},"
        f" {BYTES[made.dtype]});"
    )
    e.in_range.add(made.buffer)
    f.env[op.result] = made


def take_along(e: Emitter, f: Frame, op: ir.Intrinsic) -> None:
    x, index = e.packed(e.node(f, op.args[0])), e.packed(e.node(f, op.args[1]))
    made = e.new(index.shape, x.dtype)
    hazard = e.step([x.buffer, index.buffer], [made.buffer])
    e.line(
        f"k_take(c, {hazard}, {BYTES[x.dtype]}, {pointer(x)}, {pointer(index)},"
        f" {WIDE[index.dtype]}, {c_dim(volume(index.shape[:-1]))}, {c_dim(x.shape[-1])},"
        f" {c_dim(index.shape[-1])}, {pointer(made)});"
    )
    f.env[op.result] = made


def softmax(e: Emitter, f: Frame, op: ir.Intrinsic) -> None:
    x = e.packed(e.node(f, op.args[0]))
    made = e.new(x.shape, x.dtype)
    hazard = e.step([x.buffer], [made.buffer])
    e.line(
        f"k_softmax(c, {hazard}, {floats(x.dtype)}, {pointer(x)}, {pointer(made)},"
        f" {c_dim(volume(x.shape[:-1]))}, {c_dim(x.shape[-1])});"
    )
    f.env[op.result] = made


def einsum(e: Emitter, f: Frame, op: ir.Intrinsic) -> None:
    """A matrix product by rows where it is one, else a loop nest."""
    inputs: Any = op.attrs["inputs"]
    output: Any = op.attrs["output"]
    accumulate = str(op.attrs["accumulate"])
    nodes = [e.node(f, value) for value in op.args]
    to = shape(f, op.result.type)
    dtype = dtype_of(op.result.type)
    if len(nodes) == 2 and nodes[0].dtype == nodes[1].dtype in TYPES and accumulate == "f32":
        for a, b, la, lb in (
            (nodes[0], nodes[1], *inputs),
            (nodes[1], nodes[0], *reversed(inputs)),
        ):
            if product_by_rows(e, f, op, a, b, la, lb, output, to, dtype):
                return
    extents: dict[str, Dim] = {}
    for node, labels in zip(nodes, inputs, strict=True):
        extents.update(zip(labels, node.shape, strict=True))
    outer = {label: ir.Idx(label, extents[label]) for label in output}
    inner = {label: ir.Idx(label, d) for label, d in extents.items() if label not in outer}
    index = {**outer, **inner}
    body: ir.GExpr | None = None
    read: dict[ir.Value, Node] = {}
    for value, node, labels in zip(op.args, nodes, inputs, strict=True):
        read[value] = e.memory(node)
        part: ir.GExpr = ir.GRead(value, tuple(index[label] for label in labels), node.dtype)
        if node.dtype != accumulate:
            part = ir.GCast(part, accumulate)
        body = part if body is None else ir.GBinary("mul", body, part, accumulate)
    assert body is not None
    if inner:
        body = ir.GReduce("sum", tuple(inner.values()), body, accumulate, dtype, True)
    elif dtype != accumulate:
        body = ir.GCast(body, dtype)
    grid = ir.Grid([op.result], op.span, tuple(outer.values()), body)
    e.define(f, op.result, Comprehension(grid, read, {}, to, dtype))


def product_by_rows(
    e: Emitter, f: Frame, op: ir.Intrinsic, x: Node, w: Node, lx: Any, lw: Any, output: Any,
    to: tuple[Dim, ...], dtype: str,
) -> bool:  # fmt: skip
    """`x[.., i] w[o, i]` into `[.., o]`."""
    if len(lw) != 2 or len(lx) < 1 or lx[-1] != lw[1] or tuple(output) != (*lx[:-1], lw[0]):
        return False
    if len(set(lx)) != len(lx) or lw[0] in lx or dtype not in TYPES:
        return False
    rows, n, width, step = rows_of(e, x)
    weight, text = weight_of(e, w)
    made = e.new(to, dtype)
    room, buffer = shared(e, n, width)
    hazard = e.step([rows.buffer, weight.buffer], [made.buffer, buffer])
    e.line(
        f"k_linear(c, {hazard}, {text}, {TYPES[rows.dtype]}, {pointer(rows)}, {c_dim(step)},"
        f" {pointer(made)}, {c_dim(to[-1])}, {TYPES[dtype]}, {c_dim(n)}, {c_dim(width)},"
        f" {c_dim(to[-1])}, NULL, {room});"
    )
    e.define(f, op.result, made)
    return True


def write(e: Emitter, f: Frame, op: ir.Intrinsic) -> None:
    name = str(op.attrs["state"])
    state = e.member(f, name)
    value = e.memory(e.node(f, op.args[0]))
    if value.strides[-1] != ONE and value.shape[-1] != ONE:
        value = e.packed(value)
    e.before_write(state.buffer)
    if state.buffer in value.buffers():
        fresh = e.new(value.shape, value.dtype)
        e.copy(value, fresh)
        value = fresh
    args = [e.node(f, a) for a in op.args[1:]]
    slots = positions = "NULL"
    at, wide, tokens = "0", 0, 0
    reads = [value.buffer]

    def vector(node: Node) -> str:
        nonlocal wide
        mem = e.packed(node)
        if mem.dtype not in WIDE:
            raise Unsupported(f"positions of {mem.dtype}")
        wide = WIDE[mem.dtype]
        reads.append(mem.buffer)
        return pointer(mem)

    target, first = pointer(state), "0"
    match op.name:
        case "write_at" | "write_span":
            at = e.force(args[0]).text
        case "write_rows":
            positions = vector(args[0])
        case "write_slots":
            slots, at = vector(args[0]), e.force(args[1]).text
        case "write_slot":
            first = f"(long){e.force(args[0]).text}"
            target = f"({target} + {first} * ({c_dim(state.strides[0])}))"
            at = e.force(args[1]).text
        case "write_tokens":
            slots, positions, tokens = vector(args[0]), vector(args[1]), 1
    m, heads, count, width = value.shape
    hazard = e.step(reads, [state.buffer])
    few = e.cache8(state)
    if few is not None:
        e.line(
            f"k_write8(c, {hazard}, {floats(state.dtype)}, {few}, {c_dim(state.shape[2])}, {first},"
            f" {pointer(value)}, {strides(value, 0, 1, 2)}, {c_dim(m)}, {c_dim(heads)},"
            f" {c_dim(count)}, {c_dim(width)}, {slots}, {positions}, {wide}, {at}, {tokens});"
        )
        return
    e.line(
        f"k_write(c, {hazard}, {BYTES[state.dtype]}, {target}, {strides(state, 0, 1, 2)},"
        f" {pointer(value)}, {strides(value, 0, 1, 2)}, {c_dim(m)}, {c_dim(heads)}, {c_dim(count)},"
        f" {c_dim(width)}, {slots}, {positions}, {wide}, {at}, {tokens});"
    )


Handler = Callable[["Emitter", "Frame", ir.Intrinsic], None]
INTRINSICS: dict[str, Handler] = {
    "constant": constant,
    "copy": copy,
    "causal_mask": causal_mask,
    "top_k": top_k,
    "rank": rank,
    "take_along": take_along,
    "softmax": softmax,
    "einsum": einsum,
    **dict.fromkeys(("write_at", "write_span", "write_rows"), write),
    **dict.fromkeys(("write_slots", "write_slot", "write_tokens"), write),
}  # fmt: skip
