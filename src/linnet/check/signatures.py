"""Signatures: what each kind of declaration says, before any body is read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from linnet.check.declare import (
    AliasDecl,
    BlockDecl,
    ConstDecl,
    Decl,
    EnumDecl,
    FunctionDecl,
    MemberDecl,
    ParamDecl,
    StructDecl,
)
from linnet.check.dimensions import Scope, where_facts
from linnet.check.modules import PRELUDE
from linnet.check.typing import (
    ERROR,
    ArrayOf,
    any_type,
    generic_argument,
    value_type,
)
from linnet.diagnostics.diagnostic import Label
from linnet.dims import Fact, Facts
from linnet.ir.program import Generic
from linnet.ir.types import (
    BlockRef,
    EnumType,
    OptionalType,
    ScalarType,
    TensorType,
    TupleType,
    Type,
)
from linnet.source import Span
from linnet.syntax import tree

if TYPE_CHECKING:
    from linnet.check.checker import Checker

KINDS = ("Dim", "Shape", "DType", "Numeric", "Integer", "Float")
NO_FACTS = Facts()


def resolve_signature(checker: Checker, decl: Decl) -> None:
    """Fill in a declaration, once. A declaration that needs itself is an error."""
    if decl.state == "done":
        return
    if decl.state == "resolving":
        checker.reporter.error(
            "E2122",
            decl.span,
            f"`{decl.name}` is defined by itself",
            help="break the cycle by writing one of the definitions out",
        )
        return
    decl.state = "resolving"
    before = len(checker.reporter.diagnostics)
    held_back = checker.reporter.held_back
    header = _header(decl.node)
    match decl:
        case ConstDecl():
            from linnet.check.constants import resolve_constant

            resolve_constant(checker, decl)
        case AliasDecl():
            _alias(checker, decl)
        case StructDecl():
            _struct(checker, decl)
        case EnumDecl():
            _enum(checker, decl)
        case FunctionDecl():
            _function(checker, decl)
        case BlockDecl():
            _block(checker, decl)
    decl.state = "done"
    found = [d.span for d in checker.reporter.diagnostics[before:]]
    found += [d.span for d in decl.module.file.diagnostics]
    decl.broken = decl.broken or checker.reporter.held_back > held_back
    decl.broken = decl.broken or any(
        span.source is header.source and header.start <= span.start <= header.end for span in found
    )


def _header(node: tree.Item) -> Span:
    """What of an item its users see: for functions and blocks the part before the body."""
    end = node.span.end
    if isinstance(node, tree.Function):
        end = node.body[0].span.start if node.body else node.body_end.start
    elif isinstance(node, tree.Block):
        inside: list[tree.Node] = [*node.members, *node.functions]
        end = min((part.span.start for part in inside), default=end)
    return Span(node.span.source, node.span.start, end - 1)


def generics(
    scope: Scope, nodes: list[tree.GenericParam], outer: dict[str, Span] | None = None
) -> tuple[tuple[Generic, ...], dict[str, Span]]:
    """Declare generics into the scope, in order, with their defaults."""
    found: list[Generic] = []
    spans: dict[str, Span] = {}
    report = scope.report
    for node in nodes:
        name = node.name.text
        if name in PRELUDE:
            report.error(
                "E1207", node.name.span, f"`{name}` is a prelude name and cannot be redeclared"
            )
            continue
        earlier = spans.get(name) or (outer or {}).get(name)
        if earlier is not None:
            report.error(
                "E1205",
                node.name.span,
                f"generic `{name}` is declared twice",
                related=[Label(earlier, "first declared here")],
                help="a block's generics are in scope in its methods; use another name",
            )
            continue
        if node.kind not in KINDS:
            from linnet.check.report import near

            meant = near(node.kind.capitalize(), KINDS)
            report.error(
                "E1201",
                node.span,
                f"unknown kind of generic `{node.kind}`",
                help=f"did you mean `{meant}`?" if meant else f"one of {', '.join(KINDS)}",
            )
            # What is meant stands in for it, so that its uses are not findings of their own.
            kind = "Shape" if node.pack else meant if meant and meant != "Shape" else "Dim"
            scope.generics[name] = Generic(name, kind)
            found.append(scope.generics[name])
            spans[name] = node.name.span
            continue
        if node.pack != (node.kind == "Shape"):
            report.error(
                "E1208",
                node.span,
                f"a pack is written `*{name}: Shape`, a dimension `{name}: Dim`",
            )
            # It was meant as a pack by one of the two; uses say nothing more.
            scope.generics[name] = Generic(name, "Shape")
            found.append(scope.generics[name])
            spans[name] = node.name.span
            continue
        default = None
        if node.default is not None:
            default = generic_argument(scope, Generic(name, node.kind), node.default, None)
        generic = Generic(name, node.kind, default)
        found.append(generic)
        spans[name] = node.name.span
        scope.generics[name] = generic
    return tuple(found), spans


def _scope(checker: Checker, decl: Decl) -> Scope:
    return Scope(checker, decl.module, {}, NO_FACTS)


def _alias(checker: Checker, decl: AliasDecl) -> None:
    node = decl.node
    assert isinstance(node, tree.TypeAlias)
    scope = _scope(checker, decl)
    decl.generics, _ = generics(scope, node.generics)
    found = any_type(scope, node.type)
    if isinstance(found, ArrayOf):
        checker.reporter.error("E4101", node.type.span, "a block array stands only in a `sub`")
        return
    decl.type = None if found is ERROR else found


def _struct(checker: Checker, decl: StructDecl) -> None:
    node = decl.node
    assert isinstance(node, tree.Struct)
    scope = _scope(checker, decl)
    decl.generics, decl.generic_spans = generics(scope, node.generics)
    fields: dict[str, Type] = {}
    spans: dict[str, Span] = {}
    for field in node.fields:
        name = field.name.text
        if name in fields:
            checker.reporter.error(
                "E1205",
                field.name.span,
                f"field `{name}` is declared twice",
                related=[Label(spans[name], "first declared here")],
            )
            continue
        spans[name] = field.name.span
        fields[name] = value_type(scope, field.type)
        if fields[name] is ERROR:
            decl.broken = True
    decl.fields = tuple(fields.items())


def _enum(checker: Checker, decl: EnumDecl) -> None:
    node = decl.node
    assert isinstance(node, tree.Enum)
    variants: dict[str, Span] = {}
    for ident in node.variants:
        if ident.text in variants:
            checker.reporter.error(
                "E1205",
                ident.span,
                f"variant `{ident.text}` is declared twice",
                related=[Label(variants[ident.text], "first declared here")],
            )
        variants.setdefault(ident.text, ident.span)
    decl.type = EnumType(decl.id, tuple(variants))


def _function(checker: Checker, decl: FunctionDecl) -> None:
    node = decl.node
    assert isinstance(node, tree.Function)
    block = decl.block
    scope = _scope(checker, decl)
    facts: list[Fact] = []
    if block is not None:
        checker.signature(block)
        scope.generics = {g.name: g for g in block.generics}
        scope.facts = block.facts or NO_FACTS
    decl.generics, decl.generic_spans = generics(
        scope, node.generics, block.generic_spans if block else None
    )
    values = {parameter.name.text: parameter.name.span for parameter in node.parameters}
    scope.value_at = values.get
    facts, spans = where_facts(scope, node.where)
    decl.where, decl.where_spans = tuple(facts), tuple(spans)
    decl.facts = scope.facts = scope.facts.extend(facts) if facts else scope.facts
    seen: dict[str, Span] = {}
    for parameter in node.parameters:
        name = parameter.name.text
        if name in PRELUDE:
            checker.reporter.error(
                "E1207",
                parameter.name.span,
                f"`{name}` is a prelude name and cannot be redeclared",
            )
        if name in seen or name in scope.generics:
            related = [Label(seen[name], "first declared here")] if name in seen else []
            checker.reporter.error(
                "E1205",
                parameter.name.span,
                f"parameter `{name}` is declared twice"
                if name in seen
                else f"parameter `{name}` has the name of a generic",
                related=related,
            )
        seen[name] = parameter.name.span
        decl.params.append(ParamDecl(name, value_type(scope, parameter.type), parameter))
    if node.result is None:
        checker.reporter.error(
            "E2120",
            node.name.span,
            f"`{decl.name}` states no result",
            help="write `-> Type` after the parameters: every function returns a value",
        )
        decl.result = ERROR
    else:
        decl.result = value_type(scope, node.result)
    _defaults(checker, decl)


def _defaults(checker: Checker, decl: FunctionDecl) -> None:
    """Check the parameters' default values against their types, once."""
    from linnet.check.arguments import default_value
    from linnet.check.body import Body
    from linnet.check.coerce import coerce

    given = [p for p in decl.params if p.node.default is not None]
    if not given:
        return
    cx = Body(checker, decl)
    for parameter in given:
        node = parameter.node.default
        assert node is not None
        related = [Label(parameter.node.type.span, f"declared `{parameter.type}`")]
        operand = default_value(cx, decl, node, node.span)
        coerce(cx, operand, parameter.type, node.span, "the default", related)


