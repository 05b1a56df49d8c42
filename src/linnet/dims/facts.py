"""Assumptions about dimensions, and the prover's front."""

from __future__ import annotations

from collections.abc import Iterable

from linnet.dims.context import MAX_STEPS
from linnet.dims.dim import Dim, DimTooLarge, as_dim
from linnet.dims.fact import Fact, Proof
from linnet.dims.prover import Prover


class Facts:
    """Assumptions (`where` clauses), as an immutable set. Every name is non-negative besides.

    Proofs are kept, so asking again costs a look-up. A goal that grows beyond the bounds of `Dim`
    while it is normalized counts as unknown.
    """

    def __init__(self, facts: Iterable[Fact] = ()):
        self.facts: tuple[Fact, ...] = tuple(dict.fromkeys(facts))
        self.steps = MAX_STEPS  # the budget of one question
        self._prover: Prover | None = None
        self._views: list[Prover] = []
        self._unused: list[Fact] = []
        self._memo: dict[tuple[str, Dim], bool] = {}
        self._proofs: dict[Fact, Proof] = {}

    def extend(self, facts: Iterable[Fact]) -> Facts:
        """These assumptions and more."""
        added = [fact for fact in facts if fact not in self.facts]
        return Facts((*self.facts, *added)) if added else self

    def equal(self, a: Dim | int, b: Dim | int) -> bool:
        return as_dim(a) == as_dim(b) or self.holds("==", a, b)

    def holds(self, op: str, a: Dim | int, b: Dim | int) -> bool:
        """Whether `a op b` follows from the assumptions. False where that is not proven."""
        try:
            left, right = as_dim(a), as_dim(b)
            if op in ("<", ">"):
                goal = right - left - 1 if op == "<" else left - right - 1
            elif op in ("<=", ">="):
                goal = right - left if op == "<=" else left - right
            else:
                goal = left - right
            kind = op if op in ("==", "!=") else ">="
        except DimTooLarge:
            return False
        found = self._memo.get((kind, goal))
        if found is None:
            found = self._memo[kind, goal] = self._decide(kind, goal)
        return found

    def prove(self, fact: Fact) -> Proof:
        """Decide `fact`. Where it is not proven, sizes are searched that satisfy the assumptions
        and not the goal, and a `where` clause with which the goal has been proven."""
        found = self._proofs.get(fact)
        if found is None:
            found = self._proofs[fact] = self._prove(fact)
        return found

    def simplify(self, dim: Dim) -> Dim:
        """`dim` as the assumptions allow to write it, in the user's names."""
        try:
            prover = self._prepared()
            prover.begin()
            return prover.original(prover.normal(dim))
        except DimTooLarge:
            return dim

    @property
    def contradictory(self) -> bool:
        """Whether the assumptions were found to exclude each other; then anything is proven."""
        return self._prepared().contradiction

    @property
    def unused(self) -> list[Fact]:
        """Assumptions that could not be turned into a rule or an inequality."""
        self._prepared()
        return [fact for fact in self.facts if fact in self._unused]

    def _prepared(self) -> Prover:
        if self._prover is not None:
            return self._prover
        equalities: list[tuple[Dim, int]] = []
        inequalities: list[Dim] = []
        different: list[tuple[Dim, int]] = []
        for index, fact in enumerate(self.facts):
            try:
                difference = fact.left - fact.right
            except DimTooLarge:
                self._unused.append(fact)
                continue
            if fact.op == "==":
                equalities.append((difference, index))
            elif fact.op == "!=":
                different.append((difference, index))
            elif fact.op in (">", ">="):
                inequalities.append(difference - 1 if fact.op == ">" else difference)
            else:
                inequalities.append(-difference - 1 if fact.op == "<" else -difference)
        try:
            prover = Prover(equalities, inequalities, self.steps)
            # x != 0 is x > 0 or x < 0 where the other is excluded.
            signed: list[Dim] = []
            for difference, index in different:
                prover.begin()
                normal = prover.normal(difference)
                if prover.at_least_zero(normal):
                    signed.append(difference - 1)
                elif prover.at_least_zero(-normal):
                    signed.append(-difference - 1)
                else:
                    self._unused.append(self.facts[index])
            if signed:
                inequalities += signed
                prover = Prover(equalities, inequalities, self.steps)
            self._unused += [
                self.facts[equation.source] for equation in prover.unsolved if equation.source >= 0
            ]
        except DimTooLarge:
            self._unused = list(self.facts)
            prover = Prover((), (), self.steps)
        self._views = [prover]
        if prover.monomials:
            # A rewritten product can hide a factor that the other view keeps.
            try:
                self._views.append(Prover(equalities, inequalities, self.steps, products=False))
            except DimTooLarge:
                pass
        self._prover = prover
        return prover

    def _decide(self, kind: str, goal: Dim) -> bool:
        if self._prepared().contradiction:
            return True
        for view in self._views:
            view.begin()
            try:
                if self._follows(view, kind, view.normal(goal)):
                    return True
            except DimTooLarge:
                continue
        return False

    def _follows(self, prover: Prover, kind: str, normal: Dim) -> bool:
        if kind == "==":
            if not normal.terms:
                return True
            if normal.constant is not None:
                return False
            low, high = prover.span(normal)
            if (low is not None and low > 0) or (high is not None and high < 0):
                return False
            return prover.at_least_zero(normal) and prover.at_least_zero(-normal)
        if kind == ">=":
            return prover.at_least_zero(normal)
        if normal.constant is not None:
            return normal.constant != 0
        for fact in self._unused:
            if fact.op == "!=":
                other = prover.normal(fact.left - fact.right)
                if other in (normal, -normal):
                    return True
        return prover.at_least_zero(normal - 1) or prover.at_least_zero(-normal - 1)

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
