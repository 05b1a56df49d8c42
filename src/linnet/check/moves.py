"""Prelude calls that move elements: their shapes, axes and counts are proven."""

from __future__ import annotations

from linnet.check import expressions, operators
from linnet.check.body import Body, Operand
from linnet.check.coerce import coerce, is_numeric
from linnet.check.dimensions import clause_help, dimension, proof_notes, witness_text
from linnet.check.typing import ERROR, shape_items
from linnet.dims import Dim, Fact
from linnet.ir.program import (
    Broadcast,
    Concat,
    Cumsum,
    Permute,
    Reshape,
    Value,
)
from linnet.ir.types import (
    Pack,
    ScalarType,
    Shape,
    TensorType,
    count,
    shape_of,
    tensor,
)
from linnet.source import Span
from linnet.syntax import tree


def numbers(cx: Body, value: Value, span: Span, name: str) -> bool:
    """Whether a value is a tensor or scalar; reports what else it is."""
    if value.type is ERROR:
        return False
    if not isinstance(value.type, (TensorType, ScalarType)):
        cx.report.error("E2104", span, f"`{name}` is not defined for `{value.type}`")
        return False
    return True


def shape_argument(cx: Body, node: tree.Expr) -> Shape | None:
    if isinstance(node, tree.ListExpr):
        return shape_items(cx.scope, node.items)
    if not isinstance(node, tree.ErrorExpr):
        cx.report.error("E2101", node.span, "expected a shape", help="write a list: `[A, B]`")
    return None


def _tensor(cx: Body, source: tree.Expr, name: str) -> Value | None:
    value = expressions.value(cx, source)
    return value if numbers(cx, value, source.span, name) else None


def reshape(cx: Body, node: tree.Call, source: tree.Expr, shape_node: tree.Expr) -> Operand:
    value = _tensor(cx, source, "reshape")
    shape = shape_argument(cx, shape_node)
    if value is None or shape is None:
        return cx.poison()
    old = shape_of(value.type)
    have, want = count(old), count(shape)
    if not cx.facts.equal(have, want):
        goal = Fact("==", have, want)
        proof = cx.facts.prove(goal)
        note = f"`{have}` elements into `{want}`"
        if proof.answer == "refuted":
            note += f": they differ{witness_text(proof.witness)}"
        cx.report.error(
            "E2203",
            node.span,
            f"`reshape` of `[{', '.join(map(str, old))}]` to `[{', '.join(map(str, shape))}]`:"
            " the element counts are not provably equal",
            related=cx.bound_at(value),
            notes=[note, *proof_notes(cx.facts, goal, proof)[1:]],
            help=clause_help(cx.facts, proof),
        )
        return cx.poison()
    assert isinstance(value.type, (TensorType, ScalarType))
    result = Value(tensor(shape, value.type.dtype), value.name)
    return cx.emit(Reshape([result], node.span, value))


def broadcast_to(cx: Body, node: tree.Call, source: tree.Expr, shape_node: tree.Expr) -> Operand:
    value = _tensor(cx, source, "broadcast_to")
    shape = shape_argument(cx, shape_node)
    if value is None or shape is None:
        return cx.poison()
    assert isinstance(value.type, (TensorType, ScalarType))
    target = Value(tensor(shape, value.type.dtype))
    found = operators.broadcast(cx, [target, value], node.span, "`broadcast_to`")
    if found is None:
        return cx.poison()
    from linnet.check.infer import same_shape

    if not same_shape(cx.facts, found, shape):
        cx.report.error(
            "E2207",
            node.span,
            f"`broadcast_to` cannot shrink `{value.type}` to `[{', '.join(map(str, shape))}]`",
            related=cx.bound_at(value),
        )
        return cx.poison()
    return cx.emit(Broadcast([target], node.span, value))


def _constant(cx: Body, node: tree.Expr) -> int | None:
    dim = dimension(cx.scope, node)
    if dim is None:
        return None
    if dim.constant is None:
        cx.report.error("E2123", node.span, "an axis is a constant integer")
    return dim.constant


