"""Recursion, of calls and of blocks, is refused: every program must end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from linnet.diagnostics.diagnostic import Label
from linnet.ir.program import Call, GApply, Grid, Op, Region, walk_expr
from linnet.ir.types import BlockRef
from linnet.source import Span

if TYPE_CHECKING:
    from linnet.check.checker import Checker


def operations(region: Region) -> Iterator[Op]:
    """All operations of a region and of the regions inside."""
    for op in region.ops:
        yield op
        for inner in op.regions():
            yield from operations(inner)


def check_recursion(checker: Checker) -> None:
    program = checker.program
    calls: dict[str, dict[str, Span | None]] = {}
    for id, function in program.functions.items():
        edges = calls.setdefault(id, {})
        for op in operations(function.body):
            if isinstance(op, Call):
                edges.setdefault(op.callee, op.span)
            elif isinstance(op, Grid):
                for node in walk_expr(op.body):
                    if isinstance(node, GApply):
                        edges.setdefault(node.callee, op.span)
    subs: dict[str, dict[str, Span | None]] = {
        id: {m.type.id: m.span for m in block.members.values() if isinstance(m.type, BlockRef)}
        for id, block in program.blocks.items()
    }
    for graph, what in ((calls, "calls itself"), (subs, "contains itself")):
        for cycle in _cycles(graph):
            _report(checker, graph, cycle, what)


def _report(
    checker: Checker, graph: dict[str, dict[str, Span | None]], cycle: list[str], what: str
) -> None:
    program = checker.program
    spans = {
        id: span
        for id in cycle
        if (span := (program.functions.get(id) or program.blocks[id]).span) is not None
    }
    # From the one that is declared first, whichever the search came upon.
    first = min(cycle, key=lambda id: (spans[id].source.path, spans[id].start))
    at = cycle.index(first)
    cycle = [*cycle[at:], *cycle[:at]]
    names = [part.rpartition("::")[2] for part in [*cycle, first]]
    shown = names if len(names) <= 8 else [*names[:4], "…", *names[-3:]]
    related = [
        Label(span, "through here")
        for a, b in zip(cycle, [*cycle[1:], first], strict=True)
        if (span := graph[a][b]) is not None
    ]
    checker.reporter.error(
        "E2119",
        spans[first],
        f"`{names[0]}` {what}: {' → '.join(shown)}",
        related=related[:4],
        help="a loop repeats: `for`, `while`, or `static for` over an array of blocks"
        if first in program.functions
        else "depth is an array: `sub layers: [Layer<…>; N]`",
    )


def _cycles(graph: dict[str, dict[str, Span | None]]) -> Iterator[list[str]]:
    """Cycles of the graph that share no node with each other, found without recursion."""
    done: set[str] = set()
    shown: set[str] = set()
    for start in graph:
        if start in done:
            continue
        path: list[str] = [start]
        on_path = {start}
        iterators = [iter(graph[start])]
        while iterators:
            follower = next(iterators[-1], None)
            if follower is None:
                iterators.pop()
                node = path.pop()
                on_path.discard(node)
                done.add(node)
            elif follower in on_path:
                cycle = path[path.index(follower) :]
                if shown.isdisjoint(cycle):
                    shown.update(cycle)
                    yield cycle
            elif follower not in done and follower in graph:
                path.append(follower)
                on_path.add(follower)
                iterators.append(iter(graph[follower]))
