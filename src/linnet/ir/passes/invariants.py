"""What every layer computes from the entry's integers alone is computed once, by the entry.

Rotary rows at a position, gather indices, padding masks: a method that makes such a tensor from
its integer arguments takes it as one more argument instead, its caller makes it before the
call, and before the loop around the call; and so on up to the entry, where equal ones are
shared. Identity: a pure value of equal operands is the same everywhere. Class: exact.

Only the first level of a body is looked at and only loops that certainly turn are left, so
nothing is computed, and no run-time index checked, that was not before.
"""

from __future__ import annotations

from dataclasses import dataclass

from linnet.dims import Dim
from linnet.ir.bound import Bound, Instance
from linnet.ir.clone import Cloner
from linnet.ir.passes.tools import inputs, regions
from linnet.ir.program import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Concat,
    Const,
    Cumsum,
    DimValue,
    Fill,
    GApply,
    Grid,
    Intrinsic,
    Iota,
    Loop,
    Op,
    Permute,
    Region,
    Reshape,
    Select,
    Slice,
    Unary,
    Value,
    walk_expr,
)
from linnet.ir.types import FLOATS, ScalarType, Substitution, TensorType, Type

_MOVABLE = (
    Const, DimValue, Unary, Binary, Select, Cast, Reshape, Permute, Broadcast, Concat, Slice,
    Iota, Fill, Cumsum, Grid,
)  # fmt: skip


@dataclass(eq=False, slots=True)
class Moved:
    """What a caller computes for one added parameter: operations over the old parameters."""

    ops: list[Op]
    result: Value


class Invariants:
    """Serves the instances of one program, callees first."""

    def __init__(self, bound: Bound):
        self.bound = bound
        self.moved: dict[str, list[Moved]] = {}
        entries = set(bound.entries.values())
        self.open = {
            id for id, f in bound.functions.items() if id not in entries and f.source.kind == "fn"
        }

    def at_calls(self, instance: Instance) -> Instance:
        """Give the calls in a body the arguments that their callees now take."""
        for region in list(regions(instance.body)):
            ops: list[Op] = []
            for op in region.ops:
                if isinstance(op, Call):
                    for moved in self.moved.get(op.callee, ()):
                        op.args.append(self._expand(moved, op, ops))
                ops.append(op)
            region.ops = ops
        _leave_loops(instance.body)
        return instance

    def _expand(self, moved: Moved, call: Call, ops: list[Op]) -> Value:
        callee = self.bound.functions[call.callee]
        mapping: Substitution = {}
        for name, dim in zip(callee.dims, call.generics, strict=True):
            assert isinstance(dim, Dim)
            mapping[name] = dim
        cloner = Cloner(mapping, dict(zip(callee.body.params, call.args, strict=False)))
        for op in moved.ops:
            cloner.op(op, ops)
        return cloner.value(moved.result)

    def to_callers(self, instance: Instance) -> Instance:
        """Turn what a body computes from its integer parameters into parameters."""
        if instance.id not in self.open:
            return instance
        body = instance.body
        made: dict[Value, Op] = {}
        known = {p for p in body.params if _integer(p.type)}
        varying = set(known)  # those that depend on a parameter: constants stay where they are
        for op in body.ops:
            if _movable(op) and all(v in known for v in op.operands()):
                known.update(op.results)
                made.update(dict.fromkeys(op.results, op))
                if any(v in varying for v in op.operands()):
                    varying.update(op.results)
        needed = _needed(body, made)
        roots = [v for v in made if v in varying and v in needed and isinstance(v.type, TensorType)]
        for root in roots:
            self._add(instance, root, made)
        return instance

    def _add(self, instance: Instance, root: Value, made: dict[Value, Op]) -> None:
        body = instance.body
        wanted: set[Op] = set()
        stack = [root]
        while stack:
            op = made.get(stack.pop())
            if op is not None and op not in wanted:
                wanted.add(op)
                stack.extend(op.operands())
        ops = [op for op in body.ops if op in wanted]
        param = Value(root.type, root.name)
        self.moved.setdefault(instance.id, []).append(Moved(_copied(ops, root, body), root))
        name = root.name or "shared"
        taken = {n for n, _ in instance.params}
        while name in taken:
            name += "_"
        instance.params.append((name, root.type))
        for part in regions(body):
            for op in part.ops:
                op.replace(lambda v: param if v is root else v)
            part.results = [param if r is root else r for r in part.results]
        body.params.append(param)


def _copied(ops: list[Op], root: Value, body: Region) -> list[Op]:
    """The operations as they are now: later changes of the body must not reach them.

    The copies define the old values, which is what `Moved.result` and their operands name.
    """
    env = {p: p for p in body.params}
    cloner = Cloner({}, env)
    copies: list[Op] = []
    for op in ops:
        cloner.op(op, copies)
    back = {new: old for old, new in cloner.env.items()}
    for op in copies:
        op.replace(lambda v: back.get(v, v))
        op.results = [back[r] for r in op.results]
    assert any(root in op.results for op in copies)
    return copies


def _integer(type: Type) -> bool:
    return isinstance(type, (TensorType, ScalarType)) and type.dtype not in FLOATS


def _movable(op: Op) -> bool:
    match op:
        case Grid(body=body):
            return not any(isinstance(node, GApply) for node in walk_expr(body))
        case Intrinsic(name=name):
            return name == "constant"
    return isinstance(op, _MOVABLE)


def _needed(body: Region, made: dict[Value, Op]) -> set[Value]:
    """Values read by an operation that stays, or given as a result."""
    needed = set(body.results)
    for op in body.ops:
        if not (op.results and op.results[0] in made):
            needed.update(inputs(op))
    return needed


def _leave_loops(region: Region) -> None:
    """Move what does not vary out of loops that turn at least once."""
    ops: list[Op] = []
    for op in region.ops:
        for inner in op.regions():
            _leave_loops(inner)
        if isinstance(op, Loop) and _turns(op):
            inside = set(op.body.params)
            stay: list[Op] = []
            for part in op.body.ops:
                fixed = _movable(part) and not any(v in inside for v in part.operands())
                if fixed:
                    ops.append(part)
                else:
                    stay.append(part)
                    inside.update(part.results)
            op.body.ops = stay
        ops.append(op)
    region.ops = ops


def _turns(loop: Loop) -> bool:
    start, stop = loop.start.constant, loop.stop.constant
    return start is not None and stop is not None and start < stop
