"""Operators and choices on the elements of index notation."""

from __future__ import annotations

from linnet.check import grids
from linnet.check.body import Float, Int
from linnet.check.coerce import (
    is_integer,
    is_numeric,
    literal_problem,
)
from linnet.check.dimensions import arithmetic, bitwise
from linnet.check.notation import Notation, Part, literal_part
from linnet.check.operators import COMPARE, NAMES, fold, logic_error
from linnet.diagnostics.diagnostic import Label
from linnet.ir.program import (
    GBinary,
    GExpr,
    GSelect,
    GUnary,
)
from linnet.ir.types import (
    ScalarType,
)
from linnet.source import Span
from linnet.syntax import tree


def typed_part(gx: Notation, part: Part, dtype: str, span: Span) -> GExpr | None:
    return literal_part(gx, part, dtype, span) if isinstance(part, (Int, Float)) else part


def together(
    gx: Notation, a: Part, b: Part, a_span: Span, b_span: Span, dtype: str | None
) -> tuple[GExpr, GExpr] | None:
    if a is None or b is None:
        return None
    if isinstance(a, (Int, Float)) and isinstance(b, (Int, Float)):
        default = "f64" if isinstance(a, Float) or isinstance(b, Float) else "i64"
        chosen = (
            dtype
            if dtype and not any(literal_problem(gx.cx, p, dtype) for p in (a, b))
            else default
        )
        x, y = literal_part(gx, a, chosen, a_span), literal_part(gx, b, chosen, b_span)
    elif isinstance(a, (Int, Float)):
        assert not isinstance(b, (Int, Float))
        x, y = literal_part(gx, a, b.dtype, a_span), b
    else:
        x, y = a, typed_part(gx, b, a.dtype, b_span)
    return None if x is None or y is None else (x, y)


def unary(gx: Notation, node: tree.Unary, dtype: str | None) -> Part:
    cx = gx.cx
    part = grids.scalar(gx, node.operand, dtype)
    if part is None:
        return None
    if node.op == "!":
        if isinstance(part, (Int, Float)) or part.dtype != "bool":
            shown = "a number" if isinstance(part, (Int, Float)) else f"`{part.dtype}`"
            cx.report.error("E2116", node.operand.span, f"`!` takes a `bool`, not {shown}")
            return None
        return GUnary("not", part, "bool")
    if isinstance(part, Int):
        return Int(0 - part.dim) if node.op == "-" else part
    if isinstance(part, Float):
        return Float(-part.value) if node.op == "-" else part
    if not is_numeric(cx, part.dtype):
        cx.report.error("E2104", node.span, f"`{node.op}` is not defined for `{part.dtype}`")
        return None
    return GUnary("neg", part, part.dtype) if node.op == "-" else part


def binary(gx: Notation, node: tree.Binary, dtype: str | None) -> Part:
    chain = [node]
    while isinstance(chain[-1].left, tree.Binary):
        chain.append(chain[-1].left)
    left: Part = None
    for position, part in enumerate(reversed(chain)):
        hint = None if part.op in COMPARE or part.op in ("&&", "||") else dtype
        if position == 0:
            left = grids.scalar(gx, part.left, hint)
        right = grids.scalar(gx, part.right, hint)
        left = _combine(gx, part, left, right, hint)
    return left


def _combine(gx: Notation, node: tree.Binary, a: Part, b: Part, dtype: str | None) -> Part:
    cx = gx.cx
    op = node.op
    if a is None or b is None:
        return None
    if op in ("&&", "||"):
        for part, side in ((a, node.left), (b, node.right)):
            if isinstance(part, (Int, Float)) or part.dtype != "bool":
                type = ScalarType("i64" if isinstance(part, Int) else "f64")
                if not isinstance(part, (Int, Float)):
                    type = ScalarType(part.dtype)
                logic_error(cx, op, type, side.span)
                return None
        assert not isinstance(a, (Int, Float)) and not isinstance(b, (Int, Float))
        return GBinary("and" if op == "&&" else "or", a, b, "bool")
    if isinstance(a, Int) and isinstance(b, Int) and op not in COMPARE:
        if op in ("&", "|", "^"):
            dim = bitwise(cx.scope, op, a.dim, b.dim, node.span)
        else:
            dim = arithmetic(cx.scope, op, a.dim, b.dim, node.right.span)
        return None if dim is None else Int(dim)
    if not isinstance(a, GExpr) and not isinstance(b, GExpr):
        folded = fold(op, a, b)
        if folded is not None:
            return folded
    pair = together(gx, a, b, node.left.span, node.right.span, dtype)
    return None if pair is None else _apply(gx, op, *pair, node)


def _apply(gx: Notation, op: str, x: GExpr, y: GExpr, node: tree.Binary) -> Part:
    cx = gx.cx
    if x.dtype != y.dtype:
        cx.report.error(
            "E2103",
            node.span,
            f"`{op}` of `{x.dtype}` and `{y.dtype}`",
            related=[
                Label(node.left.span, f"this is `{x.dtype}`"),
                Label(node.right.span, f"this is `{y.dtype}`"),
            ],
            help=f"dtypes are never converted in silence: `cast<{x.dtype}>(…)`",
        )
        return None
    if op in ("==", "!="):
        defined = True
    elif op in ("&", "|", "^"):
        defined = x.dtype == "bool" or is_integer(cx, x.dtype)
    else:
        defined = is_numeric(cx, x.dtype)
    if not defined:
        cx.report.error("E2104", node.span, f"`{op}` is not defined for `{x.dtype}`")
        return None
    return GBinary(NAMES[op], x, y, "bool" if op in COMPARE else x.dtype)


def choice(
    gx: Notation,
    node: tree.Expr,
    test_node: tree.Expr,
    then: tree.Expr,
    orelse: tree.Expr,
    dtype: str | None,
    lazy: bool,
) -> Part:
    cx = gx.cx
    test = grids.scalar(gx, test_node)
    a, b = grids.scalar(gx, then, dtype), grids.scalar(gx, orelse, dtype)
    pair = together(gx, a, b, then.span, orelse.span, dtype)
    if test is None or pair is None:
        return None
    if isinstance(test, (Int, Float)) or test.dtype != "bool":
        shown = "a number" if isinstance(test, (Int, Float)) else f"`{test.dtype}`"
        cx.report.error("E2114", test_node.span, f"a condition is a `bool`, not {shown}")
        return None
    x, y = pair
    if x.dtype != y.dtype:
        code = "E2115" if lazy else "E2103"
        cx.report.error(code, node.span, f"the branches differ: `{x.dtype}` and `{y.dtype}`")
        return None
    return GSelect(test, x, y, x.dtype, lazy)
