"""What one call of an entry holds at its fullest moment, as an expression over sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from linnet.dims import Dim
from linnet.ir.bound import Bound, Instance
from linnet.ir.memory import all_ops
from linnet.ir.program import (
    Broadcast,
    Call,
    Function,
    GetField,
    Intrinsic,
    MakeNone,
    MakeSome,
    MakeTuple,
    Op,
    Permute,
    Program,
    ReadMember,
    Region,
    Reshape,
    Slice,
    StateWrite,
    TupleGet,
    Value,
)
from linnet.ir.specialize import _Maker, bind_root, entry_arguments
from linnet.ir.types import BITS, GenericArg, Shape, TensorType, Type, count


def bind_partly(
    program: Program, root: str, generics: Mapping[str, int | str], free: frozenset[str]
) -> Bound:
    """As `specialize`, with the dimensions in `free` left symbolic. They must not be lengths of
    arrays of blocks. For reading only: what is left free has no bounds to prove by."""
    bindings: dict[str, GenericArg] = bind_root(program, root, generics)
    bindings.update({name: Dim.name(name) for name in free})
    maker = _Maker(program)
    arguments = tuple(bindings[g.name] for g in program.blocks[root].generics)
    kind = maker.kind(root, arguments, frozenset())
    bound = Bound(program, kind.id, maker.kinds, maker.functions, {})
    for name, entry in program.entries(root).items():
        own = entry_arguments(entry)
        if own is not None:
            bound.entries[name] = maker.instance(entry, kind, own)[0].id
    return bound


@dataclass(frozen=True, slots=True)
class Peak:
    """Bytes of the values alive at one point of a call, and the name of the function there."""

    bytes: Dim
    at: str


def peak(bound: Bound, entry: str, values: Mapping[str, int]) -> Peak:
    """Where one call of an entry holds most, found at the sizes `values`.

    The result is an expression over whatever sizes are symbolic; at other sizes another point
    may hold more, so take the greatest of several. Arguments, intermediate values and
    the result count, views of a tensor do not, and an `op` counts as its result alone, as
    a kernel computes it. Meant for a program after `optimize`.
    """
    instance = bound.functions[bound.entries[entry]]
    own = {name: Dim.name(name) for name in instance.dims}
    found = _Walk(bound, values).function(instance, own)
    arguments = Dim.const(0)
    for _, type in instance.params:
        arguments = arguments + bytes_of(type)
    return Peak(found.bytes + arguments, found.at)


def bytes_of(type: Type) -> Dim:
    """Of a tensor; scalars and what has no memory of its own count nothing."""
    if isinstance(type, TensorType):
        return _sized(type.shape, type.dtype)
    return Dim.const(0)


def _sized(shape: Shape, dtype: str) -> Dim:
    return count(shape) * (BITS[dtype] // 8)


_VIEWS = (Reshape, Permute, Slice, Broadcast, TupleGet, MakeTuple, MakeSome, MakeNone, GetField)
_ZERO = Dim.const(0)


class _Walk:
    def __init__(self, bound: Bound, values: Mapping[str, int]):
        self.bound = bound
        self.values = values
        self.known: dict[tuple[str, tuple[Dim, ...]], Peak] = {}

    def size(self, dim: Dim) -> int:
        return dim.evaluate(self.values)

    def function(self, instance: Instance, dims: Mapping[str, Dim]) -> Peak:
        key = (instance.id, tuple(dims.values()))
        if key not in self.known:
            self.known[key] = self.region(instance.body, dims, instance.source.name)
        return self.known[key]

    def region(self, region: Region, dims: Mapping[str, Dim], at: str) -> Peak:
        """The peak of what the region's own operations allocate."""
        base = _bases(region)
        last = _last_uses(region, base)
        alive: dict[Value, Dim] = {}
        now = _ZERO
        best, where = _ZERO, at
        for position, op in enumerate(region.ops):
            inner = self.inside(op, dims, at)
            made = _ZERO
            for value in op.results:
                if base[value] is value and not _held(op):
                    size = bytes_of(value.type).substitute(dims)
                    alive[value] = size
                    made = made + size
            # A callee's result is among what it allocates.
            during = now + inner.bytes
            if self.size(now + made) > self.size(during):
                during = now + made
                inner = Peak(during, at)
            if self.size(during) > self.size(best):
                best, where = during, inner.at
            now = now + made
            for value in last.get(position, ()):
                now = now - alive.pop(value, _ZERO)
        return Peak(best, where)

    def inside(self, op: Op, dims: Mapping[str, Dim], at: str) -> Peak:
        if isinstance(op, Call):
            callee = self.bound.functions[op.callee]
            if callee.source.kind != "op":
                passed = [d.substitute(dims) if isinstance(d, Dim) else d for d in op.generics]
                own = {n: d for n, d in zip(callee.dims, passed, strict=True) if isinstance(d, Dim)}
                return self.function(callee, own)
        best = Peak(_ZERO, at)
        for region in op.regions():
            found = self.region(region, dims, at)
            if self.size(found.bytes) > self.size(best.bytes):
                best = found
        return best


def _held(op: Op) -> bool:
    """Whether an operation's results lie in memory that is counted elsewhere."""
    if isinstance(op, Intrinsic):
        return op.name == "constant"
    return isinstance(op, (ReadMember, StateWrite))


def _bases(region: Region) -> dict[Value, Value]:
    """The value in whose memory each value lies."""
    base: dict[Value, Value] = {p: p for p in region.params}
    for op in region.ops:
        views = isinstance(op, _VIEWS) and op.operands()
        for value in op.results:
            base[value] = base.get(op.operands()[0], op.operands()[0]) if views else value
    return base


def _last_uses(region: Region, base: Mapping[Value, Value]) -> dict[int, list[Value]]:
    """By position, the values that nothing reads afterwards."""
    last: dict[Value, int] = {}
    for position, op in enumerate(region.ops):
        for value in op.results:
            last[base[value]] = position
        read = list(op.operands())
        for inner in op.regions():
            for below in all_ops(inner):
                read += below.operands()
            read += inner.results
        for value in read:
            if value in base:
                last[base[value]] = position
    for value in region.results:
        if value in base:
            last[base[value]] = len(region.ops)
    ends: dict[int, list[Value]] = {}
    for value, position in last.items():
        ends.setdefault(position, []).append(value)
    return ends


def entry_sizes(entry: Function) -> list[str]:
    """The names of an entry's own dimensions."""
    return [g.name for g in entry.generics if g.kind == "Dim"]
