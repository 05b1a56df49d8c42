"""Index notation: `let c[m, n] = sum[k] a[m, k] * b[k, n]`, and reductions anywhere."""

from __future__ import annotations

from linnet.check import accesses, element_calls, elements, expressions
from linnet.check.body import LITERALS, Body, Operand, Pending, default_dtype
from linnet.check.coerce import (
    is_numeric,
    value_of,
)
from linnet.check.notation import Bound, Notation, Part, bind, literal_part, mentions
from linnet.check.typing import (
    ERROR,
    dtype_of_expr,
)
from linnet.diagnostics.diagnostic import Label
from linnet.dims import Dim
from linnet.ir.program import (
    GExpr,
    GRead,
    GReduce,
    Grid,
    Idx,
    Value,
)
from linnet.ir.types import (
    Pack,
    ScalarType,
    TensorType,
    Type,
    tensor,
)
from linnet.syntax import tree

SMALL_FLOATS = frozenset({"f16", "bf16"})


def indexed_let(cx: Body, node: tree.LetIndexed, hint: Type | None) -> Value:
    """The grid of an indexed `let`."""
    gx = Notation(cx)
    bounds: list[Bound] = []
    for binder in node.indices:
        bound = bind(gx, binder)
        if bound is None:
            return cx.poison()
        bounds.append(bound)
    dtype = hint.dtype if isinstance(hint, (TensorType, ScalarType)) else None
    body = _finish(gx, node.value, dtype)
    if body is None:
        return cx.poison()
    for bound in bounds:
        if bound.first is None:
            cx.report.error(
                "E3103",
                bound.span,
                f"output index `{bound.idx.name}` indexes nothing",
                help="an index takes its extent from the axes it indexes",
            )
            return cx.poison()
    shape: list[Dim | Pack] = []
    for bound in bounds:
        if bound.pack:
            assert isinstance(bound.idx.extent, tuple)
            shape.extend(bound.idx.extent)
        else:
            assert isinstance(bound.idx.extent, Dim)
            shape.append(bound.idx.extent)
    result = Value(tensor(tuple(shape), body.dtype), node.name.text)
    return cx.emit(Grid([result], node.span, tuple(b.idx for b in bounds), body))


def reduction(cx: Body, node: tree.Reduce, expected: Type | None) -> Operand:
    """A reduction outside of an indexed `let`: a grid without output indices."""
    gx = Notation(cx)
    dtype = expected.dtype if isinstance(expected, ScalarType) else None
    body = _finish(gx, node, dtype)
    if body is None:
        return cx.poison()
    result = Value(ScalarType(body.dtype))
    return cx.emit(Grid([result], node.span, (), body))


def _finish(gx: Notation, node: tree.Expr, dtype: str | None) -> GExpr | None:
    part = scalar(gx, node, dtype)
    if isinstance(part, LITERALS):
        return literal_part(gx, part, dtype or default_dtype(part), node.span)
    return part


def scalar(gx: Notation, node: tree.Expr, dtype: str | None = None) -> Part:
    """A scalar expression over indices. None after an error was reported."""
    cx = gx.cx
    if isinstance(node, tree.Paren):
        return scalar(gx, node.inner, dtype)
    if isinstance(node, tree.Name) and node.text in gx.indices:
        cx.report.error(
            "E3104",
            node.span,
            f"index `{node.text}` is not a value",
            help=f"`iota(N)[{node.text}]` is its number",
        )
        gx.indices[node.text].first = gx.indices[node.text].first or node.span
        return None
    if not mentions(gx, node):
        return _outside(gx, node, dtype)
    match node:
        case tree.Index():
            return accesses.access(gx, node)
        case tree.Unary():
            return elements.unary(gx, node, dtype)
        case tree.Binary():
            return elements.binary(gx, node, dtype)
        case tree.Call():
            return element_calls.call(gx, node, dtype)
        case tree.If():
            return elements.choice(
                gx, node, node.condition, node.then, node.orelse, dtype, lazy=True
            )
        case tree.Reduce():
            return _reduce(gx, node, dtype)
    help = None
    if isinstance(node, tree.Match):
        help = "match before, in a `let` of its own, or give each arm a `let` with indices"
    cx.report.error("E3104", node.span, "this has no meaning in index notation", help=help)
    return None


