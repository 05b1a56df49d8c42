"""Simplifying index notation: what a grid reads is written into it where that makes it plainer.

Identities: an element of `fill` is the scalar, of an elementwise operation the operation on
elements, of a grid its body at those indices; a comparison of an index with its extent is known;
a grid that only renames, slices or casts is that operation. Class: exact. Only integers and
bools are written into their readers (masks and index arithmetic): recomputing them is free.
"""

from __future__ import annotations

from linnet.dims import Dim, Facts
from linnet.ir.bound import Instance
from linnet.ir.passes import numbers
from linnet.ir.passes.linear import linear
from linnet.ir.passes.tools import Defs, Replacer, certain, definitions, regions, rename_indices
from linnet.ir.program import (
    At,
    Axis,
    Binary,
    Cast,
    Const,
    DimValue,
    Fill,
    GBinary,
    GCast,
    GDim,
    GExpr,
    GLit,
    GRead,
    GReduce,
    Grid,
    GSelect,
    GUnary,
    Idx,
    Iota,
    Keep,
    Op,
    Permute,
    Range,
    Reshape,
    Select,
    Slice,
    Unary,
    Value,
    map_expr,
    walk_expr,
)
from linnet.ir.types import FLOATS, dtype_of, shape_of

ZERO, ONE = Dim.const(0), Dim.const(1)
# Expressions may grow to this many nodes by writing a producer into them, and to four times as many
# by writing in what that reads.
LIMIT = 60


def simplify_grids(instance: Instance) -> Instance:
    """In place."""
    defs = definitions(instance.body)
    simplifier = GridSimplifier(defs, instance.facts())
    swap = Replacer()
    for region in list(regions(instance.body)):
        for position, op in enumerate(region.ops):
            op.replace(swap.get)
            if not isinstance(op, Grid):
                continue
            op.body = simplifier.expr(op.body)
            new = simplifier.whole(op)
            if isinstance(new, Value):
                swap.set(op.result, new)
            elif new is not None:
                new.span = op.span
                region.ops[position] = new
                defs[op.result] = new
    swap.apply(instance.body)
    return instance


