"""The language reference under `tests/spec`, run: every program earns what its comments state."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from pages import Program, name_of, programs, run

SPEC = Path(__file__).parent / "spec"
PROGRAMS = [program for page in sorted(SPEC.glob("*.md")) for program in programs(page)]


@pytest.mark.parametrize("program", PROGRAMS, ids=name_of)
def test_program(program: Program, tmp_path: Path) -> None:
    checked = run(program, tmp_path)
    if checked is not None and checked.program is not None:
        from linnet.ir.verify import verify_program

        verify_program(checked.program)


@pytest.mark.parametrize("numerics", ["evaluator", "exact", "equivalent", "fast"])
@pytest.mark.parametrize("program", [p for p in PROGRAMS if p.values()], ids=name_of)
def test_values(program: Program, numerics: str, tmp_path: Path) -> None:
    """Entries give what is stated beside them, walked by the evaluator and compiled."""
    import torch

    import linnet
    from linnet.ir.specialize import specialize
    from linnet.torch.evaluate import Evaluator
    from linnet.torch.module import Model

    values = program.values()
    runs = [f"pub entry run_{n}() -> {t} {{ return {n}() }}" for n, (t, _) in values.items()]
    (text,) = program.files.values()
    path = tmp_path / "example.linnet"
    path.write_text(f"{text}\npub block Runs {{ {' '.join(runs)} }}\n", encoding="utf-8")
    bound = specialize(linnet.check(path), "crate::Runs", {}, None)
    evaluator = Evaluator(bound)
    model = None if numerics == "evaluator" else Model(bound, [], numerics=numerics)
    for name, (_, stated) in values.items():
        with torch.no_grad():
            if model is None:
                found = evaluator.run(bound.entries[f"run_{name}"], None, [], {})
            else:
                found = getattr(model, f"run_{name}")()
        expected = literal(stated)
        parts = found if isinstance(found, tuple) else (found,)
        wanted = expected if isinstance(expected, tuple) else (expected,)
        for part, want in zip(parts, wanted, strict=True):
            torch.testing.assert_close(
                torch.as_tensor(part).double(),
                torch.tensor(want, dtype=torch.float64),
                rtol=1e-7,
                atol=0,
                equal_nan=True,
                msg=f"{name}: {part}, not {want}",
            )


def literal(text: str) -> object:
    """Numbers, lists and tuples as the pages write them."""
    text = re.sub(r"\b(true|false)\b", lambda word: word[0].capitalize(), text)
    text = re.sub(r"\binf\b", "1e999", text)
    if text == "nan":
        return float("nan")
    return ast.literal_eval(text)


def test_every_code_is_earned_somewhere() -> None:
    """The reference shows each code of an error or warning at least once."""
    from linnet.diagnostics.codes import TITLES

    earned = {code for program in PROGRAMS for _, _, code in program.expected()}
    assert earned >= set(TITLES), sorted(set(TITLES) - earned)


def test_there_are_several_hundred() -> None:
    assert len(PROGRAMS) >= 300
    assert sum(program.valid for program in PROGRAMS) >= 100
