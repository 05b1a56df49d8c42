"""The passes in their order, by numerics class."""

from __future__ import annotations

from collections.abc import Callable

from linnet.ir.bound import Bound, Instance
from linnet.ir.effects import effects
from linnet.ir.passes.constants import hoist_constants
from linnet.ir.passes.contraction import contract
from linnet.ir.passes.dead import NOTHING, remove_dead, remove_unreachable
from linnet.ir.passes.fold import fold
from linnet.ir.passes.in_place import write_in_place
from linnet.ir.passes.index_notation import simplify_grids
from linnet.ir.passes.inline import inline
from linnet.ir.passes.invariants import Invariants
from linnet.ir.passes.masks import find_masks
from linnet.ir.passes.one_hot import find_one_hot
from linnet.ir.passes.protect import protect
from linnet.ir.passes.ranks import find_ranks
from linnet.ir.passes.share import share
from linnet.ir.passes.tables import rows_of_tables
from linnet.ir.passes.tools import copy_bound
from linnet.source import Span

NUMERICS = ("exact", "equivalent", "fast")
Check = Callable[[str, Instance, Bound], None]


def optimize(
    bound: Bound,
    numerics: str = "fast",
    *,
    in_place: bool = True,
    across_calls: bool = True,
    check: Check | None = None,
    fails: frozenset[Span] = NOTHING,
) -> Bound:
    """A new program that computes the same, within the numerics class.

    `exact` applies only passes that change no bit; `equivalent` and `fast` also those that
    reassociate (the two differ in kernels, not here). Without `in_place` states are assigned
    as values, which automatic differentiation needs; without `across_calls` every method computes
    all of its own values, so that they can be watched there. `check(pass name, instance, bound)`
    runs after every pass on every instance; tests give the verifier. What stands at one of `fails`
    in the source may end in an error, and is kept although nothing uses it.
    """
    if numerics not in NUMERICS:
        raise ValueError(f"numerics is one of {', '.join(NUMERICS)}, not {numerics!r}")
    bound = copy_bound(bound)
    summary: dict[str, frozenset[object]] = {}

    def run(name: str, change: Callable[[Instance], Instance], instance: Instance) -> None:
        change(instance)
        if check is not None:
            check(name, instance, bound)

    def clean(instance: Instance) -> None:
        run("fold", lambda f: fold(f, numerics == "exact"), instance)
        run("share", lambda f: share(f, bound), instance)
        run("dead", lambda f: remove_dead(f, bound, fails), instance)

    for instance in bound.functions.values():  # callees first
        run("inline", lambda f: inline(f, bound), instance)
        clean(instance)
        run("index notation", simplify_grids, instance)
        clean(instance)
        run("masks", lambda f: find_masks(f, bound), instance)
        if numerics != "exact":
            run("ranks", lambda f: find_ranks(f, bound), instance)
            clean(instance)
            run("one hot", find_one_hot, instance)
            run("contraction", contract, instance)
        clean(instance)
        instance.reads, instance.writes = effects(instance, bound.functions)
    remove_unreachable(bound)
    invariants = Invariants(bound)
    for instance in bound.functions.values():
        if across_calls:
            run("arguments of calls", invariants.at_calls, instance)
        run("tables", lambda f: rows_of_tables(f, bound), instance)
        clean(instance)
        run("constants", lambda f: hoist_constants(f, bound, fails), instance)
        run("share", lambda f: share(f, bound), instance)
        run("dead", lambda f: remove_dead(f, bound, fails), instance)
        if across_calls:
            run("parameters", invariants.to_callers, instance)
            run("dead", lambda f: remove_dead(f, bound, fails), instance)
        if in_place:
            run("in place", lambda f: write_in_place(f, bound), instance)
            run("dead", lambda f: remove_dead(f, bound, fails), instance)
            run("protect", lambda f: protect(f, bound, summary), instance)
    return remove_unreachable(bound)