def permute(cx: Body, node: tree.Call, source: tree.Expr, axes_node: tree.Expr) -> Operand:
    value = _tensor(cx, source, "permute")
    if not isinstance(axes_node, tree.ListExpr):
        cx.report.error("E2210", axes_node.span, "expected a list of axes, such as `[1, 0]`")
        return cx.poison()
    axes = [_constant(cx, item) for item in axes_node.items]
    if value is None or any(axis is None for axis in axes):
        return cx.poison()
    shape = shape_of(value.type)
    numbers = [axis for axis in axes if axis is not None]
    if any(isinstance(d, Pack) for d in shape):
        cx.report.error(
            "E2210",
            node.span,
            f"`permute` needs a known number of axes, not `{value.type}`",
            help="index notation moves axes around a pack: `let y[*s, b, a] = x[*s, a, b]`",
        )
        return cx.poison()
    if sorted(numbers) != list(range(len(shape))):
        cx.report.error(
            "E2210",
            axes_node.span,
            f"axes {numbers} are no permutation of the {len(shape)} axes of `{value.type}`",
            related=cx.bound_at(value),
        )
        return cx.poison()
    assert isinstance(value.type, (TensorType, ScalarType))
    result = Value(tensor(tuple(shape[axis] for axis in numbers), value.type.dtype), value.name)
    return cx.emit(Permute([result], node.span, value, tuple(numbers)))


def axis_of(cx: Body, node: tree.Expr, shape: Shape) -> int | None:
    """An axis of a shape, as it will stand in the operation; negative behind a pack."""
    axis = _constant(cx, node)
    if axis is None:
        return None
    rank = len(shape)
    position = axis + rank if axis < 0 else axis
    packs = [i for i, d in enumerate(shape) if isinstance(d, Pack)]
    fits = 0 <= position < rank and position not in packs
    if fits and packs and axis >= 0 and packs[0] < position:
        fits = False
    if fits and packs and axis < 0 and packs[-1] > position:
        fits = False
    if not fits:
        cx.report.error(
            "E2210",
            node.span,
            f"axis {axis} does not exist in `[{', '.join(map(str, shape))}]`",
            help="axes behind a pack count from the back: `axis = -1`" if packs else None,
        )
        return None
    return axis if packs else position


def concat(cx: Body, node: tree.Call, parts: list[tree.Expr], axis_node: tree.Expr) -> Operand:
    values = [_tensor(cx, part, "concat") for part in parts]
    found = [value for value in values if value is not None]
    if len(found) < len(values):
        return cx.poison()
    first = found[0]
    assert isinstance(first.type, (TensorType, ScalarType))
    shape = shape_of(first.type)
    axis = axis_of(cx, axis_node, shape)
    if axis is None:
        return cx.poison()
    total = shape[axis]
    assert isinstance(total, Dim)
    for value, part in zip(found[1:], parts[1:], strict=True):
        assert isinstance(value.type, (TensorType, ScalarType))
        if value.type.dtype != first.type.dtype:
            operators.dtypes_differ(cx, first, value, part.span, "`concat`")
            return cx.poison()
        other = shape_of(value.type)
        if len(other) != len(shape):
            cx.report.error(
                "E2202",
                part.span,
                f"`concat` of `{first.type}` and `{value.type}`: the numbers of axes differ",
                related=cx.bound_at(first),
            )
            return cx.poison()
        extent = other[axis]
        if not isinstance(extent, Dim):
            cx.report.error("E2210", axis_node.span, "`concat` along a pack")
            return cx.poison()
        aligned = list(other)
        aligned[axis] = shape[axis]
        coerced = coerce(
            cx,
            Value(tensor(tuple(aligned), value.type.dtype)),
            first.type,
            part.span,
            "this part of `concat`, beside its axis,",
            cx.bound_at(first),
        )
        if coerced.type is ERROR:
            return cx.poison()
        total = total + extent
    result = list(shape)
    result[axis] = total
    out = Value(tensor(tuple(result), first.type.dtype))
    return cx.emit(Concat([out], node.span, found, axis))


def cumsum(cx: Body, node: tree.Call, source: tree.Expr, axis_node: tree.Expr) -> Operand:
    value = _tensor(cx, source, "cumsum")
    if value is None:
        return cx.poison()
    assert isinstance(value.type, (TensorType, ScalarType))
    if not is_numeric(cx, value.type.dtype):
        cx.report.error("E2104", source.span, f"`cumsum` is not defined for `{value.type}`")
        return cx.poison()
    axis = axis_of(cx, axis_node, shape_of(value.type))
    if axis is None:
        return cx.poison()
    return cx.emit(Cumsum([Value(value.type)], node.span, value, axis))
