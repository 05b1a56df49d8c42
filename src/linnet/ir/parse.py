"""Reads the text form of programs that `print.py` writes. Raises ValueError with the line."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from linnet.dims import Dim, Fact, parse_dim, parse_fact
from linnet.ir.parse_types import Scanner, parse_type
from linnet.ir.program import (
    At,
    AtValue,
    Axis,
    Binary,
    Block,
    Broadcast,
    Call,
    Cast,
    Concat,
    Const,
    Cumsum,
    DimValue,
    Fill,
    Function,
    GApply,
    GBinary,
    GCast,
    GDim,
    Generic,
    GetField,
    GExpr,
    GLit,
    GRead,
    GReduce,
    Grid,
    GSelect,
    GUnary,
    Idx,
    If,
    Intrinsic,
    Iota,
    Keep,
    Loop,
    MakeNone,
    MakeSome,
    MakeStruct,
    MakeTuple,
    MatchEnum,
    MatchOptional,
    MatchSub,
    Member,
    Op,
    Permute,
    Program,
    Range,
    ReadMember,
    Region,
    Reshape,
    Select,
    Slice,
    SliceItem,
    StateWrite,
    Step,
    TupleGet,
    Unary,
    Value,
    While,
)
from linnet.ir.types import BlockRef, Type

UNARY = frozenset(
    {"neg", "not", "exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh", "abs"}
)  # fmt: skip
BINARY = frozenset(
    {"add", "sub", "mul", "div", "rem", "min", "max", "and", "or", "xor", "shl", "shr",
     "eq", "ne", "lt", "le", "gt", "ge"}
)  # fmt: skip
_T = TypeVar("_T")


def parse_program(text: str) -> Program:
    reader = _Reader(text)
    reader.word("program")
    program = Program({}, {}, reader.name())
    while not reader.end():
        public = reader.take("pub")
        kind = reader.name()
        if kind == "block":
            block = reader.block(public)
            program.blocks[block.id] = block
        else:
            function = reader.function(kind, public)
            program.functions[function.id] = function
    return program


class _Reader(Scanner):
    def __init__(self, text: str):
        super().__init__(text)
        self.values: dict[str, Value] = {}
        self.indices: dict[str, Idx] = {}

    # --- declarations --------------------------------------------------------------

    def block(self, public: bool) -> Block:
        id = self.id()
        generics = self.generics()
        self.word("{")
        where = self.where()
        members: dict[str, Member] = {}
        methods: dict[str, str] = {}
        while not self.take("}"):
            optional = self.take("optional")
            kind = self.name()
            name = self.name()
            if kind == "method":
                self.word("=")
                methods[name] = self.id()
                continue
            self.word(":")
            length = None
            type: Type | BlockRef
            if kind == "sub":
                array = self.take("[")
                type = BlockRef(self.id(), self.arguments())
                if array:
                    self.word(";")
                    length = parse_dim(self.until("]"))
                    self.word("]")
            else:
                type = parse_type(self)
            members[name] = Member(name, kind, type, length, optional)
        return Block(id, generics, where, members, methods, public)

    def function(self, kind: str, public: bool) -> Function:
        self.values = {}
        id = self.id()
        generics = self.generics()
        self.word("(")
        values: list[Value] = []
        names: list[str] = []
        while not self.take(")"):
            value = self.definition_name()
            names.append(self.name())
            self.word(":")
            values.append(self.bind(value, parse_type(self)))
            self.take(",")
        self.word("->")
        result = parse_type(self)
        block = self.id() if self.take("in") else None
        self.word("{")
        where = self.where()
        body = self.region(values, "return")
        params = [(name, value.type) for name, value in zip(names, values, strict=True)]
        return Function(id, kind, block, generics, where, params, result, body, public)

    def where(self) -> tuple[Fact, ...]:
        facts: list[Fact] = []
        while self.take("where"):
            facts.append(parse_fact(self.line()))
        return tuple(facts)

    def generics(self) -> tuple[Generic, ...]:
        found: list[Generic] = []
        if self.take("<"):
            while not self.take(">"):
                self.take("*")
                name = self.name()
                self.word(":")
                kind = self.name()
                default = self.argument() if self.take("=") else None
                found.append(Generic(name, kind, default))
                self.take(",")
        return tuple(found)

    # --- regions ---------------------------------------------------------------------

    def region(self, params: list[Value], end: str) -> Region:
        """Operations up to the line that ends them, and the closing brace."""
        if self.take("params"):
            while True:
                name = self.definition_name()
                self.word(":")
                params.append(self.bind(name, parse_type(self)))
                if not self.take(","):
                    break
        ops: list[Op] = []
        while not self.take(end):
            ops.append(self.op())
        results = self.uses()
        self.word("}")
        return Region(params, ops, results)

    def bind(self, name: str, type: Type) -> Value:
        plain = re.sub(r"\.\d+$", "", name)
        self.values[name] = value = Value(type, None if plain.isdecimal() else plain)
        return value

    def definition_name(self) -> str:
        self.word("%")
        return self.match(r"[\w.]+")

    def use(self) -> Value:
        name = self.definition_name()
        if name not in self.values:
            self.fail(f"%{name} is not defined")
        return self.values[name]

    def uses(self) -> list[Value]:
        return self.several(self.use) if self.peek("%") else []

    def several(self, one: Callable[[], _T]) -> list[_T]:
        found = [one()]
        while self.take(","):
            found.append(one())
        return found

    # --- operations --------------------------------------------------------------------

    def op(self) -> Op:
        pending: list[tuple[str, Type]] = []
        if self.peek("%"):
            while True:
                name = self.definition_name()
                self.word(":")
                pending.append((name, parse_type(self)))
                if not self.take(","):
                    break
            self.word("=")
        op = self.body()
        # Defined last: nothing inside an operation can see its results.
        op.results = [self.bind(name, type) for name, type in pending]
        return op

    def body(self) -> Op:
        word = self.name()
        plain: dict[str, Callable[[], Op]] = {
            "select": lambda: Select([], None, *self.uses()),
            "cast": lambda: Cast([], None, self.use()),
            "reshape": lambda: Reshape([], None, self.use()),
            "broadcast": lambda: Broadcast([], None, self.use()),
            "iota": lambda: Iota([], None),
            "fill": lambda: Fill([], None, self.use()),
            "tuple": lambda: MakeTuple([], None, self.uses()),
            "struct": lambda: MakeStruct([], None, self.uses()),
            "some": lambda: MakeSome([], None, self.use()),
            "none": lambda: MakeNone([], None),
            "const": lambda: Const([], None, self.literal()),
            "dim": lambda: DimValue([], None, self.bracketed_dim()),
            "permute": lambda: Permute([], None, self.use(), self.integers()),
            "slice": lambda: Slice([], None, self.use(), self.items()),
            "get": lambda: TupleGet([], None, self.use(), self.integer()),
            "field": lambda: GetField([], None, self.use(), self.name()),
            "grid": self.grid,
            "if": self.branch,
            "match": self.match_optional,
            "match_sub": self.match_sub,
            "match_enum": self.match_enum,
            "static": lambda: self.loop(True),
            "loop": lambda: self.loop(False),
            "while": self.while_loop,
            "call": self.call,
            "read": lambda: ReadMember([], None, self.name(), self.name()),
            "write": lambda: StateWrite([], None, self.name(), self.use()),
            "intrinsic": self.intrinsic,
        }
        if word in plain:
            return plain[word]()
        if word in ("concat", "cumsum"):
            values = self.uses()
            self.word("axis")
            axis = self.integer()
            return Concat([], None, values, axis) if word == "concat" else Cumsum(
                [], None, values[0], axis
            )  # fmt: skip
        if word in UNARY:
            return Unary([], None, word, self.use())
        if word in BINARY:
            return Binary([], None, word, *self.uses())
        raise self.error(f"there is no operation `{word}`")

    def braced(self) -> Region:
        self.word("{")
        return self.region([], "yield")

    def branch(self) -> Op:
        condition = self.use()
        then = self.braced()
        self.word("else")
        return If([], None, condition, then, self.braced())

    def match_optional(self) -> Op:
        x = self.use()
        self.word("some")
        some = self.braced()
        self.word("none")
        return MatchOptional([], None, x, some, self.braced())

    def match_sub(self) -> Op:
        member = self.name()
        self.word("some")
        some = self.braced()
        self.word("none")
        return MatchSub([], None, member, some, self.braced())

    def match_enum(self) -> Op:
        x = self.use()
        arms: list[Region] = []
        while self.take("arm"):
            self.integer()
            arms.append(self.braced())
        return MatchEnum([], None, x, arms)

    def loop(self, static: bool) -> Op:
        if static:
            self.word("loop")
        start = self.bracketed_dim()
        self.word("to")
        stop = self.bracketed_dim()
        self.word("(")
        init = self.uses()
        self.word(")")
        return Loop([], None, start, stop, init, self.braced(), static)

    def while_loop(self) -> Op:
        self.word("(")
        init = self.uses()
        self.word(")")
        condition = self.braced()
        self.word("do")
        return While([], None, init, condition, self.braced())

    def call(self) -> Op:
        callee = self.id()
        generics = self.arguments()
        self.word("(")
        args = self.uses()
        self.word(")")
        receiver: tuple[Step, ...] | None = None
        if self.take("on"):
            receiver = () if self.take("self") else self.steps()
        return Call([], None, callee, generics, args, receiver)

    def steps(self) -> tuple[Step, ...]:
        steps: list[Step] = []
        while True:
            name = self.match(r"\w+")
            index: Dim | Value | None = None
            if self.take("["):
                index = self.use() if self.peek("%") else parse_dim(self.until("]"))
                self.word("]")
            steps.append(Step(name, index))
            if not self.take("."):
                return tuple(steps)

    def intrinsic(self) -> Op:
        name = self.name()
        self.word("(")
        args = self.uses()
        self.word(")")
        self.word("{")
        attrs: dict[str, object] = {}
        while not self.take("}"):
            key = self.name()
            self.word("=")
            attrs[key] = self.attribute()
            self.take(",")
        return Intrinsic([], None, name, args, attrs)

    def attribute(self) -> object:
        if self.take("("):
            items: list[object] = []
            while not self.take(")"):
                items.append(self.attribute())
                self.take(",")
            return tuple(items)
        if self.peek("["):
            return self.bracketed_dim()
        if self.take('"'):
            text = self.match(r'[^"]*')
            self.word('"')
            return text
        return self.literal()

    def items(self) -> tuple[SliceItem, ...]:
        self.word("[")
        found: list[SliceItem] = []
        while not self.take("]"):
            if self.peek("%"):
                found.append(AtValue(self.use()))
            else:
                text = self.until(",]").strip()
                parts = [part.strip() for part in text.split(":")]
                if text == ":":
                    found.append(Keep())
                elif len(parts) == 1:
                    found.append(At(parse_dim(text)))
                else:
                    step = int(parts[2]) if len(parts) == 3 else 1
                    found.append(Range(parse_dim(parts[0]), parse_dim(parts[1]), step))
            self.take(",")
        return tuple(found)

    # --- index notation ------------------------------------------------------------------

    def grid(self) -> Op:
        self.indices = {}
        indices = self.bound_indices()
        return Grid([], None, indices, self.expr())

    def bound_indices(self) -> tuple[Idx, ...]:
        self.word("[")
        found: list[Idx] = []
        while not self.take("]"):
            pack = self.take("*")
            name = self.match(r"[\w.]+")
            self.word(":")
            plain = re.sub(r"\.\d+$", "", name)
            if pack:
                shape = self.argument()
                assert isinstance(shape, tuple)
                index = Idx(plain, shape)
            else:
                index = Idx(plain, parse_dim(self.until(",]")))
            self.indices[name] = index
            found.append(index)
            self.take(",")
        return tuple(found)

    def expr(self) -> GExpr:
        if self.peek("%"):
            value = self.use()
            axes: tuple[Axis, ...] = ()
            if self.take("["):
                axes = tuple(self.axes())
            return GRead(value, axes, self.dtype())
        if self.peek_match(r"-?[\d.]|true\b|false\b|inf|-inf|nan"):
            literal = self.literal()
            return GLit(literal, self.dtype())
        word = self.name()
        if word == "dim":
            dim = self.bracketed_dim()
            return GDim(dim, self.dtype())
        if word == "apply":
            callee = self.id()
            generics = self.arguments()
            args = self.parenthesized()
            return GApply(callee, generics, tuple(args), self.dtype())
        if self.take("<"):
            accumulate = self.name()
            stated = self.take("!")
            self.word(">")
            indices = self.bound_indices()
            (body,) = self.parenthesized()
            return GReduce(word, indices, body, accumulate, self.dtype(), stated)
        args = self.parenthesized()
        dtype = self.dtype()
        if word in ("select", "if"):
            return GSelect(args[0], args[1], args[2], dtype, word == "if")
        if word == "cast":
            return GCast(args[0], dtype)
        if len(args) == 1:
            return GUnary(word, args[0], dtype)
        return GBinary(word, args[0], args[1], dtype)

    def parenthesized(self) -> list[GExpr]:
        self.word("(")
        found: list[GExpr] = []
        while not self.take(")"):
            found.append(self.expr())
            self.take(",")
        return found

    def axes(self) -> list[Axis]:
        found: list[Axis] = []
        while not self.take("]"):
            if self.take("{"):
                found.append(parse_dim(self.until("}")))
                self.word("}")
            elif self.take("("):
                found.append(self.expr())
                self.word(")")
            else:
                self.take("*")
                found.append(self.indices[self.match(r"[\w.]+")])
            self.take(",")
        return found

    def dtype(self) -> str:
        self.word(":")
        return self.name()