def _outside(gx: Notation, node: tree.Expr, dtype: str | None) -> Part:
    """A part that uses no index: computed once, before the grid."""
    cx = gx.cx
    hint = ScalarType(dtype) if dtype is not None else None
    operand = expressions.expression(cx, node, hint)
    if isinstance(operand, Pending):
        inner = operand
        return Pending(operand.literals, lambda dtype: _read(gx, node, inner.build(dtype)))
    if isinstance(operand, LITERALS):
        return operand
    return _read(gx, node, value_of(cx, operand, node.span, hint))


def _read(gx: Notation, node: tree.Expr, value: Value) -> GExpr | None:
    cx = gx.cx
    if value.type is ERROR:
        return None
    if isinstance(value.type, TensorType):
        cx.report.error(
            "E3104",
            node.span,
            f"in index notation every axis is indexed, and this is `{value.type}`",
            related=cx.bound_at(value),
        )
        return None
    if not isinstance(value.type, ScalarType):
        cx.report.error("E3104", node.span, f"`{value.type}` is no element of index notation")
        return None
    return GRead(value, (), value.type.dtype, node.span)


def _reduce(gx: Notation, node: tree.Reduce, dtype: str | None) -> Part:
    cx = gx.cx
    bounds: list[Bound] = []
    hidden: dict[str, Bound] = {}
    for binder in node.indices:
        earlier = gx.indices.get(binder.name)
        if earlier is not None:
            cx.report.error(
                "E3105",
                binder.span,
                f"index `{binder.name}` is listed twice",
                related=[Label(earlier.span, "first listed here")],
            )
            return None
        bound = bind(gx, binder)
        assert bound is not None
        bounds.append(bound)
    accumulate = None
    if node.accumulator is not None:
        accumulate = dtype_of_expr(cx.scope, node.accumulator)
        if accumulate is None:
            return None
    hint = accumulate or (dtype if node.kind in ("sum", "prod", "max", "min") else None)
    part = scalar(gx, node.body, hint)
    if isinstance(part, LITERALS):
        part = literal_part(gx, part, hint or default_dtype(part), node.body.span)
    for bound in bounds:
        gx.indices.pop(bound.idx.name, None)
    gx.indices.update(hidden)
    if part is None:
        return None
    for bound in bounds:
        if bound.first is None:
            cx.report.error(
                "E3102",
                bound.span,
                f"index `{bound.idx.name}` indexes nothing in this `{node.kind}`",
                help="an index takes its extent from the axes it indexes",
            )
            return None
    return _reduced(gx, node, part, tuple(b.idx for b in bounds), accumulate)


def _reduced(
    gx: Notation, node: tree.Reduce, part: GExpr, indices: tuple[Idx, ...], stated: str | None
) -> Part:
    cx = gx.cx
    kind = node.kind
    if kind in ("any", "all"):
        if part.dtype != "bool":
            cx.report.error("E2104", node.span, f"`{kind}` takes `bool`, not `{part.dtype}`")
            return None
        return GReduce(kind, indices, part, "bool", "bool")
    if not is_numeric(cx, part.dtype):
        cx.report.error(
            "E2104", node.span, f"`{kind}` is not defined for `{part.dtype}`",
            help="`sum<i32>[k] cast<i32>(…)` counts" if kind == "sum" else None,
        )  # fmt: skip
        return None
    if stated is not None and part.dtype != stated:
        cx.report.error(
            "E2103",
            node.body.span,
            f"`{kind}<{stated}>` takes `{stated}`, and this is `{part.dtype}`",
            help=f"convert it: `cast<{stated}>(…)`",
        )
        return None
    accumulate = part.dtype
    if stated is None and kind in ("sum", "prod") and part.dtype in SMALL_FLOATS:
        accumulate = "f32"
    return GReduce(kind, indices, part, accumulate, part.dtype, stated is not None)
