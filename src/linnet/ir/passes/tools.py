"""What passes share: definitions, uses, replacement, structural keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from linnet.dims import Dim
from linnet.ir.bound import Bound, Instance
from linnet.ir.clone import Cloner
from linnet.ir.effects import walk_ops
from linnet.ir.program import (
    GApply,
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
    Op,
    Region,
    Value,
    walk_expr,
)
from linnet.ir.types import FLOATS

Defs = dict[Value, Op]


def copy_bound(bound: Bound) -> Bound:
    """The same program with bodies of its own, for passes to change in place."""
    functions = {id: copy_instance(f) for id, f in bound.functions.items()}
    constants = {key: copy_instance(f) for key, f in bound.constants.items()}
    return Bound(
        bound.program,
        bound.root,
        bound.kinds,
        functions,
        dict(bound.entries),
        constants,
        dict(bound.deferred),
    )


def copy_instance(instance: Instance) -> Instance:
    body = Cloner({}).region(instance.body)
    return Instance(
        instance.id,
        instance.name,
        instance.source,
        instance.kind,
        instance.dims,
        list(instance.params),
        instance.result,
        body,
        dict(instance.arguments),
        instance.reads,
        instance.writes,
    )


def definitions(region: Region) -> Defs:
    """Every value defined by an operation of the region, at any depth."""
    return {result: op for op in walk_ops(region) for result in op.results}


def regions(region: Region) -> Iterator[Region]:
    """The region and all those nested in it."""
    yield region
    for op in region.ops:
        for inner in op.regions():
            yield from regions(inner)


def use_counts(region: Region) -> Counter[Value]:
    counts: Counter[Value] = Counter()
    for part in regions(region):
        counts.update(part.results)
        for op in part.ops:
            counts.update(op.operands())
    return counts


class Replacer:
    """Collects replacements of values; chains are followed when they are applied."""

    def __init__(self) -> None:
        self.map: dict[Value, Value] = {}

    def __bool__(self) -> bool:
        return bool(self.map)

    def set(self, old: Value, new: Value) -> None:
        self.map[old] = new

    def get(self, value: Value) -> Value:
        new = self.map.get(value)
        if new is None:
            return value
        while (further := self.map.get(new)) is not None:
            new = further
        self.map[value] = new
        return new

    def apply(self, region: Region) -> None:
        if not self.map:
            return
        for part in regions(region):
            for op in part.ops:
                op.replace(self.get)
            part.results = [self.get(r) for r in part.results]


def free_values(region: Region) -> set[Value]:
    """Values that a region reads and does not define itself."""
    defined: set[Value] = set()
    used: set[Value] = set()
    for part in regions(region):
        defined.update(part.params)
        used.update(part.results)
        for op in part.ops:
            defined.update(op.results)
            used.update(op.operands())
    return used - defined


def inputs(op: Op) -> list[Value]:
    """All values that an operation reads from outside it, regions included."""
    found: dict[Value, None] = dict.fromkeys(op.operands())
    for region in op.regions():
        found.update(dict.fromkeys(sorted(free_values(region), key=lambda v: v.id)))
    return list(found)


def walk_grids(region: Region, change: Callable[[Grid], None]) -> None:
    for op in walk_ops(region):
        if isinstance(op, Grid):
            change(op)


def certain(node: GExpr) -> bool:
    """Whether nothing in an expression is read at an index of run time or divided."""
    return not any(
        (isinstance(part, GRead) and any(isinstance(axis, GExpr) for axis in part.axes))
        or (isinstance(part, GBinary) and part.op in ("div", "rem") and part.dtype not in FLOATS)
        for part in walk_expr(node)
    )


# --- keys of index notation -------------------------------------------------------------


def expr_key(node: GExpr, names: dict[Idx, object], value: Callable[[Value], object]) -> object:
    """A hashable structure, equal for expressions equal up to the names of indices.

    `names` says what the indices in scope are called; reductions number their own.
    """

    def axis_key(axis: object) -> object:
        if isinstance(axis, Idx):
            return names.get(axis, axis)
        if isinstance(axis, Dim):
            return axis
        assert isinstance(axis, GExpr)
        return expr_key(axis, names, value)

    match node:
        case GLit(literal, dtype):
            return ("lit", repr(literal), dtype)
        case GDim(dim, dtype):
            return ("dim", dim, dtype)
        case GRead(source, axes, dtype):
            return ("read", value(source), tuple(map(axis_key, axes)), dtype)
        case GUnary(op, x, dtype):
            return (op, expr_key(x, names, value), dtype)
        case GBinary(op, a, b, dtype):
            return (op, expr_key(a, names, value), expr_key(b, names, value), dtype)
        case GSelect(c, a, b, dtype, lazy):
            parts = tuple(expr_key(x, names, value) for x in (c, a, b))
            return ("select", parts, dtype, lazy)
        case GCast(x, dtype):
            return ("cast", expr_key(x, names, value), dtype)
        case GReduce(kind, indices, body, accumulate, dtype):
            inner = dict(names)
            for index in indices:
                inner[index] = ("bound", len(inner))
            extents = tuple(index.extent for index in indices)
            return (kind, extents, expr_key(body, inner, value), accumulate, dtype)
        case GApply(callee, generics, args, dtype):
            return (
                "apply",
                callee,
                generics,
                tuple(expr_key(a, names, value) for a in args),
                dtype,
            )
    raise AssertionError(node)


def grid_key(grid: Grid, value: Callable[[Value], object]) -> object:
    names: dict[Idx, object] = {index: ("out", n) for n, index in enumerate(grid.indices)}
    extents = tuple(index.extent for index in grid.indices)
    return (extents, expr_key(grid.body, names, value))


def rename_indices(node: GExpr, change: dict[Idx, object]) -> GExpr:
    """Put other axes (an index, a dimension or an expression) in the place of indices.

    Reductions keep their own indices, so the result shares them with `node`: it must take
    the place of `node`, or be used once.
    """

    def axis(old: object) -> object:
        if isinstance(old, Idx):
            return change.get(old, old)
        if isinstance(old, GExpr):
            return rename_indices(old, change)
        return old

    def go(node: GExpr) -> GExpr:
        match node:
            case GRead(value, axes, dtype, span):
                return GRead(value, tuple(axis(a) for a in axes), dtype, span)  # type: ignore[misc]
            case GUnary(op, x, dtype):
                return GUnary(op, go(x), dtype)
            case GCast(x, dtype):
                return GCast(go(x), dtype)
            case GBinary(op, a, b, dtype):
                return GBinary(op, go(a), go(b), dtype)
            case GSelect(c, a, b, dtype, lazy):
                return GSelect(go(c), go(a), go(b), dtype, lazy)
            case GReduce(kind, indices, body, accumulate, dtype, stated):
                return GReduce(kind, indices, go(body), accumulate, dtype, stated)
            case GApply(callee, generics, args, dtype):
                return GApply(callee, generics, tuple(map(go, args)), dtype)
        return node

    return go(node)
