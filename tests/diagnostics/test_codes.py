"""Every code that the product can report has a title."""

from __future__ import annotations

import re
from pathlib import Path

from linnet.diagnostics.codes import TITLES

SOURCES = Path(__file__).parents[2] / "src" / "linnet"


def test_every_code_used_has_a_title() -> None:
    used = {
        code
        for path in SOURCES.rglob("*.py")
        for code in re.findall(r'"([EW]\d{4})"', path.read_text(encoding="utf-8"))
    }
    assert used <= TITLES.keys(), sorted(used - TITLES.keys())
    assert used >= {"E1101", "E2202"}


def test_titles_are_short_and_in_order() -> None:
    assert list(TITLES) == sorted(TITLES)
    assert all(len(title) <= 60 and not title.endswith(".") for title in TITLES.values())
