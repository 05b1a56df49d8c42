"""Text to tokens. White space and comments are tokens too: joined, they give the text back.

One compiled expression finds all tokens in one pass, so the time is linear in the
size of the text. Only block comments nest, which no regular expression can follow;
a file that has one is scanned token by token, with the same expression.
"""

from __future__ import annotations

import re
from itertools import accumulate, repeat

from linnet.diagnostics.diagnostic import Diagnostic, Fix, Label
from linnet.source import Source, Span
from linnet.syntax.tree import Token

# fmt: off
KEYWORDS = frozenset([
    "module", "use", "pub", "crate", "self", "super", "as", "const", "type", "struct", "enum",
    "fn", "op", "block", "entry", "param", "buffer", "state", "sub", "let", "var", "return",
    "if", "else", "match", "static", "for", "in", "while", "where", "yield", "true", "false",
    "none", "some", "extern",
])
# Kept for later versions; refused as names.
RESERVED = frozenset([
    "async", "await", "effect", "unsafe", "macro", "trait", "impl", "derive", "random", "rng",
    "mut", "ref", "kernel", "device",
])
# fmt: on
WORDS = KEYWORDS | RESERVED

# Numbers are matched loosely (`12abc` is one token), so that a bad one is one error.
# `1..n` is a range: a fraction needs a digit after its point.
_NUMBER = r"0[xXbBoO]\w*|\d(?:[eE][+-]\d|\w)*(?:\.\d(?:[eE][+-]\d|\w)*)?"
_STRING = r'"[^"\\\n]*(?:\\[^\n][^"\\\n]*)*(?:"|\\?)'
_PUNCTUATION = r"\.\.\.|\.\.|::|->|=>|==|!=|<=|>=|&&|\|\||[-+*/%<>=!&|^.,:;?(){}\[\]]"
_BAD = r"[^\sA-Za-z0-9_\"\-+*/%<>=!&|^.,:;?(){}\[\]]+"
_TOKEN = re.compile(
    rf"[ \t\r\n\f\v]+|[A-Za-z_]\w*|//[^\n]*|/\*|{_PUNCTUATION}|{_NUMBER}|{_STRING}|{_BAD}|.",
    re.ASCII | re.DOTALL,
)
_INT = re.compile(r"0[xX]_*[0-9a-fA-F][0-9a-fA-F_]*|0[bB]_*[01][01_]*|\d[\d_]*", re.ASCII)
_FLOAT = re.compile(r"\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d[\d_]*)?", re.ASCII)
_ESCAPE = re.compile(r"\\(?:u\{([0-9a-fA-F]{1,6})\}|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\", '"': '"', "'": "'"}
_BAD_RUN = re.compile(_BAD, re.ASCII)
_COMMENT_EDGE = re.compile(r"/\*|\*/")

# The magnitude that only a literal after a minus may have: the lowest i64.
INT_LIMIT = 1 << 63


def tokenize(source: Source) -> tuple[list[Token], list[Diagnostic]]:
    """All tokens, the last of kind "end", and E1001, E1002, E1003 and E1005."""
    texts = _split(source.text)
    kinds_of = {text: _kind(text) for text in set(texts)}
    kinds = [kinds_of[text] for text in texts]
    if texts and texts[0] == "\ufeff":
        kinds[0] = "space"  # a byte order mark
    ends = list(accumulate(map(len, texts)))
    starts = [0, *ends]
    size = starts.pop()
    # What `Token._make` does, without a Python call for each token.
    tokens = list(map(tuple.__new__, repeat(Token), zip(kinds, texts, starts, ends, strict=True)))
    tokens.append(Token("end", "", size, size))
    problems: list[Diagnostic] = []
    if not {"error", "int", "float", "string"}.isdisjoint(kinds_of.values()):
        for token in tokens:
            if token.kind in ("error", "int", "float", "string"):
                problem = _problem(source, token)
                if problem is not None:
                    problems.append(problem)
    return tokens, problems


def _split(text: str) -> list[str]:
    texts = ["\ufeff"] if text.startswith("\ufeff") else []
    if "/*" not in text:
        return texts + _TOKEN.findall(text, len(texts))
    at = len(texts)
    match = _TOKEN.match
    while found := match(text, at):
        piece = found.group()
        if piece == "/*":
            piece = text[at : _comment_end(text, at)]
        texts.append(piece)
        at += len(piece)
    return texts


def _comment_end(text: str, start: int) -> int:
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge.group() == "/*" else -1
        if depth == 0:
            return edge.end()
    return len(text)


def _kind(text: str) -> str:
    first = text[0]
    if (first.isalpha() and first.isascii()) or first == "_":
        return "keyword" if text in WORDS else "name"
    if first in " \t\r\n\f\v":
        return "space"
    if first in "0123456789":
        if _INT.fullmatch(text):
            return "int"
        return "float" if _FLOAT.fullmatch(text) else "error"
    if first == '"':
        return "string" if _closed(text) else "error"
    if text.startswith("//"):
        return "doc" if text.startswith("///") and not text.startswith("////") else "comment"
    if text.startswith("/*"):
        if not _terminated(text):
            return "error"
        return "doc" if text.startswith("/**") and text[3] not in "*/" else "comment"
    return "error" if _BAD_RUN.fullmatch(text) else "punct"


def _closed(text: str) -> bool:
    if len(text) < 2 or not text.endswith('"'):
        return False
    body = text[1:-1]
    return (len(body) - len(body.rstrip("\\"))) % 2 == 0


def _terminated(comment: str) -> bool:
    return sum(1 if edge == "/*" else -1 for edge in _COMMENT_EDGE.findall(comment)) == 0


def _problem(source: Source, token: Token) -> Diagnostic | None:
    text = token.text
    span = Span(source, token.start, token.end)
    if token.kind == "int":
        if int_value(text) <= INT_LIMIT:
            return None
        return Diagnostic(
            "E1005",
            "error",
            "this integer does not fit `i64`",
            Label(span, "larger than 9223372036854775807"),
            help="write a float literal, such as `1e19`, where a float is meant",
        )
    if token.kind == "float":
        return None
    if text[0] == '"':
        return _string_problem(source, token)
    if text[0].isdigit() and text[0].isascii():
        return Diagnostic(
            "E1005",
            "error",
            f"`{text}` is not a number",
            Label(span, _number_hint(text)),
            help="numbers are written like `42`, `1_000`, `0xff`, `0b1010`, `1.5` or `1e-5`",
        )
    if text.startswith("/*"):
        return Diagnostic(
            "E1002",
            "error",
            "this block comment is not closed",
            Label(Span(source, token.start, token.start + 2), "opened here"),
            help="block comments nest: each `/*` needs its own `*/`",
        )
    shown = ", ".join(dict.fromkeys(_show(char) for char in text[:8]))
    problem = Diagnostic(
        "E1001",
        "error",
        f"unexpected character {shown}",
        Label(span, "not part of the language"),
        help=_character_help(text),
    )
    if text == "#":
        problem.fixes.append(Fix(span, "//", "start the comment with `//`"))
    return problem


def _number_hint(text: str) -> str:
    if text[:2] in ("0x", "0X"):
        return "hexadecimal digits are 0-9 and a-f"
    if text[:2] in ("0b", "0B"):
        return "binary digits are 0 and 1"
    if text[:2] in ("0o", "0O"):
        return "there are no octal numbers"
    return "a number ends where its digits end; units and suffixes are not allowed"


def _show(char: str) -> str:
    code = f"U+{ord(char):04X}"
    return f"`{char}` ({code})" if char.isprintable() else code


def _character_help(text: str) -> str:
    if text[0] == "#":
        return "comments start with `//`"
    if text[0] == "'":
        return 'strings are written with `"`'
    if text[0].isalpha():
        return "names use the letters A-Z and a-z, digits and `_`"
    return "remove it; any text may stand in a comment"


def _string_problem(source: Source, token: Token) -> Diagnostic | None:
    if token.kind == "error":
        return Diagnostic(
            "E1003",
            "error",
            "this string is not closed",
            Label(Span(source, token.start, token.end), 'no `"` before the end of the line'),
            help='close it with `"`; a line break inside a string is written `\\n`',
        )
    for escape in _ESCAPE.finditer(token.text, 1):
        if _unescape(escape) is None:
            at = token.start + escape.start()
            return Diagnostic(
                "E1003",
                "error",
                f"unknown escape `{escape.group()}` in a string",
                Label(Span(source, at, token.start + escape.end()), "not an escape"),
                help=r"escapes are `\n \t \r \0 \\ \" \' \x41 \u{1F600}`",
            )
    return None


def _unescape(escape: re.Match[str]) -> str | None:
    code = escape[1] or escape[2]
    if code is None:
        return _ESCAPES.get(escape[3])
    value = int(code, 16)
    return chr(value) if value < 0x110000 and not 0xD800 <= value < 0xE000 else None


def escapes_known(text: str) -> bool:
    """Whether every escape of a string token is one of the language."""
    return "\\" not in text or all(_unescape(found) is not None for found in _ESCAPE.finditer(text))


def string_value(text: str) -> str:
    """The text that a string token stands for."""
    return _ESCAPE.sub(lambda escape: _unescape(escape) or "", text[1:-1])


def int_value(text: str) -> int:
    """The value of an integer token; one that is far too long is cut to a large number."""
    digits = text.replace("_", "")
    if len(digits) > 80:
        digits = digits[:2] + digits[2:].lstrip("0")
        if len(digits) > 80:
            return INT_LIMIT + 1
    if digits[:2] in ("0x", "0X"):
        return int(digits[2:] or "0", 16)
    if digits[:2] in ("0b", "0B"):
        return int(digits[2:] or "0", 2)
    return int(digits)


def float_value(text: str) -> float:
    """The nearest `f64`; infinite where the literal is beyond it."""
    return float(text.replace("_", ""))
