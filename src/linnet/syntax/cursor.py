"""Where the parser stands in the tokens: looking, expecting, reporting, recovering.

A rule that cannot go on reports once and raises `Recover`; the nearest list,
statement, member or item that can start afresh catches it. An error that another
one has caused is not reported: one at the same token, or beside a bad character.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import NoReturn, TypeVar

from linnet.diagnostics.diagnostic import Diagnostic, Fix, Label
from linnet.source import Source, Span
from linnet.syntax.lexer import KEYWORDS, RESERVED
from linnet.syntax.tree import Ident, Token

T = TypeVar("T")

# How deep brackets, bodies and operators may nest. The parser and everything that walks
# the tree recurse, so both have to stay well under Python's limit on frames.
MAX_NESTING = 100
MAX_HEIGHT = 200

OPENERS = {"(": ")", "[": "]", "{": "}"}
CLOSERS = frozenset(OPENERS.values())
CLOSING = {**OPENERS, "<": ">"}
STATEMENTS = frozenset(["let", "var", "return", "static", "for", "while", "yield"])
MEMBERS = frozenset(["param", "buffer", "state", "sub"])
FUNCTIONS = frozenset(["fn", "op", "entry"])
ITEMS = frozenset(["const", "type", "struct", "enum", "block", "extern"]) | FUNCTIONS
TOP = ITEMS | {"pub", "use", "module"}
STARTERS = STATEMENTS | MEMBERS | TOP
# After a name that is being declared stands one of these.
AFTER_NAME = frozenset([":", "=", ",", ")", "(", "<", "[", "{", "in"])


_SKIPPED = frozenset(["space", "comment"])
_ASIDE = frozenset(["doc", "error"])


class Recover(Exception):
    """A rule could not go on. What was wrong has been reported."""


class Cursor:
    def __init__(self, source: Source, tokens: list[Token], problems: list[Diagnostic]):
        self.source = source
        self.diagnostics = problems
        self.texts: list[str] = []
        self.kinds: list[str] = []
        self.starts: list[int] = []
        self.ends: list[int] = []
        self.docs: dict[int, str] = {}  # the documentation that stands before a token
        self.broken: set[int] = set()  # tokens that a bad character or string stands before
        self.cut = False  # the text ends inside a comment or string that never closes
        self.pos = 0
        self.depth = 0
        self.deep = False  # this item has been reported as nested too deeply
        self.height = 0  # of the expression just parsed
        self.guessing = 0  # inside an attempt that may be taken back: report nothing
        self.not_generic: set[int] = set()  # where `<` is known to compare
        self.reported: set[int] = set()
        self.misused: set[str] = set()  # words reported as names: further uses say nothing
        self._load(tokens)

    def _load(self, tokens: list[Token]) -> None:
        told = [token for token in tokens if token[0] not in _SKIPPED]
        read = [token for token in told if token[0] not in _ASIDE or _literal(token)]
        self.kinds = [token[0] for token in read]
        self.texts = [token[1] for token in read]
        self.starts = [token[2] for token in read]
        self.ends = [token[3] for token in read]
        self.last = len(read) - 1  # the position of the end token
        if len(read) < len(told) or "error" in self.kinds:
            docs: dict[int, list[str]] = {}
            for kind, text, start, end in told:
                if kind == "doc":
                    docs.setdefault(bisect_left(self.starts, end), []).append(doc_text(text))
                elif kind == "error":
                    if text[0] not in '0123456789"':
                        self.broken.add(bisect_left(self.starts, end))
                        self.cut = self.cut or text.startswith("/*")
                    elif text[0] == '"':  # it may have taken a bracket along
                        self.broken.add(bisect_left(self.starts, start) + 1)
            self.docs = {at: "\n".join(lines) for at, lines in docs.items()}

    # --- Looking ----------------------------------------------------------------------

    def peek(self, ahead: int = 1) -> str:
        return self.texts[min(self.pos + ahead, self.last)]

    def at_name(self) -> bool:
        return self.kinds[self.pos] == "name"

    def first_on_line(self, pos: int) -> bool:
        if pos == 0:
            return True
        return "\n" in self.source.text[self.ends[pos - 1] : self.starts[pos]]

    def adjacent(self, pos: int) -> bool:
        """Whether no white space stands before a token."""
        return pos > 0 and self.ends[pos - 1] == self.starts[pos]

    # --- Spans ------------------------------------------------------------------------

    def span_at(self, pos: int) -> Span:
        return Span(self.source, self.starts[pos], self.ends[pos])

    def span_from(self, start: int) -> Span:
        """From the offset of a token's first character to the last token taken."""
        return Span(self.source, start, max(start, self.ends[self.pos - 1] if self.pos else start))

    # --- Taking -----------------------------------------------------------------------

    def take(self, text: str) -> bool:
        if self.texts[self.pos] == text:
            self.pos += 1
            return True
        return False

    def expect(self, text: str, what: str = "") -> None:
        if self.texts[self.pos] != text:
            self.fail(what or f"`{text}`")
        self.pos += 1

    def close(self, opener: int, also: str = "") -> None:
        """Take the bracket that closes the one at the token `opener`."""
        closing = CLOSING[self.texts[opener]]
        if self.texts[self.pos] == closing:
            self.pos += 1
            return
        if closing == ">" and self.texts[self.pos] == ">=" and not self.guessing:
            # `x: Linear<A, B>= none`: the longest match has taken two tokens for one.
            self.texts[self.pos] = "="
            self.starts[self.pos] += 1
            return
        self.fail(f"{also}`{closing}`", opener)

    def name(self, what: str) -> Ident:
        """A name that is being declared, or used where only a name can stand."""
        pos = self.pos
        text = self.texts[pos]
        if self.kinds[pos] != "name":
            if self.kinds[pos] != "keyword":
                self.fail(what)
            if text in KEYWORDS and text not in self.misused and self.peek() not in AFTER_NAME:
                self.fail(what)
            self.reserved(pos)
        self.pos = pos + 1
        return Ident(self.span_at(pos), text)

    def reserved(self, pos: int) -> None:
        text = self.texts[pos]
        if self.guessing or text in self.misused:
            return
        self.misused.add(text)
        why = "for later versions" if text in RESERVED else "by the language"
        self.report(
            pos,
            Diagnostic(
                "E1004",
                "error",
                f"`{text}` cannot be a name",
                Label(self.span_at(pos), f"reserved {why}"),
                help=f"choose another name, such as `{text}_`",
            ),
        )

    def listed(self, opener: int, element: Callable[[], T], recover: bool = True) -> list[T]:
        """Elements between commas, a comma after the last allowed, and the bracket that
        closes the one at the token `opener`. With `recover`, an element that cannot be
        parsed is left out and the list goes on; otherwise the whole list fails."""
        closing = CLOSING[self.texts[opener]]
        texts = self.texts
        items: list[T] = []
        depth = self.depth
        while texts[self.pos] != closing:
            try:
                items.append(element())
                if texts[self.pos] == ",":
                    self.pos += 1
                    continue
                if texts[self.pos] == closing:
                    break
                if recover and self.kinds[self.pos] == "name" and not self.guessing:
                    self.unexpected(f"`,` or `{closing}`", opener)
                    continue
                self.close(opener, "`,` or ")
                return items
            except Recover:
                if not recover or self.guessing:
                    raise
                self.depth = depth
                if not self.skip_element(opener):
                    raise
                self.take(",")
        self.pos += 1
        return items

    # --- Reporting --------------------------------------------------------------------

    def describe(self, pos: int) -> str:
        kind, text = self.kinds[pos], self.texts[pos]
        if kind == "end":
            return "the end of the file"
        if kind in ("int", "float"):
            return f"the number `{text}`"
        if kind == "string":
            return "a string"
        return f"the name `{text}`" if kind == "name" else f"`{text}`"

    def report(self, pos: int, diagnostic: Diagnostic) -> None:
        """Add a finding about the token at `pos`, unless it follows from another."""
        if pos in self.reported or pos in self.broken or pos + 1 in self.broken:
            return
        if pos == self.last and self.cut:
            return
        self.reported.add(pos)
        self.diagnostics.append(diagnostic)

    def unexpected(
        self, what: str, opener: int | None = None, help: str | None = None, here: bool = False
    ) -> None:
        """Report that `what` was expected. What is missing at the end of a line is shown
        there, rather than on the next token, unless `here` asks for that."""
        if self.guessing:
            raise Recover
        pos = self.pos
        span = self.span_at(pos)
        message = f"expected {what}, found {self.describe(pos)}"
        label = f"expected {what}"
        if pos and (pos == self.last or (not here and self.first_on_line(pos))):
            span = self.span_at(pos - 1)
            label += " after this"
        diagnostic = Diagnostic("E1101", "error", message, Label(span, label), help=help)
        if opener is not None:
            diagnostic.related.append(Label(self.span_at(opener), "opened here"))
        self.report(pos, diagnostic)

    def fail(
        self, what: str, opener: int | None = None, help: str | None = None, here: bool = False
    ) -> NoReturn:
        self.unexpected(what, opener, help, here)
        raise Recover

    def refuse(
        self, pos: int, code: str, message: str, label: str, help: str, fix: Fix | None = None
    ) -> None:
        """Report the token at `pos` with a message of its own."""
        if self.guessing:
            raise Recover
        found = Diagnostic(code, "error", message, Label(self.span_at(pos), label), help=help)
        if fix is not None:
            found.fixes.append(fix)
        self.report(pos, found)

    def enter(self) -> None:
        """One level deeper. Whoever catches `Recover` puts `depth` back."""
        self.depth += 1
        if self.depth > MAX_NESTING:
            self.too_deep(f"more than {MAX_NESTING} levels of nesting")

    def too_deep(self, label: str) -> NoReturn:
        if not self.deep:
            self.refuse(
                self.pos,
                "E1101",
                "this is nested too deeply",
                label,
                "split it: name the inner parts with `let`, or move them to functions",
            )
            self.deep = True
        raise Recover

    # --- Recovering -------------------------------------------------------------------

    def count_brackets(self, start: int, owed: list[str]) -> list[str]:
        """Add the closing brackets still owed between the token `start` and here."""
        base = len(owed)
        for text in self.texts[start : self.pos]:
            if text in OPENERS:
                owed.append(OPENERS[text])
            elif len(owed) > base and text == owed[-1]:
                owed.pop()
        return owed

    def skip_element(self, opener: int) -> bool:
        """After an error inside a bracketed list: go to its next comma or its end.
        False, and nothing skipped, where the list seems never to be closed."""
        start = self.pos
        owed = [CLOSING[self.texts[opener]]]
        self.count_brackets(opener + 1, owed)
        while self.pos < self.last:
            text = self.texts[self.pos]
            if len(owed) == 1 and (text == "," or text == owed[0]):
                return True
            if text in OPENERS and text != "{":
                owed.append(OPENERS[text])
            elif text in CLOSERS and text == owed[-1]:
                owed.pop()
            elif (
                text in CLOSERS
                or text == "{"
                or (text in STARTERS and text not in self.misused and self.first_on_line(self.pos))
            ):
                break
            self.pos += 1
        self.pos = start
        return False

    def starts_afresh(self, text: str) -> bool:
        """Whether the present token, first on its line, starts a statement or an item."""
        return text in STARTERS and text not in self.misused and self.first_on_line(self.pos)

    def skip_statement(self, start: int) -> None:
        """To the next statement, or to the bracket that ends the body. Braces that open
        on the way are skipped whole; those open at the error may never be closed."""
        if self.pos == start and start < self.last and self.texts[start] not in CLOSERS:
            self.pos += 1
        owed = self.count_brackets(start, [])
        base = len(owed)
        while self.pos < self.last:
            text = self.texts[self.pos]
            if text in CLOSERS:
                if text == "}" and "}" not in owed:
                    return
                while owed and owed.pop() != text:
                    pass
                base = min(base, len(owed))
            elif text in OPENERS:
                owed.append(OPENERS[text])
            elif self.kinds[self.pos] == "keyword":
                if text in TOP or text in MEMBERS:
                    if text not in self.misused:
                        return
                elif text in STATEMENTS and "}" not in owed[base:]:
                    if text != "for" or self.first_on_line(self.pos):
                        return
            elif not owed and self.peek() == "=" and self.first_on_line(self.pos):
                if self.kinds[self.pos] == "name":
                    return
            self.pos += 1

    def skip_item(self, start: int, stops: frozenset[str]) -> None:
        """To the next word of `stops`, or to the bracket that ends what holds the item."""
        if self.pos == start and self.pos < self.last and self.texts[start] != "}":
            self.pos += 1
        owed = self.count_brackets(start, [])
        while self.pos < self.last:
            text = self.texts[self.pos]
            if text in CLOSERS:
                if text == "}" and "}" not in owed:
                    return
                while owed and owed.pop() != text:
                    pass
            elif text in OPENERS:
                owed.append(OPENERS[text])
            elif text in stops and text not in self.misused:
                return
            self.pos += 1

    def skip_balanced(self) -> None:
        """Over a bracketed part, if one starts here."""
        owed: list[str] = []
        while self.pos < self.last:
            text = self.texts[self.pos]
            if text in OPENERS:
                owed.append(OPENERS[text])
            elif owed and text == owed[-1]:
                owed.pop()
            elif not owed or text in CLOSERS:
                return
            self.pos += 1
            if not owed:
                return


def _literal(token: Token) -> bool:
    """Whether a bad token is a number or a string, which stands for an operand all the same."""
    return token[0] == "error" and token[1][0] in '0123456789"'


def doc_text(text: str) -> str:
    """What a documentation comment says, without its marks."""
    if text.startswith("///"):
        line = text[3:].rstrip()
        return line[1:] if line.startswith(" ") else line
    lines = [line.strip() for line in text[3:-2].strip().splitlines()]
    return "\n".join(line[1:].lstrip() if line.startswith("*") else line for line in lines)
