"""What a call of an entry computes: the operations of its products with weights.

A product and its addition are two operations. Counted are sums of products in index notation
and the ops that stand for such sums; attention's own scores, recurrences and elementwise work
are not: on usual prompts they are a few percent, and the limit that a machine sets to a prompt is
that of the products with weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from linnet.dims import Dim
from linnet.ir.bound import Bound, Instance
from linnet.ir.program import (
    Call,
    GBinary,
    GExpr,
    GReduce,
    Grid,
    Idx,
    Loop,
    Op,
    Region,
    children,
)

# Modules of the standard library whose ops are products with weights; its other ops count nothing.
COUNTED = ("std.nn.linear", "std.nn.moe", "std.nn.mlp", "std.nn.conv", "std.linalg", "std.nn.loss")

Sizes = Mapping[str, int]


def product_operations(bound: Bound, entry: str, sizes: Sizes) -> int:
    """Operations of one call of an entry whose own dimensions are `sizes`.

    `bound` is a program as `specialize` gives it, before any pass. Of branches the one with most
    counts; the body of a `while` counts once.
    """
    return _Walk(bound).function(bound.functions[bound.entries[entry]], dict(sizes))


class _Walk:
    def __init__(self, bound: Bound):
        self.bound = bound
        self.known: dict[tuple[str, tuple[tuple[str, int], ...]], int] = {}

    def function(self, instance: Instance, sizes: Sizes) -> int:
        module = instance.source.id.partition("::")[0]
        if module.startswith("std.") and instance.source.kind == "op" and module not in COUNTED:
            return 0
        key = (instance.id, tuple(sorted(sizes.items())))
        if key not in self.known:
            self.known[key] = self.region(instance.body, sizes)
        return self.known[key]

    def region(self, region: Region, sizes: Sizes) -> int:
        return sum(self.op(op, sizes) for op in region.ops)

    def op(self, op: Op, sizes: Sizes) -> int:
        match op:
            case Grid(indices=indices, body=body):
                return _products(body, _extent(indices, sizes), sizes)
            case Call(callee=callee, generics=generics):
                instance = self.bound.functions[callee]
                passed = zip(instance.dims, generics, strict=True)
                own = {n: d.evaluate(sizes) for n, d in passed if isinstance(d, Dim)}
                return self.function(instance, own)
            case Loop(start=start, stop=stop, body=body):
                turns = max(0, stop.evaluate(sizes) - start.evaluate(sizes))
                return turns * self.region(body, sizes)
        return max((self.region(inner, sizes) for inner in op.regions()), default=0)


def _products(node: GExpr, times: int, sizes: Sizes) -> int:
    """Operations of the sums of products in an expression that is evaluated `times` times."""
    if isinstance(node, GReduce) and node.kind == "sum":
        times *= _extent(node.indices, sizes)
        own = 2 * times if isinstance(node.body, GBinary) and node.body.op == "mul" else 0
        return own + _products(node.body, times, sizes)
    return sum(_products(child, times, sizes) for child in children(node))


def _extent(indices: tuple[Idx, ...], sizes: Sizes) -> int:
    found = 1
    for index in indices:
        extents = index.extent if isinstance(index.extent, tuple) else (index.extent,)
        found *= prod(d.evaluate(sizes) for d in extents if isinstance(d, Dim))
    return found
