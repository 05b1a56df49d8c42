"""Calls of the prelude: what needs no import."""

from __future__ import annotations

from collections.abc import Callable

from linnet.check import expressions, moves, operators
from linnet.check.body import LITERALS, Body, Float, Int, Operand, Pending, literals_in
from linnet.check.coerce import (
    coerce,
    is_float,
    is_integer,
    is_numeric,
    literal,
    literal_problem,
    value_of,
)
from linnet.check.dimensions import bitwise
from linnet.check.typing import ERROR, checked_dim, dtype_argument
from linnet.dims import Dim
from linnet.ir.program import (
    Cast,
    Fill,
    Iota,
    Select,
    Unary,
    Value,
)
from linnet.ir.types import (
    ScalarType,
    TensorType,
    Type,
    dtype_of,
    shape_of,
    tensor,
)
from linnet.syntax import tree

Defined = Callable[[Body, str], bool]
MATH = frozenset({"exp", "log", "sqrt", "rsqrt", "sin", "cos", "tanh"})
# name: (positional, named), for the message about wrong arguments
USAGE = {
    "cast": "cast<T>(x)",
    "abs": "abs(x)",
    "min": "min(a, b)",
    "max": "max(a, b)",
    "shl": "shl(x, bits)",
    "shr": "shr(x, bits)",
    "select": "select(condition, a, b)",
    "reshape": "reshape(x, [A, B])",
    "permute": "permute(x, [1, 0])",
    "broadcast_to": "broadcast_to(x, [A, B])",
    "concat": "concat(a, b, axis = 0)",
    "iota": "iota<T>(n)",
    "fill": "fill<T>([A, B], value)",
    "cumsum": "cumsum(x, axis = 0)",
}


def call(cx: Body, node: tree.Call, name: str, expected: Type | None) -> Operand:
    arity = {"select": 3, "min": 2, "max": 2, "shl": 2, "shr": 2, "reshape": 2, "permute": 2,
             "broadcast_to": 2, "fill": 2}.get(name, 1)  # fmt: skip
    positional = [a.value for a in node.arguments if a.name is None]
    named = {a.name.text: a for a in node.arguments if a.name is not None}
    takes_axis = name in ("concat", "cumsum")
    axis = named.pop("axis", None) if takes_axis else None
    wrong = len(positional) != arity if name != "concat" else len(positional) < 1
    wrong |= takes_axis and axis is None
    if wrong or named:
        return _usage(cx, node, name)
    generics = node.generics or []
    if len(generics) > (name in ("cast", "iota", "fill")):
        cx.report.error("E2111", generics[-1].span, f"too many generic arguments for `{name}`")
        return cx.poison()
    if name in ("cast", "fill") and not generics:
        cx.report.error(
            "E2110", node.span, f"`{name}` needs a dtype", help=f"write `{USAGE[name]}`"
        )
        return cx.poison()
    dtype = None
    if generics:
        dtype = dtype_argument(cx.scope, generics[0])
        if dtype is None:
            return cx.poison()
    match name:
        case "cast":
            assert dtype is not None
            return _cast(cx, node, positional[0], dtype)
        case "iota":
            return _iota(cx, node, positional[0], dtype or "i64")
        case "fill":
            assert dtype is not None
            return _fill(cx, node, positional[0], positional[1], dtype)
        case "select":
            return _select(cx, node, positional, expected)
        case "min" | "max":
            return _extreme(cx, node, name, positional, expected)
        case "shl" | "shr":
            return _shift(cx, node, name, positional, expected)
        case "reshape":
            return moves.reshape(cx, node, positional[0], positional[1])
        case "broadcast_to":
            return moves.broadcast_to(cx, node, positional[0], positional[1])
        case "permute":
            return moves.permute(cx, node, positional[0], positional[1])
        case "concat":
            assert axis is not None
            return moves.concat(cx, node, positional, axis.value)
        case "cumsum":
            assert axis is not None
            return moves.cumsum(cx, node, positional[0], axis.value)
        case "abs":
            return _abs(cx, node, positional[0], expected)
    return _math(cx, node, name, positional[0], expected)


