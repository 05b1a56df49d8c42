"""What each code of a finding means: its title, and a page `E2202.md` beside this file."""

from __future__ import annotations

from pathlib import Path

from linnet.diagnostics.codes.titles import TITLES as TITLES


def page(code: str) -> str | None:
    """The page of a code as Markdown, or None for a code that does not exist."""
    if code not in TITLES:
        return None
    return (Path(__file__).parent / f"{code}.md").read_text(encoding="utf-8")
