"""The checked program as data: all of its operations side by side.

Bodies are regions: lists of single-assignment operations over `Value`s, in the
order in which they run. Effects are `StateWrite` and calls of functions that
write; everything else is pure, and may be dropped or shared when unused or equal.
The same classes carry the program before specialization (dimensions symbolic)
and after it (the root's generics bound to numbers; an entry's own generics stay
symbolic, since they follow from the shapes of its arguments).

Longer than other files, since all declarations of one kind are read together here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import count as _count
from typing import TYPE_CHECKING

from linnet.dims import Dim, Fact
from linnet.ir.types import BlockRef, GenericArg, Pack, Type
from linnet.record import dataclass, field
from linnet.source import Source, Span

if TYPE_CHECKING:
    from linnet.ir.manifest import Parameter

_ids = _count()


class Value:
    """One result of an operation, or a parameter of a region. Compared by identity."""

    __slots__ = ("type", "name", "id")

    def __init__(self, type: Type, name: str | None = None):
        self.type = type
        self.name = name  # the source's own name for it, where it has one
        self.id = next(_ids)

    def __repr__(self) -> str:
        return f"%{self.name or ''}{self.id}: {self.type}"


@dataclass(eq=False, slots=True)
class Region:
    """Operations with parameters of their own; `results` are values in scope at its end."""

    params: list[Value]
    ops: list[Op]
    results: list[Value]


@dataclass(eq=False, slots=True)
class Op:
    """The base. `results` are the values it defines; `span` is where it stands."""

    results: list[Value]
    span: Span | None

    @property
    def result(self) -> Value:
        return self.results[0]

    def operands(self) -> list[Value]:
        """The values read by this operation itself, regions not included."""
        return []

    def regions(self) -> list[Region]:
        return []

    def replace(self, swap: Callable[[Value], Value]) -> None:
        """Exchange every operand of this operation itself, in place."""


# --- Scalars and elementwise -------------------------------------------------


@dataclass(eq=False, slots=True)
class Const(Op):
    """A literal scalar of the result's dtype (an enum's variant: its position)."""

    value: int | float | bool


@dataclass(eq=False, slots=True)
class DimValue(Op):
    """A compile-time integer as a scalar of the result's dtype."""

    dim: Dim


@dataclass(eq=False, slots=True)
class Unary(Op):
    """neg, not, exp, log, sqrt, rsqrt, sin, cos, tanh, abs; `not` also flips integers' bits."""

    op: str
    x: Value

    def operands(self) -> list[Value]:
        return [self.x]

    def replace(self, swap: Callable[[Value], Value]) -> None:
        self.x = swap(self.x)


@dataclass(eq=False, slots=True)
class Binary(Op):
    """Elementwise with right-aligned broadcasting, both operands of one dtype.

    add sub mul div rem min max and or xor shl shr give that dtype; eq ne lt le gt ge
    give bool. Integers wrap; div and rem of integers truncate toward zero. `and`/`or` of
    scalar bools also stand for `&&`/`||` where the right side cannot fail.
    """

    op: str
    a: Value
    b: Value

    def operands(self) -> list[Value]:
        return [self.a, self.b]

    def replace(self, swap: Callable[[Value], Value]) -> None:
        self.a, self.b = swap(self.a), swap(self.b)


@dataclass(eq=False, slots=True)
class Select(Op):
    """`condition ? a : b`, elementwise with broadcasting over all three."""

    condition: Value
    a: Value
    b: Value

    def operands(self) -> list[Value]:
        return [self.condition, self.a, self.b]

    def replace(self, swap: Callable[[Value], Value]) -> None:
        self.condition, self.a, self.b = swap(self.condition), swap(self.a), swap(self.b)


@dataclass(eq=False, slots=True)
class Cast(Op):
    """To the result's dtype: bool to 0/1, to bool `!= 0`, float to integer toward zero,
    integers wrap, floats to nearest even."""

    x: Value

    def operands(self) -> list[Value]:
        return [self.x]

    def replace(self, swap: Callable[[Value], Value]) -> None:
        self.x = swap(self.x)


# --- Shapes --------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Reshape(Op):
    """Row-major, to the result's shape."""

    x: Value

    def operands(self) -> list[Value]:
        return [self.x]

    def replace(self, swap: Callable[[Value], Value]) -> None:
        self.x = swap(self.x)


