"""What the prover decides: the published contract, and the obligations of real packages."""

from __future__ import annotations

import itertools
import random

import pytest

from linnet.dims import Dim, Fact, Facts, parse_dim, parse_fact


def facts_of(text: str) -> Facts:
    return Facts(parse_fact(part) for part in text.split(";") if part.strip())


def proven(assumed: str, goal: str) -> bool:
    fact = parse_fact(goal)
    return facts_of(assumed).holds(fact.op, fact.left, fact.right)


SPLIT = "Conv == 2 * KeyHeads * KeyDim + ValueHeads * ValueDim"
GROUPS = "ValueHeads % KeyHeads == 0; KeyHeads > 0"

PROVEN = [
    # Polynomial identities.
    ("", "2 * KeyHeads * KeyDim - KeyHeads * KeyDim == KeyHeads * KeyDim"),
    ("", "HeadDim - HeadDim / 4 + HeadDim / 4 == HeadDim"),
    ("", "*S * H == H * *S"),
    # Equalities by integer elimination.
    (SPLIT, "Conv - 2 * KeyHeads * KeyDim == ValueHeads * ValueDim"),
    (SPLIT, "2 * KeyHeads * KeyDim <= Conv"),
    (SPLIT, "KeyHeads * KeyDim <= 2 * KeyHeads * KeyDim"),
    ("A == B; B == C", "A / 2 == C / 2"),
    ("A == B; B == C", "min(A, D) == min(C, D)"),
    ("2 * A == 3 * B", "A % 3 == 0"),
    ("2 * A == 3 * B + 1", "B % 2 == 1"),
    ("A * B == C * D", "E * A * B == E * C * D"),
    ("H / 2 == K; H % 2 == 0", "H == 2 * K"),
    ("H == 2 * K", "H / 2 == K"),
    ("H == K - 3", "K >= 3"),
    ("A + B == C; B == D + E; D == 2", "C == A + E + 2"),
    # Divisibility, stated or composed.
    ("D % 2 == 0", "D / 2 + D / 2 == D"),
    ("D % 2 == 1", "D / 2 + D / 2 + 1 == D"),
    ("(HeadDim / 4) % 2 == 0", "HeadDim / 4 / 2 + HeadDim / 8 == HeadDim / 4"),
    ("H % 8 == 0; H % 12 == 0", "H % 24 == 0"),
    ("H % 6 == 0", "H % 3 == 0"),
    ("H % 6 == 0; H % 10 == 0; H % 15 == 0", "H % 30 == 0"),
    (GROUPS, "KeyHeads * (ValueHeads / KeyHeads) == ValueHeads"),
    (GROUPS + "; ValueHeads > 0", "ValueHeads / KeyHeads > 0"),
    (GROUPS + "; h < ValueHeads", "h / (ValueHeads / KeyHeads) < KeyHeads"),
    ("A % N == 0; B % N == 0; N > 0", "(A + B) % N == 0"),
    ("A % N == 0; N > 0", "(A * K) % N == 0"),
    ("A % N == 0; A % 4 == 1; N > 0", "A % N == 0"),
    ("A % N == 0; A % 4 == 0; N > 0", "A % 4 == 0"),
    ("A % N == 0; A % 4 == 0; N > 0", "(A / N) * N == A"),
    ("E % (G * K) == 0; G > 0; K > 0", "E % G == 0"),
    ("A % N == 0; A % 4 == 0; N > 0", "(A * K) % N == 0"),
    ("A % N == 0; A % 4 == 0; N > 0", "(A * K) % 4 == 0"),
    ("H / 2 == K * J", "2 * K * J <= H"),
    ("(A + B) % 2 == 0", "(A + B) / 2 * 2 == A + B"),
    ("W % 2 == 0", "(W - 1 + 2 - 1) / 2 == W / 2"),
    ("H % 4 == 0; H > 0", "H >= 4"),
    # Quotients and remainders.
    ("A > 0", "A / A == 1"),
    ("i < N", "(N * a + i) / N == a"),
    ("i < N", "(N * a + i) % N == i"),
    ("N > 0", "A % N < N"),
    ("N > 0", "A / N <= A"),
    ("", "HeadDim / 4 <= HeadDim"),
    ("", "A % 4 <= 3"),
    # Linear inequalities.
    ("S > 0", "0 <= S - 1"),
    ("", "S - 1 < S"),
    ("Width > 1", "1 <= Width"),
    ("A > B; B > C", "A >= C + 2"),
    ("A != 0", "A > 0"),
    ("H + 2 * P >= K; Stride > 0", "(H + 2 * P - K) / Stride + 1 > 0"),
    ("K <= N", "min(K, N) == K"),
    ("K <= 5; N > 9", "max(K, N) == N"),
    ("", "min(a + 1, b + 1) == min(a, b) + 1"),
    ("", "max(a, b) + min(a, b) == a + b"),
    ("A + B <= 10; A >= B; B >= 5", "A == 5"),
    # Products.
    ("A >= 1; B >= 1", "A * B >= 1"),
    ("A >= 1; B >= 1", "A + B <= A * B + 1"),
    ("D <= HD", "B * D <= B * HD"),
    ("D < HD; B > 0", "B * D < B * HD"),
    ("A * B > 0", "A > 0"),
    ("A < B * C", "B > 0"),
    # Assumptions that exclude each other prove anything.
    ("A < B; B < A", "A == 7"),
    ("2 * A == 2 * B + 1", "A == B"),
]


