"""What the emitter passes around: frames, values, and questions about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from linnet.dims import Dim
from linnet.ir import program as ir
from linnet.ir.bound import Instance
from linnet.ir.types import ScalarType, TensorType, Type
from linnet.native.node import Buffer, Ix, Map, Mem, Moved, Node, Unsupported, volume

Value = Any  # a Node, a tuple of values, Some(value), or None

CHEAP = 4  # an expression of at most this cost may be computed again at each use
INPUT_BYTES = 8


@dataclass(frozen=True)
class Some:
    value: Value


@dataclass
class Frame:
    """One function being written in: its values, its dimensions, its block's place."""

    instance: Instance
    env: dict[ir.Value, Value]
    bind: dict[str, Dim]
    place: Ix | None  # of the block in the table
    kind: str | None
    uses: dict[ir.Value, int] = field(default_factory=dict)
    left: dict[ir.Value, int] = field(default_factory=dict)  # uses not reached yet

    def __post_init__(self) -> None:
        self.left = dict(self.uses)


@dataclass
class Choice:
    """What a call became, for `linnet inspect --kernels`."""

    op: str
    kernel: str | None
    reason: str
    span: str


@dataclass
class Function:
    """The C of one entry, and what a call of it needs to know."""

    name: str
    text: str
    arena: list[Buffer]
    choices: list[Choice]


def effect(op: ir.Op) -> bool:
    return isinstance(op, (ir.Call, ir.Loop, ir.While, ir.If, ir.MatchOptional, ir.MatchEnum))


def count_uses(region: ir.Region) -> dict[ir.Value, int]:
    from linnet.ir.passes.tools import use_counts

    return dict(use_counts(region))


def siblings_together(ops: list[ir.Op], functions: dict[str, Instance]) -> list[ir.Op]:
    """The same operations, projections of one value side by side: the threads then need not meet
    between them. A projection reads parameters only, so nothing else orders it."""
    placed: list[ir.Op] = []
    groups: dict[ir.Value, ir.Op] = {}
    defined: dict[ir.Value, int] = {}
    for op in ops:
        position = len(placed)
        if isinstance(op, ir.Call) and op.args and projection(functions[op.callee], functions):
            first = groups.setdefault(op.args[0], op)
            if first is not op:
                after = placed.index(first) + 1
                if all(v not in defined or defined[v] < after for v in op.operands()):
                    position = after
                    groups[op.args[0]] = op
        placed.insert(position, op)
        defined = {v: n for n, other in enumerate(placed) for v in other.results}
    return placed


def projection(instance: Instance, functions: dict[str, Instance]) -> bool:
    """Whether a function is a linear map by its block's parameters, or the op itself."""
    if instance.source.id == "std.nn.linear::linear":
        return True
    calls = 0
    for op in instance.body.ops:
        if isinstance(op, ir.Call):
            calls += 1
            if not projection(functions[op.callee], functions):
                return False
        elif not isinstance(op, (ir.MakeNone, ir.MakeSome)) and not (
            isinstance(op, ir.ReadMember) and op.kind == "param"
        ):
            return False
    return calls == 1


def view_only(node: Node) -> bool:
    return isinstance(node, Mem) or (isinstance(node, Moved) and view_only(node.base))


def flatten(value: Value) -> list[Node]:
    if isinstance(value, Some):
        return flatten(value.value)
    if isinstance(value, tuple):
        return [node for item in value for node in flatten(item)]
    if not isinstance(value, Node):
        raise Unsupported("an absent value as a result")
    return [value]


def flat_types(type: Type) -> list[Type]:
    from linnet.ir.types import StructType, TupleType

    if isinstance(type, TupleType):
        return [inner for item in type.items for inner in flat_types(item)]
    if isinstance(type, StructType):
        return [inner for _, item in type.fields for inner in flat_types(item)]
    if not isinstance(type, (TensorType, ScalarType)):
        raise Unsupported(f"a result of type {type}")
    return [type]


def nodes_of(value: Value) -> list[Node]:
    if isinstance(value, Some):
        return nodes_of(value.value)
    if isinstance(value, tuple):
        return [node for item in value for node in nodes_of(item)]
    return [value] if isinstance(value, Node) else []


def same_place(a: Mem, b: Mem) -> bool:
    return (
        a.buffer is b.buffer
        and a.offset == b.offset
        and all(
            s == t or extent.constant == 1
            for s, t, extent in zip(a.strides, b.strides, a.shape, strict=True)
        )
    )


def narrow(mem: Mem, axis: int, start: Dim, extent: Dim) -> Mem:
    shape = tuple(extent if i == axis else d for i, d in enumerate(mem.shape))
    offset = mem.offset + mem.strides[axis] * start
    return Mem(mem.buffer, shape, mem.strides, mem.dtype, offset)


def flat(node: Node, target: Mem) -> tuple[Node, Mem]:
    """Elementwise over whole contiguous operands: one axis of all the elements."""
    if len(target.shape) < 2 or not target.contiguous():
        return node, target
    count = (volume(target.shape),)
    known: dict[Node, Node] = {}

    def go(part: Node) -> Node | None:
        if part in known:
            return known[part]
        part = getattr(part, "made", None) or part
        made: Node | None = None
        if not part.shape:
            made = part
        elif isinstance(part, Mem):
            if part.shape == target.shape and part.contiguous():
                made = Mem(part.buffer, count, (Dim.const(1),), part.dtype, part.offset)
        elif isinstance(part, Map) and part.shape == target.shape:
            args = [go(arg) for arg in part.args]
            if all(arg is not None for arg in args):
                made = Map(part.op, args, count, part.dtype)  # type: ignore[arg-type]
        if made is not None:
            known[part] = made
        return made

    new = go(node)
    if new is None or not new.shape:
        return node, target
    return new, Mem(target.buffer, count, (Dim.const(1),), target.dtype, target.offset)
