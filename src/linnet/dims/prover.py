"""Inequalities under assumptions: quick tests, factors, then bounded elimination.

To prove `g >= 0`, assume `g <= -1` and look for a contradiction. Beside the assumptions these are
given: bounds of every unknown; `q f <= p < q f + q` for each `f = floor(p / q)` with `q > 0`;
products of two assumptions, where their terms occur already; for `min` and `max`, each case.
"""

from __future__ import annotations

from collections.abc import Iterable

from linnet.dims.bounds import interval, monomial_interval
from linnet.dims.context import Context
from linnet.dims.dim import (
    Atom,
    Dim,
    DimTooLarge,
    Monomial,
    degree,
    make,
    of_atom,
    quotient,
    rebuild,
)
from linnet.dims.elimination import contradictory
from linnet.dims.fact import Fact
from linnet.dims.rules import MAX_STEPS

MAX_ASSUMPTIONS = 48
MAX_FLOORS = 12
MAX_PRODUCTS = 48
ELIMINATION_STEPS = 50  # what one elimination takes of the budget
MAX_CASES = 3  # minima and maxima split at once


class Prover(Context):
    """A context that also decides signs by elimination."""

    def __init__(
        self,
        equalities: Iterable[tuple[Dim, Fact]],
        inequalities: Iterable[Dim],
        steps: int = MAX_STEPS,
        products: bool = True,
    ):
        self._signs: dict[Dim, bool] = {}
        self._open: set[Dim] = set()  # goals being proven, which divisors of theirs must not use
        self._ready = False
        super().__init__(equalities, inequalities, steps, products)
        self._ready = True

    def inconsistent(self) -> bool:
        """Whether the assumptions are found to exclude each other."""
        if not self.contradiction and len(self.inequalities) <= MAX_ASSUMPTIONS:
            self.begin()
            try:
                self.contradiction = self._refute([], 0)
            except DimTooLarge:
                pass  # not found out
        return self.contradiction

    def positive(self, dim: Dim) -> bool:
        return self.at_least_zero(dim - 1) if self._ready else super().positive(dim)

    def at_least_zero(self, dim: Dim) -> bool:
        """Whether `dim`, in normal form, is never negative."""
        known = self._signs.get(dim)
        if known is not None:
            return known
        if self.nonnegative(dim):
            return True
        if dim in self._open or len(self._open) > 3:
            return False
        self._open.add(dim)
        try:
            result = self._by_factor(dim) or self._refute([-dim - 1], 0)
        finally:
            self._open.discard(dim)
        if result or not self._open:
            self._signs[dim] = result
        return result

    def _by_factor(self, dim: Dim) -> bool:
        """`m g >= 0` where the common product `m` and `g` are both non-negative, and
        `m g >= 1` where both are positive."""
        constant = dim.coefficient(())
        rest = dim - constant
        if constant not in (0, -1) or len(rest.terms) < 2:
            return False
        powers = dict(rest.terms[0][0])
        for monomial, _ in rest.terms[1:]:
            other = dict(monomial)
            powers = {a: min(n, other[a]) for a, n in powers.items() if a in other}
        factor = tuple(powers.items())
        if not factor:
            return False
        low = monomial_interval(factor, self.bounds_of)[0]
        if low is None or low < (0 if constant == 0 else 1):
            return False
        inner: dict[Monomial, int] = {}
        for monomial, coefficient in rest.terms:
            divided = quotient(monomial, factor)
            assert divided is not None
            inner[divided] = coefficient
        return self.at_least_zero(make(inner) + constant)

    def _refute(self, hypotheses: list[Dim], cases: int, split: tuple[Atom, ...] = ()) -> bool:
        """Whether `hypotheses`, each `>= 0`, contradict the assumptions."""
        self.spend(ELIMINATION_STEPS)
        found = self._relevant(hypotheses)
        extreme = next(
            (
                atom
                for dim in found
                for atom in dim.atoms()
                if atom.kind in ("min", "max") and atom not in split
            ),
            None,
        )
        if extreme is not None and cases < MAX_CASES:
            return all(
                self._refute(
                    [_replace(dim, extreme, arg) for dim in found]
                    + [
                        arg - other if extreme.kind == "max" else other - arg
                        for other in extreme.args
                        if other is not arg
                    ],
                    cases + 1,
                    (*split, extreme),
                )
                for arg in extreme.args
            )
        found += self._implied_bounds(hypotheses)
        found += self._floor_bounds(found)
        for atom in {a: None for dim in found for a in dim.atoms() if a.kind in ("min", "max")}:
            for arg in atom.args:
                bound = arg - of_atom(atom)
                found.append(bound if atom.kind == "min" else -bound)
        found += self._products(found, hypotheses)
        return contradictory(found + self._unknown_bounds(found))

    def _relevant(self, hypotheses: list[Dim]) -> list[Dim]:
        """The hypotheses and the assumptions that share atoms with them, in a few rounds."""
        if not hypotheses:
            return list(self.inequalities)
        found = list(hypotheses)
        names = {name for dim in found for name in dim.names()}
        waiting = list(self.inequalities)
        while waiting and len(found) < MAX_ASSUMPTIONS:
            near = [dim for dim in waiting if not names.isdisjoint(dim.names())]
            if not near:
                break
            near.sort(key=lambda dim: (len(dim.terms), dim.key))
            found += near[: MAX_ASSUMPTIONS - len(found)]
            waiting = [dim for dim in waiting if dim not in near]
            names.update(name for dim in near for name in dim.names())
        return found

    def _implied_bounds(self, hypotheses: list[Dim]) -> list[Dim]:
        """Lower bounds of single atoms that follow from one hypothesis and known bounds."""
        bounds: list[Dim] = []
        for dim in hypotheses:
            for monomial, coefficient in dim.terms:
                if coefficient > 0 and degree(monomial) == 1:
                    unknown = make({monomial: coefficient})
                    most = interval(dim - unknown, self.bounds_of)[1]
                    if most is not None:
                        bounds.append(make({monomial: 1}) + most // coefficient)
        return bounds

    def _floor_bounds(self, found: list[Dim]) -> list[Dim]:
        bounds: list[Dim] = []
        waiting = [a for dim in found for a in dim.atoms() if a.kind == "floor"]
        done: set[Atom] = set()
        while waiting and len(done) < MAX_FLOORS:
            atom = waiting.pop(0)
            if atom in done:
                continue
            done.add(atom)
            p, q = atom.args
            if self.positive(q):
                rest = p - q * of_atom(atom)
                bounds += [rest, q - 1 - rest]
                if self.nonnegative(p):
                    bounds += [of_atom(atom), p - of_atom(atom)]
                waiting += [a for a in (*p.atoms(), *q.atoms()) if a.kind == "floor"]
        return bounds

    def _products(self, found: list[Dim], hypotheses: list[Dim]) -> list[Dim]:
        """Products of two of `found`, or of one and an unknown, without new terms."""
        monomials = {m for dim in found for m, _ in dim.terms}
        if not any(degree(m) > 1 for m in monomials):
            return []
        # A factor of a product that occurs may stand alone in a new row.
        factors = {a for m in monomials if degree(m) > 1 for a, _ in m}
        monomials |= {((a, 1),) for a in factors} | {()}
        units: list[Dim] = []
        for atom in sorted(factors, key=lambda a: a.key):
            low, high = self.bounds_of(atom)
            if low is not None:
                units += [of_atom(atom) - low] + ([of_atom(atom)] if low > 0 else [])
            if high is not None:
                units.append(high - of_atom(atom))
        short = [dim for dim in dict.fromkeys(found) if len(dim.terms) <= 6]
        short = [dim for dim in short if any(a in factors for a in dim.atoms())][:24]
        results: list[Dim] = []
        pairs = [(a, b) for a in short for b in units]
        pairs += [(a, b) for i, a in enumerate(units) for b in units[: i + 1]]
        pairs += [(a, b) for i, a in enumerate(short) for b in short[: i + 1]]
        for a, b in pairs[:1200]:
            # The leading product decides most pairs without multiplying.
            lead = dict(a.terms[0][0])
            for atom, power in b.terms[0][0]:
                lead[atom] = lead.get(atom, 0) + power
            if tuple(sorted(lead.items(), key=lambda item: item[0].key)) not in monomials:
                continue
            product = a * b
            if all(m in monomials for m, _ in product.terms):
                results.append(product)
                if len(results) >= MAX_PRODUCTS:
                    break
        return results

    def _unknown_bounds(self, found: list[Dim]) -> list[Dim]:
        bounds: list[Dim] = []
        for monomial in {m: None for dim in found for m, _ in dim.terms if m}:
            low, high = monomial_interval(monomial, self.bounds_of)
            unknown = make({monomial: 1})
            if low is not None:
                bounds.append(unknown - low)
            if high is not None:
                bounds.append(high - unknown)
        return bounds

    def span(self, dim: Dim) -> tuple[int | None, int | None]:
        """Bounds of `dim` by intervals."""
        return interval(dim, self.bounds_of)


def _replace(dim: Dim, atom: Atom, value: Dim) -> Dim:
    if atom not in dim.atoms():
        return dim
    return rebuild(dim, lambda a: value if a == atom else of_atom(a))
