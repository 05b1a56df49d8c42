"""A diagram as SVG: rows from top to bottom, values on lines between them.

A value that the next row reads goes straight down to it; any other leaves to a rail at the
right and comes back in from there. The page's script lays out in the same way, so that a
reader can open and close rows; this file is what shows without scripts, and what
`linnet inspect --diagram` writes. Lengths are in CSS pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape

from linnet.dims import Dim
from linnet.ir.program import Program
from linnet.ir.types import (
    OptionalType,
    Substitution,
    TensorType,
    Type,
    substitute,
    substitute_arg,
    substitute_dim,
)
from linnet.nest.diagram.graph import Port, Row, Sheet, all_rows, draw
from linnet.source import Span

BOX = 292  # the width of a row with nothing opened
MARGIN = 6  # around the whole
PAD = 12  # between a box and what is opened in it
LINE = 17  # a line of text between rows
RAIL = 11  # between rails
CHARACTER = 6.1  # of the small type
MAX_ROWS = 60  # that are opened by themselves

Link = Callable[[Span], "str | None"]


@dataclass(eq=False, slots=True)
class Placed:
    """A row with what it shows at the sizes given; `inner` is what is opened in it."""

    row: Row
    outs: list[str]
    members: list[str]
    repeat: str | None
    inner: list[tuple[str, Leaf]] = field(default_factory=list)
    height: float = 0
    y: float = 0


@dataclass(eq=False, slots=True)
class Leaf:
    """A sheet laid out."""

    sheet: Sheet
    params: list[str]
    rows: list[Placed]
    width: float = 0
    height: float = 0
    rails: dict[tuple[int, int], int] = field(default_factory=dict)
    lanes: int = 0


def type_text(type: Type) -> str:
    """`[B, S, 2048] bf16`: shapes first, as the eye looks for them."""
    if isinstance(type, OptionalType):
        return f"{type_text(type.inner)}?"
    if isinstance(type, TensorType):
        return f"[{', '.join(str(d).replace('*', '·') for d in type.shape)}] {type.dtype}"
    return str(type)


class Diagram:
    """One entry of a program. `sizes` binds generics of the root, and of the entry, as far as
    they are to be numbers; `open_rows` limits how much is opened."""

    def __init__(
        self,
        program: Program,
        sheets: Mapping[str, Sheet],
        entry: str,
        sizes: Mapping[str, int | str],
        open_rows: int = MAX_ROWS,
    ):
        self.program, self.sheets, self.entry = program, sheets, entry
        self.sizes: Substitution = {
            name: Dim.const(value) if isinstance(value, int) else value
            for name, value in sizes.items()
        }
        self._has_blocks: dict[str, bool] = {}
        depth = 0
        while depth < 12 and self.count(sheets[entry], depth + 1) <= open_rows:
            if self.count(sheets[entry], depth + 1) == self.count(sheets[entry], depth):
                break
            depth += 1
        self.depth = depth
        self.top = self.place(sheets[entry], self.sizes, depth)

    def opens(self, row: Row, depth: int) -> bool:
        """Whether a row is open at first: one of the package with blocks in it."""
        if depth <= 0:
            return False
        if row.target is None:
            return row.kind == "loop"
        return not row.target.startswith("std.") and self.has_blocks(row.target)

    def has_blocks(self, id: str) -> bool:
        if id not in self._has_blocks:
            self._has_blocks[id] = False
            rows = list(all_rows(self.sheets[id]))
            self._has_blocks[id] = any(
                row.kind == "block" or (row.target is not None and self.has_blocks(row.target))
                for row in rows
            )
        return self._has_blocks[id]

    def count(self, sheet: Sheet, depth: int) -> int:
        total = len(sheet.rows)
        for row in sheet.rows:
            if self.opens(row, depth):
                if row.target is not None:
                    total += self.count(self.sheets[row.target], depth - 1)
                for _, inner in row.inside:
                    total += self.count(inner, depth - 1)
        return total

    def place(self, sheet: Sheet, sizes: Substitution, depth: int) -> Leaf:
        leaf = Leaf(sheet, [port_text(p, sizes) for p in sheet.params], [])
        for row in sheet.rows:
            members = [f"{n} {type_text(substitute(t, sizes))}" for n, _, t in row.members]
            repeat = str(substitute_dim(row.repeat, sizes)) if row.repeat is not None else None
            placed = Placed(row, [port_text(p, sizes) for p in row.outs], members, repeat)
            if self.opens(row, depth):
                if row.target is not None:
                    below = {n: substitute_arg(a, sizes) for n, a in row.bindings.items()}
                    inner = self.place(self.sheets[row.target], below, depth - 1)
                    placed.inner.append(("", inner))
                else:
                    placed.inner = [
                        (name, self.place(inner, sizes, depth - 1)) for name, inner in row.inside
                    ]
            leaf.rows.append(placed)
        measure(leaf)
        return leaf

    def opened(self) -> list[str]:
        """The rows that are open at first: `4` is the entry's fifth row, `4/0` the first in it
        (`4:1/0` in its second sheet)."""
        found: list[str] = []

        def walk(leaf: Leaf, prefix: str) -> None:
            for position, placed in enumerate(leaf.rows):
                path = f"{prefix}{position}"
                if placed.inner:
                    found.append(path)
                for which, (_, inner) in enumerate(placed.inner):
                    walk(inner, f"{path}:{which}/" if which else f"{path}/")

        walk(self.top, "")
        return found

    def text(self, link: Link | None = None, *, standalone: bool = True) -> str:
        """The SVG. `link` gives the address of a place in the source."""
        widen(self.top, self.top.width)
        painter = _Painter(link)
        painter.sheet(self.top, MARGIN, MARGIN, self.top.width)
        width, height = self.top.width + 2 * MARGIN, self.top.height + 2 * MARGIN
        name = self.entry.rpartition(".")[2]
        described = (
            f"Diagram of {name}: {', '.join(r.row.label or r.row.note for r in self.top.rows)}"
        )
        style = f"<style>{STYLE}{SHAPES}</style>" if standalone else ""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="diagram" role="img" '
            f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}">'
            f"<title>{escape(described)}</title>{style}{''.join(painter.parts)}</svg>\n"
        )


def diagram_of(program: Program, entry: str, sizes: Mapping[str, int | str]) -> Diagram:
    """The diagram of one function, by its id."""
    return Diagram(program, draw(program, entry), entry, sizes)


def port_text(port: Port, sizes: Substitution) -> str:
    name = f"{port.name} " if port.name else ""
    return name + type_text(substitute(port.type, sizes))


# --- layout ---------------------------------------------------------------------------


def head_height(placed: Placed) -> float:
    """The height of a row without what is opened in it."""
    two_lines = placed.row.kind not in ("plain", "state") or bool(placed.row.label)
    return (42 if two_lines else 27) + 15 * len(placed.members)


def measure(leaf: Leaf) -> None:
    """Heights from inside out, rails, and the least width."""
    route(leaf)
    width: float = BOX
    for placed in leaf.rows:
        placed.height = head_height(placed)
        for name, inner in placed.inner:
            placed.height += inner.height + PAD + (LINE if name else 0)
            width = max(width, inner.width + 2 * PAD)
    y = gap(leaf.params, first=True)
    for placed in leaf.rows:
        placed.y = y
        y += placed.height + gap(placed.outs)
    leaf.height = y + 22
    leaf.width = width + (8 + RAIL * leaf.lanes if leaf.lanes else 0)


def gap(outs: list[str], first: bool = False) -> float:
    """Below a row: a line for each value that it gives, and an arrow's room."""
    return LINE * len(outs) + (12 if outs else 10)