def _block(checker: Checker, decl: BlockDecl) -> None:
    """Generics, `where` and the methods' names; members follow in `members_of`."""
    node = decl.node
    assert isinstance(node, tree.Block)
    scope = _scope(checker, decl)
    decl.generics, decl.generic_spans = generics(scope, node.generics)
    facts, spans = where_facts(scope, node.where)
    decl.where, decl.where_spans = tuple(facts), tuple(spans)
    decl.facts = NO_FACTS.extend(facts) if facts else NO_FACTS
    taken: dict[str, Span] = {}
    for member in node.members:
        name = member.name.text
        _new_name(checker, decl, name, member.name.span, taken)
    for function in node.functions:
        name = function.name.text
        if _new_name(checker, decl, name, function.name.span, taken):
            decl.methods[name] = FunctionDecl(
                name, decl.module, function, function.public, block=decl, kind=function.kind
            )
            if function.kind == "op":
                checker.reporter.error(
                    "E1101",
                    function.name.span,
                    "an `op` stands outside of blocks",
                    help="write `fn` for a method",
                )


def _new_name(
    checker: Checker, decl: BlockDecl, name: str, span: Span, taken: dict[str, Span]
) -> bool:
    if name in PRELUDE:
        checker.reporter.error(
            "E1207", span, f"`{name}` is a prelude name and cannot be redeclared"
        )
    if name in taken:
        checker.reporter.error(
            "E1205",
            span,
            f"`{name}` is declared twice in block `{decl.name}`",
            related=[Label(taken[name], "first declared here")],
        )
        return False
    if name in decl.generic_spans:
        checker.reporter.error(
            "E1205",
            span,
            f"`{name}` has the name of a generic of block `{decl.name}`",
            related=[Label(decl.generic_spans[name], "declared here")],
        )
        return False
    taken[name] = span
    return True


