"""Source text and the spans that point into it."""

from __future__ import annotations

from bisect import bisect_right
from functools import cached_property

from linnet.record import dataclass


@dataclass(frozen=True, eq=False)
class Source:
    """One file's text. `path` is what messages print; offsets count code points."""

    path: str
    text: str

    @cached_property
    def line_starts(self) -> list[int]:
        starts = [0]
        find = self.text.find
        at = find("\n")
        while at >= 0:
            starts.append(at + 1)
            at = find("\n", at + 1)
        return starts

    def position(self, offset: int) -> tuple[int, int]:
        """The 1-based line and column (in code points) of an offset."""
        line = bisect_right(self.line_starts, offset)
        return line, offset - self.line_starts[line - 1] + 1

    def line(self, number: int) -> str:
        """The text of a 1-based line, without its line break."""
        start = self.line_starts[number - 1]
        end = self.text.find("\n", start)
        return self.text[start : len(self.text) if end < 0 else end].rstrip("\r")

    def byte_offset(self, offset: int) -> int:
        return len(self.text[:offset].encode("utf-8"))


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range of code points in a source."""

    source: Source
    start: int
    end: int

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    def to(self, other: Span) -> Span:
        return Span(self.source, self.start, max(self.end, other.end))

    def __str__(self) -> str:
        line, column = self.source.position(self.start)
        return f"{self.source.path}:{line}:{column}"
