"""The syntax tree, all node kinds side by side (hence the length of this file).

Nodes compare by identity. Every node has a span; the tokens of the `Tree` keep
white space and comments, so the source can be rebuilt from them exactly.
A node that the parser had to invent after an error is an `ErrorExpr` or
`ErrorType`: the checker gives it the error type and says nothing more about it.
"""

from __future__ import annotations

from typing import NamedTuple

from linnet.record import dataclass, field
from linnet.source import Source, Span


@dataclass(eq=False, slots=True)
class Node:
    span: Span


@dataclass(eq=False, slots=True)
class Ident(Node):
    text: str


# --- Expressions ------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Expr(Node):
    pass


@dataclass(eq=False, slots=True)
class ErrorExpr(Expr):
    pass


@dataclass(eq=False, slots=True)
class Name(Expr):
    text: str


@dataclass(eq=False, slots=True)
class IntLit(Expr):
    value: int


@dataclass(eq=False, slots=True)
class FloatLit(Expr):
    value: float


@dataclass(eq=False, slots=True)
class BoolLit(Expr):
    value: bool


@dataclass(eq=False, slots=True)
class StringLit(Expr):
    value: str


@dataclass(eq=False, slots=True)
class NoneLit(Expr):
    pass


@dataclass(eq=False, slots=True)
class Some(Expr):
    value: Expr


@dataclass(eq=False, slots=True)
class Paren(Expr):
    inner: Expr


@dataclass(eq=False, slots=True)
class TupleExpr(Expr):
    """`(a, b)`; also `()` and `(a,)`."""

    items: list[Expr]


@dataclass(eq=False, slots=True)
class ListExpr(Expr):
    """`[B, S, H]`, `[*S, H]`: a shape literal, or a list of axes."""

    items: list[Expr]  # a pack stands as PackExpr


@dataclass(eq=False, slots=True)
class PackExpr(Expr):
    """`*s` in a shape, a shape literal or an index list."""

    name: str


@dataclass(eq=False, slots=True)
class Unary(Expr):
    op: str  # "!", "-", "+"
    operand: Expr


@dataclass(eq=False, slots=True)
class Binary(Expr):
    op: str  # || && == != < <= > >= | ^ & + - * / %
    op_span: Span
    left: Expr
    right: Expr


@dataclass(eq=False, slots=True)
class Member(Expr):
    """`object.name`"""

    object: Expr
    name: Ident


@dataclass(eq=False, slots=True)
class Argument(Node):
    name: Ident | None
    value: Expr


@dataclass(eq=False, slots=True)
class Call(Expr):
    """`callee<generics>(arguments)`; `generics` is None where no list is written.

    A generic argument is an expression: a name (dimension, dtype, pack), an
    arithmetic expression, or a `ListExpr` for a shape.
    """

    callee: Expr
    generics: list[Expr] | None
    arguments: list[Argument]


@dataclass(eq=False, slots=True)
class SliceItem(Node):
    """`a:b:step` inside an index list; each part optional."""

    start: Expr | None
    stop: Expr | None
    step: Expr | None


@dataclass(eq=False, slots=True)
class RestItem(Node):
    """`...` inside an index list."""


@dataclass(eq=False, slots=True)
class Index(Expr):
    """`object[items]`; an item is an expression, a `PackExpr`, a slice or `...`."""

    object: Expr
    items: list[Node]


@dataclass(eq=False, slots=True)
class If(Expr):
    condition: Expr
    then: Expr
    orelse: Expr


@dataclass(eq=False, slots=True)
class Pattern(Node):
    pass


@dataclass(eq=False, slots=True)
class SomePattern(Pattern):
    name: Ident


@dataclass(eq=False, slots=True)
class NonePattern(Pattern):
    pass


@dataclass(eq=False, slots=True)
class VariantPattern(Pattern):
    """`Name.Variant` (or a dotted path ending in a variant)."""

    path: list[Ident]


@dataclass(eq=False, slots=True)
class WildcardPattern(Pattern):
    pass


@dataclass(eq=False, slots=True)
class Arm(Node):
    pattern: Pattern
    body: Expr


@dataclass(eq=False, slots=True)
class Match(Expr):
    subject: Expr
    arms: list[Arm]


@dataclass(eq=False, slots=True)
class IndexBinder(Node):
    """An output index of an indexed `let`, or an index bound by a reduction."""

    name: str
    pack: bool


@dataclass(eq=False, slots=True)
class Reduce(Expr):
    """`sum<f32>[k, *s] body`; kind is sum, prod, max, min, any or all."""

    kind: str
    accumulator: TypeExpr | None
    indices: list[IndexBinder]
    body: Expr


@dataclass(eq=False, slots=True)
class ForExpr(Expr):
    """`for i in a..b { … yield y }` as the right side of a `let`."""

    name: Ident
    start: Expr
    stop: Expr
    body: list[Stmt]


# --- Types ------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class TypeExpr(Node):
    pass


@dataclass(eq=False, slots=True)
class ErrorType(TypeExpr):
    pass


@dataclass(eq=False, slots=True)
class NamedType(TypeExpr):
    """A scalar (`f32`), a generic (`T`), a block, struct, enum or alias, perhaps dotted."""

    path: list[Ident]
    generics: list[Expr] | None


