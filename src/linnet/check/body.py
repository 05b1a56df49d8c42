"""The body of one function: what is in scope, and the region that is being built."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from linnet.check.declare import BlockDecl, FunctionDecl
from linnet.check.dimensions import Scope
from linnet.check.typing import ERROR, oversized
from linnet.diagnostics.diagnostic import Label
from linnet.dims import Dim, Facts
from linnet.ir.program import Op, Region, Step, Value
from linnet.ir.types import BlockRef, Type
from linnet.record import dataclass
from linnet.source import Span
from linnet.syntax import tree

if TYPE_CHECKING:
    from linnet.check.checker import Checker


# --- what an expression can be, besides a Value ------------------------------


@dataclass(frozen=True, slots=True)
class Int:
    """A compile-time integer; takes the dtype that its context asks for."""

    dim: Dim


@dataclass(frozen=True, slots=True)
class Float:
    """A float literal, or arithmetic on literals."""

    value: float


@dataclass(frozen=True, slots=True)
class Pending:
    """Made of literals alone, by `select` for example: takes a dtype like one of them."""

    literals: tuple[Int | Float, ...]
    # In a dtype that all of them can take: a Value, or an element of index notation.
    build: Callable[[str], Any]


# What has no dtype of its own.
LITERALS = (Int, Float, Pending)
Literal = Int | Float | Pending


def literals_in(operand: Literal) -> tuple[Int | Float, ...]:
    return operand.literals if isinstance(operand, Pending) else (operand,)


def default_dtype(*operands: Literal) -> str:
    """The dtype of literals without context."""
    parts = [part for operand in operands for part in literals_in(operand)]
    return "f64" if any(isinstance(part, Float) for part in parts) else "i64"


@dataclass(frozen=True, slots=True)
class NoneOperand:
    """`none`; its type comes from the context."""


@dataclass(frozen=True, slots=True)
class Sub:
    """A block to call methods of."""

    receiver: tuple[Step, ...]
    ref: BlockRef
    declared: Span


@dataclass(frozen=True, slots=True)
class SubArray:
    receiver: tuple[Step, ...]  # the last step without an index
    ref: BlockRef
    length: Dim
    declared: Span


@dataclass(frozen=True, slots=True)
class OptionalSub:
    receiver: tuple[Step, ...]
    ref: BlockRef
    declared: Span


Operand = Value | Int | Float | Pending | NoneOperand | Sub | SubArray | OptionalSub


@dataclass(eq=False, slots=True)
class Local:
    name: str
    operand: Operand
    span: Span
    mutable: bool = False
    used: bool = False
    warn: bool = False
    counter: bool = False  # the counter of a static loop over a range
    let: bool = False


class Body:
    """Checks one function's body and emits its operations."""

    def __init__(self, checker: Checker, decl: FunctionDecl):
        self.checker = checker
        self.report = checker.reporter
        self.decl = decl
        self.block: BlockDecl | None = decl.block
        self.facts: Facts = decl.facts or Facts()
        generics = {g.name: g for g in decl.block.generics} if decl.block else {}
        generics.update({g.name: g for g in decl.generics})
        self.scope = Scope(
            checker, decl.module, generics, self.facts, value_at=lambda name: self.value_at(name)
        )
        self.frames: list[dict[str, Local]] = [{}]
        self.ops: list[list[Op]] = [[]]
        self.origin: dict[int, Span] = {}
        # The bounds of loop counters in scope, by the counter's value.
        self.counters: dict[int, tuple[Dim, Dim]] = {}

    # --- emission ---------------------------------------------------------------

    def emit(self, op: Op) -> Value:
        self.ops[-1].append(op)
        value = op.results[0]
        if (why := oversized(value.type)) is not None:
            if op.span is not None:
                self.report.error("E2101", op.span, f"this is {why}")
            return self.poison()
        if op.span is not None:
            self.origin.setdefault(value.id, op.span)
        return value

    def open_region(self) -> list[Op]:
        ops: list[Op] = []
        self.ops.append(ops)
        return ops

    def close_region(self) -> list[Op]:
        return self.ops.pop()

    def poison(self) -> Value:
        return Value(ERROR)

    # --- names ------------------------------------------------------------------

    def find(self, name: str) -> Local | None:
        for frame in reversed(self.frames):
            if (local := frame.get(name)) is not None:
                local.used = True
                return local
        return None

    def lookup(self, name: str) -> Local | None:
        """A local by its name, without counting as a use of it."""
        return next((frame[name] for frame in reversed(self.frames) if name in frame), None)

    def value_at(self, name: str) -> Span | None:
        """Where a local or a member of the own block was declared, if there is one."""
        local = self.find(name)
        if local is not None:
            return local.span
        if self.block is not None and (member := self.checker.members(self.block).get(name)):
            return member.node.span
        return None

    def declare(
        self,
        ident_name: str,
        operand: Operand,
        span: Span,
        *,
        mutable: bool = False,
        warn: bool = False,
    ) -> Local:
        from linnet.check.modules import PRELUDE

        local = Local(ident_name, operand, span, mutable, False, warn)
        if ident_name in PRELUDE:
            self.report.error(
                "E1207", span, f"`{ident_name}` is a prelude name and cannot be redeclared"
            )
        elif ident_name in self.scope.generics:
            self.report.error(
                "E1205",
                span,
                f"`{ident_name}` is already a generic here",
                help="choose another name",
            )
        if ident_name != "_":
            earlier = self.frames[-1].get(ident_name)
            if earlier is not None:
                self.retire(earlier)
            self.frames[-1][ident_name] = local
        return local

    def retire(self, local: Local) -> None:
        if local.warn and not local.used and not local.name.startswith("_"):
            self.checker.warnings.append(
                (
                    "W1002",
                    local.span,
                    f"`{local.name}` is never used",
                    "name it `_` if that is meant",
                )
            )

    def push(self) -> None:
        self.frames.append({})

    def pop(self) -> None:
        for local in self.frames.pop().values():
            self.retire(local)

    # --- findings -----------------------------------------------------------------

    def bound_at(self, value: Operand) -> list[Label]:
        """Where a value was made, as a secondary label."""
        if isinstance(value, Value) and (span := self.origin.get(value.id)) is not None:
            return [Label(span, f"this is `{value.type}`")]
        return []


def check_body(checker: Checker, decl: FunctionDecl) -> Region | None:
    """The function's region, or None where its body has errors."""
    from linnet.check.statements import function_body

    node = decl.node
    assert isinstance(node, tree.Function)
    if decl.result is None:
        return None  # the signature was given up
    before = checker.reporter.errors
    cx = Body(checker, decl)
    params: list[Value] = []
    for parameter in decl.params:
        value = Value(parameter.type, parameter.name)
        params.append(value)
        cx.origin[value.id] = parameter.node.span
        cx.frames[-1][parameter.name] = Local(parameter.name, value, parameter.node.span)
    cx.push()
    result = function_body(cx, node)
    cx.pop()
    if result is None or checker.reporter.errors > before:
        return None
    return Region(params, cx.ops[0], [result])


def is_error(type: Type) -> bool:
    return type is ERROR
