"""Collects findings while a package is checked."""

from __future__ import annotations

from collections.abc import Iterable

from linnet.diagnostics.diagnostic import Diagnostic, Fix, Label
from linnet.source import Span

# What a lost declaration leaves behind it.
FOLLOWS = frozenset({"E1201", "E3101", "E3102", "E3103", "E2120"})


class Reporter:
    """One run's findings; the same finding at the same place is kept once."""

    def __init__(self) -> None:
        self.diagnostics: list[Diagnostic] = []
        self._seen: set[tuple[str, int, int, int, str]] = set()
        # Items that hold a syntax error: a name unknown there may be what was lost with it.
        self.torn: list[Span] = []
        # By the source: names of items that were lost with a syntax error.
        self.lost: dict[int, set[str]] = {}

    def error(
        self,
        code: str,
        span: Span,
        message: str,
        label: str = "",
        *,
        related: Iterable[Label] = (),
        notes: Iterable[str] = (),
        help: str | None = None,
        fixes: Iterable[Fix] = (),
        severity: str = "error",
    ) -> None:
        # One use may leave several `where` clauses unproven; all of them are said.
        which = message if code == "E2206" else ""
        key = (code, id(span.source), span.start, span.end, which)
        if key in self._seen or (code in FOLLOWS and self._in_torn(span)):
            return
        if code == "E1201" and span.text in self.lost.get(id(span.source), ()):
            return
        self._seen.add(key)
        self.diagnostics.append(
            Diagnostic(
                code,
                severity,
                message,
                Label(span, label),
                list(related),
                list(notes),
                help,
                list(fixes),
            )
        )

    def _in_torn(self, span: Span) -> bool:
        return any(
            torn.source is span.source and torn.start <= span.start < torn.end for torn in self.torn
        )

    def warning(self, code: str, span: Span, message: str, help: str | None = None) -> None:
        self.error(code, span, message, help=help, severity="warning")

    @property
    def errors(self) -> int:
        return sum(d.severity == "error" for d in self.diagnostics)


def near(name: str, names: Iterable[str]) -> str | None:
    """The name closest to a misspelt one, if any is close enough to suggest."""
    from difflib import get_close_matches

    if len(name) > 80:
        return None
    known = [n for n in names if len(n) <= 80]
    matches = get_close_matches(name, known, n=1, cutoff=0.7)
    if not matches and len(name) > 2:  # two letters of a short name are swapped
        matches = [n for n in known if sorted(n) == sorted(name)]
    return matches[0] if matches else None


def did_you_mean(name: str, names: Iterable[str]) -> str | None:
    found = near(name, names)
    return f"did you mean `{found}`?" if found else None
