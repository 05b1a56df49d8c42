"""Literals without a dtype of their own: whether and how they fit one."""

from __future__ import annotations

import math
import struct

from linnet.ir.types import BITS, CONSTRAINTS, FLOATS, INTEGERS, UNSIGNED

# The largest finite value of each float dtype (IEEE 754; bfloat16 shares f32's exponent).
LARGEST = {
    "f16": 65504.0,
    "bf16": 3.3895313892515355e38,
    "f32": 3.4028234663852886e38,
    "f64": 1.7976931348623157e308,
}
# Significand bits, the hidden one included.
PRECISION = {"f16": 11, "bf16": 8, "f32": 24, "f64": 53}


def integer_range(dtype: str) -> tuple[int, int]:
    bits = BITS[dtype]
    if dtype in UNSIGNED:
        return 0, (1 << bits) - 1
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def integer_fits(value: int, dtype: str) -> bool:
    """Whether an integer literal may take this dtype: held exactly, or rounded by a float."""
    if dtype in INTEGERS:
        low, high = integer_range(dtype)
        return low <= value <= high
    return dtype in FLOATS and abs(value) <= LARGEST[dtype]


def integer_fits_any(value: int, kind: str) -> bool:
    """For a dtype generic: whether some dtype that it allows holds the value."""
    return any(integer_fits(value, d) for d in CONSTRAINTS[kind] if d != "bool")


def float_fits(value: float, dtype: str) -> bool:
    if dtype not in FLOATS:
        return False
    if math.isinf(value) or math.isnan(value):
        return True
    # Values within half a unit of the largest still round to it.
    largest = LARGEST[dtype]
    half = math.ldexp(1.0, math.frexp(largest)[1] - PRECISION[dtype] - 1)
    return abs(value) < largest + half or abs(value) <= largest


def round_float(value: float, dtype: str) -> float:
    """Round to nearest even in the dtype; infinite on overflow."""
    if dtype == "f64" or math.isnan(value) or math.isinf(value) or value == 0:
        return value
    if not float_fits(value, dtype):
        return math.copysign(math.inf, value)
    if dtype == "f32":
        return struct.unpack("<f", struct.pack("<f", value))[0]
    if dtype == "f16":
        return struct.unpack("<e", struct.pack("<e", value))[0]
    mantissa, exponent = math.frexp(value)
    # bf16 keeps f32's subnormals: no bit below 2**-133.
    bits = min(PRECISION[dtype], exponent + 133)
    if bits <= 0:
        return 0.0 if bits < 0 or abs(mantissa) == 0.5 else math.copysign(2.0**-133, value)
    return math.ldexp(round(math.ldexp(mantissa, bits)), exponent - bits)
