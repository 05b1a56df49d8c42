"""What a layout is built of, and the printer that chooses its line breaks.

The algorithm is Wadler's ("A prettier printer", 1998) in its usual iterative form: a group is
printed on one line when it fits up to the next place where a line may break, and with a break
at each of its own lines otherwise. Comments at the end of a line are *suffixes*: they wait for
the next line break and take no room.
"""

from __future__ import annotations

from typing import Union

WIDTH = 100
STEP = 4


class Mark:
    """A place for white space: one of the constants below."""

    __slots__ = ("flat",)

    def __init__(self, flat: str | None):
        self.flat = flat  # what it is on one line; None where it always breaks


LINE = Mark(" ")
SOFT = Mark("")
HARD = Mark(None)
BLANK = Mark(None)  # a line break and an empty line


class Indent:
    __slots__ = ("doc",)

    def __init__(self, doc: Doc):
        self.doc = doc


class Group:
    """Parts that break together. `broken` says that they must. A `whole` group counts what
    follows it, up to the end of the line, as if it could not break. A part that must break
    forces those around it to."""

    __slots__ = ("broken", "doc", "whole")

    def __init__(self, doc: Doc, broken: bool = False, whole: bool = False):
        self.doc = doc
        self.broken = broken
        self.whole = whole


class Choice:
    """The first of several layouts that fits on its lines; the last if none does. The second
    breaks the soonest."""

    __slots__ = ("docs",)

    def __init__(self, docs: list[Doc]):
        self.docs = docs


class Suffix:
    """A comment for the end of the line."""

    __slots__ = ("text",)

    def __init__(self, text: str):
        self.text = text


class IfBroken:
    """Text that is there only where the group around it breaks."""

    __slots__ = ("text",)

    def __init__(self, text: str):
        self.text = text


# The order in `list` is the order of printing; `str` holds no line break, except in a comment.
Doc = Union[str, "list[Doc]", Mark, Indent, Group, Choice, Suffix, IfBroken]
_Entry = tuple[int, bool, "Doc"]  # the indentation, whether flat, and what to print


def render(doc: Doc, width: int = WIDTH) -> str:
    """The text, with a line break at its end unless it is empty."""
    out: list[str] = []
    column = 0
    waiting: list[str] = []
    stack: list[_Entry] = [(0, False, doc)]
    while stack:
        indent, flat, part = stack.pop()
        kind = type(part)
        if kind is str:
            text: str = part  # type: ignore[assignment]
            out.append(text)
            at = text.rfind("\n")
            column = column + len(text) if at < 0 else len(text) - at - 1
        elif kind is list:
            stack.extend([(indent, flat, one) for one in reversed(part)])  # type: ignore[arg-type]
        elif isinstance(part, Mark):
            if flat and part.flat is not None:
                out.append(part.flat)
                column += len(part.flat)
                continue
            _flush(out, waiting, indent)
            out.append("\n\n" if part is BLANK else "\n")
            out.append(" " * indent)
            column = indent
        elif isinstance(part, Indent):
            stack.append((indent + STEP, flat, part.doc))
        elif isinstance(part, Group):
            if part.broken:
                flat = False
            elif not flat:
                flat = _fits(part.doc, width - column, stack, part.whole)
            stack.append((indent, flat, part.doc))
        elif isinstance(part, Choice):
            chosen = part.docs[-1]
            for one in part.docs[:-1]:
                if flat or _fits(one, width - column, stack, False, indent, width):
                    chosen = one
                    break
            stack.append((indent, flat, chosen))
        elif isinstance(part, Suffix):
            waiting.append(part.text)
        elif isinstance(part, IfBroken) and not flat:
            out.append(part.text)
            column += len(part.text)
    _flush(out, waiting, 0)
    lines = "".join(out).split("\n")
    text = "\n".join([line.rstrip(" ") for line in lines]).strip("\n")
    return text + "\n" if text else ""


def _flush(out: list[str], waiting: list[str], indent: int) -> None:
    """Put the comments that wait at the end of the line. After one that reaches to the end
    of its line, the others stand on lines of their own."""
    own_line = False
    for text in waiting:
        out.append(f"\n{' ' * indent}{text}" if own_line else f"  {text}")
        own_line = text.startswith("//")
    waiting.clear()


def _fits(
    doc: Doc,
    room: int,
    rest: list[_Entry],
    whole: bool,
    indent: int = 0,
    width: int | None = None,
) -> bool:
    """Whether `doc` on one line, and what follows up to the next break, takes at most `room`
    columns. With `width`, the lines that `doc` must break into are measured one by one."""
    stack: list[tuple[bool, Doc, bool]] = [(width is None, doc, True)]
    at = len(rest)
    while room >= 0:
        if not stack:
            if not at:
                return True
            at -= 1
            _, flat, part = rest[at]
            inside = False
        else:
            flat, part, inside = stack.pop()
        kind = type(part)
        if kind is str:
            text: str = part  # type: ignore[assignment]
            if "\n" in text:
                return room >= text.find("\n")
            room -= len(text)
        elif kind is list:
            stack.extend([(flat, one, inside) for one in reversed(part)])  # type: ignore[arg-type]
        elif isinstance(part, Mark):
            if flat and part.flat is not None:
                room -= len(part.flat)
            elif inside and width is not None and not flat:
                room = width - indent - STEP
            else:
                # A break that must be, inside what should be one line, or the end of the line.
                return not inside or (width is not None and part is HARD and not flat)
        elif isinstance(part, Indent):
            stack.append((flat, part.doc, inside))
        elif isinstance(part, Group):
            if inside:
                if part.broken:
                    return False
                stack.append((True, part.doc, True))
            else:
                stack.append((not part.broken and (flat or whole), part.doc, False))
        elif isinstance(part, Choice):
            # What follows can break where its second layout does.
            stack.append((inside or whole, part.docs[not (inside or whole)], inside))
        elif isinstance(part, IfBroken) and not flat:
            room -= len(part.text)
    return False
