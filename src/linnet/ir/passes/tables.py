"""Rows of a table too large to keep are computed where they are read.

Identity: reading row `r` of an elementwise table is the table's formula at `r` (a gather commutes
with elementwise operations, and with concatenation along other axes; of `iota` it is the index).
Class: exact. So the cost and memory of a step do not grow with the extent of a rotary table.
"""

from __future__ import annotations

from linnet.dims import Dim
from linnet.ir.bound import Bound, Instance
from linnet.ir.passes.constants import closed_values
from linnet.ir.passes.index_notation import simplify_grids
from linnet.ir.passes.tools import Defs, definitions, regions
from linnet.ir.program import (
    Axis,
    Binary,
    Broadcast,
    Cast,
    Concat,
    GExpr,
    GRead,
    Grid,
    Idx,
    Iota,
    Keep,
    Op,
    Permute,
    Reshape,
    Select,
    Slice,
    Unary,
    Value,
    map_expr,
    walk_expr,
)
from linnet.ir.types import Shape, TensorType, Type, count, dtype_of, shape_of, tensor

KEPT = 1 << 20  # elements: a smaller table is computed once and gathered from
ONE, ZERO = Dim.const(1), Dim.const(0)


class _Stuck(Exception):
    """The table has an operation that a row cannot be taken through."""


def rows_of_tables(instance: Instance, bound: Bound) -> Instance:
    """In place."""
    defs = definitions(instance.body)
    closed = closed_values(instance.body, bound)
    changed = False
    for region in list(regions(instance.body)):
        ops: list[Op] = []
        for op in region.ops:
            if isinstance(op, Grid):
                read = _lookup(op, closed)
                if read is not None:
                    made: list[Op] = []
                    try:
                        op.body = _rows(read, defs, made)
                        ops.extend(made)
                        defs.update({r: m for m in made for r in m.results})
                        changed = True
                    except _Stuck:
                        pass
            ops.append(op)
        region.ops = ops
    return simplify_grids(instance) if changed else instance


def _lookup(grid: Grid, closed: set[Value]) -> GRead | None:
    """A grid that only reads a large constant table at one run-time index."""
    read = grid.body
    if not (isinstance(read, GRead) and read.value in closed):
        return None
    size = count(shape_of(read.value.type)).constant
    if size is None or size <= KEPT:
        return None
    return read if sum(isinstance(axis, GExpr) for axis in read.axes) == 1 else None


def _rows(read: GRead, defs: Defs, made: list[Op]) -> GExpr:
    """The same read of a table that has only the rows asked for, made by `made`."""
    axis = next(n for n, a in enumerate(read.axes) if isinstance(a, GExpr))
    index = read.axes[axis]
    assert isinstance(index, GExpr)
    used = {
        a
        for node in walk_expr(index)
        if isinstance(node, GRead)
        for a in node.axes
        if isinstance(a, Idx)
    }
    if len(used) > 1:
        raise _Stuck
    own = next(iter(used)) if used else Idx("row", ONE)
    assert isinstance(own.extent, Dim)
    rows = Value(tensor((own.extent,), index.dtype), "rows")
    made.append(Grid([rows], read.span, (own,), index))
    taken = _Taker(defs, made, rows, own.extent).take(read.value, axis)
    place: Axis = own if used else ZERO
    axes = (*read.axes[:axis], place, *read.axes[axis + 1 :])
    return GRead(taken, axes, read.dtype, read.span)


class _Taker:
    def __init__(self, defs: Defs, made: list[Op], rows: Value, length: Dim):
        self.defs = defs
        self.made = made
        self.rows = rows
        self.length = length
        self.done: dict[tuple[Value, int], Value] = {}

    def take(self, value: Value, axis: int) -> Value:
        """The value with only the rows wanted along an axis."""
        key = (value, axis)
        if key not in self.done:
            op = self.defs.get(value)
            new = None if op is None else self.op(op, axis)
            if new is None:
                raise _Stuck
            new.span = op.span if op else None
            self.made.append(new)
            self.done[key] = new.result
        return self.done[key]

    def result(self, old: Value, axis: int) -> list[Value]:
        shape: Shape = shape_of(old.type)
        return [Value(_with(old.type, (*shape[:axis], self.length, *shape[axis + 1 :])), old.name)]

    def aligned(self, operand: Value, whole: Value, axis: int) -> Value:
        """An operand of an elementwise operation, right-aligned with its result."""
        own = axis - (len(shape_of(whole.type)) - len(shape_of(operand.type)))
        if own < 0:
            return operand
        if shape_of(operand.type)[own] == ONE and shape_of(whole.type)[axis] != ONE:
            return operand
        return self.take(operand, own)

    def op(self, op: Op, axis: int) -> Op | None:
        match op:
            case Iota():
                return Cast(self.result(op.result, axis), None, self.rows)
            case Cast(x=x):
                taken = self.take(x, axis)
                return Cast(self.result(op.result, axis), None, taken)
            case Unary(op=name, x=x):
                taken = self.take(x, axis)
                return Unary(self.result(op.result, axis), None, name, taken)
            case Binary(op=name, a=a, b=b):
                pair = [self.aligned(v, op.result, axis) for v in (a, b)]
                return Binary(self.result(op.result, axis), None, name, *pair)
            case Select(condition=c, a=a, b=b):
                parts = [self.aligned(v, op.result, axis) for v in (c, a, b)]
                return Select(self.result(op.result, axis), None, *parts)
            case Broadcast(x=x):
                wide = self.aligned(x, op.result, axis)
                return Broadcast(self.result(op.result, axis), None, wide)
            case Concat(xs=xs, axis=along) if along != axis:
                taken_all = [self.take(x, axis) for x in xs]
                return Concat(self.result(op.result, axis), None, taken_all, along)
            case Permute(x=x, axes=axes):
                taken = self.take(x, axes[axis])
                return Permute(self.result(op.result, axis), None, taken, axes)
            case Reshape(x=x) if (
                shape_of(x.type)[: axis + 1] == shape_of(op.result.type)[: axis + 1]
            ):
                taken = self.take(x, axis)
                return Reshape(self.result(op.result, axis), None, taken)
            case Slice(x=x, items=items) if all(isinstance(i, Keep) for i in items[: axis + 1]):
                taken = self.take(x, axis)
                return Slice(self.result(op.result, axis), None, taken, items)
            case Grid():
                return self.grid(op, axis)
        return None

    def grid(self, op: Grid, axis: int) -> Grid:
        old = op.indices[axis]
        new = Idx(old.name, self.length)

        def change(node: GExpr) -> GExpr:
            if not isinstance(node, GRead) or old not in node.axes:
                return node
            if node.axes.count(old) > 1:
                raise _Stuck
            place = node.axes.index(old)
            axes = tuple(new if a is old else a for a in node.axes)
            return GRead(self.take(node.value, place), axes, node.dtype, node.span)

        body = map_expr(op.body, change)
        indices = tuple(new if i is old else i for i in op.indices)
        return Grid(self.result(op.result, axis), None, indices, body)


def _with(type: Type, shape: Shape) -> Type:
    assert isinstance(type, TensorType)
    return tensor(shape, dtype_of(type))
