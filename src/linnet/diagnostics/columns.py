"""Where the characters of a line stand on a terminal.

Tabs advance to the next multiple of four, wide East Asian characters take two columns,
combining marks none. Control and direction-changing characters are replaced by visible
ones, so that a file cannot steer the terminal that shows it.
"""

from __future__ import annotations

TAB = 4
# Marks that reorder or hide the text around them (Unicode UAX #9 and U+200B … U+200F).
_INVISIBLE = {*range(0x200B, 0x2010), *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0xFEFF}


def visible(text: str) -> str:
    """The text with every control or invisible character replaced by one that shows."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_visible, text))


def _visible(char: str) -> str:
    code = ord(char)
    if code < 0x20:
        return char if char == "\n" else chr(0x2400 + code)  # the symbol for the control
    if code == 0x7F:
        return "\u2421"
    if 0x80 <= code < 0xA0 or code in _INVISIBLE or 0xD800 <= code < 0xE000:
        return "\ufffd"
    return char


def char_width(char: str) -> int:
    """The columns that a printable character takes: 0, 1 or 2."""
    if char < "\u0300":
        return 1
    from unicodedata import combining, east_asian_width

    if combining(char):
        return 0
    return 2 if east_asian_width(char) in "WF" else 1


def text_width(text: str) -> int:
    return len(text) if text.isascii() else sum(map(char_width, text))


def layout(line: str) -> tuple[list[str], list[int]]:
    """Cells and columns: what each character shows as, and the column where it starts.

    `columns` has one entry more than `line` has characters: the end of the line.
    """
    cells: list[str] = []
    columns: list[int] = []
    column = 0
    for char in line:
        columns.append(column)
        if char == "\t":
            width = TAB - column % TAB
            cells.append(" " * width)
        else:
            shown = _visible(char)
            width = char_width(shown)
            cells.append(shown)
        column += width
    columns.append(column)
    return cells, columns


def window(cells: list[str], columns: list[int], focus: tuple[int, int], width: int) -> Window:
    """The part of a line that fits `width` columns around columns `focus`."""
    total = columns[-1]
    if total <= width:
        return Window("".join(cells), 0, 0)
    start, end = focus
    # The focus in the middle; a focus wider than the window is shown from its start.
    left = max(0, min(start - 4, (start + min(end, start + width) - width) // 2))
    left = min(left, total - width)
    right = left + width
    shown: list[str] = []
    first: int | None = None
    room = right - (1 if right < total else 0)
    for index, cell in enumerate(cells):
        begin, stop = columns[index], columns[index + 1]
        if begin >= left + (1 if left else 0) and stop <= room:
            if first is None:
                first = begin
            shown.append(cell)
    first = left if first is None else first
    prefix = "…" if left else ""
    suffix = "…" if right < total else ""
    return Window(prefix + "".join(shown) + suffix, first, len(prefix))


class Window:
    """The text shown, the column of the line that it starts at, and where that now stands."""

    __slots__ = ("indent", "origin", "text")

    def __init__(self, text: str, origin: int, indent: int):
        self.text = text
        self.origin = origin
        self.indent = indent

    def column(self, column: int) -> int:
        """A column of the line as a column of the window, clipped to it."""
        return max(0, min(column - self.origin + self.indent, text_width(self.text)))
