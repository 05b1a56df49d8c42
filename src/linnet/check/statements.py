"""Statements other than loops."""

from __future__ import annotations

from collections.abc import Iterator

from linnet.check import expressions, grids, loops
from linnet.check.body import Body, Local, Operand, Sub, SubArray
from linnet.check.coerce import coerce, value_of
from linnet.check.declare import kind_of
from linnet.check.dimensions import kind_text
from linnet.check.modules import Import
from linnet.check.report import did_you_mean
from linnet.check.typing import ERROR, value_type
from linnet.diagnostics.diagnostic import Label
from linnet.dims import DimTooLarge
from linnet.ir.program import (
    StateWrite,
    TupleGet,
    Value,
)
from linnet.ir.types import (
    TupleType,
    Type,
)
from linnet.source import Span
from linnet.syntax import tree


def function_body(cx: Body, node: tree.Function) -> Value | None:
    """The statements of a function; the value it returns, or None after an error."""
    result: Value | None = None
    returned = False
    for statement in node.body:
        if returned:
            cx.report.error("E2120", statement.span, "nothing may follow `return`")
            break
        if isinstance(statement, tree.Return):
            returned = True
            result = _return(cx, node, statement)
        else:
            check(cx, statement)
    if not returned:
        if not any(isinstance(s, tree.ErrorStmt) for s in node.body):
            cx.report.error("E2120", node.body_end, f"`{cx.decl.name}` does not end in `return`")
        return None
    return result


def _return(cx: Body, node: tree.Function, statement: tree.Return) -> Value | None:
    want = cx.decl.result
    assert want is not None
    at = node.name.span if node.result is None else node.result.span
    related = declared(at, "the result is declared", want)
    try:
        operand = expressions.expression(cx, statement.value, None if want is ERROR else want)
        value = coerce(cx, operand, want, statement.value.span, "the returned value", related)
    except (DimTooLarge, RecursionError) as error:
        give_up(cx, statement.value.span, error)
        return None
    return None if value.type is ERROR else value


def declared(span: Span, what: str, type: Type) -> Iterator[Label]:
    """Where a type was stated; put into words only where a value differs from it."""
    yield Label(span, f"{what} `{type}`")


def check(cx: Body, node: tree.Stmt) -> None:
    try:
        _statement(cx, node)
    except (DimTooLarge, RecursionError) as error:
        give_up(cx, node.span, error)
        if isinstance(node, (tree.Let, tree.LetIndexed, tree.Var)):
            names = node.names if isinstance(node, tree.Let) else [node.name]
            for ident in names:
                mutable = isinstance(node, tree.Var)
                cx.declare(ident.text, cx.poison(), ident.span, mutable=mutable)


def give_up(cx: Body, span: Span, error: Exception) -> None:
    if isinstance(error, RecursionError):
        cx.report.error("E1101", span, "this is nested too deeply", help="name parts of it first")
    else:
        cx.report.error("E2123", span, "a dimension here is too large to reason about")


def _statement(cx: Body, node: tree.Stmt) -> None:
    match node:
        case tree.Let():
            _let(cx, node)
        case tree.LetIndexed():
            _let_indexed(cx, node)
        case tree.Var():
            _var(cx, node)
        case tree.Assign():
            _assign(cx, node)
        case tree.StaticFor():
            if node.stop is None:
                loops.each(cx, node)
            else:
                loops.counted(cx, node.name, node.start, node.stop, node.body, node, static=True)
        case tree.For():
            loops.counted(cx, node.name, node.start, node.stop, node.body, node, static=False)
        case tree.While():
            loops.while_(cx, node)
        case tree.Return():
            cx.report.error(
                "E2120",
                node.span,
                "no function returns from inside a loop",
                help="assign a `var` and return it after the loop",
            )
        case tree.Yield():
            cx.report.error(
                "E2120",
                node.span,
                "`yield` stands at the end of a `let ys = for … { … }`, and only there",
            )


def _annotation(cx: Body, node: tree.TypeExpr | None) -> Type | None:
    return None if node is None else value_type(cx.scope, node)


def _let(cx: Body, node: tree.Let) -> None:
    type = _annotation(cx, node.type)
    if isinstance(node.value, tree.ForExpr):
        operand: Operand = loops.for_yield(cx, node.value)
    else:
        operand = expressions.expression(cx, node.value, None if type is ERROR else type)
    if type is not None:
        assert node.type is not None
        related = declared(node.type.span, "declared", type)
        value = coerce(cx, operand, type, node.value.span, "the value", related)
    elif isinstance(operand, (Sub, SubArray)):
        value = value_of(cx, operand, node.value.span)
    else:
        value = value_of(cx, operand, node.value.span)
    if not node.tuple:
        ident = node.names[0]
        _name(cx, ident, value)
        return
    if value.type is ERROR:
        for ident in node.names:
            cx.declare(ident.text, cx.poison(), ident.span)
        return
    if not isinstance(value.type, TupleType) or len(value.type.items) != len(node.names):
        cx.report.error(
            "E2101",
            node.value.span,
            f"{len(node.names)} names for `{value.type}`",
        )
        for ident in node.names:
            cx.declare(ident.text, cx.poison(), ident.span)
        return
    seen: dict[str, tree.Ident] = {}
    for position, (ident, item) in enumerate(zip(node.names, value.type.items, strict=True)):
        if ident.text == "_":
            continue
        if ident.text in seen:
            cx.report.error("E1205", ident.span, f"`{ident.text}` is named twice")
            continue
        seen[ident.text] = ident
        part = cx.emit(TupleGet([Value(item)], node.span, value, position))
        _name(cx, ident, part)


