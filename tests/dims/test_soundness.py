"""Nothing false is ever proven: random assumptions and goals against brute force over small sizes.

Also over the same expressions: the normal form keeps values, text reads back, Python agrees, a
witness is one, and what is said to be missing proves the goal.
"""

from __future__ import annotations

import random

import pytest
from dims_oracle import Undefined, assumption, expression, fact, goal, holds, models, value

from linnet.dims import Facts, parse_dim, parse_fact


def check(seed: int) -> None:
    rng = random.Random(seed)
    names = ["A", "B", "C"][: rng.randint(1, 3)]
    assumptions = [assumption(rng, names) for _ in range(rng.randint(0, 4))]
    if rng.random() < 0.4:
        assumptions += [(">", ("name", name), ("int", 0)) for name in names]
    goals = [goal(rng, names, assumptions) for _ in range(4)]
    # An exhausted budget may leave the rules half made; nothing false follows from them.
    steps = rng.choice([10, 30, 100, 300, 2000]) if seed % 4 else 2000
    facts = Facts([fact(assumed) for assumed in assumptions], steps=steps)
    found = list(models(names, assumptions, 7 if len(names) == 3 else 13))
    stated = "; ".join(map(str, facts.facts))
    assert not (found and facts.contradictory), f"seed {seed}: {stated} holds at {found[0]}"
    for comparison in goals:
        wanted = fact(comparison)
        proven = facts.holds(wanted.op, wanted.left, wanted.right)
        defined = 0
        counterexample = None
        for model in found:
            try:
                if not holds(comparison, model):
                    counterexample = model
                    break
                defined += 1
            except Undefined:
                continue
        where = f"seed {seed}: {stated} |- {wanted}"
        assert not (proven and counterexample), f"{where} fails at {counterexample}"
        if seed % 4 == 0:
            proof = facts.prove(wanted)
            assert (proof.answer == "proven") == proven, where
            if proof.answer == "refuted" and proof.witness is None:
                assert not (defined and counterexample is None), where
            if proof.missing is not None:
                more = facts.extend([proof.missing])
                assert more.holds(wanted.op, wanted.left, wanted.right), where
                assert parse_fact(str(proof.missing)) == proof.missing, where
            assert not set("$~") & set(f"{proof.missing} {proof.residual}"), where
        for side, dim in ((comparison[1], wanted.left), (comparison[2], wanted.right)):
            simplified = facts.simplify(dim)
            for model in found:
                try:
                    expected = value(side, model)
                except Undefined:
                    continue
                assert simplified.evaluate(model) == expected, f"seed {seed}: {stated} |- {dim}"


def check_text(seed: int) -> None:
    rng = random.Random(seed)
    names = ["A", "B", "C", "D"]
    tree = expression(rng, names, 4)
    dim = fact(("==", tree, tree)).left
    assert parse_dim(str(dim)) == dim, f"seed {seed}: {dim}"
    source = dim.python(str)
    for _ in range(8):
        sizes = {name: rng.randrange(9) for name in names}
        try:
            expected = value(tree, sizes)
        except Undefined:
            continue
        assert dim.evaluate(sizes) == expected, f"seed {seed}: {dim} at {sizes}"
        assert eval(source, dict(sizes)) == expected, f"seed {seed}: {source} at {sizes}"
        assert dim.substitute(sizes).constant == expected, f"seed {seed}: {dim} at {sizes}"


@pytest.mark.parametrize("start", range(0, 400, 100))
def test_nothing_false_is_proven(start: int) -> None:
    for seed in range(start, start + 100):
        check(seed)


def test_text_and_values() -> None:
    for seed in range(600):
        check_text(seed)


@pytest.mark.fuzz
@pytest.mark.parametrize("start", range(1_000, 251_000, 1_000))  # a million goals
def test_nothing_false_is_proven_at_length(start: int) -> None:
    for seed in range(start, start + 1_000):
        check(seed)
        if seed % 5 == 0:
            check_text(seed)
