"""The diagram of a program: one sheet a function, with the IR's operations and values on it.

A sheet has the function's parameters at its top, then a row for each operation in program
order, then its results. A *wire* is a value on its way from where it is made to one operation
that reads it. Rows that stand for a call, a loop or a choice have sheets of their own inside.

What gets no row of its own, so that a reader sees the network and not its bookkeeping:
- literals, and scalars computed from literals alone: the row's own text shows them;
- params, buffers and states: they stand on the row that reads them;
- taking tuples apart, making them, and `some(x)`: the wire passes through;
- a static loop around one call is that call, drawn once with how often it repeats.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from linnet.dims import Dim
from linnet.ir.program import (
    Call,
    Const,
    DimValue,
    Function,
    Grid,
    If,
    Intrinsic,
    Loop,
    MakeNone,
    MakeSome,
    MakeTuple,
    MatchEnum,
    MatchOptional,
    MatchSub,
    Op,
    Program,
    ReadMember,
    Region,
    StateWrite,
    Step,
    TupleGet,
    Value,
    While,
)
from linnet.ir.types import (
    BlockRef,
    EnumType,
    GenericArg,
    ScalarType,
    Substitution,
    TupleType,
    Type,
    substitute_arg,
)
from linnet.source import Span


@dataclass(eq=False, slots=True)
class Port:
    """A value as a row gives it, or a parameter: its name in the source, and its type."""

    name: str | None
    type: Type
    value: Value | None = None  # None for one item of a tuple that nothing reads


@dataclass(frozen=True, eq=False, slots=True)
class Wire:
    """`value` from port `port` of row `source` (-1: the sheet's parameters) to row `target`
    (the number of rows: the sheet's results)."""

    value: Value
    source: int
    port: int
    target: int


@dataclass(eq=False, slots=True)
class Row:
    """`kind` is "block" (a method of a sub), "fn", "op", "grid", "loop", "choice", "state"
    (an assignment) or "plain". A call names its `target` function and how its generics follow
    from those of this sheet's function; `inside` are the sheets of a loop or a choice."""

    kind: str
    label: str
    note: str
    span: Span | None
    outs: list[Port]
    members: list[tuple[str, str, Type]] = field(default_factory=list)  # name, kind, type
    target: str | None = None
    bindings: Substitution = field(default_factory=dict)
    repeat: Dim | None = None
    inside: list[tuple[str, Sheet]] = field(default_factory=list)
    reads: list[Value] = field(default_factory=list)  # each once, in order


@dataclass(eq=False, slots=True)
class Sheet:
    params: list[Port]
    rows: list[Row]
    wires: list[Wire]
    results: list[Port]


def draw(program: Program, entry: str) -> dict[str, Sheet]:
    """The sheets of a function and of everything that it calls, by function id."""
    sheets: dict[str, Sheet] = {}
    waiting = [entry]
    while waiting:
        id = waiting.pop()
        if id in sheets:
            continue
        sheets[id] = sheet = sheet_of(program, program.functions[id])
        waiting += [row.target for row in all_rows(sheet) if row.target is not None]
    return sheets


def all_rows(sheet: Sheet) -> Iterator[Row]:
    for row in sheet.rows:
        yield row
        for _, inner in row.inside:
            yield from all_rows(inner)


def sheet_of(program: Program, function: Function) -> Sheet:
    names = dict(zip(function.body.params, (name for name, _ in function.params), strict=True))
    return _Drawer(program, function).region(function.body, names)


class _Drawer:
    def __init__(self, program: Program, function: Function):
        self.program = program
        self.function = function
        self.literals: set[Value] = set()
        self.members: dict[Value, ReadMember] = {}
        self.through: dict[Value, Value] = {}  # a value that is another one, unchanged
        self.items: dict[Value, list[Value]] = {}  # of tuples made here
        self.tuples: dict[Value, list[Port]] = {}  # given by a row, one port an item
        self.counters: set[Value] = set()

    def region(
        self, region: Region, names: Mapping[Value, str] = {}, captured: list[Value] | None = None
    ) -> Sheet:
        """A sheet for a region; `captured` are values from around that it reads."""
        drawn = [p for p in region.params if p not in self.counters]
        params = [Port(names.get(p, p.name), p.type, p) for p in drawn]
        params += [Port(v.name, v.type, v) for v in captured or []]
        rows = [row for op in region.ops if (row := self.row(op)) is not None]
        made: dict[Value, tuple[int, int]] = {
            port.value: (-1, i) for i, port in enumerate(params) if port.value is not None
        }
        wires: list[Wire] = []

        def connect(reads: list[Value], target: int) -> None:
            for value in dict.fromkeys(reads):
                if value in made:
                    wires.append(Wire(value, *made[value], target))

        for position, row in enumerate(rows):
            connect(row.reads, position)
            for i, port in enumerate(row.outs):
                if port.value is not None:
                    made[port.value] = (position, i)
        results = [v for r in region.results for v in self.resolve(r)]
        connect(results, len(rows))
        return Sheet(params, rows, wires, [Port(v.name, v.type, v) for v in results])

    # --- values ----------------------------------------------------------------

    def resolve(self, value: Value) -> list[Value]:
        """The drawn values that a value is; none for a literal."""
        value = self.through.get(value, value)
        if value in self.items:
            return [v for item in self.items[value] for v in self.resolve(item)]
        return [] if value in self.literals else [value]

    def reads(self, row: Row, values: list[Value]) -> None:
        for value in values:
            for found in self.resolve(value):
                if (read := self.members.get(found)) is not None:
                    member = (read.name, read.kind, found.type)
                    if member not in row.members:
                        row.members.append(member)
                elif found not in row.reads:
                    row.reads.append(found)

    def invisible(self, op: Op) -> bool:
        """Whether an operation has no row; notes what its results are instead."""
        match op:
            case Const() | DimValue() | MakeNone():
                self.literals.update(op.results)
            case ReadMember():
                self.members[op.result] = op
            case MakeTuple():
                self.items[op.result] = list(op.items)
            case MakeSome():
                self.through[op.result] = self.through.get(op.x, op.x)
                if op.x in self.literals:
                    self.literals.add(op.result)
            case TupleGet() if op.x in self.items:
                item = self.items[op.x][op.index]
                self.through[op.result] = self.through.get(item, item)
            case _:
                if op.regions() or isinstance(op, (Call, StateWrite, Intrinsic)):
                    return False
                if not all(isinstance(v.type, (ScalarType, EnumType)) for v in op.results):
                    return False
                if not all(v in self.literals for v in op.operands()):
                    return False
                self.literals.update(op.results)
        return True

    # --- rows ----------------------------------------------------------------

    def row(self, op: Op) -> Row | None:
        if isinstance(op, TupleGet) and op.x in self.tuples:
            port = self.tuples[op.x][op.index]
            if port.value is None:
                port.value, port.name = op.result, op.result.name
            else:
                self.through[op.result] = port.value
            return None
        if self.invisible(op):
            return None
        match op:
            case Loop():
                row = self.loop(op)
            case Call():
                row = self.call(op)
            case If() | MatchOptional() | MatchSub() | MatchEnum() | While():
                row = self.choice(op)
            case StateWrite():
                row = Row("state", f"{op.name} =", _text(op.span), op.span, [])
                row.members.append((op.name, "state", op.value.type))
                self.reads(row, op.operands())
            case _:
                kind = "grid" if isinstance(op, Grid) else "plain"
                name = op.result.name if isinstance(op, Grid) else _let_name(op.span)
                row = Row(kind, name or "", _text(op.span), op.span, [])
                self.reads(row, op.operands())
                row.outs = [Port(name, op.result.type, op.result)]
                return row
        row.outs = self.ports(op.results)
        return row

    def ports(self, results: list[Value]) -> list[Port]:
        """One port a value; a tuple gives one an item, named where it is taken apart."""
        ports: list[Port] = []
        for value in results:
            if isinstance(value.type, TupleType):
                items = [Port(None, type) for type in value.type.items]
                self.tuples[value] = items
                ports += items
            else:
                ports.append(Port(value.name, value.type, value))
        return ports

    def call(self, op: Call) -> Row:
        callee = self.program.functions[op.callee]
        bindings: Substitution = dict(
            zip((g.name for g in callee.generics), op.generics, strict=True)
        )
        label = callee.name
        if op.receiver is not None:
            ref = self.block_of(op.receiver)
            block = self.program.blocks[callee.block or ""]
            bindings.update(zip((g.name for g in block.generics), ref, strict=True))
            if op.receiver:
                label = ".".join(map(self.step_text, op.receiver))
        kind = "block" if op.receiver else callee.kind
        module, _, name = callee.id.rpartition("::")
        note = name if callee.block is not None else module
        row = Row(kind, label, note, op.span, [], target=op.callee, bindings=bindings)
        self.reads(row, op.args)
        return row

    def step_text(self, step: Step) -> str:
        if isinstance(step.index, Dim):
            return f"{step.name}[{step.index}]"
        return step.name

    def block_of(self, receiver: tuple[Step, ...]) -> tuple[GenericArg, ...]:
        """The generic arguments of the block at the end of a receiver's steps."""
        block = self.program.blocks[self.function.block or ""]
        arguments: tuple[GenericArg, ...] = tuple(_itself(g.name, g.kind) for g in block.generics)
        for step in receiver:
            member = block.members[step.name]
            assert isinstance(member.type, BlockRef)
            mapping = dict(zip((g.name for g in block.generics), arguments, strict=True))
            arguments = tuple(substitute_arg(a, mapping) for a in member.type.generics)
            block = self.program.blocks[member.type.id]
        return arguments

    def loop(self, op: Loop) -> Row:
        counter, *carried = op.body.params
        self.counters.add(counter)
        length = op.stop - op.start
        only = [inner for inner in op.body.ops if not isinstance(inner, TupleGet)]
        call = only[0] if len(only) == 1 else None
        taken = [r for inner in op.body.ops for r in inner.results]
        if isinstance(call, Call) and call.receiver and op.body.results == taken[-len(carried) :]:
            for value, start in zip(carried, op.init, strict=True):
                self.through[value] = self.through.get(start, start)
            row = self.call(call)
            row.repeat = length
            return row
        captured = self.captured([op.body])
        inner = self.region(op.body, captured=captured)
        arrays = [
            step.name
            for below in _all_ops(op.body)
            if isinstance(below, Call)
            for step in below.receiver or ()
            if step.index is counter
        ]
        label = (
            ", ".join(dict.fromkeys(arrays)) or f"{counter.name or 'i'} in {op.start} .. {op.stop}"
        )
        row = Row("loop", label, "each in turn", op.span, [], repeat=length)
        row.inside = [("", inner)]
        self.reads(row, [*op.init, *captured])
        return row

    def choice(self, op: Op) -> Row:
        regions = op.regions()
        match op:
            case If():
                names, label = ["then", "else"], "if"
            case MatchOptional() | MatchSub():
                names, label = ["some", "none"], "match"
            case While():
                names, label = ["while", "do"], "while"
            case _:
                names, label = [f"case {i}" for i in range(len(regions))], "match"
        captured = self.captured(regions)
        name = op.results[0].name if op.results else None
        row = Row("choice", name or label, _text(op.span), op.span, [])
        self.reads(row, [*op.operands(), *captured])
        row.inside = [
            (name, self.region(region, captured=self.captured([region])))
            for name, region in zip(names, regions, strict=True)
        ]
        return row

    def captured(self, regions: list[Region]) -> list[Value]:
        """The drawn values from around that regions read, each once."""
        inside: set[Value] = set()
        read: dict[Value, None] = {}
        waiting = list(reversed(regions))
        while waiting:
            region = waiting.pop()
            inside.update(region.params)
            for op in region.ops:
                inside.update(op.results)
                waiting += op.regions()
                read.update(dict.fromkeys(op.operands()))
            read.update(dict.fromkeys(region.results))
        found: dict[Value, None] = {}
        for value in read:
            if value in inside or value in self.counters:
                continue
            for drawn in self.resolve(value):
                if drawn not in self.members:
                    found[drawn] = None
        return list(found)


def _itself(name: str, kind: str) -> GenericArg:
    from linnet.ir.types import Pack

    return Dim.name(name) if kind == "Dim" else (Pack(name),) if kind == "Shape" else name


def _all_ops(region: Region) -> Iterator[Op]:
    for op in region.ops:
        yield op
        for inner in op.regions():
            yield from _all_ops(inner)


_LET = re.compile(r"\b(?:let|var)\s+([A-Za-z_]\w*)\s*(?::[^=]*)?=\s*$", re.ASCII)


def _let_name(span: Span | None) -> str | None:
    """The name that a `let` gives to exactly this expression. A value's own name may be that of
    what it was cast or cut from."""
    if span is None:
        return None
    text = span.source.text
    found = _LET.search(text, max(0, span.start - 200), span.start)
    if found is None:
        return None
    # What goes on after it is part of a larger expression.
    after = text[span.end : span.end + 200].lstrip()[:1]
    return None if after and after in "+-*/%<>=!&|^.[(" else found[1]


def _text(span: Span | None) -> str:
    return " ".join(span.text.split()) if span is not None else ""