def _usage(cx: Body, node: tree.Call, name: str) -> Value:
    cx.report.error(
        "E2102",
        node.span,
        f"wrong arguments for `{name}`",
        help=f"it is called as `{USAGE.get(name, f'{name}(x)')}`",
    )
    for argument in node.arguments:
        if not isinstance(argument.value, tree.ListExpr):
            expressions.expression(cx, argument.value)
    return cx.poison()


def _cast(cx: Body, node: tree.Call, source: tree.Expr, dtype: str) -> Operand:
    operand = expressions.expression(cx, source)
    if isinstance(operand, LITERALS):
        if not literal_problem(cx, operand, dtype):
            return literal(cx, operand, dtype, node.span)
        # A literal of another kind has its own default dtype and is converted from it.
        operand = value_of(cx, operand, source.span)
    value = value_of(cx, operand, source.span)
    if not moves.numbers(cx, value, source.span, "cast"):
        return cx.poison()
    result = Value(tensor(shape_of(value.type), dtype), value.name)
    return cx.emit(Cast([result], node.span, value))


def _iota(cx: Body, node: tree.Call, source: tree.Expr, dtype: str) -> Operand:
    size = checked_dim(cx.scope, source)
    if size is None:
        return cx.poison()
    if not is_numeric(cx, dtype):
        cx.report.error("E2112", node.span, f"`iota` counts in a numeric dtype, not `{dtype}`")
        return cx.poison()
    return cx.emit(Iota([Value(tensor((size,), dtype))], node.span))


def _fill(
    cx: Body, node: tree.Call, shape_node: tree.Expr, source: tree.Expr, dtype: str
) -> Operand:
    shape = moves.shape_argument(cx, shape_node)
    value = coerce(
        cx,
        expressions.expression(cx, source, ScalarType(dtype)),
        ScalarType(dtype),
        source.span,
        "the value",
    )
    if shape is None or value.type is ERROR:
        return cx.poison()
    if not shape:
        return value
    return cx.emit(Fill([Value(tensor(shape, dtype))], node.span, value))


def _select(cx: Body, node: tree.Call, parts: list[tree.Expr], expected: Type | None) -> Operand:
    condition = expressions.value(cx, parts[0])
    a = expressions.expression(cx, parts[1], expected)
    b = expressions.expression(cx, parts[2], expected or operators.numbers_like(a))
    if isinstance(a, LITERALS) and isinstance(b, LITERALS):

        def build(dtype: str) -> Value:
            return _selected(cx, node, parts, condition, a, b, ScalarType(dtype))

        return Pending((*literals_in(a), *literals_in(b)), build)
    return _selected(cx, node, parts, condition, a, b, expected)


def _selected(
    cx: Body,
    node: tree.Call,
    parts: list[tree.Expr],
    condition: Value,
    a: Operand,
    b: Operand,
    expected: Type | None,
) -> Value:
    left, right = operators.together(cx, a, b, parts[1].span, parts[2].span, expected)
    if any(v.type is ERROR for v in (condition, left, right)):
        return cx.poison()
    for value, part in ((condition, parts[0]), (left, parts[1]), (right, parts[2])):
        if not moves.numbers(cx, value, part.span, "select"):
            return cx.poison()
    assert isinstance(condition.type, (TensorType, ScalarType))
    assert isinstance(left.type, (TensorType, ScalarType))
    assert isinstance(right.type, (TensorType, ScalarType))
    if condition.type.dtype != "bool":
        cx.report.error(
            "E2114", parts[0].span, f"`select` chooses by `bool`, not by `{condition.type.dtype}`"
        )
        return cx.poison()
    if left.type.dtype != right.type.dtype:
        operators.dtypes_differ(cx, left, right, node.span, "`select`")
        return cx.poison()
    shape = operators.broadcast(cx, [condition, left, right], node.span, "`select`")
    if shape is None:
        return cx.poison()
    result = Value(tensor(shape, left.type.dtype))
    return cx.emit(Select([result], node.span, condition, left, right))


