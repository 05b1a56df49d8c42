"""Draws `answer.svg`, the README's picture, from what the checker says today.

python docs/draw_answer.py > docs/answer.svg
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path

from linnet.check import check_package
from linnet.diagnostics.diagnostic import Diagnostic
from linnet.diagnostics.text import render
from linnet.package import open_package

NAME = "digits.linnet"
PROGRAM = """\
module digits

use std.nn.activations::{relu}
use std.nn.linear::{Linear}

pub block Digits<Hidden: Dim> {
    sub hidden: Linear<784, Hidden, f32>
    sub output: Linear<10, Hidden, f32>

    pub entry forward<B: Dim>(images: Tensor[B, 784; f32]) -> Tensor[B, 10; f32] {
        return output.forward(relu(hidden.forward(images)))
    }
}
"""
KEYWORDS = {"module", "use", "pub", "block", "sub", "entry", "fn", "return"}
# Pixels: a character, a line, the margin.
CHAR, LINE, MARGIN = 7.8, 19, 20

STYLE = """\
    text { font: 13px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; fill: #24292f; }
    .code { fill: #f8f8f5; stroke: #d5d5cc; }
    .term { fill: #fff; stroke: #d5d5cc; }
    .head { font-size: 11px; fill: #7a7a70; }
    .number { fill: #b5b5aa; }
    .keyword { fill: #7b3fa0; } .type { fill: #1f6f6b; } .literal { fill: #9a5b00; }
    .bold { font-weight: bold; } .error { fill: #c4201d; font-weight: bold; }
    .mark { fill: #2f62b5; } .prompt { fill: #7a7a70; }"""

# A piece of a line: the column it starts at, its class, its text.
Piece = tuple[int, str, str]


def answer(folder: Path) -> tuple[list[Diagnostic], list[str]]:
    """What `linnet check` says about the program, with the library's place shortened."""
    path = folder / NAME
    path.write_text(PROGRAM, encoding="utf-8")
    found = check_package(open_package(path)).diagnostics
    text = "\n\n".join(render(one) for one in found)
    text = re.sub(r"(-->|:::) \S*/(linnet/std/)", r"\1 …/\2", text)
    return found, text.replace(str(path), NAME).split("\n")


def code_pieces(line: str, at: int = 0) -> Iterator[Piece]:
    for match in re.finditer(r"[A-Za-z_]\w*|\d+|[^\sA-Za-z_0-9]+", line):
        word = match.group()
        kind = ""
        if word in KEYWORDS:
            kind = "keyword"
        elif word.isdigit():
            kind = "literal"
        elif word[0].isupper() or word == "f32":
            kind = "type"
        yield at + match.start(), kind, word


def words(text: str, kind: str, at: int) -> Iterator[Piece]:
    for match in re.finditer(r"\S+(?: \S+)*", text):
        yield at + match.start(), kind, match.group()


def answer_pieces(line: str, code: set[str]) -> Iterator[Piece]:
    """The pieces of a line of the terminal, coloured as the renderer colours them."""
    if match := re.match(r"(\w+\[[A-Z]\d+\])(.*)", line):
        yield 0, "error", match[1]
        yield from words(match[2], "bold", len(match[1]))
    elif line.startswith("$"):
        yield 0, "prompt", "$"
        yield from words(line[1:], "bold", 1)
    elif match := re.match(r"(\s*\d* \|)(.*)", line):
        start = len(match[1])
        yield from words(match[1], "mark", 0)
        if match[2].strip() in code or match[1].strip() != "|":
            yield from code_pieces(match[2], start)
        else:
            kind = "mark"
            for part in re.finditer(r"\^+|-+|\||[^\^\-|]+", match[2]):
                kind = {"^": "error", "-": "mark"}.get(part.group()[0], kind)
                yield from words(part.group(), kind, start + part.start())
    elif match := re.match(r"(\s*=) (\w+:)(.*)", line):
        yield from words(match[1], "mark", 0)
        yield len(match[1]) + 1, "bold", match[2]
        yield from words(match[3], "", match.end(2))
    elif match := re.match(r"(\s*(?:-->|:::))(.*)", line):
        yield from words(match[1], "mark", 0)
        yield from words(match[2], "", len(match[1]))
    else:
        yield from words(line, "", 0)


def merged(pieces: Iterator[Piece]) -> list[Piece]:
    """Neighbours of one class, at most a space apart, as one piece."""
    result: list[Piece] = []
    for column, kind, text in pieces:
        if result and result[-1][1] == kind:
            start, _, before = result[-1]
            gap = column - start - len(before)
            if gap <= 1:
                result[-1] = (start, kind, before + " " * gap + text)
                continue
        result.append((column, kind, text))
    return result


def panel(title: str, kind: str, lines: list[list[Piece]], y: float, width: int) -> list[str]:
    """A box with a title; lines of code get their numbers."""
    height = 34 + len(lines) * LINE + 18
    svg = [
        f'  <rect class="{kind}" x="0.5" y="{y + 0.5}" width="{width - 1}" height="{height - 1}"'
        ' rx="8"/>',
        f'  <text class="head" x="{MARGIN}" y="{y + 22}">{escape(title)}</text>',
    ]
    left = MARGIN + (4 * CHAR if kind == "code" else 0)
    for number, pieces in enumerate(lines, 1):
        at = y + 30 + number * LINE
        if not pieces:
            continue
        if kind == "code":
            edge = MARGIN + 2 * CHAR
            svg.append(
                f'  <text class="number" x="{edge:.1f}" y="{at}" text-anchor="end">{number}</text>'
            )
        spans = "".join(
            f"<tspan{f' class={chr(34)}{name}{chr(34)}' if name else ''}"
            f' x="{left + column * CHAR:.1f}">{escape(text, quote=False)}</tspan>'
            for column, name, text in pieces
        )
        svg.append(f'  <text y="{at}">{spans}</text>')
    return svg


def draw(folder: Path) -> str:
    """The picture; `folder` is where the program is put for the checker."""
    source = PROGRAM.rstrip().split("\n")
    _, found = answer(folder)
    shown = [f"$ linnet check {NAME}", *found]
    code = [merged(code_pieces(line)) for line in source]
    known = {line.strip() for line in source}
    terminal = [merged(answer_pieces(line, known)) for line in shown]
    width = int(max(max(map(len, source)) + 4, *map(len, shown)) * CHAR + 2 * MARGIN)
    first = 52 + len(code) * LINE
    height = first + 14 + 52 + len(terminal) * LINE
    title = "A Linnet file whose layers do not fit together, and the checker's answer"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
            f' viewBox="0 0 {width} {height}" role="img" aria-labelledby="title">',
            f'  <title id="title">{title}</title>',
            "  <style>",
            STYLE,
            "  </style>",
            *panel(NAME, "code", code, 0, width),
            *panel("terminal", "term", terminal, first + 14, width),
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        print(draw(Path(folder)), end="")
