"""Expressions outside of index notation: names, literals, choices; the rest by kind."""

from __future__ import annotations

from collections.abc import Callable

from linnet.check import calls, grids, operators, slices
from linnet.check.body import (
    LITERALS,
    Body,
    Float,
    Int,
    NoneOperand,
    Operand,
    OptionalSub,
    Sub,
    SubArray,
    default_dtype,
)
from linnet.check.coerce import coerce, value_of
from linnet.check.declare import ConstDecl, Decl, EnumDecl, FunctionDecl, ModuleAlias, kind_of
from linnet.check.infer import same_type
from linnet.check.modules import PRELUDE_FUNCTIONS, PRELUDE_TYPES, Import
from linnet.check.report import did_you_mean
from linnet.check.typing import ERROR
from linnet.diagnostics.diagnostic import Label
from linnet.ir.program import (
    Const,
    GetField,
    If,
    MakeSome,
    MakeTuple,
    MatchEnum,
    MatchOptional,
    MatchSub,
    Op,
    ReadMember,
    Region,
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
            return _if(cx, node, expected)
        case tree.Match():
            return _match(cx, node, expected)
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
    if isinstance(node.object, tree.Name) and cx.find(node.object.text) is None:
        own = cx.block is not None and node.object.text in cx.checker.members(cx.block)
        item = None if own else cx.scope.module.lookup(node.object.text)
        if isinstance(item, Import):
            return cx.poison()
        if isinstance(item, ModuleAlias):
            target = cx.checker.through_alias(item, node.name, node.span)
            if target is None:
                return cx.poison()
            return item_value(cx, target, node.span, text)
        if isinstance(item, EnumDecl):
            return _variant(cx, item, node.name)
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
                help="`match it { some(block) => …  none => … }`",
            )
            return cx.poison()
    if not (isinstance(owner, Value) and owner.type is ERROR):
        shown = f"`{owner.type}`" if isinstance(owner, Value) else "this"
        cx.report.error("E2107", node.name.span, f"{shown} has no field `{text}`")
    return cx.poison()


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
    receiver = (*owner.receiver, Step(ident.text))
    if found.length is not None:
        return SubArray(receiver, ref, substitute_dim(found.length, mapping), found.node.span)
    if found.optional:
        return OptionalSub(receiver, ref, found.node.span)
    return Sub(receiver, ref, found.node.span)


def _variant(cx: Body, decl: EnumDecl, ident: tree.Ident) -> Value:
    cx.checker.signature(decl)
    assert decl.type is not None
    if ident.text not in decl.type.variants:
        cx.report.error(
            "E2107",
            ident.span,
            f"enum `{decl.name}` has no variant `{ident.text}`",
            related=[Label(decl.span, "declared here")],
            help=did_you_mean(ident.text, decl.type.variants),
        )
        return cx.poison()
    position = decl.type.variants.index(ident.text)
    return cx.emit(Const([Value(decl.type)], ident.span, position))


def _tuple(cx: Body, node: tree.Expr, items: list[tree.Expr], expected: Type | None) -> Operand:
    hints: list[Type | None] = [None] * len(items)
    if isinstance(expected, TupleType) and len(expected.items) == len(items):
        hints = list(expected.items)
    values = [value(cx, item, hint) for item, hint in zip(items, hints, strict=True)]
    if any(v.type is ERROR for v in values):
        return cx.poison()
    type = TupleType(tuple(v.type for v in values))
    return cx.emit(MakeTuple([Value(type)], node.span, values))


# --- choices -------------------------------------------------------------------


def condition(cx: Body, node: tree.Expr) -> Value:
    found = value(cx, node)
    if found.type is not ERROR and found.type != ScalarType("bool"):
        cx.report.error(
            "E2114",
            node.span,
            f"a condition is a scalar `bool`, not `{found.type}`",
            help="`select(c, a, b)` chooses element by element",
        )
        return cx.poison()
    return found


def branches(
    cx: Body,
    parts: list[tuple[Callable[[], list[Value]], tree.Expr]],
    expected: Type | None,
) -> tuple[list[Region], Type]:
    """Regions of one type. Each part gives its region's parameters, in its own scope."""
    found: list[tuple[list[Value], list[Op], Operand, tree.Expr]] = []
    for setup, node in parts:
        cx.open_region()
        cx.push()
        params = setup()
        # A branch that is known gives its dtype to literals in the later ones.
        hint = expected
        if hint is None:
            types = [o.type for _, _, o, _ in found if isinstance(o, Value)]
            hint = next((t for t in types if t is not ERROR), None)
        operand = expression(cx, node, hint)
        cx.pop()
        found.append((params, cx.close_region(), operand, node))
    # A branch that knows its type gives it to literals and `none` in the others.
    type = expected
    if type is None:
        known = [o.type for _, _, o, _ in found if isinstance(o, Value)]
        type = next((t for t in known if t is not ERROR), None)
        literals = [o for _, _, o, _ in found if isinstance(o, LITERALS)]
        if type is None and literals:
            type = ScalarType(default_dtype(*literals))
    regions: list[Region] = []
    result: Type | None = None
    failed = False
    for params, ops, operand, node in found:
        cx.ops.append(ops)
        value = value_of(cx, operand, node.span, type)
        cx.ops.pop()
        regions.append(Region(params, ops, [value]))
        if value.type is ERROR:
            failed = True
        elif result is None:
            result = value.type
        elif not same_type(cx.facts, result, value.type):
            cx.report.error(
                "E2115",
                node.span,
                f"the branches differ: `{result}` and `{value.type}`",
                related=[Label(found[0][3].span, f"this is `{result}`")],
            )
            failed = True
    return regions, ERROR if failed or result is None else result


