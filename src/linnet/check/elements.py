"""Operators and choices on the elements of index notation."""

from __future__ import annotations

from linnet.check import grids, operators
from linnet.check.body import LITERALS, Float, Int, Pending, default_dtype, literals_in
from linnet.check.coerce import (
    is_integer,
    is_numeric,
    literal_problem,
)
from linnet.check.dimensions import arithmetic, bitwise
from linnet.check.notation import Notation, Part, literal_part
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
    return literal_part(gx, part, dtype, span) if isinstance(part, LITERALS) else part


def together(
    gx: Notation, a: Part, b: Part, a_span: Span, b_span: Span, dtype: str | None
) -> tuple[GExpr, GExpr] | None:
    if a is None or b is None:
        return None
    if isinstance(a, LITERALS) and isinstance(b, LITERALS):
        fits = dtype is not None and not any(literal_problem(gx.cx, p, dtype) for p in (a, b))
        chosen = dtype if fits and dtype is not None else default_dtype(a, b)
        x, y = literal_part(gx, a, chosen, a_span), literal_part(gx, b, chosen, b_span)
    elif isinstance(a, LITERALS):
        assert not isinstance(b, LITERALS)
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
        if isinstance(part, LITERALS) or part.dtype != "bool":
            shown = "a number" if isinstance(part, LITERALS) else f"`{part.dtype}`"
            cx.report.error("E2116", node.operand.span, f"`!` takes a `bool`, not {shown}")
            return None
        return GUnary("not", part, "bool")
    if isinstance(part, Int):
        return Int(0 - part.dim) if node.op == "-" else part
    if isinstance(part, Float):
        return Float(-part.value) if node.op == "-" else part
    if isinstance(part, Pending):
        if node.op == "+":
            return part
        inner = part

        def negative(dtype: str) -> GExpr | None:
            x: GExpr | None = inner.build(dtype)
            return None if x is None else GUnary("neg", x, dtype)

        return Pending(part.literals, negative)
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
        hint = None if part.op in operators.COMPARE or part.op in ("&&", "||") else dtype
        if position == 0:
            left = grids.scalar(gx, part.left, hint)
        logic = part.op in ("&&", "||")
        if hint is None and not logic and isinstance(left, GExpr):
            right = grids.scalar(gx, part.right, left.dtype)
        else:
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
            if isinstance(part, LITERALS) or part.dtype != "bool":
                dtype = default_dtype(part) if isinstance(part, LITERALS) else part.dtype
                operators.logic_error(cx, op, ScalarType(dtype), side.span)
                return None
        assert not isinstance(a, LITERALS) and not isinstance(b, LITERALS)
        return GBinary("and" if op == "&&" else "or", a, b, "bool")
    if isinstance(a, Int) and isinstance(b, Int) and op not in operators.COMPARE:
        if op in ("&", "|", "^"):
            dim = bitwise(cx.scope, op, a.dim, b.dim, node.span)
        else:
            dim = arithmetic(cx.scope, op, a.dim, b.dim, node.right.span)
        return None if dim is None else Int(dim)
    if isinstance(a, LITERALS) and isinstance(b, LITERALS):
        folded = operators.fold(op, a, b)
        if folded is not None:
            return folded

    def build(wanted: str | None) -> GExpr | None:
        pair = together(gx, a, b, node.left.span, node.right.span, wanted)
        return None if pair is None else _apply(gx, op, *pair, node)

    if op not in operators.COMPARE and isinstance(a, LITERALS) and isinstance(b, LITERALS):
        return Pending((*literals_in(a), *literals_in(b)), build)
    return build(dtype)


def _apply(gx: Notation, op: str, x: GExpr, y: GExpr, node: tree.Binary) -> GExpr | None:
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
    return GBinary(operators.NAMES[op], x, y, "bool" if op in operators.COMPARE else x.dtype)


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
    a = grids.scalar(gx, then, dtype)
    b = grids.scalar(gx, orelse, dtype or (a.dtype if isinstance(a, GExpr) else None))
    if test is None or a is None or b is None:
        return None
    if isinstance(test, LITERALS) or test.dtype != "bool":
        shown = "a number" if isinstance(test, LITERALS) else f"`{test.dtype}`"
        cx.report.error("E2114", test_node.span, f"a condition is a `bool`, not {shown}")
        return None
    chosen = test

    def build(wanted: str | None) -> GExpr | None:
        pair = together(gx, a, b, then.span, orelse.span, wanted)
        if pair is None:
            return None
        x, y = pair
        if x.dtype != y.dtype:
            code = "E2115" if lazy else "E2103"
            cx.report.error(code, node.span, f"the branches differ: `{x.dtype}` and `{y.dtype}`")
            return None
        return GSelect(chosen, x, y, x.dtype, lazy)

    if isinstance(a, LITERALS) and isinstance(b, LITERALS):
        return Pending((*literals_in(a), *literals_in(b)), build)
    return build(dtype)