def widen(leaf: Leaf, width: float) -> None:
    """Widths from outside in: what is opened fills the row around it."""
    leaf.width = width
    room = width - (8 + RAIL * leaf.lanes if leaf.lanes else 0)
    for placed in leaf.rows:
        for _, inner in placed.inner:
            widen(inner, room - 2 * PAD)


def route(leaf: Leaf) -> None:
    """A rail for each value that goes further than to the next row; the nearest free one."""
    ends: dict[tuple[int, int], int] = {}
    for wire in leaf.sheet.wires:
        if wire.target != wire.source + 1:
            key = (wire.source, wire.port)
            ends[key] = max(ends.get(key, 0), wire.target)
    free: list[int] = []  # by lane: from which row on it is free
    for (source, port), end in sorted(ends.items()):
        lane = next((i for i, until in enumerate(free) if until <= source), len(free))
        if lane == len(free):
            free.append(0)
        free[lane] = end
        leaf.rails[source, port] = lane
    leaf.lanes = len(free)


# --- painting ----------------------------------------------------------------------------


class _Painter:
    def __init__(self, link: Link | None):
        self.link = link
        self.parts: list[str] = []

    def add(self, text: str) -> None:
        self.parts.append(text)

    def sheet(self, leaf: Leaf, x: float, y: float, width: float) -> None:
        room = width - (8 + RAIL * leaf.lanes if leaf.lanes else 0)
        bottoms = {-1: y, **{i: y + p.y + p.height for i, p in enumerate(leaf.rows)}}
        tops = {i: y + p.y for i, p in enumerate(leaf.rows)}
        end = len(leaf.rows)
        tops[end] = y + leaf.height - 22
        outs = {-1: leaf.params, **{i: p.outs for i, p in enumerate(leaf.rows)}}
        arrivals: dict[int, int] = {}
        for wire in leaf.sheet.wires:
            at = (wire.source, wire.port)
            start, down = bottoms[wire.source], x + 16 + 9 * min(wire.port, 8)
            text = escape(outs[wire.source][wire.port])
            if wire.target == wire.source + 1:
                path = f"M{down:g} {start:g}V{tops[wire.target] - 1:g}m-3.5 -5 3.5 5 3.5 -5"
            else:
                rail = x + room + 8 + RAIL * leaf.rails[at]
                turn = start + LINE * (wire.port + 1) + 1
                arrival = arrivals.get(wire.target, 0)
                arrivals[wire.target] = arrival + 1
                into = tops[wire.target] + 8 + 7 * min(arrival, 3)
                if wire.target == end:
                    into = tops[end] + 9
                path = (
                    f"M{down:g} {start:g}V{turn - 4:g}q0 4 4 4H{rail - 5:g}q5 0 5 5"
                    f"V{into - 5:g}q0 5 -5 5H{x + room + 1:g}m5 -3.5 -5 3.5 5 3.5"
                )
            self.add(f'<path class="wire" d="{path}"><title>{text}</title></path>')
        for source, texts in outs.items():
            for port, text in enumerate(texts):
                left = x + 22 + 9 * min(len(texts) - 1, 8)
                base = bottoms[source] + LINE * (port + 1) - 4
                self.value(text, left, base)
        for placed in leaf.rows:
            self.row(placed, x, y + placed.y, room)
        self.add(
            f'<rect class="end" x="{x:g}" y="{tops[end]:g}" width="{room:g}" height="18" rx="9"/>'
            f'<text class="endtext" x="{x + room / 2:g}" y="{tops[end] + 13:g}">result</text>'
        )

    def value(self, text: str, x: float, y: float) -> None:
        name, bracket, shape = text.partition("[")
        if bracket:
            name, shape = name.strip(), "[" + shape
        else:
            name, _, shape = text.rpartition(" ")
        inner = f'<tspan class="name">{escape(name)} </tspan>' if name else ""
        self.add(f'<text class="value" x="{x:g}" y="{y:g}">{inner}{escape(shape)}</text>')

    def row(self, placed: Placed, x: float, y: float, width: float) -> None:
        row, height = placed.row, placed.height
        self.add(f'<g class="row {row.kind}">')
        if placed.repeat is not None:
            self.add(
                f'<rect class="stack" x="{x + 4:g}" y="{y + 4:g}" '
                f'width="{width:g}" height="{height:g}" rx="7"/>'
            )
        self.add(
            f'<rect class="box" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="7"/>'
            f'<path class="mark" d="M{x + 1.5:g} {y + 7:g}v{head_height(placed) - 14:g}"/>'
        )
        room = width - 24
        if placed.repeat is not None:
            text = f"× {placed.repeat}"
            self.add(f'<text class="repeat" x="{x + width - 12:g}" y="{y + 18:g}">{text}</text>')
            room -= 10 * len(text)
        label = row.label
        if label:
            shown = clip(label, int(room / 7.4))
            self.linked(
                row, f'<text class="label" x="{x + 12:g}" y="{y + 18:g}">{escape(shown)}</text>'
            )
        elif row.kind not in ("plain", "state"):
            self.add(f'<text class="label" x="{x + 12:g}" y="{y + 18:g}">{row.kind}</text>')
        base = y + (34 if label or row.kind not in ("plain", "state") else 18)
        shown = escape(clip(row.note, int((width - 24) / CHARACTER)))
        note = f'<text class="note" x="{x + 12:g}" y="{base:g}">{shown}</text>'
        if label:
            self.add(f"<g><title>{escape(row.note)}</title>{note}</g>")
        else:
            self.linked(row, note)
        for member, (_, kind, _) in zip(placed.members, row.members, strict=True):
            base += 15
            self.add(
                f'<circle class="{kind}" cx="{x + 15:g}" cy="{base - 3.5:g}" r="3"/>'
                f'<text class="member" x="{x + 23:g}" y="{base:g}">{escape(member)}</text>'
            )
        top = y + head_height(placed)
        for name, inner in placed.inner:
            if name:
                self.add(
                    f'<text class="note" x="{x + PAD:g}" y="{top + 10:g}">{escape(name)}</text>'
                )
                top += LINE
            self.sheet(inner, x + PAD, top, width - 2 * PAD)
            top += inner.height + PAD
        self.add("</g>")

    def linked(self, row: Row, text: str) -> None:
        address = self.link(row.span) if self.link is not None and row.span is not None else None
        title = f"<title>{escape(row.note)}</title>"
        if address is None:
            self.add(f"<g>{title}{text}</g>")
        else:
            self.add(f'<a href="{escape(address)}">{title}{text}</a>')


