"""Hoisting: what depends on no input, state or parameter is computed once and shared.

Identity: such a value is a function of its dimensions alone. Class: exact. Equal values of all
layers, methods and entries become one entry of `Bound.constants`, keyed by structure; those with
symbolic dimensions are kept by the dimensions' values, and only where they grow linearly.
"""

from __future__ import annotations

import hashlib

from linnet.dims import Dim
from linnet.ir.bound import Bound, Instance
from linnet.ir.clone import Cloner
from linnet.ir.effects import walk_ops
from linnet.ir.passes.dead import NOTHING, may_fail
from linnet.ir.passes.tools import Defs, definitions, inputs, regions
from linnet.ir.print import callees, instance_text, reachable
from linnet.ir.program import (
    At,
    Call,
    Const,
    DimValue,
    Function,
    GDim,
    GReduce,
    Grid,
    Intrinsic,
    Loop,
    MakeNone,
    MakeSome,
    MakeTuple,
    Op,
    Range,
    ReadMember,
    Region,
    Slice,
    StateWrite,
    Value,
    walk_expr,
)
from linnet.ir.types import ScalarType, TensorType, Type, count, shape_of
from linnet.source import Span

LARGEST = 1 << 25  # elements; a larger value is computed where it is used


def hoist_constants(instance: Instance, bound: Bound, fails: frozenset[Span] = NOTHING) -> Instance:
    """In place; adds to `bound.constants`. What may fail (`fails` as of `remove_dead`) stays."""
    defs = definitions(instance.body)
    closed = closed_values(instance.body, bound, fails)
    # All are taken out before any is replaced: one may be made of another.
    hoisted: list[tuple[Region, int, Op]] = []
    for region in list(regions(instance.body)):
        for position, op in enumerate(region.ops):
            if len(op.results) != 1 or op.result not in closed:
                continue
            if not _worthwhile(op, defs) or not _needed(op.result, instance.body, closed):
                continue
            key, dims = _extract(op.result, defs, instance, bound)
            attrs: dict[str, object] = {"key": key, "dims": dims}
            constant = Intrinsic([op.result], op.span, "constant", [], attrs)
            hoisted.append((region, position, constant))
    for region, position, new in hoisted:
        region.ops[position] = new
    return instance


def closed_values(body: Region, bound: Bound, fails: frozenset[Span] = NOTHING) -> set[Value]:
    """The values that depend on nothing but dimensions."""
    closed: set[Value] = set()

    def visit(region: Region) -> None:
        for op in region.ops:
            for inner in op.regions():
                visit(inner)
            fixed = all(v in closed for v in inputs(op))
            if fixed and _hoistable(op, bound) and not may_fail(op, bound, fails):
                closed.update(op.results)

    visit(body)
    return closed


def _hoistable(op: Op, bound: Bound) -> bool:
    # A constant is computed by the reference evaluator, which knows no intrinsics: what passes
    # have made of a callee by then stays where it is.
    for name in reachable(bound, callees(op)):
        if any(isinstance(part, Intrinsic) for part in walk_ops(bound.functions[name].body)):
            return False
    for part in (op, *(inner for region in op.regions() for inner in walk_ops(region))):
        match part:
            case ReadMember() | StateWrite():
                return False
            case Call(receiver=receiver) if receiver is not None:
                return False
            case Intrinsic():
                return False
    return True


def _worthwhile(op: Op, defs: Defs) -> bool:
    """Not scalars, which cost nothing, nor what is too large to keep."""
    if isinstance(op, (Const, DimValue, MakeTuple, MakeSome, MakeNone, Intrinsic)):
        return False
    type = op.result.type
    if isinstance(type, TensorType):
        return _small(type)
    return not isinstance(type, ScalarType) and isinstance(op, (Call, Loop))


def _small(type: Type) -> bool:
    size = count(shape_of(type))
    if size.constant is not None:
        return size.constant <= LARGEST
    names = sorted(size.names())
    # Linear growth: the second difference is zero in every pair of directions.
    base = dict.fromkeys(names, 1)
    try:
        at = [size.evaluate({n: v * step for n, v in base.items()}) for step in (8, 16, 24)]
    except (ZeroDivisionError, ValueError):
        return False
    return at[2] - at[1] <= at[1] - at[0] and at[0] <= LARGEST