@dataclass(eq=False, slots=True)
class Permute(Op):
    """Result axis `i` is axis `axes[i]` of `x`."""

    x: Value
    axes: tuple[int, ...]

    def operands(self) -> list[Value]:
        return [self.x]

    def replace(self, swap: Callable[[Value], Value]) -> None:
        self.x = swap(self.x)


@dataclass(eq=False, slots=True)
class Broadcast(Op):
    """To the result's shape, right-aligned; also a scalar to a tensor."""

    x: Value

    def operands(self) -> list[Value]:
        return [self.x]

    def replace(self, swap: Callable[[Value], Value]) -> None:
        self.x = swap(self.x)


@dataclass(eq=False, slots=True)
class Concat(Op):
    """`axis` counts from the front, or from the back where negative (behind a pack)."""

    xs: list[Value]
    axis: int

    def operands(self) -> list[Value]:
        return list(self.xs)

    def replace(self, swap: Callable[[Value], Value]) -> None:
        self.xs = [swap(x) for x in self.xs]


@dataclass(frozen=True, slots=True)
class Keep:
    """The whole axis; for a pack, all of its axes."""


@dataclass(frozen=True, slots=True)
class At:
    """A proven compile-time index; drops the axis."""

    index: Dim


@dataclass(frozen=True, slots=True)
class AtValue:
    """A run-time integer scalar as index; drops the axis. Checked when it runs."""

    index: Value


@dataclass(frozen=True, slots=True)
class Range:
    """`start:stop:step`, proven in range; length `(stop - start + step - 1) / step`."""

    start: Dim
    stop: Dim
    step: int = 1


SliceItem = Keep | At | AtValue | Range


@dataclass(eq=False, slots=True)
class Slice(Op):
    """One item an axis of `x` (a pack counts as one and is always kept)."""

    x: Value
    items: tuple[SliceItem, ...]

    def operands(self) -> list[Value]:
        return [self.x] + [item.index for item in self.items if isinstance(item, AtValue)]

    def replace(self, swap: Callable[[Value], Value]) -> None:
        self.x = swap(self.x)
        self.items = tuple(
            AtValue(swap(item.index)) if isinstance(item, AtValue) else item for item in self.items
        )


@dataclass(eq=False, slots=True)
class Iota(Op):
    """0, 1, … along the result's one axis."""


@dataclass(eq=False, slots=True)
class Fill(Op):
    """Every element of the result's shape is the scalar `x`."""

    x: Value

    def operands(self) -> list[Value]:
        return [self.x]

    def replace(self, swap: Callable[[Value], Value]) -> None:
        self.x = swap(self.x)


@dataclass(eq=False, slots=True)
class Cumsum(Op):
    x: Value
    axis: int

    def operands(self) -> list[Value]:
        return [self.x]

    def replace(self, swap: Callable[[Value], Value]) -> None:
        self.x = swap(self.x)


# --- Index notation ------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Idx:
    """An index of a grid, compared by identity; `extent` is a Pack for `*s`."""

    name: str
    extent: Dim | tuple[Dim | Pack, ...]  # a shape for a pack index

    @property
    def pack(self) -> bool:
        return isinstance(self.extent, tuple)


class GExpr:
    """A scalar expression of a grid; every one has a `dtype`. Immutable; compared by identity."""

    __slots__ = ()
    dtype: str


@dataclass(frozen=True, eq=False, slots=True)
class GLit(GExpr):
    value: int | float | bool
    dtype: str


@dataclass(frozen=True, eq=False, slots=True)
class GDim(GExpr):
    dim: Dim
    dtype: str


# One axis of an access: an index (a pack index covers the axes of its pack), a proven
# compile-time index, or a run-time integer expression.
Axis = Idx | Dim | GExpr


@dataclass(frozen=True, eq=False, slots=True)
class GRead(GExpr):
    """An element of a tensor value; with no axes, a scalar value from outside the grid."""

    value: Value
    axes: tuple[Axis, ...]
    dtype: str
    span: Span | None = None


@dataclass(frozen=True, eq=False, slots=True)
class GUnary(GExpr):
    op: str
    x: GExpr
    dtype: str


@dataclass(frozen=True, eq=False, slots=True)
class GBinary(GExpr):
    """As `Binary`. `and`/`or` of bools evaluate both sides only where neither can fail."""

    op: str
    a: GExpr
    b: GExpr
    dtype: str


