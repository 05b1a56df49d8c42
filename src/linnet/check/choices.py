"""Choices: `if`, and `match` over an optional, an optional block or an enum."""

from __future__ import annotations

from collections.abc import Callable

from linnet.check import expressions
from linnet.check.body import (
    LITERALS,
    Body,
    NoneOperand,
    Operand,
    OptionalSub,
    Sub,
    default_dtype,
)
from linnet.check.coerce import value_of
from linnet.check.infer import same_type
from linnet.check.report import did_you_mean
from linnet.check.typing import ERROR
from linnet.diagnostics.diagnostic import Label
from linnet.ir.program import (
    If,
    MatchEnum,
    MatchOptional,
    MatchSub,
    Op,
    Region,
    Value,
)
from linnet.ir.types import EnumType, OptionalType, ScalarType, Type
from linnet.syntax import tree


def condition(cx: Body, node: tree.Expr) -> Value:
    found = expressions.value(cx, node)
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
        operand = expressions.expression(cx, node, hint)
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
        if failed and isinstance(operand, NoneOperand):
            continue  # it lacks a type for the same reason
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


def if_(cx: Body, node: tree.If, expected: Type | None) -> Operand:
    test = condition(cx, node.condition)
    regions, type = branches(cx, [(list, node.then), (list, node.orelse)], expected)
    if type is ERROR or test.type is ERROR:
        return cx.poison()
    return cx.emit(If([Value(type)], node.span, test, regions[0], regions[1]))


def match_(cx: Body, node: tree.Match, expected: Type | None) -> Operand:
    subject = expressions.expression(cx, node.subject)
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
                if variant not in enum.variants or not _names(cx, path[:-1], enum):
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
        shown = ", ".join(f"`{enum}.{v}`" for v in missing[:8]) + (", …" if missing[8:] else "")
        cx.report.error("E2118", node.span, f"the match does not cover {shown}")
        return cx.poison()
    regions, type = branches(cx, [(list, chosen[v].body) for v in enum.variants], expected)
    if type is ERROR:
        return cx.poison()
    return cx.emit(MatchEnum([Value(type)], node.span, subject, regions))


def _names(cx: Body, path: list[tree.Ident], enum: EnumType) -> bool:
    """Whether what stands before a variant is its enum."""
    if not path:
        return True
    found = cx.scope.module.lookup(path[0].text)
    for ident in path[1:]:
        found = cx.checker.through_alias(found, ident, ident.span)
    return expressions.enum_of(cx, found) == enum
