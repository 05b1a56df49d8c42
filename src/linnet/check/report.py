"""Collects findings while a package is checked."""

from __future__ import annotations

from collections.abc import Iterable

from linnet.diagnostics.diagnostic import Diagnostic, Fix, Label
from linnet.source import Span

# What a lost declaration leaves behind it.
FOLLOWS = frozenset({"E1201", "E3101", "E3102", "E3103", "E2120"})


# A file with more errors than these is no program with mistakes in it.
MAX_ERRORS = 300
# Characters of a message; names and types have no bounds of their own.
MAX_MESSAGE = 1000


class TooManyErrors(Exception):
    """The check ends here; what was found stands."""


def short(text: str) -> str:
    if len(text) <= MAX_MESSAGE:
        return text
    return f"{text[: MAX_MESSAGE * 2 // 3]} … {text[-MAX_MESSAGE // 4 :]}"


class Reporter:
    """One run's findings; the same finding at the same place is kept once."""

    def __init__(self) -> None:
        self.diagnostics: list[Diagnostic] = []
        self.errors = 0
        self.held_back = 0  # findings that follow from a syntax error
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
        if key in self._seen:
            return
        lost = code == "E1201" and span.text in self.lost.get(id(span.source), ())
        if lost or (code in FOLLOWS and self._in_torn(span)):
            self.held_back += 1
            return
        self._seen.add(key)
        self.diagnostics.append(
            Diagnostic(
                code,
                severity,
                short(message),
                Label(span, short(label)),
                [Label(other.span, short(other.message)) for other in related],
                [short(note) for note in notes],
                None if help is None else short(help),
                list(fixes),
            )
        )
        if severity == "error":
            self.errors += 1
            if self.errors >= MAX_ERRORS:
                self.diagnostics[-1].notes.append(f"{MAX_ERRORS} errors: the rest is left out")
                raise TooManyErrors

    def _in_torn(self, span: Span) -> bool:
        return any(
            torn.source is span.source and torn.start <= span.start < torn.end for torn in self.torn
        )

    def warning(self, code: str, span: Span, message: str, help: str | None = None) -> None:
        self.error(code, span, message, help=help, severity="warning")

    def adopt(self, found: Iterable[Diagnostic]) -> None:
        """Findings of the lexer and the parser."""
        for diagnostic in found:
            self.diagnostics.append(diagnostic)
            self.errors += diagnostic.severity == "error"


def plural(count: int, noun: str) -> str:
    """`1 axis`, `2 axes`."""
    many = {"axis": "axes", "index": "indices"}.get(noun, f"{noun}s")
    return f"1 {noun}" if count == 1 else f"{count} {many}"


def near(name: str, names: Iterable[str]) -> str | None:
    """The name closest to a misspelt one, if any is close enough to suggest."""
    from difflib import get_close_matches

    if len(name) > 80:
        return None
    known = [n for n in names if len(n) <= 80 and abs(len(n) - len(name)) < 4]
    if len(known) > 30:  # comparing takes time: only those that begin alike
        known = [n for n in known if n[:2] == name[:2]][:30]
    matches = get_close_matches(name, known, n=1, cutoff=0.7)
    if not matches and len(name) > 2:  # two letters of a short name are swapped
        matches = [n for n in known if sorted(n) == sorted(name)]
    return matches[0] if matches else None


def did_you_mean(name: str, names: Iterable[str]) -> str | None:
    found = near(name, names)
    return f"did you mean `{found}`?" if found else None
