"""The product's Linnet source is its own: nowhere do five lines in a row equal five of the founding
package's, white space and short lines aside."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

RUN = 5


def runs(path: Path) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Every run of five lines with the number of its first; lines up to 8 characters count for
    nothing (a brace, `H: Dim,`)."""
    lines = [
        (number, text)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if len(text := re.sub(r"\s+", "", line)) > 8
    ]
    for at in range(len(lines) - RUN + 1):
        window = lines[at : at + RUN]
        yield window[0][0], tuple(text for _, text in window)


def test_no_five_lines_are_the_founding_packages(founding_package, models):
    root = models.parent
    theirs = {
        run: path.name for path in founding_package.rglob("*.linnet") for _, run in runs(path)
    }
    assert theirs
    found = [
        f"{path.relative_to(root)}:{number} stands in {theirs[run]}"
        for folder in ("src", "models", "tests", "docs")
        for path in (root / folder).rglob("*.linnet")
        for number, run in runs(path)
        if run in theirs
    ]
    assert not found
