"""An SMT solver as a second oracle: sizes are not bounded, where it can decide at all."""

from __future__ import annotations

import random
from typing import Any

import pytest
from dims_oracle import Expr, assumption, fact, goal

from linnet.dims import Facts

z3 = pytest.importorskip("z3", reason="z3-solver is not installed")


def translate(expr: Expr, names: dict[str, Any], defined: list[Any]) -> Any:
    match expr:
        case ("int", number):
            return z3.IntVal(number)
        case ("name", name):
            return names[name]
        case (op, a, b):
            left, right = translate(a, names, defined), translate(b, names, defined)
            if op in ("/", "%"):
                # For a positive divisor the solver's division is floor division.
                defined.append(right > 0)
                return left / right if op == "/" else left % right
            if op in ("min", "max"):
                return z3.If((left <= right) == (op == "min"), left, right)
            return {"+": left + right, "-": left - right, "*": left * right}[op]
    raise AssertionError(expr)


def compare(comparison: tuple[str, Expr, Expr], names: dict[str, Any], defined: list[Any]) -> Any:
    op, a, b = comparison
    left, right = translate(a, names, defined), translate(b, names, defined)
    return {
        "==": left == right,
        "!=": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[op]


def check(seed: int) -> None:
    rng = random.Random(seed)
    names = ["A", "B", "C"][: rng.randint(1, 3)]
    assumptions = [assumption(rng, names) for _ in range(rng.randint(0, 3))]
    facts = Facts([fact(assumed) for assumed in assumptions])
    for _ in range(3):
        comparison = goal(rng, names, assumptions)
        wanted = fact(comparison)
        if not facts.holds(wanted.op, wanted.left, wanted.right):
            continue
        unknowns = {name: z3.Int(name) for name in names}
        defined: list[Any] = []
        solver = z3.Solver()
        solver.set("rlimit", 200_000)
        clauses = [compare(assumed, unknowns, defined) for assumed in assumptions]
        wrong = z3.Not(compare(comparison, unknowns, defined))
        solver.add(*[unknown >= 0 for unknown in unknowns.values()], *defined, *clauses, wrong)
        stated = "; ".join(map(str, facts.facts))
        assert solver.check() != z3.sat, f"seed {seed}: {stated} |- {wanted} {solver.model()}"


def test_no_counterexample() -> None:
    for seed in range(150):
        check(seed)


@pytest.mark.fuzz
@pytest.mark.parametrize("start", range(1_000, 51_000, 1_000))
def test_no_counterexample_at_length(start: int) -> None:
    for seed in range(start, start + 1_000):
        check(seed)
