"""One set of assumptions, prepared once: every `Facts` with the same clauses shares it."""

from __future__ import annotations

from functools import lru_cache

from linnet.dims.dim import Dim, DimTooLarge
from linnet.dims.fact import Fact
from linnet.dims.prover import Prover
from linnet.dims.rules import MAX_STEPS

KEPT = 512  # theories kept; a package has a few dozen


class Theory:
    """The assumptions as rules and inequalities, and the answers found so far.

    `steps` is the budget of one question. Where the equalities exceed theirs, they are used as
    inequalities only and reported as unused.
    """

    def __init__(self, facts: frozenset[Fact], steps: int = MAX_STEPS):
        self.unused: set[Fact] = set()
        self.answers: dict[tuple[str, Dim], bool] = {}
        self._contradiction: bool | None = None
        equalities: list[tuple[Dim, Fact]] = []
        inequalities: list[Dim] = []
        different: list[tuple[Dim, Fact]] = []
        for fact in sorted(facts, key=lambda f: (f.op, f.left.key, f.right.key)):
            try:
                difference = fact.left - fact.right
            except DimTooLarge:
                self.unused.add(fact)
                continue
            if fact.op == "==":
                equalities.append((difference, fact))
            elif fact.op == "!=":
                different.append((difference, fact))
            elif fact.op in (">", ">="):
                inequalities.append(difference - 1 if fact.op == ">" else difference)
            else:
                inequalities.append(-difference - 1 if fact.op == "<" else -difference)
        prover = Prover(equalities, inequalities, steps)
        # x != 0 is x > 0 or x < 0 where the other is excluded.
        signed: list[Dim] = []
        prover.begin()
        for difference, fact in different:
            if self._follows(prover, ">=", difference):
                signed.append(difference - 1)
            elif self._follows(prover, ">=", -difference):
                signed.append(-difference - 1)
            else:
                self.unused.add(fact)
        if signed:
            inequalities += signed
            prover = Prover(equalities, inequalities, steps)
        self.unused.update(e.source for e in prover.unsolved if e.source is not None)
        self.views = [prover]
        if prover.monomials:
            # A rewritten product can hide a factor that the other view keeps.
            self.views.append(Prover(equalities, inequalities, steps, products=False))

    @property
    def prover(self) -> Prover:
        """The first view, with a full budget."""
        self.views[0].begin()
        return self.views[0]

    @property
    def spent(self) -> int:
        """Steps used so far."""
        return sum(view.spent for view in self.views)

    @property
    def contradictory(self) -> bool:
        """Whether the assumptions were found to exclude each other."""
        if self._contradiction is None:
            self._contradiction = any(view.inconsistent() for view in self.views)
        return self._contradiction

    def decide(self, op: str, goal: Dim) -> bool:
        """Whether `goal op 0` follows; `op` is `==`, `!=` or `>=`."""
        found = self.answers.get((op, goal))
        if found is None:
            for view in self.views:
                view.begin()
            found = any(self._follows(view, op, goal) for view in self.views)
            found = self.answers[op, goal] = found or self.contradictory
        return found

    def _follows(self, prover: Prover, op: str, goal: Dim) -> bool:
        try:
            normal = prover.normal(goal)
            if op == ">=":
                return prover.at_least_zero(normal)
            if op == "==":
                return self._is_zero(prover, normal)
            return self._is_not_zero(prover, normal)
        except DimTooLarge:
            return False

    def _is_zero(self, prover: Prover, normal: Dim) -> bool:
        if normal.constant is not None:
            return normal.constant == 0
        low, high = prover.span(normal)
        if (low is not None and low > 0) or (high is not None and high < 0):
            return False
        return prover.at_least_zero(normal) and prover.at_least_zero(-normal)

    def _is_not_zero(self, prover: Prover, normal: Dim) -> bool:
        if normal.constant is not None:
            return normal.constant != 0
        for fact in self.unused:
            if fact.op == "!=":
                other = prover.normal(fact.left - fact.right)
                if other in (normal, -normal):
                    return True
        return prover.at_least_zero(normal - 1) or prover.at_least_zero(-normal - 1)


@lru_cache(maxsize=KEPT)
def theory(facts: frozenset[Fact], steps: int = MAX_STEPS) -> Theory:
    return Theory(facts, steps)
