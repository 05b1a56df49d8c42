"""Assumptions about dimensions, and the prover's front."""

from __future__ import annotations

from collections.abc import Iterable

from linnet.dims.dim import Dim, DimTooLarge, as_dim
from linnet.dims.fact import Fact, Proof
from linnet.dims.rules import MAX_STEPS
from linnet.dims.theory import Theory, theory


class Facts:
    """Assumptions (`where` clauses), immutable. Every name is non-negative besides.

    Proofs are kept, so asking again costs a look-up. A goal that grows beyond the bounds of `Dim`
    while it is normalized counts as unknown.
    """

    def __init__(self, facts: Iterable[Fact] = (), *, steps: int = MAX_STEPS):
        """`steps` bounds the work on one question."""
        self.facts: tuple[Fact, ...] = tuple(dict.fromkeys(facts))
        self.steps = steps
        self._theory: Theory | None = None
        self._proofs: dict[Fact, Proof] = {}
        self._stated: set[tuple[str, Dim]] | None = None

    @property
    def theory(self) -> Theory:
        if self._theory is None:
            self._theory = theory(frozenset(self.facts), self.steps)
        return self._theory

    def extend(self, facts: Iterable[Fact]) -> Facts:
        """These assumptions and more."""
        added = [fact for fact in facts if fact not in self.facts]
        return Facts((*self.facts, *added), steps=self.steps) if added else self

    def equal(self, a: Dim | int, b: Dim | int) -> bool:
        return as_dim(a) == as_dim(b) or self.holds("==", a, b)

    def holds(self, op: str, a: Dim | int, b: Dim | int) -> bool:
        """Whether `a op b` follows from the assumptions. False where that is not proven."""
        try:
            op, goal = _goal(op, as_dim(a), as_dim(b))
            return self._plain(op, goal) or self.theory.decide(op, goal)
        except DimTooLarge:
            return False

    def _plain(self, op: str, goal: Dim) -> bool:
        """Whether the goal is true by itself, or one of the assumptions as it stands: most are,
        and need no theory."""
        if op == ">=":
            if goal.low is not None and goal.low >= 0:
                return True
        elif op == "==" and not goal.terms:
            return True
        if self._stated is None:
            self._stated = set()
            for fact in self.facts:
                try:
                    self._stated.add(_goal(fact.op, fact.left, fact.right))
                except DimTooLarge:
                    continue
        return (op, goal) in self._stated

    def prove(self, fact: Fact) -> Proof:
        """Decide `fact`. Where it is not proven, sizes are searched that satisfy the assumptions
        and not the goal."""
        found = self._proofs.get(fact)
        if found is None:
            found = self._proofs[fact] = self._prove(fact)
        return found

    def _prove(self, fact: Fact) -> Proof:
        if self.holds(fact.op, fact.left, fact.right):
            return Proof("proven")
        from linnet.dims.suggestion import missing, residual
        from linnet.dims.witness import counterexample

        witness = counterexample(self, fact)
        negated = fact.negated()
        refuted = witness is not None or self.holds(negated.op, negated.left, negated.right)
        return Proof(
            "refuted" if refuted else "unknown",
            witness,
            lambda: missing(self, fact),
            lambda: residual(self, fact),
        )

    def simplify(self, dim: Dim) -> Dim:
        """`dim` as the assumptions allow to write it, in the user's names."""
        try:
            prover = self.theory.prover
            return prover.original(prover.normal(dim))
        except DimTooLarge:
            return dim

    @property
    def contradictory(self) -> bool:
        """Whether the assumptions were found to exclude each other; then anything is proven."""
        return self.theory.contradictory

    @property
    def unused(self) -> list[Fact]:
        """Assumptions that could not be turned into a rule or an inequality."""
        return [fact for fact in self.facts if fact in self.theory.unused]


def _goal(op: str, left: Dim, right: Dim) -> tuple[str, Dim]:
    """`left op right` as `==`, `!=` or `>=` of one dimension and 0."""
    if op in ("==", "!="):
        return op, left - right
    if op in ("<", ">"):
        return ">=", right - left - 1 if op == "<" else left - right - 1
    return ">=", right - left if op == "<=" else left - right
