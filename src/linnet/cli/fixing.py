"""`--fix` of `linnet check` and `linnet lint`: the fixes of findings, written into the files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from linnet.cli.check import Report, check_paths
from linnet.diagnostics.diagnostic import Diagnostic, Fix

# A fix may free another (two unused imports of one list); each round checks again.
MAX_ROUNDS = 20


def fix(
    paths: list[str], unsafe: bool, look: Callable[[list[str]], Report] = check_paths
) -> tuple[Report, int, list[str]]:
    """Apply fixes until none is left: the findings of `look` that stay, how many were fixed, and
    the files changed. A round that leaves more errors than it found is taken back, and is the
    last."""
    report = look(paths)
    total = 0
    touched: dict[str, None] = {}
    for _ in range(MAX_ROUNDS):
        edits = chosen(report, unsafe)
        if not edits:
            break
        kept = {path: Path(path).read_bytes() for path in edits}
        count = sum(apply(path, fixes) for path, fixes in edits.items())
        if not count:
            break
        after = look(paths)
        if after.count("error") > report.count("error"):
            for path, data in kept.items():
                _write(path, data)
            break
        total += count
        touched |= dict.fromkeys(edits)
        report = after
    return report, total, list(touched)


def chosen(report: Report, unsafe: bool) -> dict[str, list[Fix]]:
    """By file, the first fix of each finding, as far as they do not overlap."""
    edits: dict[str, list[Fix]] = {}
    for one in report.diagnostics:
        found = _first(one, unsafe)
        if found is None or os.path.abspath(found.span.source.path) not in report.files:
            continue
        others = edits.setdefault(found.span.source.path, [])
        start, end = found.span.start, found.span.end
        # Two insertions at one place would run into each other as well.
        if all(end < o.span.start or o.span.end < start for o in others):
            others.append(found)
    return edits


def _first(one: Diagnostic, unsafe: bool) -> Fix | None:
    return next((fix for fix in one.fixes if unsafe or fix.safety == "safe"), None)


def apply(path: str, fixes: list[Fix]) -> int:
    """Write fixes into a file, if it still holds the text that they are about."""
    text = fixes[0].span.source.text
    if Path(path).read_bytes() != text.encode("utf-8"):
        return 0
    for one in sorted(fixes, key=lambda fix: -fix.span.start):
        text = text[: one.span.start] + one.text + text[one.span.end :]
    _write(path, text.encode("utf-8"))
    return len(fixes)


def _write(path: str, data: bytes) -> None:
    from linnet.cli.fmt import write

    write(Path(path), data)
