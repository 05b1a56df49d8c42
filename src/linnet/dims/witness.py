"""A search for small sizes that satisfy the assumptions and not the goal.

Only names that the rules leave free are enumerated; the others follow from them, so `H % 24 == 0`
is satisfied at the first try. The number of tries is fixed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from linnet.dims.dim import Dim, DimTooLarge
from linnet.dims.fact import Fact

if TYPE_CHECKING:
    from linnet.dims.facts import Facts

MAX_TRIES = 600
# Above the lower bound of a name. Zero comes late: empty tensors are poor examples.
STEPS = (1, 2, 3, 5, 7, 0, 4, 6, 8, 11)


def counterexample(facts: Facts, goal: Fact) -> dict[str, int] | None:
    """Sizes of the goal's names at which the assumptions hold and the goal does not."""
    for values in _models(facts, goal.names()):
        if (truth := _holds(goal, values)) is not None and not truth:
            return {name: values[name] for name in sorted(goal.names())}
    return None


def satisfiable(facts: Facts, names: frozenset[str]) -> bool:
    """Whether some small sizes satisfy the assumptions that concern `names`."""
    return next(_models(facts, names), None) is not None


def _models(facts: Facts, names: frozenset[str]) -> Iterator[dict[str, int]]:
    try:
        prover = facts.theory.prover
        relevant, names = _related(facts.facts, names)
        values = {name: prover.normal(Dim.name(name)) for name in sorted(names)}
    except DimTooLarge:
        return
    free = sorted({name for value in values.values() for name in value.names()})
    lows = []
    for name in free:
        low, high = prover.bounds_of(next(Dim.name(name).atoms()))
        lows.append(low if low is not None else (min(high, 0) if high is not None else 0))
    for steps in _assignments(len(free)):
        chosen = {name: low + step for name, low, step in zip(free, lows, steps, strict=True)}
        try:
            model = {name: value.evaluate(chosen) for name, value in values.items()}
        except (ZeroDivisionError, KeyError):
            continue
        if min(model.values(), default=0) >= 0 and all(_holds(f, model) for f in relevant):
            yield model


def _related(facts: tuple[Fact, ...], names: frozenset[str]) -> tuple[list[Fact], frozenset[str]]:
    waiting = list(facts)
    found: list[Fact] = []
    while True:
        near = [f for f in waiting if not names.isdisjoint(f.names()) or not f.names()]
        if not near:
            return found, names
        found += near
        waiting = [f for f in waiting if f not in near]
        names = names.union(*(f.names() for f in near))


def _assignments(count: int) -> Iterator[tuple[int, ...]]:
    """Steps for each name: all small, then one at a time, then mixed by a fixed sequence."""
    if count == 0:
        yield ()
        return
    tries = 0
    if count <= 2:
        size = 24 if count == 1 else 12
        for steps in itertools.product((*range(1, size), 0), repeat=count):
            tries += 1
            yield steps
    for base in (1, 2, 0, 3):
        yield (base,) * count
        for position in range(count):
            for step in STEPS[:6]:
                tries += 1
                yield tuple(step if i == position else base for i in range(count))
    state = 12345
    while tries < MAX_TRIES:
        steps_list = []
        for _ in range(count):
            state = (state * 1103515245 + 12345) % 2**31
            steps_list.append(STEPS[(state >> 16) % len(STEPS)])
        tries += 1
        yield tuple(steps_list)


def _holds(fact: Fact, values: dict[str, int]) -> bool | None:
    """None where a divisor is zero there."""
    try:
        return fact.evaluate(values)
    except ZeroDivisionError:
        return None
