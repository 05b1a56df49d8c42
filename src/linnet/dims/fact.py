"""A comparison of two dimensions, and what the prover answers about one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Literal

from linnet.dims.dim import Dim
from linnet.dims.text import parse_comparison
from linnet.record import dataclass

Answer = Literal["proven", "refuted", "unknown"]

NEGATED = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


@dataclass(frozen=True, slots=True)
class Fact:
    """`left op right`, with `op` one of `== != < <= > >=`."""

    op: str
    left: Dim
    right: Dim

    def substitute(self, mapping: Mapping[str, Dim | int]) -> Fact:
        return Fact(self.op, self.left.substitute(mapping), self.right.substitute(mapping))

    def evaluate(self, values: Mapping[str, int]) -> bool:
        """Whether it holds at `values`. KeyError and ZeroDivisionError as `Dim.evaluate`."""
        return compare(self.op, self.left.evaluate(values), self.right.evaluate(values))

    def negated(self) -> Fact:
        return Fact(NEGATED[self.op], self.left, self.right)

    def names(self) -> frozenset[str]:
        return self.left.names() | self.right.names()

    def __str__(self) -> str:
        return f"{self.left} {self.op} {self.right}"


def parse_fact(text: str) -> Fact:
    """Read what `str(fact)` writes. ValueError where the text is not a comparison."""
    return Fact(*parse_comparison(text))


def compare(op: str, left: int, right: int) -> bool:
    if op == "==":
        return left == right
    if op == "!=":
        return left != right
    if op == "<":
        return left < right
    if op == "<=":
        return left <= right
    return left > right if op == ">" else left >= right


class Proof:
    """The answer to a goal: `answer` is "proven", "refuted" or "unknown".

    `witness` gives the goal's names sizes at which the assumptions hold and the goal does not.
    (Where the assumptions allow no small sizes, a goal can be refuted without one.) A refuted goal
    may still be what the user means: `missing` is then the clause that is missing. `missing` and
    `residual` are worked out when they are asked for.
    """

    def __init__(
        self,
        answer: Answer,
        witness: dict[str, int] | None = None,
        missing: Callable[[], Fact | None] | None = None,
        residual: Callable[[], str] | None = None,
    ):
        self.answer: Answer = answer
        self.witness = witness
        self._missing, self._residual = missing, residual

    @cached_property
    def missing(self) -> Fact | None:
        """A fact under which the goal has been proven, consistent with the assumptions."""
        return self._missing() if self._missing is not None else None

    @cached_property
    def residual(self) -> str:
        """What is left of the goal after normalization, in the user's names."""
        return self._residual() if self._residual is not None else ""

    def __repr__(self) -> str:
        return f"Proof({self.answer!r}, {self.witness}, {self.missing}, {self.residual!r})"
