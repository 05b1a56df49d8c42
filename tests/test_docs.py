"""Links between the pages of `docs`, the language reference and the README lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "tests" / "spec").glob("*.md")),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target and not target.startswith("mailto:"):
            assert (page.parent / target).exists(), f"{page}: {target}"


def test_the_reference_lists_its_chapters() -> None:
    spec = ROOT / "tests" / "spec"
    listed = set(re.findall(r"\]\((\d\d-[\w-]+\.md)\)", (spec / "README.md").read_text()))
    assert listed == {path.name for path in spec.glob("[0-9]*.md")}
