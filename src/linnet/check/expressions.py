"""Expressions outside of index notation: names, literals, choices; the rest by kind."""

from __future__ import annotations

from linnet.check import calls, choices, grids, operators, slices
from linnet.check.body import (
    Body,
    Float,
    Int,
    NoneOperand,
    Operand,
    OptionalSub,
    Sub,
    SubArray,
)
from linnet.check.coerce import coerce, value_of
from linnet.check.declare import (
    AliasDecl,
    ConstDecl,
    Decl,
    EnumDecl,
    FunctionDecl,
    ModuleAlias,
    kind_of,
)
from linnet.check.modules import PRELUDE_FUNCTIONS, PRELUDE_TYPES, Import
from linnet.check.report import did_you_mean
from linnet.check.typing import ERROR, MAX_AXES
from linnet.diagnostics.diagnostic import Label
from linnet.ir.program import (
    Const,
    GetField,
    MakeSome,
    MakeTuple,
    ReadMember,
    Step,
    Value,
)
from linnet.ir.types import (
    BlockRef,
    EnumType,
    OptionalType,
    ScalarType,
    StructType,
    TupleType,
    Type,
    substitute_arg,
    substitute_dim,
)
from linnet.source import Span
from linnet.syntax import tree


def expression(cx: Body, node: tree.Expr, expected: Type | None = None) -> Operand:
    """Check an expression and emit its operations. `expected` guides literals and `none`."""
    match node:
        case tree.Name(text=text):
            return name(cx, node, text)
        case tree.IntLit(value=value):
            from linnet.dims import Dim

            return Int(Dim.const(value))
        case tree.FloatLit(value=value):
            return Float(value)
        case tree.BoolLit(value=value):
            return cx.emit(Const([Value(ScalarType("bool"))], node.span, value))
        case tree.NoneLit():
            return NoneOperand()
        case tree.Paren(inner=inner):
            return expression(cx, inner, expected)
        case tree.Some(value=inner):
            hint = expected.inner if isinstance(expected, OptionalType) else None
            found = value_of(cx, expression(cx, inner, hint), inner.span, hint)
            if found.type is ERROR:
                return found
            return cx.emit(MakeSome([Value(OptionalType(found.type))], node.span, found))
        case tree.TupleExpr(items=items):
            return _tuple(cx, node, items, expected)
        case tree.Unary():
            return operators.unary(cx, node, expected)
        case tree.Binary():
            return operators.binary(cx, node, expected)
        case tree.Call():
            return calls.call(cx, node, expected)
        case tree.Member():
            return member(cx, node)
        case tree.Index():
            return slices.index(cx, node)
        case tree.If():
            return choices.if_(cx, node, expected)
        case tree.Match():
            return choices.match_(cx, node, expected)
        case tree.Reduce():
            return grids.reduction(cx, node, expected)
        case tree.ForExpr():
            cx.report.error(
                "E1101",
                node.span,
                "`for … yield` stands only as the whole right side of a `let`",
                help="name it first: `let ys = for i in a..b { … yield y }`",
            )
        case tree.ListExpr():
            cx.report.error(
                "E2101",
                node.span,
                "a list is a shape, and stands only where a shape is expected",
                help="`concat` joins tensors, `fill<T>(shape, value)` makes one",
            )
        case tree.StringLit():
            cx.report.error("E2101", node.span, "strings are not values of the language")
        case tree.PackExpr():
            cx.report.error("E3106", node.span, f"`*{node.name}` is not a value")
    return cx.poison()


def value(cx: Body, node: tree.Expr, expected: Type | None = None) -> Value:
    return value_of(cx, expression(cx, node, expected), node.span, expected)


def typed(
    cx: Body,
    node: tree.Expr,
    expected: Type,
    what: str = "this",
    related: list[Label] | None = None,
) -> Value:
    """An expression that must have a type."""
    return coerce(cx, expression(cx, node, expected), expected, node.span, what, related or [])