@dataclass(frozen=True, eq=False, slots=True)
class GSelect(GExpr):
    """`lazy` marks an `if`: an index that fails in the branch not taken is no error."""

    condition: GExpr
    a: GExpr
    b: GExpr
    dtype: str
    lazy: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class GCast(GExpr):
    x: GExpr
    dtype: str


@dataclass(frozen=True, eq=False, slots=True)
class GReduce(GExpr):
    """`kind` over `indices`. `accumulate` is the dtype that `sum` and `prod` add in: as
    stated, else f32 for f16 and bf16 (the operand is then evaluated in f32, what it
    reads widened first), else the dtype itself. `dtype` is the result's."""

    kind: str  # sum prod max min any all
    indices: tuple[Idx, ...]
    body: GExpr
    accumulate: str
    dtype: str
    stated: bool = False  # whether the accumulator was written in the source


@dataclass(frozen=True, eq=False, slots=True)
class GApply(GExpr):
    """A pure function of scalars, applied to elements."""

    callee: str
    generics: tuple[GenericArg, ...]
    args: tuple[GExpr, ...]
    dtype: str


@dataclass(eq=False, slots=True)
class Grid(Op):
    """`let y[indices] = body`. The result's axes are the indices in order."""

    indices: tuple[Idx, ...]
    body: GExpr

    def operands(self) -> list[Value]:
        seen: dict[Value, None] = {}
        for node in walk_expr(self.body):
            if isinstance(node, GRead):
                seen[node.value] = None
        return list(seen)

    def replace(self, swap: Callable[[Value], Value]) -> None:
        self.body = map_reads(self.body, swap)


def children(node: GExpr) -> tuple[GExpr, ...]:
    match node:
        case GRead(_, axes):
            return tuple(axis for axis in axes if isinstance(axis, GExpr))
        case GUnary(_, x) | GCast(x):
            return (x,)
        case GBinary(_, a, b):
            return (a, b)
        case GSelect(condition, a, b):
            return (condition, a, b)
        case GReduce(_, _, body):
            return (body,)
        case GApply(_, _, args):
            return args
    return ()


def walk_expr(node: GExpr) -> Iterator[GExpr]:
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(children(node)))


def map_expr(node: GExpr, change: Callable[[GExpr], GExpr]) -> GExpr:
    """Rebuild bottom-up; `change` sees each node with its children already changed."""

    def go(node: GExpr) -> GExpr:
        match node:
            case GRead(value, axes, dtype, span):
                new = tuple(go(axis) if isinstance(axis, GExpr) else axis for axis in axes)
                if any(a is not b for a, b in zip(new, axes, strict=True)):
                    node = GRead(value, new, dtype, span)
            case GUnary(op, x, dtype):
                if (y := go(x)) is not x:
                    node = GUnary(op, y, dtype)
            case GCast(x, dtype):
                if (y := go(x)) is not x:
                    node = GCast(y, dtype)
            case GBinary(op, a, b, dtype):
                p, q = go(a), go(b)
                if p is not a or q is not b:
                    node = GBinary(op, p, q, dtype)
            case GSelect(condition, a, b, dtype, lazy):
                c, p, q = go(condition), go(a), go(b)
                if c is not condition or p is not a or q is not b:
                    node = GSelect(c, p, q, dtype, lazy)
            case GReduce(kind, indices, body, accumulate, dtype, stated):
                if (y := go(body)) is not body:
                    node = GReduce(kind, indices, y, accumulate, dtype, stated)
            case GApply(callee, generics, args, dtype):
                new_args = tuple(go(arg) for arg in args)
                if any(a is not b for a, b in zip(new_args, args, strict=True)):
                    node = GApply(callee, generics, new_args, dtype)
        return change(node)

    return go(node)


def map_reads(node: GExpr, swap: Callable[[Value], Value]) -> GExpr:
    def change(node: GExpr) -> GExpr:
        if isinstance(node, GRead) and (value := swap(node.value)) is not node.value:
            return GRead(value, node.axes, node.dtype, node.span)
        return node

    return map_expr(node, change)


# --- Aggregates and control -------------------------------------------------------


@dataclass(eq=False, slots=True)
class MakeTuple(Op):
    items: list[Value]

    def operands(self) -> list[Value]:
        return list(self.items)

    def replace(self, swap: Callable[[Value], Value]) -> None:
        self.items = [swap(item) for item in self.items]


