"""Copies where an alias of a state would outlive the state's value.

A backend may read a state without copying it and write it in place. This pass, the last, makes
that right: it puts the intrinsic `copy` behind a read whose value, or a view of it, is still
needed after a write of that state; around a value written that overlaps the state itself; around
an argument that aliases what the callee writes; and around an entry's results that alias a state
or a hoisted constant. Identity: a copy is its operand. Class: exact.

What may share memory: views, tuples, optionals, branches, loops, and calls as their bodies do
(a kernel may return a view of an operand only where the op's body returns the operand or a
view of it). Arithmetic, casts, grids, `concat` and `fill` make new memory.
"""

from __future__ import annotations

from linnet.ir.bound import Bound, Instance
from linnet.ir.effects import op_effects, path_of, region_effects
from linnet.ir.passes.tools import regions
from linnet.ir.program import (
    Binary,
    Call,
    Cast,
    Concat,
    Cumsum,
    Fill,
    Grid,
    Intrinsic,
    Iota,
    MakeTuple,
    Op,
    ReadMember,
    Region,
    Select,
    StateWrite,
    Unary,
    Value,
)
from linnet.ir.types import OptionalType, ScalarType, StructType, TensorType, TupleType, Type

CONSTANT = "<constant>"
_FRESH = (Binary, Unary, Select, Concat, Cumsum, Fill, Grid, Iota)
_VIEWS = ("constant",)


def protect(instance: Instance, bound: Bound, summary: dict[str, frozenset[object]]) -> Instance:
    """In place. `summary` collects, by instance, what its result may share memory with:
    states by path, `("param", n)`, and constants; callees must be in it."""
    worker = _Protector(instance, bound, summary)
    worker.run()
    return instance


class _Protector:
    def __init__(self, instance: Instance, bound: Bound, summary: dict[str, frozenset[object]]):
        self.instance = instance
        self.bound = bound
        self.summary = summary
        self.shares: dict[Value, frozenset[object]] = {}

    def run(self) -> None:
        body = self.instance.body
        for position, param in enumerate(body.params):
            holds = not isinstance(param.type, ScalarType)
            self.shares[param] = frozenset({("param", position)} if holds else ())
        self.trace(body)
        self.region(body, set())
        self.trace(body)
        if self.instance.source.kind == "entry":
            for position, result in enumerate(body.results):
                body.results[position] = self.own(result)
        result_shares: frozenset[object] = frozenset().union(
            *(self.shares.get(r, frozenset()) for r in body.results)
        )
        self.summary[self.instance.id] = result_shares

    def own(self, result: Value) -> Value:
        """An entry's result in memory of its own, item by item where it is a tuple."""
        body = self.instance.body
        if all(isinstance(a, tuple) for a in self.shares.get(result, ())):
            return result
        for op in body.ops:
            if isinstance(op, MakeTuple) and op.result is result:
                items = [self.own(item) for item in op.items]
                made = Value(result.type, result.name)
                body.ops.append(MakeTuple([made], op.span, items))
                self.shares[made] = frozenset()
                return made
        return self.copied(result, body.ops, len(body.ops))

    # --- what shares with what -------------------------------------------------------

    def trace(self, region: Region) -> None:
        for op in region.ops:
            for inner in op.regions():
                for param in inner.params:
                    self.shares[param] = self.of(op.operands())
                self.trace(inner)
            shared = self.shared(op)
            for result in op.results:
                self.shares[result] = shared if _holds(result.type) else frozenset()

    def of(self, values: list[Value]) -> frozenset[object]:
        return frozenset().union(*(self.shares.get(v, frozenset()) for v in values))

    def shared(self, op: Op) -> frozenset[object]:
        match op:
            case ReadMember(kind="state", name=name):
                return frozenset({name})
            case ReadMember():
                return frozenset()
            case Intrinsic(name=name):
                return frozenset({CONSTANT}) if name in _VIEWS else frozenset()
            case Call(callee=callee, args=args, receiver=receiver):
                prefix = path_of(receiver or ())
                atoms: set[object] = set()
                for atom in self.summary.get(callee, frozenset()):
                    if isinstance(atom, tuple):
                        atoms |= self.shares.get(args[atom[1]], frozenset())
                    elif atom == CONSTANT:
                        atoms.add(atom)
                    else:
                        atoms.add(f"{prefix}{atom}")
                return frozenset(atoms)
        if isinstance(op, _FRESH):
            return frozenset()
        if isinstance(op, Cast) and op.x.type != op.result.type:
            return frozenset()
        inner = [self.of(region.results) for region in op.regions()]
        return self.of(op.operands()).union(*inner)

    # --- copies ------------------------------------------------------------------------

    def region(self, region: Region, after: set[Value]) -> None:
        """`after` are the values still needed once the region has run."""
        live = set(region.results) | after
        for op in reversed(list(region.ops)):
            writes = self.writes(op)
            if writes:
                self.guard(op, writes, live, region)
            live -= set(op.results)
            live |= _reads(op)
            for inner in op.regions():
                self.region(inner, live | _reads(op))

    def writes(self, op: Op) -> frozenset[object]:
        inner = [region_effects(r, self.bound.functions)[1] for r in op.regions()]
        return frozenset(op_effects(op, self.bound.functions)[1].union(*inner))

    def guard(self, op: Op, writes: frozenset[object], live: set[Value], region: Region) -> None:
        results = set(op.results)
        for value in sorted(live - results, key=lambda v: v.id):
            if self.shares.get(value, frozenset()) & writes and not _is_copy(value, region):
                self.protect_value(value)
        match op:
            case StateWrite(name=name, value=value):
                # A plain reread of the state may be written to itself; a view of it may overlap.
                if name in self.shares.get(value, frozenset()):
                    op.value = self.copied(value, region.ops, region.ops.index(op))
            case Call() | Intrinsic():
                changed = {
                    arg: self.copied(arg, region.ops, region.ops.index(op))
                    for arg in dict.fromkeys(op.args)
                    if self.shares.get(arg, frozenset()) & writes
                }
                op.replace(lambda v: changed.get(v, v))

    def protect_value(self, value: Value) -> None:
        """Copy a value right where it is made, and use the copy from there on."""
        for region in regions(self.instance.body):
            for position, op in enumerate(region.ops):
                if value in op.results:
                    copy = self.copied(value, region.ops, position + 1)
                    self._use_instead(value, copy)
                    return

    def _use_instead(self, old: Value, copy: Value) -> None:
        for region in regions(self.instance.body):
            for op in region.ops:
                if copy not in op.results:
                    op.replace(lambda v: copy if v is old else v)
            region.results = [copy if r is old else r for r in region.results]

    def copied(self, value: Value, ops: list[Op], position: int) -> Value:
        copy = Value(value.type, value.name)
        ops.insert(position, Intrinsic([copy], None, "copy", [value]))
        self.shares[copy] = frozenset()
        return copy


def _holds(type: Type) -> bool:
    """Whether a value of the type can share memory (a scalar is a number of its own)."""
    match type:
        case TensorType():
            return True
        case OptionalType(inner):
            return _holds(inner)
        case TupleType(items):
            return any(map(_holds, items))
        case StructType(_, _, fields):
            return any(_holds(field) for _, field in fields)
    return False


def _is_copy(value: Value, region: Region) -> bool:
    return any(
        value in op.results and isinstance(op, Intrinsic) and op.name == "copy" for op in region.ops
    )


def _reads(op: Op) -> set[Value]:
    found = set(op.operands())
    for region in op.regions():
        for part in regions(region):
            found.update(part.results)
            for inner in part.ops:
                found.update(inner.operands())
    return found