def _name(cx: Body, ident: tree.Ident, value: Value) -> None:
    if value.name is None:
        value.name = ident.text
    if value.type is not ERROR:
        cx.origin[value.id] = ident.span
    local = cx.declare(ident.text, value, ident.span, warn=value.type is not ERROR)
    local.let = True


def _let_indexed(cx: Body, node: tree.LetIndexed) -> None:
    type = _annotation(cx, node.type)
    value = grids.indexed_let(cx, node, type)
    if type is not None and value.type is not ERROR:
        assert node.type is not None
        related = declared(node.type.span, "declared", type)
        value = coerce(cx, value, type, node.value.span, "the value", related)
    _name(cx, node.name, value)


def _var(cx: Body, node: tree.Var) -> None:
    type = _annotation(cx, node.type)
    operand = expressions.expression(cx, node.value, None if type is ERROR else type)
    if type is not None:
        assert node.type is not None
        related = declared(node.type.span, "declared", type)
        value = coerce(cx, operand, type, node.value.span, "the value", related)
    else:
        value = value_of(cx, operand, node.value.span)
    if value.type is not ERROR:
        cx.origin.setdefault(value.id, node.name.span)
    cx.declare(node.name.text, value, node.name.span, mutable=True, warn=value.type is not ERROR)


def _assign(cx: Body, node: tree.Assign) -> None:
    target = node.target
    if not isinstance(target, tree.Name):
        cx.report.error(
            "E2108",
            target.span,
            "only a `var` or a `state` of the own block is assigned",
            help="tensors are not changed in place: build the new one, and assign the name",
        )
        expressions.expression(cx, node.value)
        return
    name = target.text
    local = cx.lookup(name)
    if local is not None:
        _assign_local(cx, node, target, local)
        return
    member = cx.checker.members(cx.block).get(name) if cx.block is not None else None
    if member is None:
        what = _fixed(cx, name)
        if what is not None:
            cx.report.error(
                "E2108",
                target.span,
                f"`{name}` is {what}, and only a `var` or a `state` is assigned",
                help="another name for the new value: `let value = …`, or `var value = …`",
            )
            expressions.expression(cx, node.value)
            return
        candidates = [n for frame in cx.frames for n in frame]
        if cx.block is not None:
            candidates += [n for n, m in cx.checker.members(cx.block).items() if m.kind == "state"]
        cx.report.error(
            "E1201",
            target.span,
            f"unknown name `{name}`",
            help=did_you_mean(name, candidates) or f"a new variable is declared: `var {name} = …`",
        )
        expressions.expression(cx, node.value)
        return
    member.used = True
    if member.kind != "state" or not isinstance(member.type, Type) or member.type is ERROR:
        if member.type is not ERROR:
            cx.report.error(
                "E2108",
                target.span,
                f"`{name}` is a `{member.kind}`, and only a `state` is assigned",
                related=[Label(member.node.span, "declared here")],
            )
        expressions.expression(cx, node.value)
        return
    if cx.decl.kind == "op":
        cx.report.error("E2108", target.span, "an `op` is pure and assigns no state")
    operand = expressions.expression(cx, node.value, member.type)
    related = declared(member.node.span, "declared", member.type)
    value = coerce(cx, operand, member.type, node.value.span, f"state `{name}`", related)
    if value.type is not ERROR:
        cx.ops[-1].append(StateWrite([], node.span, name, value))


def _fixed(cx: Body, name: str) -> str | None:
    """What else a name means that stands on the left of an assignment."""
    if (generic := cx.scope.generics.get(name)) is not None:
        return f"a {kind_text(generic)}"
    if cx.block is not None and name in cx.block.methods:
        return "a method"
    found = cx.scope.module.lookup(name)
    return None if found is None or isinstance(found, Import) else kind_of(found)


def _assign_local(cx: Body, node: tree.Assign, target: tree.Name, local: Local) -> None:
    if not local.mutable:
        cx.report.error(
            "E2108",
            target.span,
            f"`{target.text}` is not a `var`",
            related=[Label(local.span, "declared here")],
            help=f"declare it as `var {target.text} = …`"
            if local.let
            else f"begin a variable with it: `var value = {target.text}`",
        )
        expressions.expression(cx, node.value)
        return
    old = local.operand
    assert isinstance(old, Value)
    hint = None if old.type is ERROR else old.type
    operand = expressions.expression(cx, node.value, hint)
    related = declared(local.span, "declared here as", old.type)
    value = coerce(cx, operand, old.type, node.value.span, f"`{target.text}`", related, "E2109")
    if old.type is not ERROR and value.type is not ERROR:
        # The variable keeps the type it was declared with, however this one spells it.
        local.operand = value
    elif value.type is not ERROR:
        local.operand = value