@dataclass(eq=False, slots=True)
class TensorType(TypeExpr):
    """`Tensor[B, *S; T]`"""

    dims: list[Expr]  # a pack stands as PackExpr
    dtype: TypeExpr


@dataclass(eq=False, slots=True)
class OptionalType(TypeExpr):
    inner: TypeExpr


@dataclass(eq=False, slots=True)
class TupleType(TypeExpr):
    items: list[TypeExpr]


@dataclass(eq=False, slots=True)
class ArrayType(TypeExpr):
    """`[Layer<…>; N]`"""

    element: TypeExpr
    length: Expr


# --- Statements -------------------------------------------------------------


@dataclass(eq=False, slots=True)
class Stmt(Node):
    pass


@dataclass(eq=False, slots=True)
class Let(Stmt):
    """`let x [: T] = e`, and `let (a, b) = e` where `names` has several or `tuple` is set."""

    names: list[Ident]
    tuple: bool
    type: TypeExpr | None
    value: Expr


@dataclass(eq=False, slots=True)
class LetIndexed(Stmt):
    """`let c[m, n] [: T] = e`"""

    name: Ident
    indices: list[IndexBinder]
    type: TypeExpr | None
    value: Expr


@dataclass(eq=False, slots=True)
class Var(Stmt):
    name: Ident
    type: TypeExpr | None
    value: Expr


@dataclass(eq=False, slots=True)
class Assign(Stmt):
    target: Expr  # a Name, unless the program is wrong
    value: Expr


@dataclass(eq=False, slots=True)
class Return(Stmt):
    value: Expr


@dataclass(eq=False, slots=True)
class Yield(Stmt):
    value: Expr


@dataclass(eq=False, slots=True)
class StaticFor(Stmt):
    """`static for x in layers { … }`, or over a range when `stop` is given."""

    name: Ident
    start: Expr  # the array expression when `stop` is None
    stop: Expr | None
    body: list[Stmt]


@dataclass(eq=False, slots=True)
class For(Stmt):
    name: Ident
    start: Expr
    stop: Expr
    body: list[Stmt]


@dataclass(eq=False, slots=True)
class While(Stmt):
    condition: Expr
    body: list[Stmt]


@dataclass(eq=False, slots=True)
class ErrorStmt(Stmt):
    pass


# --- Items ------------------------------------------------------------------


@dataclass(eq=False, slots=True)
class GenericParam(Node):
    """`N: Dim`, `*S: Shape`, `T: Float = bf16`. `kind` is as written."""

    name: Ident
    pack: bool
    kind: str
    default: Expr | None


@dataclass(eq=False, slots=True)
class Item(Node):
    name: Ident
    public: bool
    doc: str | None


@dataclass(eq=False, slots=True)
class Const(Item):
    type: TypeExpr | None
    value: Expr


@dataclass(eq=False, slots=True)
class TypeAlias(Item):
    generics: list[GenericParam]
    type: TypeExpr


@dataclass(eq=False, slots=True)
class Field(Node):
    name: Ident
    type: TypeExpr


@dataclass(eq=False, slots=True)
class Struct(Item):
    generics: list[GenericParam]
    fields: list[Field]


@dataclass(eq=False, slots=True)
class Enum(Item):
    variants: list[Ident]


@dataclass(eq=False, slots=True)
class Parameter(Node):
    name: Ident
    type: TypeExpr
    default: Expr | None


@dataclass(eq=False, slots=True)
class Function(Item):
    """`fn`, `op` or `entry`, free or in a block. `body_end` is its closing brace."""

    kind: str  # "fn", "op", "entry"
    generics: list[GenericParam]
    parameters: list[Parameter]
    result: TypeExpr | None
    where: list[Expr]
    body: list[Stmt]
    body_end: Span


@dataclass(eq=False, slots=True)
class MemberDecl(Node):
    """`param w: Tensor[…]`, `buffer`, `state`, `sub`, in a block."""

    kind: str
    name: Ident
    type: TypeExpr
    default: Expr | None
    doc: str | None
    public: bool = False


@dataclass(eq=False, slots=True)
class Block(Item):
    generics: list[GenericParam]
    where: list[Expr]
    members: list[MemberDecl]
    functions: list[Function]


@dataclass(eq=False, slots=True)
class UseName(Node):
    name: Ident
    alias: Ident | None

    @property
    def local(self) -> Ident:
        return self.alias or self.name


@dataclass(eq=False, slots=True)
class Use(Node):
    """`use a.b::{c, d as e}`; `names` is None for `use a.b` (a module import)."""

    path: list[Ident]
    names: list[UseName] | None
    public: bool = False


@dataclass(eq=False, slots=True)
class ModuleDecl(Node):
    path: list[Ident]


@dataclass(eq=False, slots=True)
class File(Node):
    module: ModuleDecl | None
    uses: list[Use]
    items: list[Item]


class Token(NamedTuple):
    """`kind` is "name", "keyword", "int", "float", "string", "punct", "space",
    "comment", "doc", "error" or "end"."""

    kind: str
    text: str
    start: int
    end: int


@dataclass(eq=False, slots=True)
class Tree:
    """A parsed file. `tokens` joined give the source text, byte for byte."""

    source: Source
    tokens: list[Token]
    file: File
    comments: dict[int, str] = field(default_factory=dict)
