"""Inlining of helpers: a call of an `fn` is its body. Identity: beta reduction. Class: exact.

Free functions and methods of the own block are inlined; ops keep their identity, and a
method of a sub stays a call, since one instance of it serves every layer.
"""

from __future__ import annotations

from linnet.dims import Dim
from linnet.ir.bound import Bound, Instance
from linnet.ir.clone import Cloner
from linnet.ir.effects import walk_ops
from linnet.ir.passes.tools import Replacer, certain, regions
from linnet.ir.program import (
    Binary,
    Call,
    Cast,
    Const,
    DimValue,
    GApply,
    GBinary,
    GCast,
    GDim,
    GExpr,
    GLit,
    GRead,
    Grid,
    GSelect,
    GUnary,
    Op,
    Select,
    Unary,
    Value,
    map_expr,
    walk_expr,
)
from linnet.ir.types import Substitution, dtype_of

# A body may grow to this many operations by inlining; further calls stay calls.
LIMIT = 4000


def inline(instance: Instance, bound: Bound) -> Instance:
    """In place. The instances that it calls must have been through this pass before it."""
    size = sum(1 for _ in walk_ops(instance.body))
    swap = Replacer()
    for region in list(regions(instance.body)):
        ops: list[Op] = []
        for op in region.ops:
            op.replace(swap.get)
            if isinstance(op, Call) and _inlinable(bound.functions[op.callee], op):
                callee = bound.functions[op.callee]
                added = sum(1 for _ in walk_ops(callee.body))
                if size + added <= LIMIT:
                    size += added
                    results = expand(callee, op.generics, op.args, ops)
                    for old, new in zip(op.results, results, strict=True):
                        new.name = new.name or old.name
                        swap.set(old, new)
                    continue
            if isinstance(op, Grid):
                op.body = map_expr(op.body, lambda node: _apply(node, bound))
            ops.append(op)
        region.ops = ops
    swap.apply(instance.body)
    return instance


def _inlinable(callee: Instance, call: Call) -> bool:
    return callee.source.kind == "fn" and not call.receiver


def expand(
    callee: Instance, generics: tuple[object, ...], args: list[Value], ops: list[Op]
) -> list[Value]:
    """Append a copy of the callee's body and return its results."""
    mapping: Substitution = {}
    for name, dim in zip(callee.dims, generics, strict=True):
        assert isinstance(dim, Dim)
        mapping[name] = dim
    cloner = Cloner(mapping, dict(zip(callee.body.params, args, strict=True)))
    cloner.into(callee.body, ops)
    return [cloner.value(r) for r in callee.body.results]


def _apply(node: GExpr, bound: Bound) -> GExpr:
    """A scalar helper applied to elements, as an expression where its body is one."""
    if not isinstance(node, GApply):
        return node
    callee = bound.functions[node.callee]
    if callee.source.kind != "fn":
        return node
    ops: list[Op] = []
    args = [Value(p.type) for p in callee.body.params]
    (result,) = expand(callee, node.generics, args, ops)
    known: dict[Value, GExpr] = dict(zip(args, node.args, strict=True))

    def scalar(value: Value) -> GExpr:
        return known.get(value) or GRead(value, (), dtype_of(value.type))

    for op in ops:
        match op:
            case Const(value=literal):
                new: GExpr = GLit(literal, dtype_of(op.result.type))
            case DimValue(dim=dim):
                new = GDim(dim, dtype_of(op.result.type))
            case Unary(op=name, x=x):
                new = GUnary(name, scalar(x), dtype_of(op.result.type))
            case Binary(op=name, a=a, b=b):
                new = GBinary(name, scalar(a), scalar(b), dtype_of(op.result.type))
            case Select(condition=c, a=a, b=b):
                new = GSelect(scalar(c), scalar(a), scalar(b), dtype_of(op.result.type))
            case Cast(x=x):
                new = GCast(scalar(x), dtype_of(op.result.type))
            case _:
                return node
        known[op.result] = new
    made = known.get(result, node)
    used = set(map(id, walk_expr(made)))
    if any(id(arg) not in used and not certain(arg) for arg in node.args):
        return node  # what is not used may fail all the same
    return made
