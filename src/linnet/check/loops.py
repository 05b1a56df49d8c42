"""Loops, and the variables that they carry around."""

from __future__ import annotations

from linnet.check import choices, expressions, statements
from linnet.check.body import Body, Local, Sub, SubArray
from linnet.check.dimensions import dimension
from linnet.check.typing import ERROR
from linnet.dims import Dim, Fact
from linnet.ir.program import (
    Loop,
    MakeTuple,
    Op,
    Region,
    Step,
    TupleGet,
    Value,
    While,
)
from linnet.ir.types import (
    ScalarType,
    TensorType,
    TupleType,
    shape_of,
    tensor,
)
from linnet.syntax import tree

COUNTER = ScalarType("i64")


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
            local = cx.lookup(name)
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


def each(cx: Body, node: tree.StaticFor) -> None:
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
        statements.check(cx, statement)
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


def counted(
    cx: Body,
    name: tree.Ident,
    start: tree.Expr,
    stop: tree.Expr,
    body: list[tree.Stmt],
    node: tree.Stmt,
    static: bool,
) -> None:
    bounds = _bounds(cx, start, stop)
    counter = Value(COUNTER, name.text)
    carried = Carried(cx, body)
    ops = cx.open_region()
    params = carried.enter()
    cx.push()
    _counter(cx, name, counter, bounds, static)
    for statement in body:
        statements.check(cx, statement)
    cx.pop()
    cx.close_region()
    region = Region([counter, *params], ops, carried.leave())
    results = carried.results()
    if bounds is not None:
        cx.ops[-1].append(
            Loop(results, node.span, bounds[0], bounds[1], carried.init, region, static)
        )


def _counter(
    cx: Body, name: tree.Ident, counter: Value, bounds: tuple[Dim, Dim] | None, static: bool
) -> None:
    cx.origin[counter.id] = name.span
    local = cx.declare(name.text, counter, name.span)
    local.counter = static
    if bounds is not None:
        cx.counters[counter.id] = bounds


def while_(cx: Body, node: tree.While) -> None:
    carried = Carried(cx, node.body)
    condition_ops = cx.open_region()
    condition_params = carried.enter()
    test = choices.condition(cx, node.condition)
    cx.close_region()
    ops = cx.open_region()
    params = carried.enter()
    cx.push()
    for statement in node.body:
        statements.check(cx, statement)
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


def for_yield(cx: Body, node: tree.ForExpr) -> Value:
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
            statements.check(cx, statement)
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
