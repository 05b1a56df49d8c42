"""What the README and its picture claim."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import linnet
from linnet.cli.main import COMMANDS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_program_of_the_readme_checks(tmp_path: Path) -> None:
    programs = [
        block for block in re.findall(r"```linnet\n(.*?)```", README, re.S) if "module" in block
    ]
    assert programs
    for number, text in enumerate(programs):
        path = tmp_path / f"program{number}.linnet"
        path.write_text(text, encoding="utf-8")
        linnet.check(path)


def test_the_picture_shows_what_the_checker_says(tmp_path: Path) -> None:
    drawing = runpy.run_path(str(ROOT / "docs" / "draw_answer.py"))
    found, _ = drawing["answer"](tmp_path)
    assert [one.code for one in found] == ["E2202"]
    assert drawing["draw"](tmp_path) == (ROOT / "docs" / "answer.svg").read_text(
        encoding="utf-8"
    ), "draw it again: python docs/draw_answer.py > docs/answer.svg"


@pytest.mark.parametrize("name", sorted(set(re.findall(r"^(?:\S*/)?linnet (\w+)", README, re.M))))
def test_the_commands_of_the_readme_are_there(name: str) -> None:
    assert name in COMMANDS


def test_the_links_of_the_readme_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target