def _needed(value: Value, body: Region, closed: set[Value]) -> bool:
    """Whether anything that is not itself hoisted reads the value."""
    for region in regions(body):
        if value in region.results:
            return True
        for op in region.ops:
            if value in op.operands():
                if not op.results or any(r not in closed for r in op.results):
                    return True
                if not _worthwhile(op, {}):
                    return True
    return False


def _extract(
    value: Value, defs: Defs, instance: Instance, bound: Bound
) -> tuple[str, tuple[Dim, ...]]:
    """Put the operations that make `value` into a function of their own."""
    needed: set[Op] = set()
    stack = [value]
    while stack:
        op = defs[stack.pop()]
        if op not in needed:
            needed.add(op)
            stack.extend(v for v in inputs(op) if v in defs)
    ops = [op for op in walk_ops(instance.body) if op in needed]
    dims = _dims_of(ops, instance.dims)
    renamed = {name: Dim.name(f"d{n}") for n, name in enumerate(dims)}
    cloner = Cloner(dict(renamed))
    region = Region([], [], [])
    for op in ops:
        cloner.op(op, region.ops)
    region.results = [cloner.value(value)]
    result = region.results[0].type
    made = Instance(
        "constant", "constant", instance.source, None, tuple(f"d{n}" for n in range(len(dims))),
        [], result, region,
    )  # fmt: skip
    digest = _digest(made)
    found = [key for key in bound.constants if key.endswith(f"_{digest}")]
    key = found[0] if found else f"{(value.name or '').strip('_') or 'value'}_{digest}"
    if not found:
        source = Function(key, "fn", None, (), (), [], result, region, span=defs[value].span)
        made.id = made.name = key
        made.source = source
        bound.constants[key] = made
    return key, tuple(Dim.name(name) for name in dims)


def _digest(made: Instance) -> str:
    """Of the text, in which no value has a name of its own."""
    names: dict[Value, str | None] = {}
    for op in walk_ops(made.body):
        for v in (*op.results, *(p for r in op.regions() for p in r.params)):
            names[v], v.name = v.name, None
    text = instance_text(made).split("\n", 1)[1]
    for v, old in names.items():
        v.name = old
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _dims_of(ops: list[Op], order: tuple[str, ...]) -> list[str]:
    """The symbolic names that operations mention, in the order of the instance's `dims`."""
    found: set[str] = set()

    def dim(value: object) -> None:
        if isinstance(value, Dim):
            found.update(value.names())
        elif isinstance(value, tuple):
            for item in value:
                dim(item)

    for top in ops:
        for op in (top, *(o for region in top.regions() for o in walk_ops(region))):
            for result in op.results:
                dim(_shapes(result.type))
            match op:
                case DimValue(dim=size):
                    dim(size)
                case Call(generics=generics):
                    dim(generics)
                case Loop(start=start, stop=stop):
                    dim((start, stop))
                case Slice(items=items):
                    for item in items:
                        if isinstance(item, Range):
                            dim((item.start, item.stop))
                        elif isinstance(item, At):
                            dim(item.index)
                case Intrinsic(attrs=attrs):
                    dim(tuple(attrs.values()))
                case Grid(indices=indices, body=body):
                    dim(tuple(i.extent for i in indices))
                    for node in walk_expr(body):
                        if isinstance(node, GDim):
                            dim(node.dim)
                        elif isinstance(node, GReduce):
                            dim(tuple(i.extent for i in node.indices))
                        dim(tuple(a for a in getattr(node, "axes", ()) if isinstance(a, Dim)))
                        dim(tuple(getattr(node, "generics", ())))
    return [name for name in order if name in found]


def _shapes(type: Type) -> object:
    match type:
        case TensorType(shape):
            return shape
    inner = getattr(type, "inner", None)
    if inner is not None:
        return _shapes(inner)
    return tuple(_shapes(item) for item in getattr(type, "items", ()))
