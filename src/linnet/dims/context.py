"""Assumptions made ready for proving.

Equalities become rules by elimination over the integers. `D % N == 0` is the equality
`D == N * floor(D / N)`; its quotient is abstracted to a fresh name, so `D` is rewritten to `N * d`.
Every fresh name has a definition in the user's names, and nothing printed shows a fresh one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import gcd

from linnet.dims.bounds import monomial_interval
from linnet.dims.dim import (
    Atom,
    Dim,
    DimTooLarge,
    Term,
    combine,
    degree,
    make,
    of_atom,
    quotient,
    rebuild,
)
from linnet.dims.fact import Fact
from linnet.dims.rules import MAX_STEPS, Rules
from linnet.record import dataclass

MAX_RULES = 60


@dataclass(frozen=True, slots=True)
class Equation:
    """`dim == 0`; `source` is the fact it came from."""

    dim: Dim
    source: Fact | None
    abstract: bool = True  # whether quotients in it may be given fresh names
    linked: bool = False  # a fresh name and its definition; not to be solved for the name

    def of(self, dim: Dim) -> Equation:
        """The same equation in another form."""
        return Equation(dim, self.source, self.abstract, self.linked)


class Context(Rules):
    def __init__(
        self,
        equalities: Iterable[tuple[Dim, Fact]],
        inequalities: Iterable[Dim],
        steps: int = MAX_STEPS,
        products: bool = True,
    ):
        super().__init__(inequalities, steps)
        self.products = products  # whether products may be rewritten
        self.abstracted: dict[Atom, Dim] = {}  # quotient -> the fresh name that stands for it
        self.unsolved: list[Equation] = []
        self._source = list(self.inequalities)  # as they were before any rule
        equations = [Equation(dim, fact) for dim, fact in equalities]
        try:
            self._solve(equations)
            self._sign_fresh_names()
        except DimTooLarge:
            # Every rule made so far is true by itself; the rest is left to elimination.
            self.unsolved = equations
        self._memo.clear()
        self.begin()
        for equation in self.unsolved:
            try:
                dim = self.normal(equation.dim)
            except DimTooLarge:
                dim = equation.dim
            self.inequalities += [dim, -dim]
        for monomial, value in self.monomials.items():
            # Rewriting hides the product; its factors are still bounded by it.
            dim = make({monomial: 1}) - value
            self.inequalities += [dim, -dim]
        self._derive_bounds()
        self._memo.clear()

    def _solve(self, pending: list[Equation]) -> None:
        for _ in range(MAX_RULES):
            normalized: list[Equation] = []
            for equation in pending:
                dim = _primitive(self.normal(equation.dim))
                if dim is None or (dim.constant or 0) != 0:
                    self.contradiction = True
                    return
                if dim.terms:
                    normalized.append(
                        Equation(dim, equation.source, equation.abstract, equation.linked)
                    )
            pending = list(dict.fromkeys(normalized))
            self.spend(len(pending) + len(self._source))
            pending.sort(key=lambda equation: equation.dim.key)
            for step in (self._by_name, self._by_abstraction, self._by_atom, self._by_monomial):
                solved = next((e for e in pending if step(e)), None)
                if solved is not None:
                    pending.remove(solved)
                    pending += self._revise()
                    break
            else:
                break
        self.unsolved = pending

    def _rule(self, atom: Atom, value: Dim) -> None:
        low, _ = self.bounds_of(atom)
        if low is not None:
            self._source.append(value - low)
        if atom.kind == "floor" and self.positive(atom.args[1]):
            p, q = atom.args
            rest = p - q * value
            self._source += [rest, q - 1 - rest]
        elif atom.kind in ("min", "max"):
            sign = 1 if atom.kind == "min" else -1
            self._source += [sign * (arg - value) for arg in atom.args]
        self.atoms[atom] = value

    def _revise(self) -> list[Equation]:
        """Bring everything up to date after a new rule; rules on compound atoms and products whose
        left side has changed go back to the equations."""
        self._memo.clear()
        back: list[Equation] = []
        for atom, value in list(self.atoms.items()):
            if atom.kind == "name":
                self.atoms[atom] = self.normal(value)
                continue
            del self.atoms[atom]
            self._memo.clear()
            left = self.normal(of_atom(atom))
            if left == of_atom(atom):
                self.atoms[atom] = self.normal(value)
            elif left != value:
                back.append(Equation(left - value, None, False))
        for monomial, value in list(self.monomials.items()):
            del self.monomials[monomial]
            self._memo.clear()
            left_dim = make({monomial: 1})
            left = self.normal(left_dim)
            if left == left_dim:
                self.monomials[monomial] = self.normal(value)
            elif left != value:
                back.append(Equation(left - value, None, False))
        self._memo.clear()
        for atom, name in self.abstracted.items():
            left, right = self.normal(of_atom(atom)), self.normal(name)
            if left != right:
                back.append(Equation(left - right, None, False, True))
        self.inequalities = sorted(
            {normal for dim in self._source if (normal := self.normal(dim)).terms},
            key=lambda d: d.key,
        )
        self._derive_bounds()
        self._memo.clear()
        return back

    def _by_name(self, equation: Equation) -> bool:
        """Solve for a name with coefficient 1 or -1, or take steps of the extended gcd."""
        return not equation.linked and self._solve_linear(equation.dim)

    def _solve_linear(self, dim: Dim) -> bool:
        names = _free_names(dim)
        units = [(a, c) for a, c in names if abs(c) == 1]
        if units:

            def preference(item: tuple[Atom, int]) -> tuple[bool, str]:
                value = _solved(dim, *item)
                return (not self._at_least_zero(value), item[0].name)

            atom, c = min(units, key=preference)
            self._rule(atom, _solved(dim, atom, c))
            return True
        if len(names) < 2:
            return False
        atom, c = min(names, key=lambda item: (abs(item[1]), item[0].name))
        if all(other % c == 0 for _, other in names):
            return False
        if c < 0:
            return self._solve_linear(-dim)
        # t = atom + sum of (coefficient // c) * monomial leaves coefficients below c.
        whole = make({m: k // c for m, k in dim.terms})
        fresh = self._fresh(whole, signed=True)
        rest = make({m: k % c for m, k in dim.terms}) + c * fresh
        following = _primitive(rest)
        if following is None:
            self.contradiction = True
            return True
        if not self._solve_linear(following):
            return False
        # The steps inside may have replaced names of this value already; `_revise` settles it.
        self._rule(atom, fresh - whole + of_atom(atom))
        return True

    def _by_abstraction(self, equation: Equation) -> bool:
        """Give quotients fresh names, so that what also stands inside them can be solved for."""
        dim = equation.dim
        if not equation.abstract:
            return False
        atoms = list(dict.fromkeys(dim.atoms()))
        compound = [
            atom
            for atom in atoms
            if atom.kind != "name"
            and not any(_inside(atom, arg) for other in atoms for arg in other.args)
        ]
        if not compound:
            return False
        rules, source, definitions = dict(self.atoms), list(self._source), dict(self.definitions)
        fresh: dict[Atom, Dim] = {}
        for atom in compound:
            low = self._low(atom)
            fresh[atom] = self._fresh(of_atom(atom), signed=low is None or low < 0)
        abstracted = rebuild(dim, lambda a: fresh.get(a, of_atom(a)))
        added = self.definitions.keys() - definitions.keys()
        solved = self._solve_linear(abstracted) and any(
            atom.name not in added for atom in self.atoms.keys() - rules.keys()
        )
        if not solved:
            self.atoms, self._source = rules, source
            if not self._by_monomial(Equation(abstracted, None)):
                self.definitions = definitions
                return False
        self.abstracted.update(fresh)
        return True

    def _low(self, atom: Atom) -> int | None:
        if atom.kind == "floor" and self.positive(atom.args[1]) and self.nonnegative(atom.args[0]):
            return 0
        return self.bounds_of(atom)[0]

    def _by_atom(self, equation: Equation) -> bool:
        """Solve for a quotient, minimum or maximum with coefficient 1 or -1."""
        for monomial, c in equation.dim.terms:
            if abs(c) == 1 and len(monomial) == 1 and monomial[0][1] == 1:
                atom = monomial[0][0]
                value = _solved(equation.dim, atom, c)
                if atom.kind != "name" and not _inside(atom, value):
                    self._rule(atom, value)
                    return True
        return False

    def _by_monomial(self, equation: Equation) -> bool:
        """Rewrite the first product, where it has coefficient 1 or -1."""
        monomial, c = equation.dim.terms[0]
        if not self.products or abs(c) != 1 or degree(monomial) < 2:
            return False
        value = combine([(-c, equation.dim), (1, make({monomial: 1}))])
        if any(quotient(m, monomial) is not None for m, _ in _all_terms(value)):
            return False
        low = monomial_interval(monomial, self.bounds_of)[0]
        if low is not None:
            self._source.append(value - low)
        self.monomials[monomial] = value
        return True

    def _fresh(self, definition: Dim, signed: bool) -> Dim:
        name = f"{'~' if signed else '$'}{len(self.definitions)}"
        self.definitions[name] = definition
        return Dim.name(name)

    def _sign_fresh_names(self) -> None:
        """Fresh names of either sign whose sign is known by now become non-negative ones."""
        live = {a for dim in self.atoms.values() for a in dim.atoms() if a.name[:1] == "~"}
        for atom in sorted(live, key=lambda a: a.name):
            low, high = self.bounds_of(atom)
            sign = 1 if low is not None and low >= 0 else -1
            if sign < 0 and (high is None or high > 0):
                continue
            fresh = self._fresh(sign * of_atom(atom), signed=False)
            self._rule(atom, sign * fresh)
            self.unsolved += self._revise()


def _free_names(dim: Dim) -> list[tuple[Atom, int]]:
    """Names that occur once, alone in their term, with its coefficient."""
    seen: dict[str, int] = {}
    for monomial, _ in dim.terms:
        for name in frozenset().union(*(a.names for a, _ in monomial)):
            seen[name] = seen.get(name, 0) + 1
    return [
        (monomial[0][0], c)
        for monomial, c in dim.terms
        if len(monomial) == 1
        and monomial[0][1] == 1
        and monomial[0][0].kind == "name"
        and seen[monomial[0][0].name] == 1
    ]


def _solved(dim: Dim, atom: Atom, c: int) -> Dim:
    """`atom` from `dim == 0`, where it stands with coefficient `c`, 1 or -1."""
    return combine([(-c, dim), (1, of_atom(atom))])


def _inside(atom: Atom, dim: Dim) -> bool:
    return any(a is atom or a == atom or any(_inside(atom, arg) for arg in a.args)
               for a in dim.atoms())  # fmt: skip


def _all_terms(dim: Dim) -> Iterator[Term]:
    """The terms of `dim` and of everything inside its atoms."""
    yield from dim.terms
    for atom in dim.atoms():
        for arg in atom.args:
            yield from _all_terms(arg)


def _primitive(dim: Dim) -> Dim | None:
    """An equation divided by the content of its unknowns; None where it has no integer solution."""
    common = 0
    for monomial, coefficient in dim.terms:
        if monomial:
            common = gcd(common, coefficient)
    if common <= 1:
        return dim
    if dim.coefficient(()) % common:
        return None
    return make({monomial: coefficient // common for monomial, coefficient in dim.terms})
