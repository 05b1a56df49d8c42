"""Statements, and the loops that carry variables around."""

from __future__ import annotations

from collections.abc import Iterator

from linnet.check import choices, expressions, grids
from linnet.check.body import Body, Local, Operand, Sub, SubArray
from linnet.check.coerce import coerce, value_of
from linnet.check.declare import kind_of
from linnet.check.dimensions import dimension, kind_text
from linnet.check.modules import Import
from linnet.check.report import did_you_mean
from linnet.check.typing import ERROR, value_type
from linnet.diagnostics.diagnostic import Label
from linnet.dims import Dim, DimTooLarge, Fact
from linnet.ir.program import (
    Loop,
    MakeTuple,
    Op,
    Region,
    StateWrite,
    Step,
    TupleGet,
    Value,
    While,
)
from linnet.ir.types import (
    BlockRef,
    ScalarType,
    TensorType,
    TupleType,
    Type,
    shape_of,
    tensor,
)
from linnet.source import Span
from linnet.syntax import tree

COUNTER = ScalarType("i64")


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
                _each(cx, node)
            else:
                _counted(cx, node.name, node.start, node.stop, node.body, node, static=True)
        case tree.For():
            _counted(cx, node.name, node.start, node.stop, node.body, node, static=False)
        case tree.While():
            _while(cx, node)
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
        operand: Operand = _for_yield(cx, node.value)
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


def _lookup(cx: Body, name: str) -> Local | None:
    for frame in reversed(cx.frames):
        if name in frame:
            return frame[name]
    return None


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
    local = _lookup(cx, name)
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


# --- loops ---------------------------------------------------------------------------


def assigned(body: list[tree.Stmt]) -> dict[str, None]:
    """The names that statements assign, loops inside included."""
    names: dict[str, None] = {}
    for statement in body:
        match statement:
            case tree.Assign(target=tree.Name(text=text)):
                names[text] = None
            case tree.StaticFor(body=inner) | tree.For(body=inner) | tree.While(body=inner):
                names.update(assigned(inner))
            case tree.Let(value=tree.ForExpr(body=inner)):
                names.update(assigned(inner))
    return names


class Carried:
    """The variables that a loop's body assigns, as parameters of its regions."""

    def __init__(self, cx: Body, body: list[tree.Stmt]):
        self.cx = cx
        self.locals: list[Local] = []
        for name in assigned(body):
            local = _lookup(cx, name)
            if local is not None and local.mutable and isinstance(local.operand, Value):
                if local.operand.type is not ERROR:
                    self.locals.append(local)
        self.init = [self.value(local) for local in self.locals]
        self.types = [value.type for value in self.init]

    @staticmethod
    def value(local: Local) -> Value:
        assert isinstance(local.operand, Value)
        return local.operand

    def enter(self) -> list[Value]:
        """Fresh parameters, which the variables are while a region is checked."""
        params = []
        for local, type in zip(self.locals, self.types, strict=True):
            value = Value(type, local.name)
            self.cx.origin[value.id] = local.span
            local.operand = value
            params.append(value)
        return params

    def leave(self) -> list[Value]:
        """The variables' values at the end of a region."""
        return [self.value(local) for local in self.locals]

    def results(self) -> list[Value]:
        found = []
        for local, type in zip(self.locals, self.types, strict=True):
            value = Value(type, local.name)
            self.cx.origin[value.id] = local.span
            local.operand = value
            found.append(value)
        return found


def _each(cx: Body, node: tree.StaticFor) -> None:
    """`static for layer in layers`"""
    operand = expressions.expression(cx, node.start)
    owner = operand if isinstance(operand, SubArray) else None
    if owner is None:
        if not (isinstance(operand, Value) and operand.type is ERROR):
            cx.report.error(
                "E2121",
                node.start.span,
                "`static for` goes over an array of blocks or a compile-time range",
                help="`static for i in 0..N { … }`",
            )
    counter = Value(COUNTER, node.name.text)
    carried = Carried(cx, node.body)
    ops = cx.open_region()
    params = carried.enter()
    cx.push()
    if owner is None:
        cx.declare(node.name.text, cx.poison(), node.name.span)
    else:
        *before, last = owner.receiver
        sub = Sub((*before, Step(last.name, counter)), owner.ref, owner.declared)
        cx.declare(node.name.text, sub, node.name.span, warn=True)
    for statement in node.body:
        check(cx, statement)
    cx.pop()
    cx.close_region()
    body = Region([counter, *params], ops, carried.leave())
    if owner is None:
        carried.results()
        return
    loop = Loop(carried.results(), node.span, Dim.const(0), owner.length, carried.init, body, True)
    cx.ops[-1].append(loop)


