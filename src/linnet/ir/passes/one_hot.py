"""Sums that pick one element: a product with a one-hot vector is a gather.

Identity: `sum[e] select(e == i, v[e], 0)` is `v[i]` where `i` lies within the axis and 0 elsewhere.
Class: equivalent (a negative zero comes out as it is, not as `0 + -0`).
"""

from __future__ import annotations

from linnet.dims import Dim
from linnet.ir.bound import Instance
from linnet.ir.passes.linear import linear
from linnet.ir.passes.tools import Defs, definitions, rename_indices, walk_grids
from linnet.ir.program import (
    GBinary,
    GCast,
    GDim,
    GExpr,
    GLit,
    GRead,
    GReduce,
    Grid,
    GSelect,
    Idx,
    map_expr,
    walk_expr,
)


def find_one_hot(instance: Instance) -> Instance:
    """In place."""
    defs = definitions(instance.body)

    def change(grid: Grid) -> None:
        grid.body = map_expr(grid.body, lambda node: _gather(node, defs) or node)

    walk_grids(instance.body, change)
    return instance


def _gather(node: GExpr, defs: Defs) -> GExpr | None:
    if not (isinstance(node, GReduce) and node.kind == "sum" and len(node.indices) == 1):
        return None
    (entry,) = node.indices
    found = _picked(node.body)
    if found is None or not isinstance(entry.extent, Dim) or not entry.extent.constant:
        return None
    condition, value = found
    for own, place in ((condition.a, condition.b), (condition.b, condition.a)):
        if _is_index(own, entry, defs) and entry not in _indices(place):
            break
    else:
        return None
    if any(isinstance(part, GReduce) for part in walk_expr(value)):
        return None
    inside = GBinary(
        "and",
        GBinary("ge", place, GLit(0, place.dtype), "bool"),
        GBinary("lt", place, GDim(entry.extent, place.dtype), "bool"),
        "bool",
    )
    element = rename_indices(value, {entry: place})
    if element.dtype != node.dtype:
        return None
    return GSelect(inside, element, GLit(_zero(node.dtype), node.dtype), node.dtype, lazy=True)


def _picked(body: GExpr) -> tuple[GBinary, GExpr] | None:
    match body:
        case GSelect(GBinary("eq") as condition, value, GLit(zero)) if zero == 0:
            return condition, value
        case GBinary("mul", GCast(GBinary("eq") as condition), value):
            return condition, value
        case GBinary("mul", value, GCast(GBinary("eq") as condition)):
            return condition, value
    return None


def _is_index(node: GExpr, index: Idx, defs: Defs) -> bool:
    place = linear(node, defs)
    return not place.terms and place.offset == Dim.const(0) and place.indices == {index: 1}


def _indices(node: GExpr) -> set[Idx]:
    return {
        axis
        for part in walk_expr(node)
        if isinstance(part, GRead)
        for axis in part.axes
        if isinstance(axis, Idx)
    }


def _zero(dtype: str) -> int | float:
    return 0.0 if dtype in ("f16", "bf16", "f32", "f64") else 0
