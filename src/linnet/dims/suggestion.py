"""What is left of a goal, and a `where` clause that would prove it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from linnet.dims.dim import Atom, Dim, DimTooLarge, Monomial, make, quotient
from linnet.dims.fact import Fact
from linnet.dims.witness import satisfiable

if TYPE_CHECKING:
    from linnet.dims.facts import Facts

MAX_CANDIDATES = 24
MAX_SPENT = 6000  # steps on all of them
CANDIDATE_STEPS = 600  # to prove the goal with one of them


def residual(facts: Facts, goal: Fact) -> str:
    """The goal after normalization, terms on the side where they are positive."""
    rest = _rest(facts, goal)
    return "" if rest is None else str(rest)


def missing(facts: Facts, goal: Fact) -> Fact | None:
    """The simplest fact found under which `goal` is proven, and with which the assumptions can
    still be satisfied."""
    from linnet.dims.facts import Facts

    seen: set[Fact] = set()
    spent = 0
    try:
        for candidate in _candidates(facts, goal):
            if candidate in seen or not candidate.names():
                continue
            seen.add(candidate)
            if len(seen) > MAX_CANDIDATES or spent > MAX_SPENT:
                break
            extended = Facts((*facts.facts, candidate), steps=CANDIDATE_STEPS)
            if (
                not extended.contradictory
                and extended.holds(goal.op, goal.left, goal.right)
                and satisfiable(extended, candidate.names() | goal.names())
                # Once more as the user will have it, with the whole budget.
                and facts.extend([candidate]).holds(goal.op, goal.left, goal.right)
            ):
                return candidate
            spent += extended.theory.spent
    except DimTooLarge:
        pass
    return None


def _rest(facts: Facts, goal: Fact) -> Fact | None:
    try:
        rest = facts.simplify(goal.left - goal.right)
        left = make({m: c for m, c in rest.terms if c > 0})
        right = make({m: -c for m, c in rest.terms if c < 0})
    except DimTooLarge:
        return None
    return _tidy(Fact(goal.op, left, right))


def _candidates(facts: Facts, goal: Fact) -> Iterator[Fact]:
    rest = _rest(facts, goal)
    dims = [goal.left, goal.right] + ([] if rest is None else [rest.left, rest.right])
    floors = list(dict.fromkeys(a for dim in dims for a in _quotients(dim)))
    for atom in floors:
        p, q = atom.args
        yield Fact("==", p % q, Dim.const(0))
        if q.constant is None and not facts.holds(">", q, 0):
            yield from _positive(q)
    names = [Dim.name(name) for name in sorted(goal.names())]
    for name in names:
        if not facts.holds(">", name, 0):
            yield Fact(">", name, Dim.const(0))
    if rest is not None:
        yield from _below_quotient(facts, rest)
        if rest.op in ("==", ">=", "<="):
            yield _without_common_factor(rest)
        yield rest
    yield goal


def _below_quotient(facts: Facts, rest: Fact) -> Iterator[Fact]:
    """`floor(p / q) >= c` is `p >= c q`."""
    quotient_of = next(iter(rest.left.atoms()), None)
    constant = rest.right.constant
    if constant is None or quotient_of is None or rest.op not in (">", ">="):
        return
    if rest.left.terms != ((((quotient_of, 1),), 1),) or quotient_of.kind != "floor":
        return
    p, q = quotient_of.args
    if facts.holds(">", q, 0):
        yield Fact(">=", p, q * (constant + (rest.op == ">")))


def _tidy(fact: Fact) -> Fact:
    """`a >= b + 1` as `a > b`, `a < b + 1` as `a <= b`, and the mirror images."""
    op, left, right = fact.op, fact.left, fact.right
    if op in ("<", "<=") and left.coefficient(()) == 1 and right.coefficient(()) == 0:
        return _tidy(Fact({"<": ">", "<=": ">="}[op], right, left))
    if right.coefficient(()) == 1 and op in (">=", "<"):
        return Fact({">=": ">", "<": "<="}[op], left, right - 1)
    return fact


def _positive(dim: Dim) -> Iterator[Fact]:
    names = dim.names()
    if len(names) == 1:
        yield Fact(">", Dim.name(next(iter(names))), Dim.const(0))
    yield Fact(">", dim, Dim.const(0))


def _quotients(dim: Dim) -> Iterator[Atom]:
    for atom in dim.atoms():
        if atom.kind == "floor":
            yield atom
        for arg in atom.args:
            yield from _quotients(arg)


def _without_common_factor(fact: Fact) -> Fact:
    """`B * H == B * K` follows from `H == K`."""
    terms = fact.left.terms + fact.right.terms
    if len(terms) < 2:
        return fact
    powers = dict(terms[0][0])
    for monomial, _ in terms[1:]:
        other = dict(monomial)
        powers = {a: min(n, other[a]) for a, n in powers.items() if a in other}
    factor: Monomial = tuple(powers.items())

    def divided(dim: Dim) -> Dim:
        result: dict[Monomial, int] = {}
        for monomial, coefficient in dim.terms:
            inner = quotient(monomial, factor)
            assert inner is not None
            result[inner] = coefficient
        return make(result)

    return Fact(fact.op, divided(fact.left), divided(fact.right)) if factor else fact
