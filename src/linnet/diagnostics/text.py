"""A finding as text: the source line, carets under the span, labels, notes and help.

error[E2202]: the result has another shape than declared
  --> src/lib.linnet:9:12
   |
 7 |     pub fn forward(x: Tensor[B, In; T]) -> Tensor[B, Out; T] {
   |                                            ----------------- declared here
 9 |     return x
   |            ^ this is `Tensor[B, In; T]`
   = help: …
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from linnet.diagnostics.columns import layout, text_width, visible, window
from linnet.diagnostics.diagnostic import Diagnostic, Label
from linnet.source import Source

WIDTH = 100
# Between two marked lines of one file, a gap of at most this many lines is shown whole.
_NEAR = 1

_CODES = {"red": "1;31", "yellow": "1;33", "blue": "1;34", "cyan": "1;36", "bold": "1"}


class Paint:
    """ANSI colours, or none."""

    def __init__(self, on: bool):
        self.on = on

    def __call__(self, color: str, text: str) -> str:
        return f"\x1b[{_CODES[color]}m{text}\x1b[0m" if self.on and text else text


class Mark:
    """The columns of one line that a label covers."""

    __slots__ = ("end", "message", "primary", "start")

    def __init__(self, start: int, end: int, primary: bool, message: str):
        self.start = start  # code points from the start of the line
        self.end = end
        self.primary = primary
        self.message = message


def render(diagnostic: Diagnostic, *, color: bool = False, width: int = WIDTH) -> str:
    """One finding, without a line break at the end. `width` is the terminal's, in columns."""
    paint = Paint(color)
    severity = "red" if diagnostic.severity == "error" else "yellow"
    head = paint(severity, f"{diagnostic.severity}[{diagnostic.code}]")
    lines = [head + paint("bold", f": {visible(diagnostic.message)}")]

    files = _by_file(diagnostic)
    gutter = max(len(str(max(marks))) for marks in files.values())
    bar = paint("blue", "|")
    empty = f"{' ' * gutter} {bar}"
    room = width - gutter - 3  # the gutter, a space, the bar, a space
    for source, marks in files.items():
        first = source is diagnostic.span.source
        at = diagnostic.span.start if first else _first_offset(diagnostic, source)
        line, column = source.position(at)
        arrow = paint("blue", f"{' ' * gutter}{'-->' if first else ':::'}")
        lines += [f"{arrow} {visible(source.path)}:{line}:{column}", empty]
        previous: int | None = None
        for number in _shown(marks):
            if previous is not None and number > previous + 1:
                lines.append(paint("blue", "..."))
            previous = number
            shown, rows = _line(source.line(number), marks.get(number, []), paint, severity, room)
            lines.append(f"{paint('blue', f'{number:>{gutter}}')} {bar} {shown}".rstrip())
            lines += [f"{empty} {row}" for row in rows]
    notes = [("note", note) for note in diagnostic.notes]
    if diagnostic.help:
        notes.append(("help", diagnostic.help))
    if notes:
        lines.append(empty)
    for kind, note in notes:
        first_line, *more = visible(note).split("\n")
        lines.append(f"{' ' * gutter} {paint('blue', '=')} {paint('bold', kind)}: {first_line}")
        lines += [f"{' ' * (gutter + 3 + len(kind) + 2)}{line}".rstrip() for line in more]
    return "\n".join(lines)


def render_all(
    diagnostics: Iterable[Diagnostic], *, color: bool = False, width: int = WIDTH
) -> str:
    """Findings in order, with an empty line after each."""
    return "".join(f"{render(one, color=color, width=width)}\n\n" for one in diagnostics)


def _by_file(diagnostic: Diagnostic) -> dict[Source, dict[int, list[Mark]]]:
    """For each file, the primary's first, the marks of each line."""
    files: dict[Source, dict[int, list[Mark]]] = {diagnostic.span.source: {}}
    for label in (diagnostic.label, *diagnostic.related):
        marks = files.setdefault(label.span.source, {})
        for number, mark in _marks(label, label is diagnostic.label):
            marks.setdefault(number, []).append(mark)
    return files


def _first_offset(diagnostic: Diagnostic, source: Source) -> int:
    return min(label.span.start for label in diagnostic.related if label.span.source is source)


