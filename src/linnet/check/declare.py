"""What the items of a module are: declarations, with their signatures resolved once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from linnet.dims import Dim, Fact, Facts
from linnet.ir.program import Generic
from linnet.ir.types import BlockRef, EnumType, Type
from linnet.record import dataclass, field
from linnet.source import Span
from linnet.syntax import tree

if TYPE_CHECKING:
    from linnet.check.modules import ModuleScope


@dataclass(eq=False, slots=True)
class Decl:
    """An item, known by name; its signature is filled in when first asked for."""

    name: str
    module: ModuleScope
    node: tree.Item
    public: bool
    state: str = "new"  # new, resolving, done
    used: bool = False
    # Its signature has errors of its own: uses of it say nothing more.
    broken: bool = False

    def give_up(self) -> None:
        """Its signature could not be worked out, which has been reported."""
        self.state, self.broken = "done", True

    @property
    def id(self) -> str:
        return f"{self.module.id}::{self.name}"

    @property
    def span(self) -> Span:
        return self.node.name.span


@dataclass(eq=False, slots=True)
class ConstDecl(Decl):
    """`dim` for a compile-time integer, else a scalar of a dtype with its value, or the position
    of a variant of `enum`."""

    dim: Dim | None = None
    enum: EnumType | None = None
    dtype: str | None = None
    value: int | float | bool | None = None
    failed: bool = False

    def give_up(self) -> None:
        Decl.give_up(self)
        self.failed = True


@dataclass(eq=False, slots=True)
class AliasDecl(Decl):
    generics: tuple[Generic, ...] = ()
    type: Type | BlockRef | None = None


@dataclass(eq=False, slots=True)
class StructDecl(Decl):
    generics: tuple[Generic, ...] = ()
    generic_spans: dict[str, Span] = field(default_factory=dict)
    fields: tuple[tuple[str, Type], ...] = ()


@dataclass(eq=False, slots=True)
class EnumDecl(Decl):
    type: EnumType | None = None


@dataclass(eq=False, slots=True)
class ParamDecl:
    name: str
    type: Type
    node: tree.Parameter


@dataclass(eq=False, slots=True)
class FunctionDecl(Decl):
    """A free function or a block's method (`block` set)."""

    block: BlockDecl | None = None
    kind: str = "fn"
    generics: tuple[Generic, ...] = ()
    where: tuple[Fact, ...] = ()
    where_spans: tuple[Span, ...] = ()
    params: list[ParamDecl] = field(default_factory=list)
    result: Type | None = None
    facts: Facts | None = None  # with the block's
    generic_spans: dict[str, Span] = field(default_factory=dict)

    @property
    def id(self) -> str:
        owner = f"{self.block.name}." if self.block else ""
        return f"{self.module.id}::{owner}{self.name}"


@dataclass(eq=False, slots=True)
class MemberDecl:
    name: str
    kind: str
    node: tree.MemberDecl
    type: Type | BlockRef
    length: Dim | None = None
    optional: bool = False
    used: bool = False


@dataclass(eq=False, slots=True)
class BlockDecl(Decl):
    generics: tuple[Generic, ...] = ()
    where: tuple[Fact, ...] = ()
    where_spans: tuple[Span, ...] = ()
    facts: Facts | None = None
    members: dict[str, MemberDecl] = field(default_factory=dict)
    methods: dict[str, FunctionDecl] = field(default_factory=dict)
    generic_spans: dict[str, Span] = field(default_factory=dict)
    members_state: str = "new"


@dataclass(eq=False, slots=True)
class ModuleAlias:
    """`use std.random`: a module by its last name."""

    name: str
    module: ModuleScope
    span: Span
    used: bool = False


def kind_of(item: Decl | ModuleAlias) -> str:
    """What an item is, with its article, as messages name it."""
    return {
        ConstDecl: "a const",
        AliasDecl: "a type alias",
        StructDecl: "a struct",
        EnumDecl: "an enum",
        FunctionDecl: "a function",
        BlockDecl: "a block",
    }.get(type(item), "a module")