def _bounds(cx: Body, start: tree.Expr, stop: tree.Expr) -> tuple[Dim, Dim] | None:
    first, last = dimension(cx.scope, start), dimension(cx.scope, stop)
    if first is None or last is None:
        return None
    if cx.facts.prove(Fact("<=", first, last)).answer == "refuted":
        cx.report.error("E2208", start.span.to(stop.span), f"`{first}..{last}` runs backwards")
        return None
    return first, last


def _counted(
    cx: Body,
    name: tree.Ident,
    start: tree.Expr,
    stop: tree.Expr,
    statements: list[tree.Stmt],
    node: tree.Stmt,
    static: bool,
) -> None:
    bounds = _bounds(cx, start, stop)
    counter = Value(COUNTER, name.text)
    carried = Carried(cx, statements)
    ops = cx.open_region()
    params = carried.enter()
    cx.push()
    _counter(cx, name, counter, bounds, static)
    for statement in statements:
        check(cx, statement)
    cx.pop()
    cx.close_region()
    body = Region([counter, *params], ops, carried.leave())
    results = carried.results()
    if bounds is not None:
        cx.ops[-1].append(
            Loop(results, node.span, bounds[0], bounds[1], carried.init, body, static)
        )


def _counter(
    cx: Body, name: tree.Ident, counter: Value, bounds: tuple[Dim, Dim] | None, static: bool
) -> None:
    cx.origin[counter.id] = name.span
    local = cx.declare(name.text, counter, name.span)
    local.counter = static
    if bounds is not None:
        cx.counters[counter.id] = bounds


def _while(cx: Body, node: tree.While) -> None:
    carried = Carried(cx, node.body)
    condition_ops = cx.open_region()
    condition_params = carried.enter()
    test = choices.condition(cx, node.condition)
    cx.close_region()
    ops = cx.open_region()
    params = carried.enter()
    cx.push()
    for statement in node.body:
        check(cx, statement)
    cx.pop()
    cx.close_region()
    body = Region(params, ops, carried.leave())
    results = carried.results()
    if test.type is ERROR:
        return
    cx.ops[-1].append(
        While(
            results,
            node.span,
            carried.init,
            Region(condition_params, condition_ops, [test]),
            body,
        )
    )


def _for_yield(cx: Body, node: tree.ForExpr) -> Value:
    """`let ys = for i in a..b { … yield y }`"""
    bounds = _bounds(cx, node.start, node.stop)
    counter = Value(COUNTER, node.name.text)
    carried = Carried(cx, node.body)
    ops: list[Op] = cx.open_region()
    params = carried.enter()
    cx.push()
    _counter(cx, node.name, counter, bounds, False)
    yielded: Value | None = None
    for position, statement in enumerate(node.body):
        if isinstance(statement, tree.Yield) and position == len(node.body) - 1:
            yielded = expressions.value(cx, statement.value)
        else:
            check(cx, statement)
    parts: list[Value] = []
    is_tuple = False
    if yielded is None:
        if not any(isinstance(statement, tree.Yield) for statement in node.body):
            cx.report.error("E2120", node.span, "the body of `for … yield` ends in `yield`")
    elif isinstance(yielded.type, TupleType):
        is_tuple = True
        for position, item in enumerate(yielded.type.items):
            parts.append(cx.emit(TupleGet([Value(item)], node.span, yielded, position)))
    elif yielded.type is not ERROR:
        parts = [yielded]
    cx.pop()
    cx.close_region()
    body = Region([counter, *params], ops, [*carried.leave(), *parts])
    results = carried.results()
    if bounds is None or not parts:
        return cx.poison()
    stacked: list[Value] = []
    for part in parts:
        if not isinstance(part.type, (TensorType, ScalarType)):
            cx.report.error(
                "E2101", node.span, f"`yield` stacks tensors and scalars, not `{part.type}`"
            )
            return cx.poison()
        shape = (bounds[1] - bounds[0], *shape_of(part.type))
        stacked.append(Value(tensor(shape, part.type.dtype), part.name))
    cx.ops[-1].append(
        Loop([*results, *stacked], node.span, bounds[0], bounds[1], carried.init, body)
    )
    if not is_tuple:
        return stacked[0]
    type = TupleType(tuple(value.type for value in stacked))
    return cx.emit(MakeTuple([Value(type)], node.span, stacked))


__all__ = ["BlockRef", "check", "function_body"]
