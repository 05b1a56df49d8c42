"""An argument that no generics could make fit its parameter: said before inference gives up."""

from __future__ import annotations

from linnet.check.body import LITERALS, Body, Operand
from linnet.check.infer import Inference, free_names
from linnet.check.shapes import shape_text
from linnet.diagnostics.diagnostic import Label
from linnet.ir.program import Value
from linnet.ir.types import (
    EnumType,
    OptionalType,
    Pack,
    ScalarType,
    StructType,
    TensorType,
    TupleType,
    Type,
    shape_of,
    substitute,
)
from linnet.source import Span

NUMBERS = (TensorType, ScalarType)


def refuse_unfit(
    cx: Body,
    inference: Inference,
    pattern: Type,
    operand: Operand,
    span: Span,
    what: str,
    declared: Label,
) -> bool:
    """Report an argument whose kind or number of axes is wrong, where `pattern` has generics that
    it left open. Whether it did."""
    if not any(inference.open(name) for name in free_names(pattern)):
        return False  # known, and compared as any other type
    want = substitute(pattern, inference.bindings)
    if isinstance(operand, LITERALS):
        least, _ = _axes(inference, pattern)
        if not isinstance(pattern, TensorType) or least == 0:
            return False
        cx.report.error(
            "E2101",
            span,
            f"{what} is a number, expected `{want}`",
            related=[declared],
            help="`fill<T>([…], value)` makes a tensor of one value",
        )
        return True
    if not isinstance(operand, Value) or not _unfit(inference, pattern, operand.type):
        return False
    actual = operand.type
    if isinstance(pattern, NUMBERS) and isinstance(actual, NUMBERS):
        least, open_pack = _axes(inference, pattern)
        wanted = f"{'at least ' if open_pack else ''}{_number(least)}"
        verb = "is" if least == 1 else "are"
        cx.report.error(
            "E2202",
            span,
            f"{what} has shape {shape_text(actual)}, expected {shape_text(want)}",
            f"this is `{actual}`",
            related=[declared, *_made(cx, operand, span)],
            notes=[f"{_number(len(shape_of(actual)))} where {wanted} {verb} expected"],
        )
        return True
    help = None
    if isinstance(pattern, OptionalType) and not _unfit(inference, pattern.inner, actual):
        help = "wrap it: `some(…)`"
    elif isinstance(actual, OptionalType) and not _unfit(inference, pattern, actual.inner):
        help = "take it out: `match x { some(v) => …  none => … }`"
    message = f"{what} is `{actual}`, expected `{want}`"
    cx.report.error(
        "E2101", span, message, related=[declared, *_made(cx, operand, span)], help=help
    )
    return True


def _made(cx: Body, value: Value, span: Span) -> list[Label]:
    """Where the argument was made, unless that is the argument itself."""
    return [label for label in cx.bound_at(value) if label.span.start != span.start]


def _axes(inference: Inference, pattern: Type) -> tuple[int, bool]:
    """How many axes a pattern has at least, and whether an open pack may add to them."""
    least, open_pack = 0, False
    for item in shape_of(pattern):
        bound = inference.bindings.get(item.name) if isinstance(item, Pack) else None
        if isinstance(bound, tuple):
            least += len(bound)
        elif isinstance(item, Pack) and inference.open(item.name):
            open_pack = True
        else:
            least += 1
    return least, open_pack


def _unfit(inference: Inference, pattern: Type, actual: Type) -> bool:
    match pattern, actual:
        case (TensorType() | ScalarType(), TensorType() | ScalarType()):
            least, open_pack = _axes(inference, pattern)
            count = len(shape_of(actual))
            return count < least or (count > least and not open_pack)
        case (OptionalType(inner=a), OptionalType(inner=b)):
            return _unfit(inference, a, b)
        case (TupleType(items=xs), TupleType(items=ys)):
            return len(xs) != len(ys) or any(
                _unfit(inference, x, y) for x, y in zip(xs, ys, strict=True)
            )
        case (StructType(), StructType()):
            return pattern.id != actual.id
        case (EnumType(), EnumType()):
            return pattern != actual
    return True


def _number(count: int) -> str:
    return "1 axis" if count == 1 else f"{count} axes"