@dataclass(eq=False, slots=True)
class TupleGet(Op):
    x: Value
    index: int

    def operands(self) -> list[Value]:
        return [self.x]

    def replace(self, swap: Callable[[Value], Value]) -> None:
        self.x = swap(self.x)


@dataclass(eq=False, slots=True)
class MakeStruct(Op):
    """Fields in declaration order, of the result's StructType."""

    items: list[Value]

    def operands(self) -> list[Value]:
        return list(self.items)

    def replace(self, swap: Callable[[Value], Value]) -> None:
        self.items = [swap(item) for item in self.items]


@dataclass(eq=False, slots=True)
class GetField(Op):
    x: Value
    name: str

    def operands(self) -> list[Value]:
        return [self.x]

    def replace(self, swap: Callable[[Value], Value]) -> None:
        self.x = swap(self.x)


@dataclass(eq=False, slots=True)
class MakeSome(Op):
    x: Value

    def operands(self) -> list[Value]:
        return [self.x]

    def replace(self, swap: Callable[[Value], Value]) -> None:
        self.x = swap(self.x)


@dataclass(eq=False, slots=True)
class MakeNone(Op):
    pass


@dataclass(eq=False, slots=True)
class If(Op):
    """Over a scalar bool; only the branch taken runs. Regions have no parameters."""

    condition: Value
    then: Region
    orelse: Region

    def operands(self) -> list[Value]:
        return [self.condition]

    def regions(self) -> list[Region]:
        return [self.then, self.orelse]

    def replace(self, swap: Callable[[Value], Value]) -> None:
        self.condition = swap(self.condition)


@dataclass(eq=False, slots=True)
class MatchOptional(Op):
    """`some` has one parameter, the value inside."""

    x: Value
    some: Region
    none: Region

    def operands(self) -> list[Value]:
        return [self.x]

    def regions(self) -> list[Region]:
        return [self.some, self.none]

    def replace(self, swap: Callable[[Value], Value]) -> None:
        self.x = swap(self.x)


@dataclass(eq=False, slots=True)
class MatchSub(Op):
    """Over an optional `sub` of the own block: fixed when the checkpoint is known."""

    member: str
    some: Region  # no parameters; calls inside name the sub as their receiver
    none: Region

    def regions(self) -> list[Region]:
        return [self.some, self.none]


@dataclass(eq=False, slots=True)
class MatchEnum(Op):
    """One region a variant, in the enum's order, none with parameters."""

    x: Value
    arms: list[Region]

    def operands(self) -> list[Value]:
        return [self.x]

    def regions(self) -> list[Region]:
        return self.arms

    def replace(self, swap: Callable[[Value], Value]) -> None:
        self.x = swap(self.x)


@dataclass(eq=False, slots=True)
class Loop(Op):
    """A counted loop from `start` up to `stop`.

    The body's parameters are the counter (i64) and then the carried values; its results
    are the carried values' next, then the yields. The op's results are the carried values
    at the end, then each yield stacked along a new first axis. `static` marks a loop
    whose counter stands in receivers (`groups[i]`), unrolled or not as a backend likes.
    """

    start: Dim
    stop: Dim
    init: list[Value]
    body: Region
    static: bool = False

    def operands(self) -> list[Value]:
        return list(self.init)

    def regions(self) -> list[Region]:
        return [self.body]

    def replace(self, swap: Callable[[Value], Value]) -> None:
        self.init = [swap(value) for value in self.init]


@dataclass(eq=False, slots=True)
class While(Op):
    """Both regions take the carried values; the condition gives one bool, the body the next."""

    init: list[Value]
    condition: Region
    body: Region

    def operands(self) -> list[Value]:
        return list(self.init)

    def regions(self) -> list[Region]:
        return [self.condition, self.body]

    def replace(self, swap: Callable[[Value], Value]) -> None:
        self.init = [swap(value) for value in self.init]


# --- Blocks, calls, effects ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Step:
    """One step from a block to a sub: a name, and for an array the position: a constant
    dimension, or the counter of the static loop around."""

    name: str
    index: Dim | Value | None = None


