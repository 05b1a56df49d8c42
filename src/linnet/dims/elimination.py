"""Fourier–Motzkin elimination with integer tightening.

Every monomial counts as one linear unknown. A contradiction found is a contradiction over the
integers; none found means nothing. Work is bounded by a count of steps, never by a clock, and does
not depend on the order of the constraints.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import gcd

from linnet.dims.dim import Dim, Monomial

MAX_STEPS = 1500
MAX_COEFFICIENT_BITS = 4096

Row = tuple[tuple[int, int], ...]  # (unknown, coefficient), by unknown


def contradictory(constraints: Iterable[Dim]) -> bool:
    """Whether `constraints`, each meaning `c >= 0`, cannot hold together."""
    rows: dict[Row, int] = {}  # the strongest constant for each left side
    numbers: dict[Monomial, int] = {}
    for dim in sorted(set(constraints), key=lambda d: d.key):
        left: list[tuple[int, int]] = []
        constant = 0
        for monomial, coefficient in dim.terms:
            if monomial:
                left.append((numbers.setdefault(monomial, len(numbers)), coefficient))
            else:
                constant = coefficient
        if _add(rows, tuple(sorted(left)), constant):
            return True
    steps = 0
    while rows:
        above: dict[int, list[Row]] = {}
        below: dict[int, list[Row]] = {}
        for row in rows:
            for unknown, coefficient in row:
                (above if coefficient > 0 else below).setdefault(unknown, []).append(row)
        unknowns = above.keys() | below.keys()
        if not unknowns:
            return False

        growth = {}
        for unknown in unknowns:
            a, b = len(above.get(unknown, ())), len(below.get(unknown, ()))
            growth[unknown] = (a * b - a - b, unknown)
        chosen = min(unknowns, key=growth.__getitem__)
        ups, downs = above.get(chosen, []), below.get(chosen, [])
        taken = [(row, rows.pop(row)) for row in ups + downs]
        constants = dict(taken)
        steps += len(ups) * len(downs)
        if steps > MAX_STEPS:
            return False
        for up in ups:
            for down in downs:
                if _combine(rows, chosen, up, constants[up], down, constants[down]):
                    return True
    return False


def _combine(rows: dict[Row, int], unknown: int, up: Row, k: int, down: Row, m: int) -> bool:
    upper, lower = dict(up), dict(down)
    a, b = upper[unknown], -lower[unknown]
    common = gcd(a, b)
    a, b = a // common, b // common
    total = {u: b * c for u, c in upper.items()}
    for u, c in lower.items():
        total[u] = total.get(u, 0) + a * c
    row = tuple(sorted((u, c) for u, c in total.items() if c))
    if any(c.bit_length() > MAX_COEFFICIENT_BITS for _, c in row):
        return False  # dropping a constraint only proves less
    return _add(rows, row, b * k + a * m)


def _add(rows: dict[Row, int], row: Row, constant: int) -> bool:
    """Add `row + constant >= 0`, tightened; true where it contradicts what is there."""
    if not row:
        return constant < 0
    common = 0
    for _, coefficient in row:
        common = gcd(common, coefficient)
    if common > 1:
        row = tuple((u, c // common) for u, c in row)
        constant //= common
    known = rows.get(row)
    if known is None or constant < known:
        rows[row] = constant
        opposite = rows.get(tuple((u, -c) for u, c in row))
        return opposite is not None and opposite + constant < 0
    return False
