"""How element types look in C: what they are stored as, computed in, and converted by."""

from __future__ import annotations

import math
import struct

from linnet.dims import Dim
from linnet.ir.types import FLOATS, INTEGERS

STORED = {
    "bool": "uint8_t", "i8": "int8_t", "i16": "int16_t", "i32": "int32_t", "i64": "int64_t",
    "u8": "uint8_t", "u16": "uint16_t", "u32": "uint32_t", "u64": "uint64_t", "f16": "f16",
    "bf16": "bf16", "f32": "float", "f64": "double",
}  # fmt: skip
# bf16 and f16 are held as the f32 of the same value, rounded after each operation.
HELD = {**STORED, "bf16": "float", "f16": "float"}
BYTES = {
    "bool": 1, "i8": 1, "u8": 1, "i16": 2, "u16": 2, "f16": 2, "bf16": 2, "i32": 4, "u32": 4,
    "f32": 4, "i64": 8, "u64": 8, "f64": 8,
}  # fmt: skip
NARROW = frozenset({"bf16", "f16"})


def c_dim(dim: Dim, prefix: str = "D_") -> str:
    """A dimension as a C expression over `D_name` variables (quotients of non-negatives)."""
    if dim.constant is not None:
        return f"{dim.constant}L" if abs(dim.constant) > 2**31 - 1 else str(dim.constant)
    text = dim.python(lambda name: prefix + name.replace("*", "p_"))
    return text.replace("//", "/").replace("min(", "LEAST(").replace("max(", "MOST(")


def load(pointer: str, index: str, dtype: str) -> str:
    if dtype == "bf16":
        return f"from_bf16({pointer}[{index}])"
    if dtype == "f16":
        return f"(float){pointer}[{index}]"
    return f"{pointer}[{index}]"


def store(value: str, dtype: str) -> str:
    if dtype == "bf16":  # rounded already
        return f"(bf16)(float_bits({value}) >> 16)"
    if dtype == "f16":
        return f"(f16)({value})"
    return value


def rounded(value: str, dtype: str) -> str:
    """An f32 result brought to the precision of a narrow float."""
    return f"round_{dtype}({value})" if dtype in NARROW else value


