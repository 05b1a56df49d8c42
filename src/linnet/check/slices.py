"""Indexing and slices outside of index notation."""

from __future__ import annotations

from linnet.check import expressions
from linnet.check.body import Body, Float, Int, Operand, Sub, SubArray
from linnet.check.coerce import is_integer, value_of
from linnet.check.dimensions import clause_help, dimension, proof_notes
from linnet.check.report import plural
from linnet.check.typing import ERROR
from linnet.dims import Dim, Fact, Proof
from linnet.ir.program import (
    At,
    AtValue,
    Keep,
    Range,
    Slice,
    SliceItem,
    Step,
    Value,
)
from linnet.ir.types import Pack, ScalarType, TensorType, tensor
from linnet.source import Span
from linnet.syntax import tree

ZERO = Dim.const(0)


def index(cx: Body, node: tree.Index) -> Operand:
    owner = expressions.expression(cx, node.object)
    if isinstance(owner, SubArray):
        return _element(cx, node, owner)
    value = value_of(cx, owner, node.object.span)
    if value.type is ERROR:
        return value
    if not isinstance(value.type, TensorType):
        cx.report.error("E2104", node.span, f"`{value.type}` cannot be indexed")
        return cx.poison()
    return _slice(cx, node, value)


def proven_index(
    cx: Body, at: Dim, extent: Dim, span: Span, value: Value, what: str = "index"
) -> bool:
    """Whether `0 <= at < extent` is proven; reports E2209 where it isn't."""
    for goal in (Fact("<=", ZERO, at), Fact("<", at, extent)):
        proof = cx.facts.prove(goal)
        if proof.answer == "proven":
            continue
        bad_index(
            cx,
            span,
            f"{what} `{at}` is not proven within an axis of `{extent}`",
            proof,
            goal,
            value,
        )
        return False
    return True


def bad_index(
    cx: Body, span: Span, message: str, proof: Proof, goal: Fact, value: Value | None
) -> None:
    cx.report.error(
        "E2209",
        span,
        message,
        related=cx.bound_at(value) if value is not None else [],
        notes=proof_notes(cx.facts, goal, proof),
        help=clause_help(cx.facts, proof),
    )


def _element(cx: Body, node: tree.Index, owner: SubArray) -> Operand:
    """`layers[0]`, or `layers[i]` with the counter of a static loop."""
    if len(node.items) != 1 or not isinstance(node.items[0], tree.Expr):
        cx.report.error("E2209", node.span, "an array of blocks takes one index")
        return cx.poison()
    item = node.items[0]
    operand = expressions.expression(cx, item)
    *before, last = owner.receiver
    if isinstance(operand, Int):
        if not _block_index(cx, operand.dim, owner, item.span):
            return cx.poison()
        return Sub((*before, Step(last.name, operand.dim)), owner.ref, owner.declared)
    value = value_of(cx, operand, item.span)
    if value.type is ERROR:
        return value
    local = cx.find(item.text) if isinstance(item, tree.Name) else None
    bounds = cx.counters.get(value.id)
    if local is None or not local.counter or bounds is None:
        cx.report.error(
            "E2123",
            item.span,
            "a block is chosen at compile time: by a constant or a `static for` counter",
        )
        return cx.poison()
    start, stop = bounds
    for goal in (Fact("<=", ZERO, start), Fact("<=", stop, owner.length)):
        proof = cx.facts.prove(goal)
        if proof.answer != "proven":
            bad_index(
                cx,
                item.span,
                f"`{local.name}` runs past the {owner.length} blocks",
                proof,
                goal,
                None,
            )
            return cx.poison()
    return Sub((*before, Step(last.name, value)), owner.ref, owner.declared)


def _block_index(cx: Body, at: Dim, owner: SubArray, span: Span) -> bool:
    for goal in (Fact("<=", ZERO, at), Fact("<", at, owner.length)):
        proof = cx.facts.prove(goal)
        if proof.answer != "proven":
            bad_index(
                cx,
                span,
                f"index `{at}` is not proven within {owner.length} blocks",
                proof,
                goal,
                None,
            )
            return False
    return True


