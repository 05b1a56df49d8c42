"""Which states are caches of keys and values, and may be kept in 8 bits.

A state is one when it is only written through the writes of `std.nn.cache` and only read by
attention, as keys or values. Then rounding a position when it is written is all that changes.
A position of a head is a row of its width in signed bytes, and after them the row's scale, an f32.
"""

from __future__ import annotations

from linnet.ir.program import Block, Call, Op, Program, ReadMember, Region, StateWrite, Value
from linnet.ir.types import FLOATS, TensorType, shape_of

SCALE = 4  # bytes of a position's scale
WRITES = frozenset(
    f"std.nn.cache::{name}"
    for name in (
        "write_at",
        "write_span",
        "write_rows",
        "write_slots",
        "write_slot",
        "write_tokens",
    )
)
READERS = frozenset(
    f"std.nn.attention::{name}"
    for name in ("attention", "attention_rows", "grouped_attention", "grouped_attention_rows")
)
FORMATS = ("int8",)


def row_bytes(width: int) -> int | None:
    """Bytes of one position of a head of `width`; None where its scale would not be aligned."""
    return width + SCALE if width % SCALE == 0 and width else None


def caches(program: Program, block: Block) -> frozenset[str]:
    """The names of a block's own states that are caches of keys and values."""
    found = {
        m.name
        for m in block.members.values()
        if m.kind == "state" and isinstance(m.type, TensorType) and len(shape_of(m.type)) == 4
    }
    written: set[str] = set()
    for method in block.methods.values():
        if found and method in program.functions:
            _look(program.functions[method].body, found, written)
    return frozenset(found & written)


def _look(body: Region, found: set[str], written: set[str]) -> None:
    """Drop from `found` the states that a body treats in another way."""
    ops = _all(body)
    held: dict[Value, str] = {
        op.result: op.name for op in ops if isinstance(op, ReadMember) and op.name in found
    }
    made: dict[Value, str] = {}  # what a write into a state gives
    for op in ops:
        if isinstance(op, Call) and op.callee in WRITES and op.args[0] in held:
            made[op.result] = held[op.args[0]]
    for op in ops:
        if isinstance(op, StateWrite):
            if made.get(op.value) == op.name:
                written.add(op.name)
            else:
                found.discard(op.name)
            continue
        for position, value in enumerate(op.operands()):
            name = held.get(value) or made.get(value)
            if name is None:
                continue
            writes = isinstance(op, Call) and op.callee in WRITES and position == 0
            reads = isinstance(op, Call) and op.callee in READERS and position in (1, 2)
            if not reads and not (writes and value in held):
                found.discard(name)
    for region in [body, *(r for op in ops for r in op.regions())]:
        for value in region.results:  # it leaves the place where it can be followed
            found.discard(held.get(value) or made.get(value) or "")


def _all(region: Region) -> list[Op]:
    found: list[Op] = []
    for op in region.ops:
        found.append(op)
        for inner in op.regions():
            found += _all(inner)
    return found


def float_cache(dtype: str) -> bool:
    """Whether elements of a dtype are kept in 8 bits at all."""
    return dtype in FLOATS and dtype in ("bf16", "f16", "f32")
