"""Which states a function reads and writes: its effects, calls included."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from linnet.ir.bound import Instance
from linnet.ir.program import Call, Intrinsic, Op, ReadMember, Region, StateWrite, Step


def walk_ops(region: Region) -> Iterator[Op]:
    """All operations of a region, those of nested regions after their owner."""
    for op in region.ops:
        yield op
        for inner in op.regions():
            yield from walk_ops(inner)


def path_of(steps: tuple[Step, ...]) -> str:
    """`groups.*.`: the prefix that a receiver puts before its own states' paths."""
    return "".join(f"{s.name}.*." if s.index is not None else f"{s.name}." for s in steps)


def op_effects(op: Op, functions: Mapping[str, Instance]) -> tuple[frozenset[str], frozenset[str]]:
    """What one operation itself reads and writes, its regions not included."""
    match op:
        case ReadMember(kind="state", name=name):
            return frozenset({name}), frozenset()
        case StateWrite(name=name):
            return frozenset(), frozenset({name})
        case Intrinsic(attrs=attrs) if "state" in attrs:
            state = frozenset({str(attrs["state"])})
            return state, state
        case Call(callee=callee, receiver=receiver) if receiver is not None:
            prefix = path_of(receiver)
            of = functions[callee]
            return (
                frozenset(prefix + path for path in of.reads),
                frozenset(prefix + path for path in of.writes),
            )
    return frozenset(), frozenset()


def region_effects(
    region: Region, functions: Mapping[str, Instance]
) -> tuple[frozenset[str], frozenset[str]]:
    reads: set[str] = set()
    writes: set[str] = set()
    for op in walk_ops(region):
        r, w = op_effects(op, functions)
        reads |= r
        writes |= w
    return frozenset(reads), frozenset(writes)


def effects(
    instance: Instance, functions: Mapping[str, Instance]
) -> tuple[frozenset[str], frozenset[str]]:
    """`(reads, writes)`; the instances that it calls must have theirs already."""
    return region_effects(instance.body, functions)


def pure(op: Op, functions: Mapping[str, Instance]) -> bool:
    """Whether an operation, its regions included, writes no state: it may be dropped unused."""
    if op_effects(op, functions)[1]:
        return False
    return all(pure(inner, functions) for region in op.regions() for inner in region.ops)