@dataclass(eq=False, slots=True)
class Call(Op):
    """Call a function by its id, generic arguments complete and in declaration order
    (only the function's own; a block's come from its BlockRef).

    `receiver` is None for a free function, `()` for a method of the own block, else the
    steps to the sub whose method it is.
    """

    callee: str
    generics: tuple[GenericArg, ...]
    args: list[Value]
    receiver: tuple[Step, ...] | None = None

    def operands(self) -> list[Value]:
        steps = [s.index for s in self.receiver or () if isinstance(s.index, Value)]
        return list(self.args) + steps

    def replace(self, swap: Callable[[Value], Value]) -> None:
        self.args = [swap(arg) for arg in self.args]
        if self.receiver:
            self.receiver = tuple(
                Step(s.name, swap(s.index)) if isinstance(s.index, Value) else s
                for s in self.receiver
            )


@dataclass(eq=False, slots=True)
class ReadMember(Op):
    """A param, buffer or state of the own block, as it is now."""

    kind: str
    name: str


@dataclass(eq=False, slots=True)
class StateWrite(Op):
    """Assign a state of the own block. No results."""

    name: str
    value: Value

    def operands(self) -> list[Value]:
        return [self.value]

    def replace(self, swap: Callable[[Value], Value]) -> None:
        self.value = swap(self.value)


@dataclass(eq=False, slots=True)
class Intrinsic(Op):
    """An operation that a pass put in place of others. `ir/intrinsics.py` lists names,
    operands and attributes, and states each one's meaning."""

    name: str
    args: list[Value]
    attrs: dict[str, object] = field(default_factory=dict)

    def operands(self) -> list[Value]:
        return list(self.args)

    def replace(self, swap: Callable[[Value], Value]) -> None:
        self.args = [swap(arg) for arg in self.args]


# --- Declarations ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Generic:
    """`kind`: "Dim", "Shape", or a dtype constraint (DType, Numeric, Integer, Float)."""

    name: str
    kind: str
    default: GenericArg | None = None


@dataclass(eq=False, slots=True)
class Function:
    id: str  # "std.nn.linear::linear", "crate.moe::SparseMoe.forward"
    kind: str  # "fn", "op", "entry"
    block: str | None  # the owner's id; its generics are in scope too
    generics: tuple[Generic, ...]
    where: tuple[Fact, ...]
    params: list[tuple[str, Type]]
    result: Type
    body: Region  # params in order; one result
    public: bool = False
    span: Span | None = None
    doc: str | None = None
    defaults: tuple[object, ...] = ()

    @property
    def name(self) -> str:
        return self.id.rpartition("::")[2].rpartition(".")[2]


@dataclass(eq=False, slots=True)
class Member:
    """`type` is a BlockRef for a sub. `length` is set for `[Block; N]`. `optional` members
    may be absent from a checkpoint."""

    name: str
    kind: str  # "param", "buffer", "state", "sub"
    type: Type | BlockRef
    length: Dim | None = None
    optional: bool = False
    span: Span | None = None
    doc: str | None = None


@dataclass(eq=False, slots=True)
class Block:
    id: str
    generics: tuple[Generic, ...]
    where: tuple[Fact, ...]
    members: dict[str, Member]
    methods: dict[str, str]  # name → function id
    public: bool = False
    span: Span | None = None
    doc: str | None = None

    @property
    def name(self) -> str:
        return self.id.rpartition("::")[2]


@dataclass(eq=False, slots=True)
class Program:
    """A checked package: its own items and all that they reach."""

    functions: dict[str, Function]
    blocks: dict[str, Block]
    root_package: str = "crate"
    # Every module that it was checked from, with its id; none where it was not.
    sources: tuple[tuple[str, Source], ...] = ()

    def __repr__(self) -> str:
        # What an interactive session shows; the operations hold whole sources.
        own = [one.rpartition("::")[2] for one in self.blocks if one.startswith("crate::")]
        return (
            f"<linnet program: {', '.join(own) or 'no blocks'}; functions: {len(self.functions)}>"
        )

    def entries(self, block: str) -> dict[str, Function]:
        found = {n: self.functions[i] for n, i in self.blocks[block].methods.items()}
        return {name: f for name, f in found.items() if f.kind == "entry"}

    def manifest(
        self,
        *,
        root: str | None = None,
        generics: Mapping[str, int | str] | None = None,
        present: frozenset[str] | None = None,
    ) -> list[Parameter]:
        """Every param, buffer and state under a root block, with shapes and dtypes.

        `root` is the block's name; without it the only block with entries. `generics` binds
        its generics by name; where `present` is given, optional parts that are not in it are
        left out. Raises BindError for generics that are missing, unknown or excluded.
        """
        from linnet.ir.manifest import manifest, root_block

        return manifest(self, root_block(self, root), generics or {}, present)
