"""Causal masks: a mask that compares key positions with a query's position is its offset.

Identity: `iota(K)[k] <= at + iota(Q)[q]` is `k <= q + at`. Class: exact. The result is the
intrinsic `causal_mask`, which attention reads as a length instead of a tensor; a reshape or
broadcast that adds axes to it, and an op whose whole body is such a mask, are one too.
"""

from __future__ import annotations

from linnet.dims import Dim
from linnet.ir.bound import Bound, Instance
from linnet.ir.passes.inline import expand
from linnet.ir.passes.linear import linear
from linnet.ir.passes.tools import Defs, Replacer, definitions, regions
from linnet.ir.program import (
    Axis,
    Broadcast,
    Call,
    GBinary,
    GExpr,
    GRead,
    Grid,
    Idx,
    Intrinsic,
    Op,
    Reshape,
    Value,
    walk_expr,
)
from linnet.ir.types import INTEGERS, shape_of, tensor

ONE = Dim.const(1)
FORMS = (("k",), ("q", "k"), ("b", "k"), ("b", "q", "k"))


def find_masks(instance: Instance, bound: Bound) -> Instance:
    """In place; callees must have been through this pass before."""
    defs = definitions(instance.body)
    swap = Replacer()
    for region in list(regions(instance.body)):
        ops: list[Op] = []
        for op in region.ops:
            op.replace(swap.get)
            before = len(ops)
            new = _recognize(op, defs, bound, ops)
            if new is None:
                ops.append(op)
            elif isinstance(new, Value):
                swap.set(op.result, new)
            else:
                new.span = op.span
                ops.append(new)
            for added in ops[before:]:
                for result in added.results:
                    defs[result] = added
        region.ops = ops
    swap.apply(instance.body)
    return instance


def _recognize(op: Op, defs: Defs, bound: Bound, ops: list[Op]) -> Op | Value | None:
    match op:
        case Grid():
            return _grid(op, defs, ops)
        case Reshape(x=x) | Broadcast(x=x):
            mask = defs.get(x)
            if isinstance(mask, Intrinsic) and mask.name == "causal_mask":
                return _shaped(op, mask)
        case Call(callee=callee, receiver=None):
            body = bound.functions[callee].body
            if (
                len(body.ops) == 1
                and isinstance(mask := body.ops[0], Intrinsic)
                and mask.name == "causal_mask"
                and body.results == mask.results
            ):
                (value,) = expand(bound.functions[callee], op.generics, op.args, ops)
                return value
    return None


def _grid(grid: Grid, defs: Defs, ops: list[Op]) -> Intrinsic | None:
    body = grid.body
    if not (
        isinstance(body, GBinary)
        and body.op in ("lt", "le", "gt", "ge")
        and body.a.dtype in INTEGERS
        and 1 <= len(grid.indices) <= 3
    ):
        return None
    low, high = (body.a, body.b) if body.op in ("lt", "le") else (body.b, body.a)
    gap = linear(high, defs).add(linear(low, defs), -1)  # the mask is `gap >= 0`
    if body.op in ("lt", "gt"):
        gap.offset = gap.offset - 1
    *outer, key = grid.indices
    if gap.indices.pop(key, 0) != -1 or len(gap.terms) > 1:
        return None
    query = outer[-1] if outer else None
    moves = query is not None and gap.indices.pop(query, 0)
    if gap.indices or moves not in (False, 0, 1):
        return None
    term: GExpr | None = None
    if gap.terms:
        term, coefficient = next(iter(gap.terms.values()))
        if coefficient != 1:
            return None
    used = set() if term is None else _indices_of(term)
    form = _form(outer, bool(moves), used)
    if form is None:
        return None
    args = [] if term is None else [_offset(term, outer[0] if used else None, ops)]
    attrs: dict[str, object] = {"axes": form, "offset": gap.offset}
    return Intrinsic([grid.result], None, "causal_mask", args, attrs)


def _form(outer: list[Idx], moves: bool, used: set[Idx]) -> tuple[str, ...] | None:
    """Which axes the mask has, given the indices before the key's and those the offset uses."""
    if not outer:
        return None if used else ("k",)
    if not used <= {outer[0]}:
        return None
    if len(outer) == 1:
        if moves:
            return None if used else ("q", "k")
        return ("q", "k") if not used and outer[0].extent == ONE else ("b", "k")
    if not moves and outer[1].extent != ONE:
        return None
    return ("b", "q", "k")


def _indices_of(node: GExpr) -> set[Idx]:
    return {
        axis
        for part in walk_expr(node)
        if isinstance(part, GRead)
        for axis in part.axes
        if isinstance(axis, Idx)
    }


def _offset(term: GExpr, row: Idx | None, ops: list[Op]) -> Value:
    """The run-time offset as a value: a scalar, or one a row."""
    axes: tuple[Axis, ...] = () if row is None else (row,)
    if isinstance(term, GRead) and term.axes == axes:
        extent = () if row is None else (row.extent,)
        if shape_of(term.value.type) == extent:
            return term.value
    shape = () if row is None else (row.extent,)
    made = Value(tensor(shape, term.dtype))  # type: ignore[arg-type]
    ops.append(Grid([made], None, axes, term))  # type: ignore[arg-type]
    return made


def _shaped(op: Op, mask: Intrinsic) -> Intrinsic | None:
    """The same mask with axes added in front of it or between."""
    old = mask.attrs["axes"]
    assert isinstance(old, tuple)
    rows = bool(mask.args) and bool(shape_of(mask.args[0].type))
    inner, outer = shape_of(mask.result.type), shape_of(op.result.type)
    sizes = dict(zip(old, inner, strict=True))
    for form in FORMS:
        if len(form) != len(outer) or not set(old) <= set(form) or (rows and "b" not in form):
            continue
        fits = True
        for axis, size in zip(form, outer, strict=True):
            if axis in sizes:
                fits = fits and sizes[axis] == size
            elif axis == "q" or isinstance(op, Reshape):
                fits = fits and size == ONE
        if fits:
            attrs = {**mask.attrs, "axes": form}
            return Intrinsic([op.result], None, "causal_mask", list(mask.args), attrs)
    return None
