"""Contractions: a grid that is a sum of products of accesses is an `einsum`.

Identity: the definition of the Einstein sum; factors without a summed index are multiplied in
afterwards (distributivity). Class: equivalent (the order of the sum is the backend's). Only sums
that contract two tensors are taken: `sum[h] x[s, h] * x[s, h]` stays a reduction of a product.
"""

from __future__ import annotations

from linnet.ir.bound import Instance
from linnet.ir.passes.tools import regions
from linnet.ir.program import (
    Binary,
    Cast,
    GBinary,
    GCast,
    GExpr,
    GRead,
    GReduce,
    Grid,
    Idx,
    Intrinsic,
    Op,
    Value,
)
from linnet.ir.types import FLOATS, shape_of, tensor


def contract(instance: Instance) -> Instance:
    """In place."""
    for region in list(regions(instance.body)):
        ops: list[Op] = []
        for op in region.ops:
            new = _einsum(op) if isinstance(op, Grid) else None
            for added in new or [op]:
                added.span = added.span or op.span
                ops.append(added)
        region.ops = ops
    return instance


def _factors(node: GExpr) -> list[GExpr]:
    if isinstance(node, GBinary) and node.op == "mul":
        return _factors(node.a) + _factors(node.b)
    return [node]


def _einsum(grid: Grid) -> list[Op] | None:
    total = grid.body
    outer_cast = None
    if isinstance(total, GCast) and total.x.dtype in FLOATS and total.dtype in FLOATS:
        outer_cast, total = total.dtype, total.x
    if not (isinstance(total, GReduce) and total.kind == "sum" and total.dtype in FLOATS):
        return None
    reads: list[tuple[GRead, bool]] = []
    scalars: list[Value] = []
    for factor in _factors(total.body):
        widened = isinstance(factor, GCast) and factor.dtype == total.accumulate
        inner = factor.x if isinstance(factor, GCast) and widened else factor
        if not isinstance(inner, GRead) or inner.dtype not in FLOATS:
            return None
        if not inner.axes:
            if widened:
                return None
            scalars.append(inner.value)
            continue
        if not all(isinstance(axis, Idx) for axis in inner.axes):
            return None
        if len(set(inner.axes)) != len(inner.axes):
            return None
        reads.append((inner, widened))
    if not _contracts([read for read, _ in reads], set(total.indices), set(grid.indices)):
        return None
    return _build(grid, total, reads, scalars, outer_cast)


def _contracts(reads: list[GRead], summed: set[Idx], outputs: set[Idx]) -> bool:
    if len(reads) < 2:
        return False
    sets = [set(read.axes) for read in reads]
    covered = set().union(*sets)
    if not (summed | outputs) <= covered or not all(s & summed for s in sets):
        return False
    return any(a - b for a in sets for b in sets)


def _build(
    grid: Grid,
    total: GReduce,
    reads: list[tuple[GRead, bool]],
    scalars: list[Value],
    outer_cast: str | None,
) -> list[Op]:
    ops: list[Op] = []
    labels: dict[Idx, str] = {}
    taken: set[str] = set()
    for index in (*grid.indices, *total.indices):
        name = index.name
        while name in taken:
            name += "_"
        taken.add(name)
        labels[index] = name
    args: list[Value] = []
    cast: dict[Value, Value] = {}
    for read, widened in reads:
        value = read.value
        if widened and read.dtype != total.accumulate:
            if value not in cast:
                wide = Value(tensor(shape_of(value.type), total.accumulate), value.name)
                ops.append(Cast([wide], None, value))
                cast[value] = wide
            value = cast[value]
        args.append(value)
    shape = shape_of(grid.result.type)
    attrs: dict[str, object] = {
        "inputs": tuple(tuple(labels[a] for a in read.axes) for read, _ in reads),  # type: ignore[index]
        "output": tuple(labels[i] for i in grid.indices),
        "accumulate": total.accumulate,
    }
    last = not scalars and outer_cast is None
    result = grid.result if last else Value(tensor(shape, total.dtype))
    ops.append(Intrinsic([result], None, "einsum", args, attrs))
    for position, scalar in enumerate(scalars):
        last = position == len(scalars) - 1 and outer_cast is None
        scaled = grid.result if last else Value(tensor(shape, total.dtype))
        ops.append(Binary([scaled], None, "mul", result, scalar))
        result = scaled
    if outer_cast is not None:
        ops.append(Cast([grid.result], None, result))
    return ops