def members_of(checker: Checker, decl: BlockDecl) -> dict[str, MemberDecl]:
    """The members of a block, resolved once; apart from the signature, for blocks
    may name each other in any order."""
    checker.signature(decl)
    if decl.members_state != "new":
        return decl.members
    decl.members_state = "done"
    node = decl.node
    assert isinstance(node, tree.Block)
    scope = Scope(checker, decl.module, {g.name: g for g in decl.generics}, decl.facts or NO_FACTS)
    for member in node.members:
        if member.name.text not in decl.members:
            decl.members[member.name.text] = _member(scope, decl, member)
    return decl.members


def _member(scope: Scope, decl: BlockDecl, node: tree.MemberDecl) -> MemberDecl:
    report = scope.report
    name = node.name.text
    member = MemberDecl(name, node.kind, node, ERROR)
    if node.kind == "sub":
        if isinstance(node.type, tree.OptionalType):
            inner = any_type(scope, node.type.inner)
            member.optional = True
            if isinstance(inner, ArrayOf):
                report.error(
                    "E4101",
                    node.type.span,
                    "an array of blocks cannot be optional",
                    help="a `Dim` generic for its length may be 0",
                )
                return member
        else:
            inner = any_type(scope, node.type)
        if isinstance(inner, ArrayOf):
            member.length = inner.length
            inner = inner.element
        if isinstance(inner, BlockRef):
            member.type = inner
            scope.checker.obligations(scope, inner, node.type.span)
        elif inner is not ERROR:
            report.error(
                "E4101",
                node.type.span,
                f"a `sub` is a block, not `{inner}`",
                help="numbers are `param`, `buffer` or `state`",
            )
        _default(scope, node, member)
        return member
    found = any_type(scope, node.type)
    if isinstance(found, (BlockRef, ArrayOf)):
        report.error("E4101", node.type.span, f"a block stands in a `sub`, not in a `{node.kind}`")
        return member
    if isinstance(found, OptionalType):
        member.optional = True
        if node.kind == "state":
            report.error("E4101", node.type.span, "a `state` cannot be optional")
    inner_type = found.inner if isinstance(found, OptionalType) else found
    if inner_type is ERROR:
        return member
    if not isinstance(inner_type, (TensorType, ScalarType)):
        what = "a tuple" if isinstance(inner_type, TupleType) else f"`{inner_type}`"
        report.error(
            "E4101",
            node.type.span,
            f"a `{node.kind}` is a tensor, not {what}",
        )
        return member
    member.type = found
    _default(scope, node, member)
    return member


def _default(scope: Scope, node: tree.MemberDecl, member: MemberDecl) -> None:
    if node.default is None:
        return
    if isinstance(node.default, tree.NoneLit) and member.optional:
        return
    if isinstance(node.default, tree.ErrorExpr):
        return
    scope.report.error(
        "E4102",
        node.default.span,
        f"a `{node.kind}` takes no value: the checkpoint gives it",
        help="only `= none` may stand here, for an optional one",
    )
