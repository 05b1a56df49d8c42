"""A comparison of two dimensions, and what the prover answers about one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from linnet.dims.dim import Dim
from linnet.dims.text import parse_comparison

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


@dataclass(frozen=True, slots=True)
class Proof:
    """The answer to a goal.

    `witness` are sizes that satisfy the assumptions and not the goal (a refuted goal has none
    where the assumptions allow no small sizes). `missing` is a fact under which the goal has been
    proven. `residual` is what is left of the goal after normalization, in the user's names.
    """

    answer: Literal["proven", "refuted", "unknown"]
    witness: dict[str, int] | None = None
    missing: Fact | None = None
    residual: str = ""
