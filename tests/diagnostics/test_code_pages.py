"""Every code has a page with a program that earns it and a way out; both are run."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import Program, name_of, programs, run

from linnet.diagnostics.codes import TITLES, page

PAGES = Path(__file__).parents[2] / "src" / "linnet" / "diagnostics" / "codes"
PROGRAMS = [program for code in TITLES for program in programs(PAGES / f"{code}.md")]


@pytest.mark.parametrize("program", PROGRAMS, ids=name_of)
def test_program(program: Program, tmp_path: Path) -> None:
    run(program, tmp_path)


@pytest.mark.parametrize("code", TITLES)
def test_page(code: str) -> None:
    text = page(code)
    assert text is not None
    assert text.startswith(f"# {code}: {TITLES[code]}\n\n")
    earned, *_, out = [p for p in PROGRAMS if p.page.stem == code]
    assert code in {found for _, _, found in earned.expected()}
    assert not out.expected()


def test_the_way_out_of_a_warning_has_none(tmp_path: Path) -> None:
    for program in PROGRAMS:
        if program.page.stem.startswith("W") and not program.expected():
            folder = tmp_path / program.page.stem
            folder.mkdir()
            checked = run(program, folder)
            assert checked is not None and not checked.diagnostics


def test_no_page_without_a_code() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} == set(TITLES)
