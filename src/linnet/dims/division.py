"""Floor division of polynomials.

Identities, all over the integers with `c > 0`:
`floor((q s + r) / q) = s + floor(r / q)`; `floor(floor(a / b) / c) = floor(a / (b c))`;
`floor((g a) / (g b)) = floor(a / b)`; `floor(r / q) = 0` for `0 <= r < q`.
"""

from __future__ import annotations

from math import gcd

from linnet.dims.dim import (
    ZERO,
    Dim,
    Knowledge,
    Monomial,
    combine,
    floor_atom,
    make,
    of_atom,
    quotient,
)

MAX_DIVISION_STEPS = 40


def floor_divide(p: Dim, q: Dim, known: Knowledge) -> Dim:
    """`floor(p / q)` in normal form. Only rules that hold for a divisor `known` to be positive
    are used; otherwise the quotient stays as it was written."""
    divisor = q.constant
    if divisor is not None and divisor < 0:
        return floor_divide(-p, -q, known)
    if divisor == 1:
        return p
    if divisor == 0:
        return floor_atom(p, q)
    if divisor is not None:
        return _by_constant(p, divisor, known)
    if not known.positive(q):
        return floor_atom(p, q)
    if not p.terms:
        return ZERO
    if (within := _in_range(p, q, known)) is not None:
        return within
    whole, rest = _divide(p, q)
    if (within := _in_range(rest, q, known)) is not None:
        return whole + within
    rest, q = _cancel(rest, q)
    if q.constant is not None:
        return whole + floor_divide(rest, q, known)
    return whole + _nested(rest, q, known)


def _by_constant(p: Dim, c: int, known: Knowledge) -> Dim:
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, coefficient in p.terms:
        whole[monomial], rest[monomial] = divmod(coefficient, c)
    # floor((g x + k) / (g c)) = floor((x + floor(k / g)) / c)
    common = c
    for monomial, coefficient in rest.items():
        if monomial:
            common = gcd(common, coefficient)
    reduced = make({monomial: coefficient // common for monomial, coefficient in rest.items()})
    outside = make(whole)
    c //= common
    if c == 1:
        return outside + reduced
    q = Dim.const(c)
    if (within := _in_range(reduced, q, known)) is not None:
        return outside + within
    return outside + _nested(reduced, q, known)


def _in_range(p: Dim, q: Dim, known: Knowledge) -> Dim | None:
    """0 for `0 <= p < q`, -1 for `-q <= p < 0`."""
    if not p.terms:
        return ZERO
    # A cheap look at the signs first: most remainders are of neither kind.
    if known.nonnegative(p):
        return ZERO if known.nonnegative(q - p - 1) else None
    if known.nonnegative(-p - 1) and known.nonnegative(p + q):
        return Dim.const(-1)
    return None


def _divide(p: Dim, q: Dim) -> tuple[Dim, Dim]:
    """`(s, r)` with `p = q s + r`. A divisor of several terms is used only where the remainder
    is shorter than `p`, so that the result is never more complicated."""
    lead, c = q.terms[0]
    if len(q.terms) == 1:
        whole: dict[Monomial, int] = {}
        rest: dict[Monomial, int] = {}
        for monomial, coefficient in p.terms:
            inner = quotient(monomial, lead)
            if inner is None:
                rest[monomial] = coefficient
            else:
                whole[inner], rest[monomial] = divmod(coefficient, c)
        return make(whole), make(rest)
    total, rest_dim = ZERO, p
    for _ in range(MAX_DIVISION_STEPS):
        for monomial, coefficient in rest_dim.terms:
            inner = quotient(monomial, lead)
            if inner is not None and coefficient // c and (c > 0 or coefficient % c == 0):
                step = make({inner: coefficient // c})
                break
        else:
            break
        total, rest_dim = total + step, rest_dim - step * q
        if len(rest_dim.terms) > 2 * (len(p.terms) + len(q.terms)):
            return ZERO, p
    return (total, rest_dim) if len(rest_dim.terms) < len(p.terms) else (ZERO, p)


def _cancel(p: Dim, q: Dim) -> tuple[Dim, Dim]:
    """Divide both by their common content: an integer, and non-negative atoms. (A factor of a
    positive divisor is not zero, so such an atom is positive.)"""
    terms = p.terms + q.terms
    number = 0
    for _, coefficient in terms:
        number = gcd(number, coefficient)
    shared = dict(terms[0][0])
    for monomial, _ in terms[1:]:
        powers = dict(monomial)
        shared = {a: min(n, powers[a]) for a, n in shared.items() if a in powers}
    factor = tuple((a, n) for a, n in shared.items() if a.low is not None and a.low >= 0)
    if number == 1 and not factor:
        return p, q

    def divided(dim: Dim) -> Dim:
        result: dict[Monomial, int] = {}
        for monomial, coefficient in dim.terms:
            inner = quotient(monomial, factor)
            assert inner is not None
            result[inner] = coefficient // number
        return make(result)

    return divided(p), divided(q)


def _nested(p: Dim, q: Dim, known: Knowledge) -> Dim:
    """`floor((floor(a / b) + k) / q) = floor((a + k b) / (b q))`."""
    for monomial, coefficient in p.terms:
        if coefficient == 1 and len(monomial) == 1 and monomial[0][1] == 1:
            atom = monomial[0][0]
            if atom.kind == "floor":
                a, b = atom.args
                k = combine([(1, p), (-1, of_atom(atom))])
                return floor_divide(a + k * b, b * q, known)
    return floor_atom(p, q)
