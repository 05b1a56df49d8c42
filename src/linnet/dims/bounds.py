"""Interval arithmetic over dimensions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from linnet.dims.dim import Atom, Dim, Monomial

Bounds = tuple[int | None, int | None]  # inclusive; None is unbounded


def interval(dim: Dim, bounds: Callable[[Atom], Bounds]) -> Bounds:
    """Bounds of the value, term by term."""
    low: int | None = 0
    high: int | None = 0
    for monomial, coefficient in dim.terms:
        least, most = monomial_interval(monomial, bounds)
        if coefficient < 0:
            least, most = most, least
        low = None if low is None or least is None else low + coefficient * least
        high = None if high is None or most is None else high + coefficient * most
    return low, high


def monomial_interval(monomial: Monomial, bounds: Callable[[Atom], Bounds]) -> Bounds:
    low: int | None = 1
    high: int | None = 1
    for atom, power in monomial:
        least, most = bounds(atom)
        if least is None or least < 0:
            if len(monomial) == 1 and power == 1:
                return least, most
            if all(n % 2 == 0 for _, n in monomial):
                return 0, None
            return None, None
        assert low is not None
        low *= least**power
        if most == 0 or high == 0:
            high = 0
        else:
            high = None if high is None or most is None else high * most**power
    return low, high


def atom_bounds(kind: str, args: list[Bounds]) -> Bounds:
    """Bounds of a compound atom from those of its arguments."""
    lows, highs = [low for low, _ in args], [high for _, high in args]
    if kind == "floor":
        (p_low, p_high), (q_low, q_high) = args
        if q_low is None or q_low < 1 or (q_high is not None and q_high < q_low):
            return None, None  # the last where assumptions exclude each other
        low: int | None
        high: int | None
        if p_low is None:
            low = None
        elif p_low < 0:
            low = p_low // q_low
        else:
            low = 0 if q_high is None else p_low // q_high
        if p_high is None:
            high = None
        elif p_high >= 0:
            high = p_high // q_low
        else:
            high = -1 if q_high is None else p_high // q_high
        return low, high
    known_lows = [low for low in lows if low is not None]
    known_highs = [high for high in highs if high is not None]
    if kind == "min":
        return (
            min(known_lows) if len(known_lows) == len(lows) else None,
            min(known_highs) if known_highs else None,
        )
    return (
        max(known_lows) if known_lows else None,
        max(known_highs) if len(known_highs) == len(highs) else None,
    )