def _if(cx: Body, node: tree.If, expected: Type | None) -> Operand:
    test = condition(cx, node.condition)
    regions, type = branches(cx, [(list, node.then), (list, node.orelse)], expected)
    if type is ERROR or test.type is ERROR:
        return cx.poison()
    return cx.emit(If([Value(type)], node.span, test, regions[0], regions[1]))


def _match(cx: Body, node: tree.Match, expected: Type | None) -> Operand:
    subject = expression(cx, node.subject)
    if isinstance(subject, OptionalSub):
        return _match_sub(cx, node, subject, expected)
    if not isinstance(subject, Value):
        subject = value_of(cx, subject, node.subject.span)
    match subject.type:
        case OptionalType() as optional:
            return _match_optional(cx, node, subject, optional, expected)
        case EnumType() as enum:
            return _match_enum(cx, node, subject, enum, expected)
    if subject.type is not ERROR:
        cx.report.error(
            "E2117",
            node.subject.span,
            f"`match` takes an optional or an enum, not `{subject.type}`",
        )
    return cx.poison()


def _optional_arms(cx: Body, node: tree.Match) -> tuple[tree.Arm, tree.Arm] | None:
    some = none = None
    for arm in node.arms:
        match arm.pattern:
            case tree.SomePattern() if some is None:
                some = arm
            case tree.NonePattern() if none is None:
                none = arm
            case tree.WildcardPattern() if some is None or none is None:
                some, none = some or arm, none or arm
            case tree.SomePattern() | tree.NonePattern() | tree.WildcardPattern():
                cx.report.error("E2117", arm.pattern.span, "this case is already covered")
                return None
            case _:
                cx.report.error(
                    "E2117",
                    arm.pattern.span,
                    "an optional is matched by `some(name)` and `none`",
                )
                return None
    if some is None or none is None:
        missing = "some(…)" if some is None else "none"
        cx.report.error("E2118", node.span, f"the match does not cover `{missing}`")
        return None
    return some, none


def _match_optional(
    cx: Body, node: tree.Match, subject: Value, optional: OptionalType, expected: Type | None
) -> Operand:
    arms = _optional_arms(cx, node)
    if arms is None:
        return cx.poison()
    some, none = arms

    def setup() -> list[Value]:
        inner = Value(optional.inner)
        if isinstance(some.pattern, tree.SomePattern):
            ident = some.pattern.name
            inner.name = ident.text
            cx.origin[inner.id] = ident.span
            cx.declare(ident.text, inner, ident.span, warn=True)
        return [inner]

    regions, type = branches(cx, [(setup, some.body), (list, none.body)], expected)
    if type is ERROR:
        return cx.poison()
    return cx.emit(MatchOptional([Value(type)], node.span, subject, regions[0], regions[1]))


def _match_sub(cx: Body, node: tree.Match, subject: OptionalSub, expected: Type | None) -> Operand:
    arms = _optional_arms(cx, node)
    if arms is None:
        return cx.poison()
    some, none = arms
    if len(subject.receiver) != 1:
        cx.report.error(
            "E2117", node.subject.span, "only the block that has an optional `sub` matches it"
        )
        return cx.poison()

    def setup() -> list[Value]:
        if isinstance(some.pattern, tree.SomePattern):
            ident = some.pattern.name
            found = Sub(subject.receiver, subject.ref, subject.declared)
            cx.declare(ident.text, found, ident.span, warn=True)
        return []

    regions, type = branches(cx, [(setup, some.body), (list, none.body)], expected)
    if type is ERROR:
        return cx.poison()
    name = subject.receiver[0].name
    return cx.emit(MatchSub([Value(type)], node.span, name, regions[0], regions[1]))


def _match_enum(
    cx: Body, node: tree.Match, subject: Value, enum: EnumType, expected: Type | None
) -> Operand:
    chosen: dict[str, tree.Arm] = {}
    for arm in node.arms:
        match arm.pattern:
            case tree.VariantPattern(path=path):
                variant = path[-1].text
                if variant not in enum.variants or (len(path) > 1 and path[-2].text != str(enum)):
                    shown = ".".join(ident.text for ident in path)
                    cx.report.error(
                        "E2117",
                        arm.pattern.span,
                        f"`{shown}` is no variant of `{enum}`",
                        help=did_you_mean(variant, enum.variants),
                    )
                    return cx.poison()
                names = [variant]
            case tree.WildcardPattern():
                names = [v for v in enum.variants if v not in chosen]
            case _:
                cx.report.error(
                    "E2117", arm.pattern.span, f"an enum is matched by `{enum}.Variant`"
                )
                return cx.poison()
        if not names or any(n in chosen for n in names):
            cx.report.error("E2117", arm.pattern.span, "this case is already covered")
            return cx.poison()
        for n in names:
            chosen[n] = arm
    missing = [v for v in enum.variants if v not in chosen]
    if missing:
        shown = ", ".join(f"`{enum}.{v}`" for v in missing)
        cx.report.error("E2118", node.span, f"the match does not cover {shown}")
        return cx.poison()
    regions, type = branches(cx, [(list, chosen[v].body) for v in enum.variants], expected)
    if type is ERROR:
        return cx.poison()
    return cx.emit(MatchEnum([Value(type)], node.span, subject, regions))
