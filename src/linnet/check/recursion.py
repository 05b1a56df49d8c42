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
        cycle = _cycle(graph)
        if cycle is None:
            continue
        first = cycle[0]
        item = program.functions.get(first) or program.blocks[first]
        assert item.span is not None
        names = [part.rpartition("::")[2] for part in [*cycle, first]]
        related = [
            Label(span, "through here")
            for a, b in zip(cycle, [*cycle[1:], first], strict=True)
            if (span := graph[a][b]) is not None
        ]
        checker.reporter.error(
            "E2119", item.span, f"`{names[0]}` {what}: {' → '.join(names)}", related=related[:4]
        )


def _cycle(graph: dict[str, dict[str, Span | None]]) -> list[str] | None:
    """Some cycle of the graph, found without recursion."""
    done: set[str] = set()
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
                return path[path.index(follower) :]
            elif follower not in done and follower in graph:
                path.append(follower)
                on_path.add(follower)
                iterators.append(iter(graph[follower]))
    return None
