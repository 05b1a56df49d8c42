"""Writes into a cache, in place.

Identity: `state = write_at(state, value, at)` is the state with those positions assigned. Class:
exact. The cache operand must be the state as it is at the assignment, and nobody may still need the
state as it was; a later use of the new cache reads the state instead.
"""

from __future__ import annotations

from linnet.ir.bound import Bound, Instance
from linnet.ir.effects import op_effects, region_effects
from linnet.ir.passes.tools import Defs, definitions, regions, use_counts
from linnet.ir.program import (
    Call,
    Intrinsic,
    Op,
    ReadMember,
    Region,
    StateWrite,
    Value,
)

WRITES = {
    f"std.nn.cache::{name}": name
    for name in (
        "write_at",
        "write_span",
        "write_rows",
        "write_slots",
        "write_slot",
        "write_tokens",
    )
}


def write_in_place(instance: Instance, bound: Bound) -> Instance:
    """In place."""
    defs = definitions(instance.body)
    for region in list(regions(instance.body)):
        _region(region, defs, bound, instance.body)
    return instance


def _region(region: Region, defs: Defs, bound: Bound, body: Region) -> None:
    position = 0
    while position < len(region.ops):
        op = region.ops[position]
        new = _rewrite(op, region, position, defs, bound, body)
        if new is None:
            position += 1
            continue
        region.ops[position : position + 1] = new
        call = defs[op.value]  # type: ignore[attr-defined]
        region.ops.remove(call)
        for added in new:
            for result in added.results:
                defs[result] = added
        position = region.ops.index(new[-1]) + 1


def _rewrite(
    op: Op, region: Region, position: int, defs: Defs, bound: Bound, body: Region
) -> list[Op] | None:
    if not isinstance(op, StateWrite):
        return None
    call = defs.get(op.value)
    if not (isinstance(call, Call) and call in region.ops):
        return None
    name = WRITES.get(bound.functions[call.callee].source.id)
    read = defs.get(call.args[0])
    if name is None or not (
        isinstance(read, ReadMember)
        and read.kind == "state"
        and read.name == op.name
        and read in region.ops
    ):
        return None
    start = region.ops.index(read)
    for between in region.ops[start + 1 : position]:
        if op.name in _writes(between, bound):
            return None  # the cache operand is an older value of the state
    # The new cache may be needed before it is assigned only by the assignment itself.
    for between in region.ops[region.ops.index(call) + 1 : position]:
        if call.result in _reads(between):
            return None
    attrs: dict[str, object] = {
        "state": op.name, "callee": call.callee, "generics": call.generics,
    }  # fmt: skip
    new: list[Op] = [Intrinsic([], call.span or op.span, name, call.args[1:], attrs)]
    if use_counts(body)[call.result] > 1:
        # `call.result` is now the state read back.
        new.append(ReadMember([call.result], op.span, "state", op.name))
    return new


def _writes(op: Op, bound: Bound) -> frozenset[str]:
    inner = [region_effects(r, bound.functions)[1] for r in op.regions()]
    return op_effects(op, bound.functions)[1].union(*inner)


def _reads(op: Op) -> set[Value]:
    found = set(op.operands())
    for region in op.regions():
        for part in regions(region):
            found.update(part.results)
            for inner in part.ops:
                found.update(inner.operands())
    return found