def name(cx: Body, node: tree.Expr, text: str) -> Operand:
    local = cx.find(text)
    if local is not None:
        return local.operand
    generic = cx.scope.generics.get(text)
    if generic is not None:
        from linnet.dims import Dim

        if generic.kind == "Dim":
            return Int(Dim.name(text))
        cx.report.error(
            "E1208", node.span, f"`{text}` is a generic of kind {generic.kind}, not a value"
        )
        return cx.poison()
    if cx.block is not None:
        found = own_member(cx, text, node.span)
        if found is not None:
            return found
        if text in cx.block.methods:
            cx.report.error(
                "E1208", node.span, f"`{text}` is a method", help=f"call it: `{text}(…)`"
            )
            return cx.poison()
    item = cx.scope.module.lookup(text)
    if item is None:
        return unknown(cx, node.span, text)
    return item_value(cx, item, node.span, text)


def unknown(cx: Body, span: Span, text: str) -> Value:
    if text in PRELUDE_FUNCTIONS or text in PRELUDE_TYPES:
        function = text in PRELUDE_FUNCTIONS
        cx.report.error(
            "E1208",
            span,
            f"`{text}` is a {'function' if function else 'type'}, not a value",
            help=f"call it: `{text}(…)`" if function else None,
        )
        return cx.poison()
    candidates = [n for frame in cx.frames for n in frame]
    candidates += [*cx.scope.generics, *cx.scope.module.names(), *PRELUDE_FUNCTIONS]
    if cx.block is not None:
        candidates += [*cx.checker.members(cx.block), *cx.block.methods]
    cx.report.error("E1201", span, f"unknown name `{text}`", help=did_you_mean(text, candidates))
    return cx.poison()


def item_value(cx: Body, item: Decl | ModuleAlias | Import, span: Span, text: str) -> Operand:
    if isinstance(item, Import):
        return cx.poison()
    if isinstance(item, ConstDecl):
        cx.checker.signature(item)
        if item.failed:
            return cx.poison()
        if item.enum is not None:
            assert isinstance(item.value, int)
            return cx.emit(Const([Value(item.enum, item.name)], span, item.value))
        if item.dtype is None:
            assert item.dim is not None
            return Int(item.dim)
        assert item.value is not None
        return cx.emit(Const([Value(ScalarType(item.dtype), item.name)], span, item.value))
    help = f"call it: `{text}(…)`" if isinstance(item, FunctionDecl) else None
    cx.report.error("E1208", span, f"`{text}` is {kind_of(item)}, not a value", help=help)
    return cx.poison()


def own_member(cx: Body, text: str, span: Span) -> Operand | None:
    """A member of the own block, read now."""
    assert cx.block is not None
    found = cx.checker.members(cx.block).get(text)
    if found is None:
        return None
    found.used = True
    if found.kind == "sub":
        if not isinstance(found.type, BlockRef):
            return cx.poison()
        step = Step(text)
        declared = found.node.span
        if found.length is not None:
            return SubArray((step,), found.type, found.length, declared)
        if found.optional:
            return OptionalSub((step,), found.type, declared)
        return Sub((step,), found.type, declared)
    if isinstance(found.type, BlockRef) or found.type is ERROR:
        return cx.poison()
    result = cx.emit(ReadMember([Value(found.type, text)], span, found.kind, text))
    cx.origin[result.id] = found.node.span
    return result


def member(cx: Body, node: tree.Member) -> Operand:
    """`object.name`: a module's item, an enum's variant, a struct's field, a sub's sub."""
    text = node.name.text
    item = named_item(cx, node.object)
    if isinstance(item, Import):
        return cx.poison()
    if isinstance(item, ModuleAlias):
        target = cx.checker.through_alias(item, node.name, node.span)
        if target is None:
            return cx.poison()
        return item_value(cx, target, node.span, text)
    if item is not None and (enum := enum_of(cx, item)) is not None:
        return _variant(cx, enum, item.span, node.name)
    owner = expression(cx, node.object)
    match owner:
        case Value(type=StructType() as struct):
            for field, type in struct.fields:
                if field == text:
                    return cx.emit(GetField([Value(type, text)], node.span, owner, text))
            cx.report.error(
                "E2107",
                node.name.span,
                f"`{struct}` has no field `{text}`",
                help=did_you_mean(text, [field for field, _ in struct.fields]),
            )
            return cx.poison()
        case Sub():
            return sub_member(cx, owner, node.name)
        case SubArray():
            cx.report.error(
                "E2107",
                node.name.span,
                "an array of blocks has no members; take one: `layers[0]`, or `static for`",
            )
            return cx.poison()
        case OptionalSub():
            cx.report.error(
                "E2107",
                node.name.span,
                "this block is optional",
                help="`match it { some(b) => …  none => … }`",
            )
            return cx.poison()
    if not (isinstance(owner, Value) and owner.type is ERROR):
        shown = f"`{owner.type}`" if isinstance(owner, Value) else "this"
        cx.report.error("E2107", node.name.span, f"{shown} has no field `{text}`")
    return cx.poison()