@pytest.mark.parametrize(("assumed", "goal"), PROVEN)
def test_proven(assumed: str, goal: str) -> None:
    assert proven(assumed, goal)
    assert facts_of(assumed).prove(parse_fact(goal)).answer == "proven"


NOT_PROVEN = [
    ("", "x / x == 1"),
    ("", "H / 2 + H / 2 == H"),
    ("", "S > 0"),
    ("H % 4 == 0", "H % 8 == 0"),
    ("H % 4 == 0", "H > 0"),
    ("V % K == 0", "V / K > 0"),
    ("A * B == A * C", "B == C"),
    ("A >= B", "A > B"),
    ("A < B * C", "A < B"),
]


@pytest.mark.parametrize(("assumed", "goal"), NOT_PROVEN)
def test_not_proven(assumed: str, goal: str) -> None:
    assert not proven(assumed, goal)


def test_the_order_of_clauses_does_not_matter() -> None:
    clauses = [*GROUPS.split(";"), SPLIT, "ValueHeads % 4 == 0", "h < ValueHeads", "Width > 1"]
    goals = ["h / (ValueHeads / KeyHeads) < KeyHeads", "2 * KeyHeads * KeyDim <= Conv"]
    for order in itertools.islice(itertools.permutations(clauses), 0, 720, 37):
        for goal in goals:
            assert proven(";".join(order), goal), order


def test_values_do_not_matter_to_the_work() -> None:
    steps = []
    for value in (7, 1_000_000_007, 2**61 - 1):
        facts = facts_of(f"H == {value}; S >= {value}; M % {value} == 0")
        assert facts.holds(">=", Dim.name("S"), Dim.name("H") // 1)
        assert facts.holds("==", Dim.name("M") // value * value, Dim.name("M"))
        view = facts.theory.views[0]
        steps.append(view.limit - view.steps)
    assert len(set(steps)) == 1


def test_many_assumptions_stay_within_the_budget() -> None:
    rng = random.Random(5)
    names = [f"N{i}" for i in range(30)]
    pairs = [(rng.choice(names), rng.choice(names)) for _ in range(80)]
    clauses = [f"{a} <= {b} + {i % 4}" for i, (a, b) in enumerate(pairs)]
    clauses += [f"{a} * {b} % {c} == 0; {c} > 0" for a, b, c in zip(*[iter(names)] * 3)]
    facts = facts_of(";".join(clauses))
    goal = parse_fact("N0 * N1 / N2 <= N4 * N7 + 1")
    facts.holds(goal.op, goal.left, goal.right)
    assert facts.theory.views[0].steps >= -50


def test_what_cannot_be_used_is_reported() -> None:
    unusable = parse_fact("2 * A * A == 3 * B * B")
    facts = Facts([unusable, parse_fact("A > 0"), parse_fact("C == D"), parse_fact("C != A")])
    assert facts.unused == [unusable, parse_fact("C != A")]


def test_extend() -> None:
    facts = facts_of("H % 2 == 0")
    more = facts.extend([parse_fact("H % 3 == 0")])
    assert more.holds("==", Dim.name("H") % 6, 0)
    assert not facts.holds("==", Dim.name("H") % 6, 0)
    assert more.extend([parse_fact("H % 2 == 0")]) is more


def test_simplify_speaks_of_the_users_names() -> None:
    facts = facts_of(GROUPS + "; H % 8 == 0; H % 12 == 0")
    for text in ("ValueHeads / KeyHeads", "H / 8 + ValueHeads", "H % 5 + H / 7"):
        simplified = facts.simplify(parse_dim(text))
        assert simplified.names() <= parse_dim(text).names() | {"KeyHeads"}
    assert str(facts.simplify(parse_dim("ValueHeads / KeyHeads * KeyHeads"))).count("$") == 0


def test_a_goal_too_large_is_unknown() -> None:
    factor = parse_dim("a + b + c + d + e + f + g")
    facts = Facts([Fact("==", Dim.name("H"), factor * factor)])
    goal = Dim.name("H")
    for _ in range(5):
        goal = goal * Dim.name("H")
    assert not facts.holds("==", goal, 0)
    assert facts.prove(Fact("==", goal, Dim.const(3))).answer in ("unknown", "refuted")
