"""Index notation whose work outgrows what it reads and gives.

A definition is slow in an axis where the work grows with a higher power of its size than both
the result and all that is read: `sum[j] select(j <= i, x[j], 0)` takes `N` squared steps for `N`
numbers. Products of matrices, ranks by counting, one-hot sums and the like are rewritten into
better ones before anything runs, so the question is asked after the passes, of what they leave.

Everything is done with the sizes as symbols, as the source has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from linnet.diagnostics.diagnostic import Diagnostic, Label
from linnet.dims import Dim
from linnet.dims.dim import Atom
from linnet.errors import Error
from linnet.ir.bound import Bound, Kind
from linnet.ir.passes.pipeline import optimize
from linnet.ir.passes.tools import Defs, definitions, regions
from linnet.ir.program import (
    Binary,
    Block,
    Broadcast,
    Cast,
    Fill,
    Function,
    Generic,
    GExpr,
    GReduce,
    Grid,
    Idx,
    Iota,
    Op,
    Permute,
    Program,
    Reshape,
    Select,
    Slice,
    Unary,
    Value,
    children,
)
from linnet.ir.specialize import _Maker
from linnet.ir.types import BlockRef, GenericArg, Pack, shape_of
from linnet.source import Span

# What only passes elements on: the work behind it is counted where it is read.
_PASSING = (Binary, Broadcast, Cast, Fill, Grid, Iota, Permute, Reshape, Select, Slice, Unary)
_DTYPES = {"Integer": "i32"}
ARRAY = 2  # elements of an array of blocks: its length has to be a number


def slow_definitions(program: Program, own: set[int]) -> Iterator[Diagnostic]:
    """Warnings for the sources in `own`, each definition once."""
    seen: set[tuple[int, int]] = set()
    for bound in _models(program, own):
        for instance in bound.functions.values():
            defs = definitions(instance.body)
            for region in regions(instance.body):
                for op in region.ops:
                    if not isinstance(op, Grid) or op.span is None:
                        continue
                    key = (id(op.span.source), op.span.start)
                    if key[0] not in own or key in seen:
                        continue
                    found = _slow(op, defs)
                    if found is not None:
                        seen.add(key)
                        yield _finding(op.span, *found)


def _finding(span: Span, name: str, work: int, size: int) -> Diagnostic:
    grows = {2: "the square", 3: "the cube"}.get(work, f"power {work}")
    data = {0: "not at all", 1: "in proportion", 2: "with the square"}.get(size, f"as power {size}")
    first = span.source.position(span.start)[0]
    end = span.source.line_starts[first] if first < len(span.source.line_starts) else span.end
    shown = Span(span.source, span.start, min(span.end, max(span.start + 1, end - 1)))
    return Diagnostic(
        "W2001",
        "warning",
        f"the work of this definition grows with {grows} of `{name}`",
        Label(shown, f"what it reads and gives grows {data}"),
        notes=["no rewrite turns it into something better"],
        help="`cumsum`, `sort`, `top_k`, `argmax` or a run-time index may say what is meant; "
        "`// lint: allow` where it is",
    )


# --- Programs with symbols for sizes ---------------------------------------------------


def _models(program: Program, own: set[int]) -> Iterator[Bound]:
    """Each block with what can be called of it, and the functions outside blocks, after the
    passes."""
    for block in program.blocks.values():
        if block.span is None or id(block.span.source) not in own:
            continue
        functions = [program.functions[id] for id in block.methods.values()
                     if id in program.functions]  # fmt: skip
        yield from _optimized(program, block, functions)
    for function in program.functions.values():
        outside = function.block is None and function.span is not None
        if outside and function.span is not None and id(function.span.source) in own:
            yield from _optimized(program, None, [function])


def _optimized(program: Program, block: Block | None, functions: list[Function]) -> Iterator[Bound]:
    maker = _Maker(program)
    tops = [f for f in functions if f.public or f.kind == "entry"] or functions
    try:
        if block is None:
            kind = maker.add_kind(Kind("Module", "", {}, []))
        else:
            fixed = _lengths(program, block, ())
            kind = maker.kind(block.id, _symbols(block.generics, fixed), frozenset())
        bound = Bound(program, kind.id, maker.kinds, maker.functions, {})
        for function in tops:
            owner = kind if function.block is not None else None
            instance, _ = maker.instance(function, owner, _symbols(function.generics, set()))
            bound.entries[function.id] = instance.id
        yield optimize(bound, across_calls=False, in_place=False)
    except (Error, AssertionError, ZeroDivisionError):
        return  # it cannot be had with symbols for sizes; nothing is said of it


def _symbols(generics: tuple[Generic, ...], fixed: set[str]) -> tuple[GenericArg, ...]:
    arguments: list[GenericArg] = []
    for generic in generics:
        if generic.kind == "Dim":
            number = generic.name in fixed
            arguments.append(Dim.const(ARRAY) if number else Dim.name(generic.name))
        elif generic.kind == "Shape":
            arguments.append((Dim.name(generic.name),))
        else:
            arguments.append(_DTYPES.get(generic.kind, "f32"))
    return tuple(arguments)


def _lengths(program: Program, block: Block, above: tuple[str, ...]) -> set[str]:
    """Generics that lengths of arrays are made of, here or further down."""
    if block.id in above:
        return set()
    found: set[str] = set()
    for member in block.members.values():
        if not isinstance(member.type, BlockRef):
            continue
        if member.length is not None:
            found |= member.length.names()
        inner = program.blocks[member.type.id]
        needed = _lengths(program, inner, (*above, block.id))
        for generic, argument in zip(inner.generics, member.type.generics):
            if generic.name in needed and isinstance(argument, Dim):
                found |= argument.names()
    return found


# --- The work of one definition --------------------------------------------------------


def _slow(grid: Grid, defs: Defs) -> tuple[str, int, int] | None:
    """A size, the power of it that the work grows with, and the power of what is read and
    given; None where no axis is worse than that."""
    given = _extents(grid.indices)
    leaves = [shape_of(leaf.type) for leaf in _leaves(grid, defs)]
    for extents in _loops(grid.body, given):
        for name in sorted({name for e in extents if isinstance(e, Dim) for name in e.names()}):
            work = _power(extents, name)
            size = max([_power(given, name), *(_power(shape, name) for shape in leaves)])
            if work > max(size, 1):
                return name, work, size
    return None


def _extents(indices: tuple[Idx, ...]) -> list[Dim | Pack]:
    found: list[Dim | Pack] = []
    for index in indices:
        found += index.extent if isinstance(index.extent, tuple) else (index.extent,)
    return found


def _loops(node: GExpr, around: list[Dim | Pack]) -> Iterator[list[Dim | Pack]]:
    """The extents of all indices around each reduction."""
    waiting = [(node, around)]
    while waiting:
        inner, extents = waiting.pop()
        if isinstance(inner, GReduce):
            extents = [*extents, *_extents(inner.indices)]
            yield extents
        waiting += [(child, extents) for child in children(inner)]


def _power(extents: Iterable[Dim | Pack], name: str) -> int:
    """The power of a size in a product of extents."""
    return sum(_degree(extent, name) for extent in extents if isinstance(extent, Dim))


def _degree(dim: Dim, name: str) -> int:
    """With which power of a size a dimension grows; 0 where it does not, or shrinks."""
    found = 0
    for monomial, coefficient in dim.terms:
        if coefficient > 0:
            found = max(found, sum(power * _grows(atom, name) for atom, power in monomial))
    return found


def _grows(atom: Atom, name: str) -> int:
    if atom.kind == "name":
        return int(atom.name == name)
    if atom.kind == "floor":
        above, below = atom.args
        return max(0, _degree(above, name) - _degree(below, name))
    return max(_degree(arg, name) for arg in atom.args)


def _leaves(grid: Grid, defs: Defs) -> Iterator[Value]:
    """The values that a definition is made from, through what only passes elements on."""
    done: set[Value] = set()
    waiting: list[Op] = [grid]
    while waiting:
        for value in waiting.pop().operands():
            if value in done:
                continue
            done.add(value)
            made = defs.get(value)
            if isinstance(made, _PASSING):
                waiting.append(made)
            else:
                yield value