def _slice(cx: Body, node: tree.Index, value: Value) -> Operand:
    assert isinstance(value.type, TensorType)
    shape = value.type.shape
    written = node.items
    rests = [i for i, item in enumerate(written) if isinstance(item, tree.RestItem)]
    if len(rests) > 1:
        cx.report.error("E2209", written[rests[1]].span, "`...` may stand once")
        return cx.poison()
    explicit = len(written) - len(rests)
    if explicit > len(shape):
        cx.report.error(
            "E2204",
            node.span,
            f"{plural(explicit, 'index')} for {plural(len(shape), 'axis')} of `{value.type}`",
            related=cx.bound_at(value),
        )
        return cx.poison()
    at = rests[0] if rests else len(written)
    front, back = written[:at], written[at + 1 :]
    nodes: list[tree.Node | None] = [None] * len(shape)
    nodes[: len(front)] = front
    if back:
        nodes[len(shape) - len(back) :] = back
    items: list[SliceItem] = []
    result: list[Dim | Pack] = []
    failed = False
    for axis, (item, extent) in enumerate(zip(nodes, shape, strict=True)):
        if item is None:
            items.append(Keep())
            result.append(extent)
            continue
        if isinstance(extent, Pack):
            cx.report.error(
                "E3106",
                item.span,
                f"axis {axis} of `{value.type}` is a pack and cannot be indexed by itself",
                help="`...` keeps it: `x[..., 0]`",
            )
            failed = True
            continue
        if isinstance(item, tree.SliceItem):
            found = _range(cx, item, extent, value)
            if found is None:
                failed = True
                continue
            kept, length = found
            items.append(kept)
            result.append(length)
            continue
        if isinstance(item, tree.PackExpr):
            cx.report.error("E3106", item.span, f"`*{item.name}` stands in index notation only")
            failed = True
            continue
        assert isinstance(item, tree.Expr)
        single = _single(cx, item, extent, value)
        if single is None:
            failed = True
        else:
            items.append(single)
    if failed:
        return cx.poison()
    out = Value(tensor(tuple(result), value.type.dtype), value.name)
    return cx.emit(Slice([out], node.span, value, tuple(items)))


def _single(cx: Body, item: tree.Expr, extent: Dim, value: Value) -> At | AtValue | None:
    operand = expressions.expression(cx, item)
    if isinstance(operand, Int):
        return At(operand.dim) if proven_index(cx, operand.dim, extent, item.span, value) else None
    if isinstance(operand, Float):
        cx.report.error("E2209", item.span, "an index is an integer")
        return None
    found = value_of(cx, operand, item.span)
    if found.type is ERROR:
        return None
    if not isinstance(found.type, ScalarType) or not is_integer(cx, found.type.dtype):
        cx.report.error("E2209", item.span, f"an index is a scalar integer, not `{found.type}`")
        return None
    return AtValue(found)


def _range(
    cx: Body, item: tree.SliceItem, extent: Dim, value: Value
) -> tuple[SliceItem, Dim] | None:
    if item.start is None and item.stop is None and item.step is None:
        return Keep(), extent
    start = dimension(cx.scope, item.start) if item.start is not None else ZERO
    stop = dimension(cx.scope, item.stop) if item.stop is not None else extent
    step: int | None = 1
    if item.step is not None:
        dim = dimension(cx.scope, item.step)
        step = None if dim is None else dim.constant
        if dim is not None and (step is None or step < 1):
            cx.report.error("E2209", item.step.span, "a step is a positive constant")
            return None
    if start is None or stop is None or step is None:
        return None
    for goal, what in (
        (Fact("<=", ZERO, start), f"start `{start}` is not proven non-negative"),
        (Fact("<=", stop, extent), f"stop `{stop}` is not proven within an axis of `{extent}`"),
        (Fact("<=", start, stop), f"the slice `{start}:{stop}` may have a negative length"),
    ):
        proof = cx.facts.prove(goal)
        if proof.answer != "proven":
            bad_index(cx, item.span, what, proof, goal, value)
            return None
    length = stop - start if step == 1 else (stop - start + (step - 1)) // step
    return Range(start, stop, step), length
