"""Answers that are not yes: witnesses, what is missing, what is left."""

from __future__ import annotations

import pytest

from linnet.dims import Facts, parse_fact


def prove(assumed: str, goal: str):
    return Facts(parse_fact(part) for part in assumed.split(";") if part.strip()).prove(
        parse_fact(goal)
    )


MISSING = [
    ("", "H / 2 + H / 2 == H", "H % 2 == 0"),
    ("", "x / x == 1", "x > 0"),
    ("", "S - 1 >= 0", "S > 0"),
    (
        "KeyHeads > 0",
        "KeyHeads * (ValueHeads / KeyHeads) == ValueHeads",
        "ValueHeads % KeyHeads == 0",
    ),
    ("", "B * S * H == B * S * K", "H == K"),
    ("", "S + K == S + M", "K == M"),
    ("", "Stop <= Axis", "Stop <= Axis"),
    ("H % 2 == 0", "H / 4 * 4 == H", "H % 4 == 0"),
    ("Conv == 2 * K + V", "V > 0", "V > 0"),
]


@pytest.mark.parametrize(("assumed", "goal", "clause"), MISSING)
def test_missing(assumed: str, goal: str, clause: str) -> None:
    found = prove(assumed, goal).missing
    assert found is not None and str(found) == str(parse_fact(clause))


@pytest.mark.parametrize(("assumed", "goal", "clause"), MISSING)
def test_the_missing_clause_proves_the_goal(assumed: str, goal: str, clause: str) -> None:
    assert prove(f"{assumed};{prove(assumed, goal).missing}", goal).answer == "proven"


def test_nothing_is_proposed_that_the_assumptions_exclude() -> None:
    proof = prove("S > 4", "S < 3")
    assert proof.answer == "refuted" and proof.missing is None


WITNESSED = [
    ("", "H % 4 == 0"),
    ("H % 2 == 0", "H % 4 == 0"),
    ("H % 8 == 0; H % 12 == 0", "H % 48 == 0"),
    ("H > 1000000", "H % 2 == 0"),
    ("V % K == 0; K > 0", "V / K > 1"),
    ("A == 3 * B; B > 2", "A < 9"),
    ("", "A == B"),
    ("A * B == 12; A > 1", "A == 4"),
]


@pytest.mark.parametrize(("assumed", "goal"), WITNESSED)
def test_witness(assumed: str, goal: str) -> None:
    proof = prove(assumed, goal)
    assert proof.answer == "refuted" and proof.witness is not None
    fact = parse_fact(goal)
    assert proof.witness.keys() == fact.names()
    assert not fact.evaluate(proof.witness)
    for part in assumed.split(";"):
        clause = parse_fact(part) if part.strip() else fact.negated()
        if clause.names() <= proof.witness.keys():
            assert clause.evaluate(proof.witness)


def test_witness_is_small() -> None:
    assert prove("", "H % 4 == 0").witness == {"H": 1}
    assert prove("H % 2 == 0", "H % 4 == 0").witness == {"H": 2}
    assert prove("", "S > 0").witness == {"S": 0}


def test_refuted_without_small_sizes() -> None:
    assert prove("A * A == A * B + 12345678901; B > 3", "A < 1").answer in ("refuted", "unknown")


def test_residual() -> None:
    assert prove("", "B + S * H == K + S * H").residual == "B == K"
    assert "$" not in prove("H % 8 == 0; H % 12 == 0", "H / 8 == 5").residual
    assert prove("", "H == H").residual == ""
