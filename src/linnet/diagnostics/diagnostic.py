"""A finding as data; renderers stand beside it, one a file."""

from __future__ import annotations

from linnet.record import dataclass, field
from linnet.source import Span


@dataclass(slots=True)
class Label:
    span: Span
    message: str = ""


@dataclass(slots=True)
class Fix:
    """Replace `span` by `text`. `safety` is "safe" or "unsafe" (it may change meaning)."""

    span: Span
    text: str
    message: str
    safety: str = "safe"


@dataclass(slots=True)
class Diagnostic:
    code: str
    severity: str  # "error" or "warning"
    message: str
    label: Label
    related: list[Label] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    help: str | None = None
    fixes: list[Fix] = field(default_factory=list)

    @property
    def span(self) -> Span:
        return self.label.span