class GridSimplifier:
    def __init__(self, defs: Defs, facts: Facts):
        self.defs = defs
        self.facts = facts
        self.followed: dict[tuple[Value, tuple[Axis, ...]], GExpr] = {}

    def expr(self, node: GExpr) -> GExpr:
        return map_expr(node, self.one)

    def one(self, node: GExpr) -> GExpr:
        match node:
            case GRead():
                return self.read(node)
            case GCast(x, dtype):
                return self.cast(node, x, dtype)
            case GUnary(op, x, dtype):
                number = _literal(x)
                value = None if number is None else numbers.unary(op, number, x.dtype)
                return node if value is None else GLit(value, dtype)
            case GBinary():
                return self.binary(node)
            case GSelect(c, a, b, _, lazy):
                known = _literal(c)
                if known is None or not (lazy or certain(b if known else a)):
                    return node  # both are computed, and the other one may fail
                return a if known else b
        return node

    # --- reads -------------------------------------------------------------------

    def read(self, node: GRead) -> GExpr:
        producer = self.defs.get(node.value)
        axes = node.axes
        match producer:
            case Const(value=value):
                return GLit(value, node.dtype)
            case DimValue(dim=dim):
                return GDim(dim, node.dtype)
            case Fill(x=x) if not any(isinstance(axis, GExpr) for axis in axes):
                # An index of run time is asked for all the same.
                return self.one(GRead(x, (), node.dtype, node.span))
            case Iota() if isinstance(axes[0], Dim):
                return GDim(axes[0], node.dtype)
        if node.dtype in FLOATS or any(isinstance(axis, GExpr) for axis in axes):
            return node
        # A value read twice by what is read twice, and so on, is followed once all the same.
        key = (node.value, axes)
        known = self.followed.get(key)
        if known is None:
            known = self.followed[key] = self.follow(producer, node)
        return known

    def follow(self, producer: Op | None, node: GRead) -> GExpr:
        new = self.producer(producer, node)
        if new is None or _nodes(new) > LIMIT:
            return node
        new = self.expr(new)
        return node if _nodes(new) > 4 * LIMIT else new

    def producer(self, producer: Op | None, node: GRead) -> GExpr | None:
        """The element read, as an expression over what its producer read."""

        def at(operand: Value) -> GExpr:
            return self.aligned(operand, node)

        match producer:
            case Cast(x=x) if dtype_of(x.type) not in FLOATS:
                return GCast(at(x), node.dtype)
            case Unary(op=op, x=x):
                return GUnary(op, at(x), node.dtype)
            case Binary(op=op, a=a, b=b):
                return GBinary(op, at(a), at(b), node.dtype)
            case Select(condition=c, a=a, b=b):
                return GSelect(at(c), at(a), at(b), node.dtype)
            case Permute(x=x, axes=axes):
                places: list[Axis] = [ZERO] * len(axes)
                for position, axis in enumerate(axes):
                    places[axis] = node.axes[position]
                return GRead(x, tuple(places), node.dtype, node.span)
            case Reshape(x=x):
                kept = _unit_axes(node, x)
                return None if kept is None else GRead(x, kept, node.dtype, node.span)
            case Slice(x=x, items=items):
                return self._through_slice(x, items, node)
            case Grid(indices=indices, body=body):
                if any(isinstance(part, GReduce) for part in walk_expr(body)):
                    return None
                return rename_indices(body, dict(zip(indices, node.axes, strict=True)))
        return None

    def aligned(self, operand: Value, node: GRead) -> GExpr:
        """An operand of an elementwise operation at the element that `node` reads."""
        sizes = shape_of(operand.type)
        axes = node.axes[len(node.axes) - len(sizes) :]
        own = shape_of(node.value.type)[len(node.axes) - len(sizes) :]
        placed = tuple(
            ZERO if size == ONE and full != ONE else axis
            for axis, size, full in zip(axes, sizes, own, strict=True)
        )
        return GRead(operand, placed, dtype_of(operand.type), node.span)

    def _through_slice(self, x: Value, items: tuple[object, ...], node: GRead) -> GExpr | None:
        axes = list(node.axes)
        placed: list[Axis] = []
        for item in items:
            if isinstance(item, Keep):
                placed.append(axes.pop(0))
            else:
                return None
        return GRead(x, tuple(placed), node.dtype, node.span)

    # --- operations ----------------------------------------------------------------

    def cast(self, node: GExpr, x: GExpr, dtype: str) -> GExpr:
        if x.dtype == dtype:
            return x
        if isinstance(x, GDim):
            if dtype in ("i32", "i64", "u32", "u64"):
                return GDim(x.dim, dtype)
            if x.dim.constant is not None:
                value = numbers.convert(x.dim.constant, dtype)
                return node if value is None else GLit(value, dtype)
        if isinstance(x, GLit):
            value = numbers.convert(x.value, dtype)
            return node if value is None else GLit(value, dtype)
        return node

    def binary(self, node: GBinary) -> GExpr:
        a, b = node.a, node.b
        x, y = _literal(a), _literal(b)
        if x is not None and y is not None:
            value = numbers.binary(node.op, x, y, a.dtype)
            if value is not None:
                return GLit(value, node.dtype)
        if node.op in ("and", "or") and node.dtype == "bool":
            for known, other in ((x, b), (y, a)):
                if known is not None and bool(known) == (node.op == "and"):
                    return other
                if known is not None and certain(other):
                    return GLit(bool(known), "bool")
        if node.op in ("add", "mul") and node.dtype in ("i32", "i64"):
            p, q = _dim(a), _dim(b)
            if p is not None and q is not None:
                return GDim(p + q if node.op == "add" else p * q, node.dtype)
            neutral = ZERO if node.op == "add" else ONE
            if p == neutral:
                return b
            if q == neutral:
                return a
        if node.op in ("lt", "le", "gt", "ge") and a.dtype in ("i32", "i64"):
            known_order = self.order(node.op, a, b)
            if known_order is not None:
                return GLit(known_order, "bool")
        return node

    def order(self, op: str, a: GExpr, b: GExpr) -> bool | None:
        """A comparison of integers decided by the ranges of indices, or None."""
        if op in ("gt", "ge"):
            a, b, op = b, a, {"gt": "lt", "ge": "le"}[op]
        gap = linear(b, self.defs).add(linear(a, self.defs), -1)  # a <= b: gap >= 0
        if gap.terms or not gap.indices or any(abs(c) != 1 for c in gap.indices.values()):
            return None
        least = most = gap.offset
        for index, coefficient in gap.indices.items():
            assert isinstance(index.extent, Dim)
            if coefficient > 0:
                most = most + index.extent - 1
            else:
                least = least - index.extent + 1
        floor = ONE if op == "lt" else ZERO
        if self.facts.holds(">=", least, floor):
            return True
        if self.facts.holds("<", most, floor):
            return False
        return None

    # --- whole grids -----------------------------------------------------------------

    def whole(self, grid: Grid) -> Value | Op | None:
        """The operation that a grid amounts to, or the value that it repeats."""
        body = grid.body
        if not grid.indices:
            return None
        match body:
            case GLit() | GDim():
                return None
            case GRead(value, ()):
                return Fill([grid.result], None, value)
            case GRead(value):
                return self.renamed(grid, body)
            case GCast(GRead(value) as inner) if inner.axes == grid.indices and shape_of(
                value.type
            ) == shape_of(grid.result.type):
                return Cast([grid.result], None, value)
        return None

    def renamed(self, grid: Grid, read: GRead) -> Value | Op | None:
        value, axes = read.value, read.axes
        if axes == grid.indices and value.type == grid.result.type:
            return value
        if all(isinstance(axis, Idx) for axis in axes):
            if len(axes) == len(grid.indices) and set(axes) == set(grid.indices):
                order = tuple(axes.index(i) for i in grid.indices)
                moved = tuple(shape_of(value.type)[a] for a in order)
                if moved == shape_of(grid.result.type):
                    return Permute([grid.result], None, value, order)
            return None
        return self.sliced(grid, read)

    def sliced(self, grid: Grid, read: GRead) -> Op | None:
        """A read at an offset from each output index in order is a slice."""
        extents = shape_of(read.value.type)
        if len(read.axes) - sum(isinstance(a, Dim) for a in read.axes) != len(grid.indices):
            return None
        items: list[Keep | Range | At] = []
        left = iter(grid.indices)
        for axis, extent in zip(read.axes, extents, strict=True):
            if isinstance(axis, Dim):
                items.append(At(axis))
                continue
            index = next(left)
            if axis is index and index.extent == extent:
                items.append(Keep())
                continue
            if not isinstance(axis, GExpr):
                return None
            place = linear(axis, self.defs)
            if place.terms or place.indices != {index: 1}:
                return None
            assert isinstance(index.extent, Dim) and isinstance(extent, Dim)
            stop = place.offset + index.extent
            if not self.facts.holds(">=", place.offset, ZERO):
                return None
            if not self.facts.holds("<=", stop, extent):
                return None
            items.append(Range(place.offset, stop))
        return Slice([grid.result], None, read.value, tuple(items))


def _nodes(node: GExpr) -> int:
    return sum(1 for _ in walk_expr(node))


def _literal(node: GExpr) -> numbers.Number | None:
    if isinstance(node, GLit):
        return node.value
    if isinstance(node, GDim) and node.dim.constant is not None:
        return numbers.convert(node.dim.constant, node.dtype)
    return None


def _dim(node: GExpr) -> Dim | None:
    if isinstance(node, GDim):
        return node.dim
    if isinstance(node, GLit) and not isinstance(node.value, float):
        return Dim.const(int(node.value))
    return None


def _unit_axes(node: GRead, x: Value) -> tuple[Axis, ...] | None:
    """The axes of `x` for an element of its reshape, where only axes of size 1 came or went."""
    inner = shape_of(x.type)
    outer = shape_of(node.value.type)
    rest = [(a, n) for a, n in zip(node.axes, outer, strict=True) if n != ONE]
    if [n for _, n in rest] != [n for n in inner if n != ONE]:
        return None
    left = iter(rest)
    return tuple(ZERO if n == ONE else next(left)[0] for n in inner)
