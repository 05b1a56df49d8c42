"""Operands into values: literals take their dtype, types are compared, and what
differs is explained."""

from __future__ import annotations

import math
from collections.abc import Iterable

from linnet.check.body import (
    LITERALS,
    Body,
    Float,
    Int,
    Literal,
    NoneOperand,
    Operand,
    OptionalSub,
    Pending,
    Sub,
    SubArray,
    default_dtype,
)
from linnet.check.infer import same_type
from linnet.check.literals import (
    float_fits,
    integer_fits,
    integer_fits_any,
    integer_range,
    round_float,
)
from linnet.check.shapes import explain_shapes, shape_text
from linnet.check.typing import ERROR
from linnet.diagnostics.diagnostic import Label
from linnet.ir.program import Const, DimValue, MakeNone, Value
from linnet.ir.types import (
    CONSTRAINTS,
    DTYPES,
    FLOATS,
    INTEGERS,
    OptionalType,
    ScalarType,
    TensorType,
    TupleType,
    Type,
    dtype_of,
    shape_of,
)
from linnet.source import Span


def allowed(cx: Body, dtype: str) -> frozenset[str]:
    """The concrete dtypes that a dtype, perhaps a generic, can be."""
    if dtype in DTYPES:
        return frozenset({dtype})
    return CONSTRAINTS[cx.scope.generics[dtype].kind]


def is_float(cx: Body, dtype: str) -> bool:
    return allowed(cx, dtype) <= FLOATS


def is_integer(cx: Body, dtype: str) -> bool:
    return allowed(cx, dtype) <= INTEGERS


def is_numeric(cx: Body, dtype: str) -> bool:
    return "bool" not in allowed(cx, dtype)


def literal_problem(cx: Body, operand: Literal, dtype: str) -> str | None:
    """Why a literal cannot take a dtype, or None if it can."""
    if isinstance(operand, Pending):
        problems = (literal_problem(cx, part, dtype) for part in operand.literals)
        return next((problem for problem in problems if problem), None)
    if isinstance(operand, Float):
        if not is_float(cx, dtype):
            return f"the float {operand.value!r} cannot be `{dtype}`"
        if math.isinf(operand.value):
            return "this number overflows every float dtype"
        if dtype in DTYPES:
            if not float_fits(operand.value, dtype):
                return f"{operand.value!r} overflows `{dtype}`"
        elif not any(float_fits(operand.value, d) for d in allowed(cx, dtype)):
            return f"{operand.value!r} overflows every dtype that `{dtype}` can be"
        return None
    if not is_numeric(cx, dtype):
        return f"an integer cannot be `{dtype}`"
    value = operand.dim.constant
    if value is None:
        return None
    if dtype in DTYPES:
        if not integer_fits(value, dtype):
            if dtype in INTEGERS:
                low, high = integer_range(dtype)
                return f"{value} does not fit `{dtype}` ({low} … {high})"
            return f"{value} overflows `{dtype}`"
    elif not integer_fits_any(value, cx.scope.generics[dtype].kind):
        return f"{value} fits no dtype that `{dtype}` can be"
    return None


def literal_help(cx: Body, operand: Literal, dtype: str) -> str | None:
    if dtype == "bool":
        return "write `true` or `false`"
    if isinstance(operand, Float) and allowed(cx, dtype) <= INTEGERS:
        return "write an integer, or make the other side a float: `cast<f32>(…)`"
    return None


def literal(cx: Body, operand: Literal, dtype: str, span: Span) -> Value:
    """A literal as a value of a dtype."""
    problem = literal_problem(cx, operand, dtype)
    if problem is not None:
        cx.report.error("E2105", span, problem, help=literal_help(cx, operand, dtype))
        return cx.poison()
    if isinstance(operand, Pending):
        return operand.build(dtype)
    result = Value(ScalarType(dtype))
    if isinstance(operand, Float):
        value: int | float = operand.value
        if dtype in DTYPES:
            value = round_float(operand.value, dtype)
        return cx.emit(Const([result], span, value))
    number = operand.dim.constant
    if number is None:
        return cx.emit(DimValue([result], span, operand.dim))
    return cx.emit(Const([result], span, float(number) if dtype in FLOATS else number))


