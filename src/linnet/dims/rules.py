"""Rewriting rules, inequalities and bounds of atoms: what quick answers are read from."""

from __future__ import annotations

from collections.abc import Iterable

from linnet.dims.bounds import Bounds, atom_bounds, interval
from linnet.dims.dim import (
    Atom,
    Dim,
    DimTooLarge,
    Monomial,
    combine,
    degree,
    make,
    of_atom,
    quotient,
    rebuild,
    rebuild_atom,
)

MAX_PASSES = 12
MAX_BOUND_TERMS = 24
MAX_NESTING = 16
MAX_MEMO = 5000
# Rewrites and sign tests for one question, and for the assumptions themselves; a program's own
# need a few hundred.
MAX_STEPS = 2000
PREPARATION = 2  # times as much for the assumptions as for a question


class Exhausted(DimTooLarge):
    """The step budget of a question is used up, and it counts as unknown."""


class Rules:
    """Rules from equalities, and inequalities in normal form under them.

    It answers `Knowledge`, so that quotients are normalized with the assumptions at hand.
    """

    def __init__(self, inequalities: Iterable[Dim], steps: int):
        self.limit = steps
        self.steps = PREPARATION * steps
        self.spent = 0  # over all questions
        self.contradiction = False
        self.atoms: dict[Atom, Dim] = {}  # atom -> what it equals
        self.monomials: dict[Monomial, Dim] = {}
        self.definitions: dict[str, Dim] = {}  # fresh name -> user's names
        self.bounds: dict[Atom, Bounds] = {}
        self._implied: dict[Atom, Bounds] = {}  # of compound atoms, from their arguments
        self._nesting = 0
        self._memo: dict[Dim, Dim] = {}
        self.inequalities: list[Dim] = sorted(set(inequalities), key=lambda d: d.key)
        self._derive_bounds()

    # -- signs that need no elimination -------------------------------------------------

    def begin(self) -> None:
        """A new question, with a full budget."""
        self.steps = self.limit

    def spend(self, steps: int = 1) -> None:
        self.steps -= steps
        self.spent += steps
        if self.steps < 0:
            raise Exhausted

    def bounds_of(self, atom: Atom) -> Bounds:
        found = self.bounds.get(atom)
        if found is None:
            found = (atom.low, atom.high)
            if atom.kind != "name" and atom.low is None:
                implied = self._implied.get(atom)
                if implied is None:
                    args = [interval(arg, self.bounds_of) for arg in atom.args]
                    implied = self._implied[atom] = atom_bounds(atom.kind, args)
                return implied
        return found

    def nonnegative(self, dim: Dim) -> bool:
        """A quick test of `dim >= 0`: bounds, then one assumption at a time."""
        self.spend(1 + (len(self.inequalities) + len(dim.terms)) // 8)
        if self._at_least_zero(dim):
            return True
        if not any(coefficient > 0 for _, coefficient in dim.terms):
            return False
        for assumed in self.inequalities:
            for factor in _ratios(dim, assumed):
                if self._at_least_zero(combine([(1, dim), (-factor, assumed)])):
                    return True
        return False

    def positive(self, dim: Dim) -> bool:
        return self.nonnegative(dim - 1)

    def _at_least_zero(self, dim: Dim) -> bool:
        low = interval(dim, self.bounds_of)[0]
        if low is not None:
            return low >= 0
        # With a = low + a', a' >= 0: enough where all coefficients come out non-negative.
        shifts = {a: low for a in dim.atoms() if (low := self.bounds_of(a)[0])}
        if not shifts or len(dim.terms) > 12 or degree(dim.terms[0][0]) > 4:
            return False
        shifted = rebuild(dim, lambda a: of_atom(a) + shifts[a] if a in shifts else of_atom(a))

        def remaining(atom: Atom) -> Bounds:
            least, most = self.bounds_of(atom)
            shift = shifts.get(atom, 0)
            return (
                None if least is None else least - shift,
                None if most is None else most - shift,
            )

        low = interval(shifted, remaining)[0]
        return low is not None and low >= 0

    def _derive_bounds(self) -> None:
        """Bounds of single atoms, from inequalities with all but one term bounded."""
        self.bounds = {}
        self._implied.clear()
        for _ in range(4):
            changed = False
            self.steps -= len(self.inequalities) // 4
            if self.steps < 0:
                return
            for dim in self.inequalities:
                if len(dim.terms) > MAX_BOUND_TERMS:
                    continue  # its time grows with the square, and it bounds nothing in practice
                for monomial, coefficient in dim.terms:
                    if monomial:
                        changed |= self._bound(dim, monomial, coefficient)
            if not changed:
                return

    def _bound(self, dim: Dim, monomial: Monomial, coefficient: int) -> bool:
        rest = combine([(1, dim), (-1, make({monomial: coefficient}))])
        most = interval(rest, self.bounds_of)[1]
        if most is None:
            return False
        # coefficient * monomial >= -most
        if coefficient < 0:
            return (
                len(monomial) == 1
                and monomial[0][1] == 1
                and self._narrow(monomial[0][0], None, most // -coefficient)
            )
        least = -(most // coefficient)
        if len(monomial) == 1 and monomial[0][1] == 1:
            return self._narrow(monomial[0][0], least, None)
        if least < 1:
            return False
        # A positive product of non-negatives has positive factors.
        signed = [a for a, _ in monomial if (low := self.bounds_of(a)[0]) is None or low < 0]
        narrowed = [self._narrow(a, 1, None) for a, _ in monomial] if not signed else []
        return any(narrowed)

    def _narrow(self, atom: Atom, low: int | None, high: int | None) -> bool:
        least, most = self.bounds_of(atom)
        better_low = low is not None and (least is None or low > least)
        better_high = high is not None and (most is None or high < most)
        if not better_low and not better_high:
            return False
        least, most = low if better_low else least, high if better_high else most
        self.bounds[atom] = (least, most)
        self._implied.clear()
        if least is not None and most is not None and least > most:
            self.contradiction = True
        return True

    # -- rewriting ------------------------------------------------------------------------

    def normal(self, dim: Dim) -> Dim:
        """`dim` under the rules."""
        found = self._memo.get(dim)
        if found is not None:
            return found
        if self._nesting > MAX_NESTING:
            return dim  # rules that feed each other; stopping anywhere is sound
        self._nesting += 1
        try:
            result = dim
            for _ in range(MAX_PASSES):
                following = self._rewrite_monomials(rebuild(result, self._normal_atom))
                if following == result:
                    break
                result = following
        finally:
            self._nesting -= 1
        if self._nesting == 0 or len(self._memo) < MAX_MEMO:
            self._memo[dim] = result
        return result

    def _normal_atom(self, atom: Atom) -> Dim:
        rule = self.atoms.get(atom)
        if rule is not None:
            return rule
        if atom.kind == "name":
            return of_atom(atom)
        self.spend()
        return rebuild_atom(atom, tuple(self.normal(arg) for arg in atom.args), self)

    def _rewrite_monomials(self, dim: Dim) -> Dim:
        if not self.monomials:
            return dim
        for monomial, coefficient in dim.terms:
            for left, right in self.monomials.items():
                rest = quotient(monomial, left)
                if rest is not None:
                    step = make({rest: coefficient}) * right
                    return combine([(1, dim), (-1, make({monomial: coefficient})), (1, step)])
        return dim

    def original(self, dim: Dim) -> Dim:
        """`dim` without fresh names."""
        for _ in range(len(self.definitions) + 1):
            if dim.names().isdisjoint(self.definitions):
                break
            dim = dim.substitute(self.definitions)
        return dim


def _ratios(dim: Dim, assumed: Dim) -> list[int]:
    """Multiples of `assumed` that cancel a term of `dim`."""
    found: list[int] = []
    for monomial, coefficient in assumed.terms:
        if monomial:
            factor, odd = divmod(dim.coefficient(monomial), coefficient)
            if factor > 0 and not odd and factor not in found:
                found.append(factor)
    return found