def named_item(cx: Body, node: tree.Expr) -> Decl | ModuleAlias | Import | None:
    """The item that `name` or `module.name` means, where no local or member hides it. An Import
    stands for what has been reported."""
    if isinstance(node, tree.Name):
        if cx.find(node.text) is not None or node.text in cx.scope.generics:
            return None
        if cx.block is not None and node.text in cx.checker.members(cx.block):
            return None
        return cx.scope.module.lookup(node.text)
    if isinstance(node, tree.Member):
        owner = named_item(cx, node.object)
        if isinstance(owner, ModuleAlias):
            found = cx.checker.through_alias(owner, node.name, node.span)
            return found or Import(tree.Use(node.span, [], None), None, node.span)
        if isinstance(owner, Import):
            return owner
    return None


def enum_of(cx: Body, item: Decl | ModuleAlias | Import | None) -> EnumType | None:
    """The enum that an item is, perhaps by an alias."""
    if isinstance(item, (EnumDecl, AliasDecl)):
        cx.checker.signature(item)
        if isinstance(item.type, EnumType):
            return item.type
    return None


def sub_member(cx: Body, owner: Sub, ident: tree.Ident) -> Operand:
    decl = cx.checker.block(owner.ref)
    members = cx.checker.members(decl)
    found = members.get(ident.text)
    if found is None or found.kind != "sub":
        if found is not None:
            cx.report.error(
                "E1203",
                ident.span,
                f"`{ident.text}` is a {found.kind} of `{decl.name}`, and only that block reads it",
                related=[Label(found.node.span, "declared here")],
                help=f"give `{decl.name}` a `pub fn` that uses it",
            )
        elif ident.text in decl.methods:
            cx.report.error("E1208", ident.span, f"`{ident.text}` is a method: call it")
        else:
            cx.report.error(
                "E2107",
                ident.span,
                f"block `{decl.name}` has no member `{ident.text}`",
                related=[Label(owner.declared, "the block is named here")],
                help=did_you_mean(ident.text, [*members, *decl.methods]),
            )
        return cx.poison()
    found.used = True
    if not isinstance(found.type, BlockRef):
        return cx.poison()
    mapping = {g.name: a for g, a in zip(decl.generics, owner.ref.generics, strict=True)}
    ref = BlockRef(found.type.id, tuple(substitute_arg(a, mapping) for a in found.type.generics))
    if any(isinstance(a, tuple) and len(a) > MAX_AXES for a in ref.generics):
        cx.report.error("E2101", ident.span, f"this is a shape of more than {MAX_AXES} axes")
        return cx.poison()
    receiver = (*owner.receiver, Step(ident.text))
    if found.length is not None:
        return SubArray(receiver, ref, substitute_dim(found.length, mapping), found.node.span)
    if found.optional:
        return OptionalSub(receiver, ref, found.node.span)
    return Sub(receiver, ref, found.node.span)


def _variant(cx: Body, enum: EnumType, declared: Span, ident: tree.Ident) -> Value:
    if ident.text not in enum.variants:
        cx.report.error(
            "E2107",
            ident.span,
            f"enum `{enum}` has no variant `{ident.text}`",
            related=[Label(declared, "declared here")],
            help=did_you_mean(ident.text, enum.variants),
        )
        return cx.poison()
    return cx.emit(Const([Value(enum)], ident.span, enum.variants.index(ident.text)))


def _tuple(cx: Body, node: tree.Expr, items: list[tree.Expr], expected: Type | None) -> Operand:
    hints: list[Type | None] = [None] * len(items)
    if isinstance(expected, TupleType) and len(expected.items) == len(items):
        hints = [None if item is ERROR else item for item in expected.items]
    values = [value(cx, item, hint) for item, hint in zip(items, hints, strict=True)]
    if any(v.type is ERROR for v in values):
        return cx.poison()
    type = TupleType(tuple(v.type for v in values))
    return cx.emit(MakeTuple([Value(type)], node.span, values))
