"""The language reference under `tests/spec`, run: every program earns what its comments state."""

from __future__ import annotations

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


def test_every_code_is_earned_somewhere() -> None:
    """The reference shows each code of an error or warning at least once."""
    from linnet.diagnostics.codes import TITLES

    earned = {code for program in PROGRAMS for _, _, code in program.expected()}
    assert earned >= set(TITLES), sorted(set(TITLES) - earned)


def test_there_are_several_hundred() -> None:
    assert len(PROGRAMS) >= 300
    assert sum(program.valid for program in PROGRAMS) >= 100
