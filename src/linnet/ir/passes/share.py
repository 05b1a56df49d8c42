"""Sharing of equal values (common subexpressions).

Identity: a pure operation on equal operands has equal results. Class: exact. A value from an
enclosing region may serve in a nested one, never the other way. A read of a state is equal to
an earlier one only while nothing in between may write that state.
"""

from __future__ import annotations

from collections.abc import Hashable

from linnet.ir.bound import Bound, Instance
from linnet.ir.effects import op_effects, path_of, region_effects
from linnet.ir.passes.tools import Replacer, grid_key
from linnet.ir.program import (
    AtValue,
    Binary,
    Broadcast,
    Call,
    Cast,
    Concat,
    Const,
    Cumsum,
    DimValue,
    Fill,
    GetField,
    Grid,
    Intrinsic,
    Iota,
    MakeNone,
    MakeSome,
    MakeStruct,
    MakeTuple,
    Op,
    Permute,
    ReadMember,
    Region,
    Reshape,
    Select,
    Slice,
    TupleGet,
    Unary,
)

_COMMUTE = {"add", "mul", "and", "or", "xor", "eq", "ne"}


def share(instance: Instance, bound: Bound) -> Instance:
    """In place."""
    _Sharer(bound).region(instance.body, {})
    return instance


class _Sharer:
    def __init__(self, bound: Bound):
        self.bound = bound
        self.swap = Replacer()
        self.versions: dict[str, int] = {}
        self.writes = 0

    def wrote(self, paths: frozenset[str]) -> None:
        for path in paths:
            self.writes += 1
            self.versions[path] = self.writes

    def region(self, region: Region, above: dict[Hashable, Op]) -> None:
        seen = dict(above)
        kept: list[Op] = []
        for op in region.ops:
            op.replace(self.swap.get)
            key = self.key(op)
            if key is not None:
                earlier = seen.get(key)
                if earlier is not None:
                    for old, new in zip(op.results, earlier.results, strict=True):
                        self.swap.set(old, new)
                    continue
                seen[key] = op
            kept.append(op)
            inside = [region_effects(r, self.bound.functions)[1] for r in op.regions()]
            writes = op_effects(op, self.bound.functions)[1].union(*inside)
            self.wrote(writes)  # before: a loop's body may run after its own writes
            for inner in op.regions():
                self.region(inner, seen)
            self.wrote(writes)
        region.ops = kept
        region.results = [self.swap.get(r) for r in region.results]

    def key(self, op: Op) -> Hashable | None:
        """What two operations share when their results are equal; None for never."""
        types = tuple(r.type for r in op.results)
        head = (type(op).__name__, types)
        match op:
            case Const(value=value):
                return (*head, repr(value))
            case DimValue(dim=dim):
                return (*head, dim)
            case Unary(op=name, x=x):
                return (*head, name, x)
            case Binary(op=name, a=a, b=b):
                if name in _COMMUTE and a.id > b.id and a.type == b.type:
                    a, b = b, a
                return (*head, name, a, b)
            case Permute(x=x, axes=axes):
                return (*head, x, axes)
            case Concat(xs=xs, axis=axis):
                return (*head, tuple(xs), axis)
            case Cumsum(x=x, axis=axis):
                return (*head, x, axis)
            case Slice(x=x, items=items):
                return (*head, x, tuple(
                    ("value", i.index) if isinstance(i, AtValue) else i for i in items
                ))  # fmt: skip
            case TupleGet(x=x, index=index):
                return (*head, x, index)
            case GetField(x=x, name=name):
                return (*head, x, name)
            case Grid():
                return (*head, grid_key(op, lambda value: value))
            case (
                Select() | Cast() | Reshape() | Broadcast() | Iota() | Fill() | MakeTuple()
                | MakeStruct() | MakeSome() | MakeNone()
            ):  # fmt: skip
                return (*head, tuple(op.operands()))
            case ReadMember(kind=kind, name=name):
                return (*head, kind, name, self.versions.get(name, 0))
            case Call(callee=callee, generics=generics, args=args, receiver=receiver):
                called = self.bound.functions[callee]
                if called.writes:
                    return None
                prefix = path_of(receiver or ())
                read = tuple(sorted((p, self.versions.get(prefix + p, 0)) for p in called.reads))
                steps = None if receiver is None else tuple((s.name, s.index) for s in receiver)
                return (*head, callee, generics, tuple(args), steps, read)
            case Intrinsic(name=name, args=args, attrs=attrs) if "state" not in attrs:
                return (*head, name, tuple(args), tuple(sorted(attrs.items(), key=lambda a: a[0])))
        return None