def value_of(cx: Body, operand: Operand, span: Span, expected: Type | None = None) -> Value:
    """An operand as a value, without comparing it to what is expected: literals take
    the expected dtype, or i64 and f64."""
    match operand:
        case Value():
            return operand
        case Int() | Float() | Pending():
            hint = expected
            while isinstance(hint, OptionalType):
                hint = hint.inner
            dtype = default_dtype(operand)
            if isinstance(hint, (ScalarType, TensorType)):
                dtype = hint.dtype
            return literal(cx, operand, dtype, span)
        case NoneOperand():
            if isinstance(expected, OptionalType):
                return cx.emit(MakeNone([Value(expected)], span))
            if expected is ERROR:
                return cx.poison()
            cx.report.error(
                "E2113",
                span,
                "`none` needs a type from its context",
                help="state it: `let x: Tensor[N; f32]? = none`",
            )
            return cx.poison()
        case Sub() | SubArray() | OptionalSub():
            cx.report.error(
                "E1208",
                span,
                "a block is not a value",
                help="call one of its methods, or read its parameters there",
            )
            return cx.poison()


def coerce(
    cx: Body,
    operand: Operand,
    expected: Type,
    span: Span,
    what: str = "this",
    related: Iterable[Label] = (),
    code: str | None = None,
) -> Value:
    """An operand as a value of the expected type, or an error that explains the difference."""
    if isinstance(operand, (Int, Float)) and isinstance(expected, TensorType):
        cx.report.error(
            code or "E2101",
            span,
            f"{what} is a number, expected `{expected}`",
            related=related,
            help=f"`fill<{expected.dtype}>([…], value)` makes a tensor of one value",
        )
        return cx.poison()
    if isinstance(operand, LITERALS) and not isinstance(expected, (ScalarType, TensorType)):
        if expected is not ERROR:
            mismatch(cx, expected, value_of(cx, operand, span), span, what, related, code)
        return cx.poison()
    if isinstance(operand, NoneOperand) and not isinstance(expected, OptionalType):
        if expected is not ERROR:
            message = f"{what} is `none`, expected `{expected}`"
            cx.report.error(code or "E2101", span, message, related=related)
        return cx.poison()
    value = value_of(cx, operand, span, expected)
    if value.type is ERROR or expected is ERROR:
        return cx.poison() if value.type is ERROR else value
    if not same_type(cx.facts, expected, value.type):
        mismatch(cx, expected, value, span, what, related, code)
        return cx.poison()
    return value


def mismatch(
    cx: Body,
    expected: Type,
    value: Value,
    span: Span,
    what: str,
    related: Iterable[Label] = (),
    code: str | None = None,
) -> None:
    """Report that a value's type is not the expected one."""
    actual = value.type
    related = [*related]
    labels = [*related]
    origin = cx.origin.get(value.id)
    if origin is not None and (origin.start, origin.end) != (span.start, span.end):
        labels.append(Label(origin, f"`{actual}` comes from here"))
    numbers = (TensorType, ScalarType)
    tensors = isinstance(actual, numbers) and isinstance(expected, numbers)
    if tensors and dtype_of(actual) != dtype_of(expected):
        if len(shape_of(actual)) == len(shape_of(expected)):
            cx.report.error(
                code or "E2103",
                span,
                f"{what} has dtype `{dtype_of(actual)}`, expected `{dtype_of(expected)}`",
                f"this is `{actual}`",
                related=labels,
                help=f"convert it: `cast<{dtype_of(expected)}>(…)`",
            )
            return
    elif tensors:
        notes, help = explain_shapes(cx.facts, shape_of(expected), shape_of(actual))
        cx.report.error(
            code or "E2202",
            span,
            f"{what} has shape {shape_text(actual)}, expected {shape_text(expected)}",
            f"this is `{actual}`",
            related=labels,
            notes=notes,
            help=help,
        )
        return
    if isinstance(expected, TupleType) and isinstance(actual, TupleType):
        if len(expected.items) == len(actual.items):
            for index, (want, have) in enumerate(zip(expected.items, actual.items, strict=True)):
                if not same_type(cx.facts, want, have):
                    part = Value(have)
                    mismatch(cx, want, part, span, f"item {index} of {what}", related, code)
                    return
    if isinstance(expected, OptionalType) and isinstance(actual, OptionalType):
        mismatch(
            cx, expected.inner, Value(actual.inner), span, f"the value in {what}", related, code
        )
        return
    help = None
    if isinstance(expected, OptionalType) and same_type(cx.facts, expected.inner, actual):
        help = "wrap it: `some(…)`"
    elif isinstance(actual, OptionalType) and same_type(cx.facts, actual.inner, expected):
        help = "take it out: `match x { some(v) => …  none => … }`"
    cx.report.error(
        code or "E2101",
        span,
        f"{what} is `{actual}`, expected `{expected}`",
        related=labels,
        help=help,
    )