def clip(text: str, length: int) -> str:
    return text if len(text) <= length else text[: max(length - 1, 1)] + "…"


# The page has rules of the same names in its style sheet, with its own colours.
STYLE = """
.diagram{--ground:#fff;--box:#fff;--line:#d5d9e2;--ink:#1b2130;--soft:#667085;--wire:#8b95a8;
--block:#3867d6;--op:#8854d0;--grid:#0f8b8d;--state:#c77700;
background:var(--ground);font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
@media (prefers-color-scheme:dark){.diagram{--ground:#11151c;--box:#181d27;--line:#333c4d;
--ink:#e6e9f0;--soft:#98a2b3;--wire:#66738a;--block:#7aa2ff;--op:#c49bff;--grid:#4fd1c5;
--state:#f0b35a}}
"""
SHAPES = """
.diagram .box,.diagram .stack{fill:var(--box);stroke:var(--line)}
.diagram text{fill:var(--ink);font-size:11px}.diagram .label{font-weight:600;font-size:12.5px}
.diagram .note,.diagram .member{fill:var(--soft);font-size:10.5px}
.diagram .value{fill:var(--ink);font-size:10.5px}.diagram .value .name{fill:var(--soft)}
.diagram .repeat{font-weight:700;font-size:12.5px;text-anchor:end;fill:var(--block)}
.diagram .wire{fill:none;stroke:var(--wire);stroke-width:1.4}
.diagram .wire:hover{stroke:var(--block);stroke-width:3}
.diagram .mark{fill:none;stroke:var(--soft);stroke-width:3;stroke-linecap:round}
.diagram .block>.mark,.diagram .loop>.mark{stroke:var(--block)}
.diagram .op>.mark{stroke:var(--op)}.diagram .grid>.mark{stroke:var(--grid)}
.diagram .state>.mark{stroke:var(--state)}.diagram .plain>.mark{stroke:var(--line)}
.diagram circle.param,.diagram circle.buffer{fill:var(--block)}
.diagram circle.state{fill:var(--state)}
.diagram .end{fill:none;stroke:var(--line);stroke-dasharray:3 3}
.diagram .endtext{fill:var(--soft);font-size:10.5px;text-anchor:middle}
.diagram a:hover text{text-decoration:underline}
"""