def f32(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def literal(value: int | float | bool, dtype: str) -> str:
    """A scalar rounded to its dtype, as C."""
    if dtype == "bool":
        return "1" if value else "0"
    if dtype in INTEGERS:
        bits = int(dtype[1:])
        number = int(value) & ((1 << bits) - 1)
        if dtype[0] == "i" and number >> (bits - 1):
            number -= 1 << bits
        if number == -(2**63):
            return "INT64_MIN"
        suffix = "ULL" if dtype == "u64" else "LL" if bits == 64 or abs(number) > 2**31 - 1 else ""
        return f"({HELD[dtype]}){number}{suffix}" if bits < 32 else f"{number}{suffix}"
    real = float(value)
    if math.isnan(real):
        return "NAN"
    if dtype != "f64":
        real = narrow(real, dtype)
    if math.isinf(real):
        return "INFINITY" if real > 0 else "(-INFINITY)"
    text = repr(real) + ("" if dtype == "f64" else "f")
    return f"({text})" if real < 0 else text


def narrow(number: float, dtype: str) -> float:
    """Rounded to nearest even, once (through f64 integers scaled to the last place)."""
    if dtype == "f32" or number == 0 or not math.isfinite(number):
        return f32(number)
    digits, least, most = (
        (8, -126, 3.3895313892515355e38) if dtype == "bf16" else (11, -14, 65504.0)
    )
    _, exponent = math.frexp(number)
    unit = math.ldexp(1.0, max(exponent - 1, least) - digits + 1)
    result = round(number / unit) * unit
    return math.copysign(math.inf, number) if abs(result) > most else result


def cast(value: str, source: str, target: str) -> str:
    if source == target:
        return value
    if target == "bool":
        return f"(({value}) != 0)"
    if source == "bool":
        return f"({HELD[target]})({value})"
    if target in NARROW:
        if source in ("i32", "i64", "u32", "u64", "f64"):
            return f"round_{target}(round_odd((double)({value})))"
        return f"round_{target}((float)({value}))" if source != target else value
    if target in FLOATS:
        return f"({HELD[target]})({value})"
    if source in FLOATS:
        return (
            f"to_unsigned({value})" if target == "u64" else f"({HELD[target]})to_integer({value})"
        )
    return f"({HELD[target]})({value})"


UNARY = {
    "exp": ("m_exp", "exp"), "log": ("m_log", "log"), "sqrt": ("sqrtf", "sqrt"),
    "rsqrt": ("m_rsqrt", "d_rsqrt"), "sin": ("m_sin", "sin"), "cos": ("m_cos", "cos"),
    "tanh": ("m_tanh", "tanh"), "abs": ("fabsf", "fabs"),
}  # fmt: skip
SYMBOL = {
    "add": "+", "sub": "-", "mul": "*", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">",
    "ge": ">=", "and": "&", "or": "|", "xor": "^",
}  # fmt: skip
COMPARE = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


def unary(op: str, x: str, dtype: str, wide: bool = False) -> str:
    if dtype == "bool":
        return f"(!({x}))"
    if dtype in INTEGERS:
        held = HELD[dtype]
        if op == "abs":
            return x if dtype[0] == "u" else f"({held})(({x}) < 0 ? -({x}) : ({x}))"
        return f"({held})({'-' if op == 'neg' else '~'}({x}))"
    if op == "neg":
        return f"(-({x}))"
    text = f"{UNARY[op][dtype == 'f64']}({x})"
    return text if wide or op == "abs" else rounded(text, dtype)


def binary(op: str, a: str, b: str, dtype: str, wide: bool = False) -> str:
    """`dtype` is the operands'."""
    if op in COMPARE:
        return f"(({a}) {SYMBOL[op]} ({b}))"
    held = HELD[dtype]
    if op in ("min", "max"):
        sign = "<" if op == "min" else ">"
        if dtype in FLOATS:  # a NaN on either side stays
            return f"((({a}) {sign} ({b}) || ({a}) != ({a})) ? ({a}) : ({b}))"
        return f"((({a}) {sign} ({b})) ? ({a}) : ({b}))"
    if dtype == "bool":
        return f"(({a}) {SYMBOL[op]} ({b}))"
    if dtype in INTEGERS:
        bits = int(dtype[1:])
        u = "_u" if dtype[0] == "u" else ""
        if op == "div":
            return f"({held})quotient{u}({a}, {b})"
        if op == "rem":
            return f"({held})remainder{'_u' if u else '_of'}({a}, {b})"
        if op == "shl":
            return f"({held})shift_left({a}, {b}, {bits})"
        if op == "shr":
            return f"({held})shift_right{u}({a}, {b}, {bits})"
        return f"({held})(({a}) {SYMBOL[op]} ({b}))"
    if op == "div":
        text = f"(({a}) / ({b}))"
    elif op == "rem":
        text = f"{'fmod' if dtype == 'f64' else 'fmodf'}({a}, {b})"
    else:
        text = f"(({a}) {SYMBOL[op]} ({b}))"
    return text if wide else rounded(text, dtype)


def lowest(dtype: str) -> str:
    if dtype in FLOATS:
        return "(-INFINITY)"
    bits = int(dtype[1:]) if dtype != "bool" else 1
    return literal(0 if dtype[0] in "ub" else -(2 ** (bits - 1)), dtype)


def highest(dtype: str) -> str:
    if dtype in FLOATS:
        return "INFINITY"
    bits = int(dtype[1:]) if dtype != "bool" else 1
    return literal(2**bits - 1 if dtype[0] in "ub" else 2 ** (bits - 1) - 1, dtype)
