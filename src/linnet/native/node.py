"""Values while C is being written: tensors in memory, and tensors not made yet.

A node that is not in memory is an expression over indices. A loop nest asks it for the C text of
one element, so that elementwise chains and comprehensions around them become one loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from linnet.dims import Dim
from linnet.ir import program as ir
from linnet.native import elements

if TYPE_CHECKING:
    from linnet.native.nest import Nest

ZERO, ONE = Dim.const(0), Dim.const(1)


class Unsupported(Exception):
    """Something this backend does not compile; the model then runs on the torch backend."""


@dataclass(frozen=True, slots=True)
class Ix:
    """An index as a linear form over C variables with dimensions as coefficients."""

    terms: tuple[tuple[str, Dim], ...] = ()
    const: Dim = ZERO

    @staticmethod
    def of(value: str | Dim | int) -> Ix:
        if isinstance(value, str):
            return Ix(((value, ONE),))
        return Ix((), value if isinstance(value, Dim) else Dim.const(value))

    def __add__(self, other: Ix | Dim | int) -> Ix:
        if not isinstance(other, Ix):
            return Ix(self.terms, self.const + other)
        total: dict[str, Dim] = dict(self.terms)
        for name, coefficient in other.terms:
            total[name] = total.get(name, ZERO) + coefficient
        kept = tuple((n, total[n]) for n in sorted(total) if total[n].constant != 0)
        return Ix(kept, self.const + other.const)

    def __mul__(self, factor: Dim | int) -> Ix:
        if isinstance(factor, int):
            factor = Dim.const(factor)
        if factor.constant == 0:
            return Ix()
        return Ix(tuple((n, c * factor) for n, c in self.terms), self.const * factor)

    def vars(self) -> frozenset[str]:
        return frozenset(name for name, _ in self.terms)


@dataclass(eq=False)
class Buffer:
    """Memory under a C pointer `name`. `roots` are the buffers that it may lie in."""

    name: str
    dtype: str
    size: Dim | None = None  # elements, for those in the arena
    number: int = -1  # the place in the arena's table
    first: int = 1 << 30
    last: int = -1
    alias: tuple[Buffer, ...] = ()
    constant: bool = False  # never written while an entry runs
    output: int | None = None  # the entry's result that it is

    @property
    def roots(self) -> frozenset[Buffer]:
        if not self.alias:
            return frozenset((self,))
        return frozenset().union(*(b.roots for b in self.alias))


Operand = tuple[str, frozenset[str]]  # C text, and the variables that it depends on


class Node:
    """A tensor (or, without a shape, a scalar). `cost` is about the operations an element takes."""

    shape: tuple[Dim, ...]
    dtype: str
    cost: int = 0

    def element(self, nest: Nest, at: Sequence[Ix]) -> Operand:
        raise NotImplementedError

    def children(self) -> Iterable[Node]:
        return ()

    def buffers(self) -> frozenset[Buffer]:
        found: set[Buffer] = set()
        for child in self.children():
            found |= child.buffers()
        return frozenset(found)


@dataclass(eq=False)
class Mem(Node):
    """A strided view of a buffer; offset and strides count elements."""

    buffer: Buffer
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    dtype: str
    offset: Ix = field(default_factory=Ix)
    cost: int = 1
    param: str | None = None  # the C expression of its `weight`, where it is a whole parameter
    state: str | None = None  # likewise the key of a whole state

    def element(self, nest: Nest, at: Sequence[Ix]) -> Operand:
        return nest.load(self, at)

    def buffers(self) -> frozenset[Buffer]:
        return self.buffer.roots

    def contiguous(self, axes: int | None = None) -> bool:
        """Whether the last `axes` (all without) lie row-major without gaps."""
        count = len(self.shape) if axes is None else axes
        want = ONE
        for axis in range(len(self.shape) - 1, len(self.shape) - 1 - count, -1):
            if self.shape[axis] != ONE and self.strides[axis] != want:
                return False
            want = want * self.shape[axis]
        return True


def row_major(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    strides: list[Dim] = []
    step = ONE
    for extent in reversed(shape):
        strides.append(step)
        step = step * extent
    return tuple(reversed(strides))


def volume(shape: Iterable[Dim]) -> Dim:
    total = ONE
    for extent in shape:
        total = total * extent
    return total


@dataclass(eq=False)
class Scalar(Node):
    """A C variable or literal, the same on every thread."""

    text: str
    dtype: str
    shape: tuple[Dim, ...] = ()
    value: int | float | bool | None = None  # where it is known

    def element(self, nest: Nest, at: Sequence[Ix]) -> Operand:
        return nest.scalar(self), frozenset()


@dataclass(eq=False)
class Size(Node):
    """A compile-time integer as a scalar."""

    dim: Dim
    dtype: str
    shape: tuple[Dim, ...] = ()

    def element(self, nest: Nest, at: Sequence[Ix]) -> Operand:
        return elements.cast(f"(int64_t){nest.dim(self.dim)}", "i64", self.dtype), frozenset()


@dataclass(eq=False)
class Counted(Node):
    """`iota`, possibly moved: its one axis counts from `start`."""

    shape: tuple[Dim, ...]
    dtype: str
    start: Dim = ZERO

    def fits(self) -> bool:
        """Whether its dtype certainly holds every number."""
        last = (self.start + self.shape[0]).constant
        return last is not None and last <= 2 ** (8 * elements.BYTES[self.dtype] - 1)

    def element(self, nest: Nest, at: Sequence[Ix]) -> Operand:
        text, deps = nest.index(at[0] + self.start)
        return f"({elements.HELD[self.dtype]})({text})", deps


def aligned(node: Node, at: Sequence[Ix]) -> list[Ix]:
    """The indices with which a right-aligned operand is read: extents of 1 at 0."""
    spare = len(at) - len(node.shape)
    return [Ix() if extent == ONE else at[spare + axis] for axis, extent in enumerate(node.shape)]


@dataclass(eq=False)
class Map(Node):
    """An elementwise operation over broadcast operands. `op` names an IR operation."""

    op: str
    args: list[Node]
    shape: tuple[Dim, ...]
    dtype: str

    def __post_init__(self) -> None:
        heavy = 12 if self.op in ("exp", "log", "sin", "cos", "tanh") else 1
        self.cost = heavy + sum(arg.cost for arg in self.args)

    def children(self) -> Iterable[Node]:
        return self.args

    def element(self, nest: Nest, at: Sequence[Ix]) -> Operand:
        parts = [nest.element(arg, aligned(arg, at)) for arg in self.args]
        texts = [text for text, _ in parts]
        deps = frozenset().union(*(d for _, d in parts))
        source = self.args[-1].dtype
        if self.op == "select":
            text = f"(({texts[0]}) ? ({texts[1]}) : ({texts[2]}))"
        elif self.op == "cast":
            text = elements.cast(texts[0], source, self.dtype)
        elif len(texts) == 1:
            text = elements.unary(self.op, texts[0], source)
        else:
            text = elements.binary(self.op, texts[0], texts[1], source)
        return text, deps


@dataclass(eq=False)
class Moved(Node):
    """A node read through other indices: axis `i` of `base` is read at `change(at)[i]`."""

    base: Node
    shape: tuple[Dim, ...]
    plan: tuple[Ix, ...]  # one a base axis, over the variables "0", "1", … of the axes here

    def __post_init__(self) -> None:
        self.dtype = self.base.dtype
        self.cost = self.base.cost

    def children(self) -> Iterable[Node]:
        return (self.base,)

    def element(self, nest: Nest, at: Sequence[Ix]) -> Operand:
        inner = []
        for form in self.plan:
            ix = Ix((), form.const)
            for name, coefficient in form.terms:
                ix = ix + (
                    at[int(name)] * coefficient if name.isdigit() else Ix(((name, coefficient),))
                )
            inner.append(ix)
        return nest.element(self.base, inner)


@dataclass(eq=False)
class Joined(Node):
    """`concat`: parts along an axis. Made piece by piece, never element by element."""

    parts: list[Node]
    axis: int
    shape: tuple[Dim, ...]
    dtype: str

    def __post_init__(self) -> None:
        self.cost = max(part.cost for part in self.parts)

    def children(self) -> Iterable[Node]:
        return self.parts


@dataclass(eq=False)
class Causal(Node):
    """A causal mask: key `k` is seen by query `q` iff `k <= q + at + offset`."""

    axes: tuple[str, ...]
    at: Node | None  # an integer scalar, or a vector along axis b
    offset: Dim
    shape: tuple[Dim, ...]
    dtype: str = "bool"
    cost: int = 3

    def children(self) -> Iterable[Node]:
        return () if self.at is None else (self.at,)

    def element(self, nest: Nest, at: Sequence[Ix]) -> Operand:
        where = dict(zip(self.axes, at, strict=True))
        key, deps = nest.index(where["k"])
        limit = Ix((), self.offset) + where.get("q", Ix())
        text, more = nest.index(limit)
        deps = deps | more
        if self.at is not None:
            start, more = nest.element(self.at, [where["b"]] if self.at.shape else [])
            text, deps = f"({text}) + (long)({start})", deps | more
        return f"(({key}) <= ({text}))", deps


@dataclass(eq=False)
class Comprehension(Node):
    """A grid. `read` gives the node of each value that it accesses."""

    op: ir.Grid
    read: dict[ir.Value, Node]
    bind: dict[str, Dim]  # the instance's dimensions over the entry's
    shape: tuple[Dim, ...]
    dtype: str

    def __post_init__(self) -> None:
        cost = sum(node.cost for node in self.read.values()) + 1
        for node in ir.walk_expr(self.op.body):
            if isinstance(node, ir.GReduce):
                cost += 200
            cost += 12 if isinstance(node, ir.GUnary) else 1
        self.cost = cost

    def children(self) -> Iterable[Node]:
        return self.read.values()

    def element(self, nest: Nest, at: Sequence[Ix]) -> Operand:
        env = dict(zip(self.op.indices, at, strict=True))
        return nest.expression(self, self.op.body, env, False)
