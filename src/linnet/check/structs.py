"""Struct literals: `Name(field = value, …)`."""

from __future__ import annotations

from linnet.check import calls, expressions
from linnet.check.arguments import (
    complete,
    listed,
    literals_bind,
    match_arguments,
    written_generics,
)
from linnet.check.body import Body, Operand
from linnet.check.coerce import coerce
from linnet.check.declare import AliasDecl, StructDecl
from linnet.check.infer import Inference
from linnet.check.typing import ERROR, value_type
from linnet.check.unfit import refuse_unfit
from linnet.diagnostics.diagnostic import Label
from linnet.ir.program import MakeStruct, Value
from linnet.ir.types import StructType, Type, substitute
from linnet.source import Span
from linnet.syntax import tree


def construct(cx: Body, node: tree.Call, decl: StructDecl) -> Operand:
    """A struct by its own name: its generics are inferred from the fields."""
    cx.checker.signature(decl)
    if decl.broken:
        return calls.evaluate_arguments(cx, node)
    given = _given(cx, node, decl.name, decl.fields, decl.span)
    if given is None:
        return calls.evaluate_arguments(cx, node)
    inference = Inference(decl.generics, {})
    failed = not written_generics(cx, node, decl, inference)
    operands: list[tuple[Operand, Span]] = []
    for field, type in decl.fields:
        source = given[field]
        operand = expressions.expression(cx, source, inference.known(type))
        if isinstance(operand, Value):
            failed |= operand.type is ERROR
            inference.unify(type, operand.type)
        operands.append((operand, source.span))
    for (field, type), (operand, span) in zip(decl.fields, operands, strict=True):
        here = Label(decl.span, f"`{field}` is declared `{type}`")
        failed |= refuse_unfit(cx, inference, type, operand, span, f"field `{field}`", here)
    if failed:
        return cx.poison()
    literals_bind(cx, inference, [type for _, type in decl.fields], operands)
    if not complete(cx, node, decl, inference):
        return cx.poison()
    struct = StructType(
        decl.id,
        tuple(inference.bindings[g.name] for g in decl.generics),
        tuple((f, substitute(t, inference.bindings)) for f, t in decl.fields),
    )
    return _make(cx, node, struct, operands, decl.span)


def through_alias(cx: Body, node: tree.Call, decl: AliasDecl) -> Operand:
    """A struct by the name of an alias, which says all of its generics."""
    cx.checker.signature(decl)
    if decl.broken:
        return calls.evaluate_arguments(cx, node)
    if not isinstance(decl.type, StructType):
        cx.report.error("E2106", node.callee.span, "a type alias cannot be called")
        return calls.evaluate_arguments(cx, node)
    ident = tree.Ident(node.callee.span, decl.name)
    struct = value_type(cx.scope, tree.NamedType(node.callee.span, [ident], node.generics))
    if not isinstance(struct, StructType):
        return calls.evaluate_arguments(cx, node)
    given = _given(cx, node, decl.name, struct.fields, decl.span)
    if given is None:
        return calls.evaluate_arguments(cx, node)
    operands: list[tuple[Operand, Span]] = []
    for field, type in struct.fields:
        operands.append((expressions.expression(cx, given[field], type), given[field].span))
    return _make(cx, node, struct, operands, decl.span)


def _given(
    cx: Body,
    node: tree.Call,
    name: str,
    fields: tuple[tuple[str, Type], ...],
    declared: Span,
) -> dict[str, tree.Expr] | None:
    """The fields' values by name; None after an error."""
    names = [field for field, _ in fields]
    for argument in node.arguments:
        if argument.name is None:
            cx.report.error(
                "E2102",
                argument.span,
                f"`{name}` is built from named fields",
                help=f"write `{name}({', '.join(f'{f} = …' for f in names)})`",
            )
            return None
    given = match_arguments(cx, node, names, name, declared)
    if given is None:
        return None
    missing = [field for field in names if field not in given]
    if missing:
        cx.report.error(
            "E2102",
            node.span,
            f"`{name}` needs {listed(missing)}",
            related=[Label(declared, "declared here")],
        )
        return None
    return {field: argument.value for field, argument in given.items()}


def _make(
    cx: Body,
    node: tree.Call,
    struct: StructType,
    operands: list[tuple[Operand, Span]],
    declared: Span,
) -> Value:
    values = [
        coerce(cx, operand, type, span, f"field `{field}`", [Label(declared, "declared here")])
        for (field, type), (operand, span) in zip(struct.fields, operands, strict=True)
    ]
    if any(value.type is ERROR for value in values):
        return cx.poison()
    return cx.emit(MakeStruct([Value(struct)], node.span, values))
