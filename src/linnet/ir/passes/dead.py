"""Removal of what is unused.

Identity: a pure operation without uses has no effect. Class: exact. An operation that may end in an
error (`fails` has where it stands in the source) has one, and stays.
"""

from __future__ import annotations

from linnet.ir.bound import Bound, Instance
from linnet.ir.effects import pure, walk_ops
from linnet.ir.passes.tools import use_counts
from linnet.ir.print import callees, reachable
from linnet.ir.program import Binary, Call, Grid, Op, Region, Slice
from linnet.source import Span

NOTHING: frozenset[Span] = frozenset()


def may_fail(op: Op, bound: Bound, fails: frozenset[Span]) -> bool:
    """Whether an operation, or one that it calls, stands at a place of `fails`."""
    if not fails:
        return False
    if isinstance(op, (Grid, Slice, Binary)):
        return op.span in fails
    if isinstance(op, Call):
        callee = bound.functions[op.callee]
        return any(may_fail(inner, bound, fails) for inner in callee.body.ops)
    return any(may_fail(inner, bound, fails) for region in op.regions() for inner in region.ops)


def remove_dead(instance: Instance, bound: Bound, fails: frozenset[Span] = NOTHING) -> Instance:
    """In place. A call that writes state stays, whatever becomes of its result."""
    counts = use_counts(instance.body)

    def forget(region: Region) -> None:
        for op in region.ops:
            for value in op.operands():
                counts[value] -= 1
            for inner in op.regions():
                forget(inner)
        for value in region.results:
            counts[value] -= 1

    def clean(region: Region) -> None:
        kept = []
        for op in reversed(region.ops):
            unused = not any(counts[r] for r in op.results)
            if unused and pure(op, bound.functions) and not may_fail(op, bound, fails):
                for value in op.operands():
                    counts[value] -= 1
                for inner in op.regions():
                    forget(inner)
                continue
            for inner in op.regions():
                clean(inner)
            kept.append(op)
        kept.reverse()
        region.ops = kept

    clean(instance.body)
    return instance


def remove_unreachable(bound: Bound) -> Bound:
    """Drop the instances and constants that no entry needs any more, in place."""
    live = reachable(bound, bound.entries.values())
    needed: dict[str, None] = {}
    stack = [bound.functions[name].body for name in live]
    while stack:
        for op in walk_ops(stack.pop()):
            key = getattr(op, "attrs", {}).get("key")
            if key is not None and key not in needed:
                needed[key] = None
                stack.append(bound.constants[key].body)
                calls = [c for inner in walk_ops(bound.constants[key].body) for c in callees(inner)]
                # What a constant calls may read constants of its own.
                new = reachable(bound, calls) - live
                stack += [bound.functions[name].body for name in new]
                live |= new
    bound.functions = {id: f for id, f in bound.functions.items() if id in live}
    bound.constants = {key: f for key, f in bound.constants.items() if key in needed}
    return bound
