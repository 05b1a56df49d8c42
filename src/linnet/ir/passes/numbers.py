"""Arithmetic on literals in Linnet's dtypes: wrapping, rounding, casts.

Integers wrap to their width; floats are computed in f64 and rounded once to the dtype,
which for `+ - * /` and `sqrt` of f32 and narrower is the correctly rounded result
(Figueroa, "When is double rounding innocuous?", 1995).
"""

from __future__ import annotations

import math
import struct

from linnet.ir.types import BITS, FLOATS, INTEGERS, SIGNED

Number = int | float | bool


def wrap(value: int, dtype: str) -> int:
    bits = BITS[dtype]
    value &= (1 << bits) - 1
    if dtype in SIGNED and value >> (bits - 1):
        value -= 1 << bits
    return value


def round_to(value: float, dtype: str) -> float:
    """To the nearest value of a float dtype, ties to even, overflow to infinity."""
    if dtype == "f64" or math.isnan(value) or math.isinf(value):
        return value
    if dtype == "bf16":
        return _bf16(value)
    form = "f" if dtype == "f32" else "e"
    try:
        return float(struct.unpack(form, struct.pack(form, value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _bf16(value: float) -> float:
    if value == 0.0:
        return value
    mantissa, exponent = math.frexp(value)  # value = mantissa * 2^exponent, 0.5 <= |m| < 1
    bits = 8 if exponent >= -125 else max(8 + exponent + 125, 0)  # fewer among subnormals
    scaled = math.ldexp(mantissa, bits)
    rounded = math.ldexp(float(round(scaled)), exponent - bits)
    return math.copysign(math.inf, value) if abs(rounded) >= 2.0**128 else rounded


def convert(value: Number, dtype: str) -> Number | None:
    """`cast`; None where the result is not defined (a float outside an integer's range)."""
    if dtype == "bool":
        return bool(value)
    if dtype in FLOATS:
        return round_to(float(value), dtype)
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        whole = int(value)
        return whole if wrap(whole, dtype) == whole else None
    return wrap(int(value), dtype)


def unary(op: str, x: Number, dtype: str) -> Number | None:
    """The value of a unary operation, or None where it is left to run time."""
    if op == "not":
        return (not x) if dtype == "bool" else wrap(~int(x), dtype)
    if dtype in INTEGERS:
        if op == "neg":
            return wrap(-int(x), dtype)
        return wrap(abs(int(x)), dtype) if op == "abs" else None
    x = float(x)
    if op == "neg":
        return -x
    if op == "abs":
        return abs(x)
    if op == "sqrt" and x >= 0:
        return round_to(math.sqrt(x), dtype)
    if op == "rsqrt" and x > 0:
        return round_to(1.0 / math.sqrt(x), dtype)
    return None


_COMPARE = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


def binary(op: str, a: Number, b: Number, dtype: str) -> Number | None:
    """As `unary`; `dtype` is the operands'."""
    if op in _COMPARE:
        return _COMPARE[op](a, b)
    if dtype == "bool":
        a, b = bool(a), bool(b)
        logic = {"and": a and b, "or": a or b, "xor": a != b}
        return logic.get(op)
    if dtype in INTEGERS:
        return _integers(op, int(a), int(b), dtype)
    a, b = float(a), float(b)
    if math.isnan(a) or math.isnan(b):
        return None
    match op:
        case "add":
            return round_to(a + b, dtype)
        case "sub":
            return round_to(a - b, dtype)
        case "mul":
            return round_to(a * b, dtype)
        case "div" if b != 0:
            return round_to(a / b, dtype)
        case "min":
            return min(a, b)
        case "max":
            return max(a, b)
    return None


def _integers(op: str, a: int, b: int, dtype: str) -> int | None:
    match op:
        case "add":
            return wrap(a + b, dtype)
        case "sub":
            return wrap(a - b, dtype)
        case "mul":
            return wrap(a * b, dtype)
        case "min":
            return min(a, b)
        case "max":
            return max(a, b)
        case "and":
            return a & b
        case "or":
            return a | b
        case "xor":
            return a ^ b
    if op in ("div", "rem") and b != 0:
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return wrap(quotient if op == "div" else a - quotient * b, dtype)
    if op in ("shl", "shr") and 0 <= b < BITS[dtype]:
        return wrap(a << b if op == "shl" else a >> b, dtype)
    return None