def _extreme(
    cx: Body, node: tree.Call, name: str, parts: list[tree.Expr], expected: Type | None
) -> Operand:
    a = expressions.expression(cx, parts[0], expected)
    b = expressions.expression(cx, parts[1], expected or operators.numbers_like(a))
    if isinstance(a, Int) and isinstance(b, Int):
        return Int(Dim.min(a.dim, b.dim) if name == "min" else Dim.max(a.dim, b.dim))
    if isinstance(a, Float) and isinstance(b, Float):
        return Float(min(a.value, b.value) if name == "min" else max(a.value, b.value))
    if isinstance(a, LITERALS) and isinstance(b, LITERALS):

        def build(dtype: str) -> Value:
            given = ScalarType(dtype)
            x, y = operators.together(cx, a, b, parts[0].span, parts[1].span, given)
            return _pairwise(cx, node, name, x, y, parts, is_numeric)

        return Pending((*literals_in(a), *literals_in(b)), build)
    left, right = operators.together(cx, a, b, parts[0].span, parts[1].span, expected)
    return _pairwise(cx, node, name, left, right, parts, is_numeric)


def _shift(
    cx: Body, node: tree.Call, name: str, parts: list[tree.Expr], expected: Type | None
) -> Operand:
    a = expressions.expression(cx, parts[0], expected)
    b = expressions.expression(cx, parts[1])
    if isinstance(a, Int) and isinstance(b, Int):
        dim = bitwise(cx.scope, name, a.dim, b.dim, node.span)
        return cx.poison() if dim is None else Int(dim)
    left, right = operators.together(cx, a, b, parts[0].span, parts[1].span, expected)
    return _pairwise(cx, node, name, left, right, parts, is_integer)


def _pairwise(
    cx: Body,
    node: tree.Call,
    name: str,
    left: Value,
    right: Value,
    parts: list[tree.Expr],
    defined: Defined,
) -> Value:
    for value, part in ((left, parts[0]), (right, parts[1])):
        if not moves.numbers(cx, value, part.span, name):
            return cx.poison()
        if not defined(cx, dtype_of(value.type)):
            cx.report.error("E2104", part.span, f"`{name}` is not defined for `{value.type}`")
            return cx.poison()
    return operators.elementwise(cx, name, left, right, node.span, f"`{name}`")


def _one(
    cx: Body, source: tree.Expr, name: str, expected: Type | None, defined: Defined
) -> Value | None:
    operand = expressions.expression(cx, source, expected)
    hint = expected if isinstance(expected, (ScalarType, TensorType)) else None
    if isinstance(operand, Int) and name in MATH:
        hint = hint if hint is not None and is_float(cx, hint.dtype) else ScalarType("f64")
    value = value_of(cx, operand, source.span, hint)
    if not moves.numbers(cx, value, source.span, name):
        return None
    assert isinstance(value.type, (TensorType, ScalarType))
    if not defined(cx, value.type.dtype):
        help = "`cast<f32>(…)` first" if name in MATH else None
        cx.report.error(
            "E2104", source.span, f"`{name}` is not defined for `{value.type}`", help=help
        )
        return None
    return value


def _math(
    cx: Body, node: tree.Call, name: str, source: tree.Expr, expected: Type | None
) -> Operand:
    value = _one(cx, source, name, expected, is_float)
    if value is None:
        return cx.poison()
    return cx.emit(Unary([Value(value.type)], node.span, name, value))


def _abs(cx: Body, node: tree.Call, source: tree.Expr, expected: Type | None) -> Operand:
    value = _one(cx, source, "abs", expected, is_numeric)
    if value is None:
        return cx.poison()
    return cx.emit(Unary([Value(value.type)], node.span, "abs", value))
