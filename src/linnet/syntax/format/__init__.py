"""One style for every file, without options.

Four spaces, 100 columns, one statement a line. A list that ends in a comma stays one element
a line; any other is joined when it fits. Comments stay where they are. Each result is proven:
it parses to the same tree with the same comments, and formatting it again changes nothing.
"""

from __future__ import annotations

from linnet.diagnostics.diagnostic import Diagnostic
from linnet.errors import Error
from linnet.source import Source
from linnet.syntax.format.doc import render
from linnet.syntax.format.item import ItemLayout
from linnet.syntax.format.proof import same
from linnet.syntax.format.trivia import Trivia
from linnet.syntax.parser import parse
from linnet.syntax.tree import Tree

# One pass reaches the style; a comment at an odd place may need another to come to rest.
_PASSES = 4


class FormatError(Error):
    """A fault of the formatter: what it wrote would not be the same program."""


class Unparsed(Error):
    """The file does not parse; `.diagnostics` says why."""

    def __init__(self, diagnostics: list[Diagnostic]):
        super().__init__("the file does not parse")
        self.diagnostics = diagnostics


def format_text(text: str, path: str = "<text>") -> str:
    """The text in the one style. Unparsed where it is no program, FormatError where the
    result cannot be proven the same."""
    tree = _parse(Source(path, text))
    given = Trivia(tree)
    skeleton, comments = given.skeleton(), given.comments
    trivia = given
    latest, current = tree, text
    for _ in range(_PASSES):
        try:
            result = render(ItemLayout(trivia).file(latest.file))
            if result == current:
                break
            latest = _parse(Source(path, result))
        except Exception as error:
            if isinstance(error, Unparsed):
                error = error.diagnostics[0].message  # type: ignore[assignment]
            raise _fault(path, f"{error}") from error
        current = result
        trivia = Trivia(latest)
    else:
        raise _fault(path, "a second pass would change it again")
    if current != text:
        if sorted(trivia.comments) != sorted(comments) or trivia.skeleton() != skeleton:
            raise _fault(path, "a comment or a token would be lost")
        if not same(tree.file, latest.file):
            raise _fault(path, "the result would be another program")
    return current


def _parse(source: Source) -> Tree:
    tree, problems = parse(source)
    if problems:
        raise Unparsed(problems)
    return tree


def _fault(path: str, why: str) -> FormatError:
    return FormatError(
        f"internal error: {path} was left as it is, for formatting it failed: {why}\n"
        "This is a fault of `linnet fmt`, not of the file."
    )
