"""Tokens into layout, in their order, with their comments; lists and sequences of any kind."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from linnet.syntax.format.doc import BLANK, HARD, LINE, SOFT, Doc, Group, IfBroken, Indent, Suffix
from linnet.syntax.format.trivia import Trivia

N = TypeVar("N")
# Inline comments stand after a space before these, and before a space elsewhere.
_CLOSE = frozenset(")]},;:.?") | {"::"}


class LayoutError(Exception):
    """The tree and the tokens do not agree: a fault of the formatter."""


class Emitter:
    """Walks the tokens. Each rule takes those of its node, so that none is lost."""

    def __init__(self, trivia: Trivia):
        self.trivia = trivia
        self.texts = trivia.texts
        self.at = 0
        self.split = False  # the `>` of a `>=` has been taken, its `=` not yet

    # --- Single tokens ----------------------------------------------------------------

    def next(self) -> str:
        return "=" if self.split else self.texts[self.at]

    def take(self, expected: str | None = None) -> Doc:
        """The next token with its comments; one on its own line where none can stand goes
        to the end of the line."""
        at = self.at
        text = self.texts[at]
        if self.split:
            self.split = False
            text = "="
        elif expected == ">" and text == ">=":
            self.split = True
            return [*self._before(at, ">"), ">"]
        if expected is not None and text != expected:
            raise LayoutError(f"expected `{expected}`, found `{text}`")
        self.at = at + 1
        trivia = self.trivia
        if not (trivia.own[at] or trivia.inline[at] or trivia.trail[at]):
            return text
        return [*self._before(at, text), text, *map(Suffix, trivia.trail[at])]

    def _before(self, at: int, text: str) -> list[Doc]:
        parts: list[Doc] = [Suffix(comment) for comment, _ in self.take_own(at)]
        for comment in self.trivia.inline[at]:
            parts += [" ", comment] if text in _CLOSE else [comment, " "]
        self.trivia.inline[at] = []
        return parts

    def take_own(self, at: int) -> list[tuple[str, bool]]:
        own = self.trivia.own[at]
        if own:
            self.trivia.own[at] = []
        return own

    def take_all(self, *expected: str) -> Doc:
        return [self.take(text) for text in expected]

    # --- Comments before a part that begins a line ------------------------------------

    def lead(self) -> list[Doc]:
        """The comments on lines of their own before the next token, each with its break."""
        parts: list[Doc] = []
        for comment, _ in self.take_own(self.at):
            parts += [comment, HARD]
        return parts

    def sequence(
        self,
        nodes: Sequence[N],
        layout: Callable[[N], Doc],
        spaced: Callable[[N, N], bool] = lambda before, after: False,
    ) -> list[Doc]:
        """Nodes a line each, up to the token that ends them. One empty line stays where there
        were some, and `spaced` asks for one between two nodes."""
        parts: list[Doc] = []
        for index, node in enumerate(nodes):
            at = self.at
            own = self.take_own(at)
            blanks = [blank for _, blank in own] + [self.trivia.blank[at]]
            if index:
                if spaced(nodes[index - 1], node) and True not in blanks:
                    blanks[0] = True
                parts.append(BLANK if blanks[0] else HARD)
            for (comment, _), blank in zip(own, blanks[1:]):
                parts += [comment, BLANK if blank else HARD]
            parts.append(layout(node))
        for comment, blank in self.take_own(self.at):
            if parts:
                parts.append(BLANK if blank else HARD)
            parts.append(comment)
        return parts

    def braces(self, parts: list[Doc]) -> list[Doc]:
        """`parts`, laid out before, between their lines; the closing brace comes next."""
        if not parts:
            return [self.take("}")]
        return [Indent([HARD, *parts]), HARD, self.take("}")]

    # --- Lists ------------------------------------------------------------------------

    def listed(
        self,
        opener: str,
        closer: str,
        nodes: Sequence[N],
        layout: Callable[[N], Doc],
        *,
        edge: Doc = SOFT,
        whole: bool = False,
        comma: bool = True,
        magic: bool = True,
    ) -> Doc:
        """Elements between brackets: on one line, or one a line with a comma after each.

        A comma after the last breaks the list if `magic`. Without `comma` none is added.
        """
        first = self.at
        head = self.take(opener)
        parts: list[Doc] = []
        broken = False
        for index, node in enumerate(nodes):
            parts.append(LINE if index else edge)
            parts += self.lead()
            parts.append(layout(node))
            if index + 1 < len(nodes):
                parts.append(self.take(","))
        if nodes:
            if self.next() == ",":
                parts.append(self.take(","))
                broken = magic
            elif comma:
                parts.append(IfBroken(","))
        last = self.at
        broken = broken or self.trivia.inside(first, last)
        for comment, _ in self.take_own(last):
            parts += [HARD, comment]
        if not parts:
            return [head, self.take(closer)]
        return Group([head, Indent(parts), edge, self.take(closer)], broken, whole)