def _marks(label: Label, primary: bool) -> list[tuple[int, Mark]]:
    """A label's marks. A span over several lines marks its first and its last line."""
    source = label.span.source
    size = len(source.text)
    first, start = source.position(min(label.span.start, size))
    last, end = source.position(min(max(label.span.end, label.span.start), size))
    if end == 1 and last > first:  # the span ends with a line break
        last, end = last - 1, len(source.line(last - 1)) + 1
    if first == last:
        return [(first, Mark(start - 1, end - 1, primary, label.message))]
    tail = source.line(last)
    indent = len(tail) - len(tail.lstrip())
    return [
        (first, Mark(start - 1, len(source.line(first).rstrip()), primary, "")),
        (last, Mark(min(indent, end - 1), end - 1, primary, label.message)),
    ]


def _shown(marks: dict[int, list[Mark]]) -> list[int]:
    """The marked lines in order, with what lies in a small gap between two of them."""
    shown: list[int] = []
    for number in sorted(marks):
        if shown and number - shown[-1] - 1 <= _NEAR:
            shown.extend(range(shown[-1] + 1, number))
        shown.append(number)
    return shown


def _line(
    text: str, marks: list[Mark], paint: Paint, severity: str, width: int
) -> tuple[str, list[str]]:
    """A source line cut to the width, and the rows of marks and messages under it."""
    cells, columns = layout(text)
    if not marks:
        return window(cells, columns, (0, 0), width).text, []
    lead = next((mark for mark in marks if mark.primary), marks[0])
    last = len(columns) - 1

    def column(at: int) -> int:
        return columns[max(0, min(at, last))]

    view = window(cells, columns, (column(lead.start), column(lead.end)), width)
    placed = []
    for mark in sorted(marks, key=lambda mark: (mark.start, -mark.end)):
        start = view.column(column(mark.start))
        # A mark is never without a column, also at the end of a line.
        placed.append((start, max(start + 1, view.column(column(mark.end))), mark))

    def tint(mark: Mark, text: str) -> str:
        return paint(severity if mark.primary else "blue", text)

    owner: dict[int, Mark] = {}
    # The narrower of two marks lies on top, so that both stay visible.
    for start, end, mark in sorted(placed, key=lambda p: (p[0] - p[1], p[2].primary)):
        owner.update(dict.fromkeys(range(start, end), mark))
    if not any(mark.primary for mark in owner.values()):
        # Narrower ones together hid the primary.
        for start, end, mark in placed:
            if mark.primary:
                owner.update(dict.fromkeys(range(start, end), mark))
    runs: list[list[int]] = []
    for at in sorted(owner):
        if runs and runs[-1][1] == at and owner[at - 1] is owner[at]:
            runs[-1][1] = at + 1
        else:
            runs.append([at, at + 1])
    row = _join(
        [
            (
                begin,
                stop,
                tint(owner[begin], ("^" if owner[begin].primary else "-") * (stop - begin)),
            )
            for begin, stop in runs
        ]
    )

    speaking = [(start, end, mark) for start, end, mark in placed if mark.message]
    rows = [row]
    if speaking:
        start, end, mark = speaking[-1]
        message = visible(mark.message)
        fits = end + 1 + text_width(message) <= width
        if end == max(owner) + 1 and (fits or len(speaking) == 1):
            speaking.pop()
            if fits:
                rows[0] = f"{row} {tint(mark, message)}"
            else:  # below, and as far left as it takes to fit
                at = max(0, min(start, width - text_width(message)))
                rows.append(" " * at + tint(mark, message))
    if speaking:
        rows.append(_bars(speaking, tint))
    while speaking:
        start, end, mark = speaking.pop()
        text = tint(mark, visible(mark.message))
        others = [entry for entry in speaking if entry[0] < start]
        rows.append(_bars(others, tint, (start, end, text)))
    return view.text, rows


def _bars(
    placed: list[tuple[int, int, Mark]],
    tint: Callable[[Mark, str], str],
    last: tuple[int, int, str] | None = None,
) -> str:
    """A row of bars that lead down from marks to their messages, perhaps with a last piece."""
    bars = {start: (start, start + 1, tint(mark, "|")) for start, _, mark in placed}
    return _join([*bars.values(), *([last] if last else [])])


def _join(pieces: list[tuple[int, int, str]]) -> str:
    """Texts from column to column, in order."""
    row: list[str] = []
    at = 0
    for start, end, text in pieces:
        row.append(" " * (start - at) + text)
        at = end
    return "".join(row)
