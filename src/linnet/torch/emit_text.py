"""Python text for scalars and elementwise operations, shared by operations and grids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from linnet.dims import Dim
from linnet.ir.types import TensorType, Type, dtype_of
from linnet.torch import dtypes

if TYPE_CHECKING:
    from linnet.torch.emit import FunctionEmitter

TORCH = {name: str(dtype) for name, dtype in dtypes.CARRIER.items()}
ODD = frozenset({"u16", "u32", "u64"})  # carried by a wider dtype
OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">",
    "ge": ">=", "and": "&", "or": "|", "xor": "^",
}  # fmt: skip
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


def literal(value: int | float | bool, dtype: str) -> str:
    """A scalar rounded to its dtype, as Python source."""
    if dtype in dtypes.FLOATS:
        text = repr(float(dtypes.constant(value, dtype)))
    elif dtype == "bool":
        text = str(bool(value))
    else:
        text = str(dtypes.wrap_int(int(value), dtype))
    return f"({text})" if text.startswith("-") else text


def dim_literal(f: FunctionEmitter, dim: Dim, dtype: str) -> str:
    """A compile-time integer as a scalar."""
    if dim.constant is not None:
        return literal(dim.constant, dtype)
    text = f"({f.dim(dim)})"
    if dtype in dtypes.FLOATS:
        return f"rt.scalar_cast({text}, 'i64', '{dtype}', DEVICE)"
    return text


def cast_text(x: str, source: str, target: str) -> str:
    """A tensor converted; `x` is an atom."""
    if source == target:
        return x
    if target == "f32" and source not in ODD:
        return f"{x}.float()"
    simple = source in dtypes.FLOATS and target in dtypes.FLOATS and source != "f64"
    widening = source in ("bool", "i8", "i16", "i32", "u8") and target in ("i32", "i64", "f64")
    if simple or widening or (source, target) in (("i64", "f64"), ("f64", "i64"), ("f32", "i64")):
        return f"{x}.to({TORCH[target]})"
    if target == "bool":
        return f"({x} != 0)"
    return f"rt.dtypes.cast({x}, '{source}', '{target}')"


def binary_text(
    f: FunctionEmitter, op: str, a: str, b: str, dtype: str, kinds: tuple[str, str], span: Any
) -> str:
    """An elementwise operation; `kinds` tell Python numbers from tensors."""
    where = f"'{span}'" if span is not None else "''"
    if kinds == ("int", "int"):
        return int_binary(op, a, b, dtype, where)
    if "tensor" not in kinds:
        return f"rt.scalar_binary('{op}', {a}, {b}, '{dtype}', DEVICE)"
    integer = dtype not in dtypes.FLOATS
    if op in ("min", "max") and dtype != "u64":
        if kinds == ("tensor", "tensor"):
            return f"torch.{op}imum({a}, {b})"
        return f"rt.extreme('{op}', {a}, {b})"
    odd = dtype in ODD and op not in ("eq", "ne", "and", "or", "xor")
    if (integer and op in ("div", "rem", "shl", "shr")) or odd or op in ("min", "max"):
        return f"rt.binary('{op}', {a}, {b}, '{dtype}', {where}, DEVICE)"
    if op == "div":
        if kinds[0] != "tensor" and a not in ("1", "1.0"):
            return f"rt.over({a}, {b}, '{dtype}')"
        return f"({a} / {b})"
    if op == "rem":
        if kinds[0] != "tensor":
            a = f"rt.tensor({a}, '{dtype}', DEVICE)"
        return f"torch.fmod({a}, {b})"
    return f"({a} {OPERATORS[op]} {b})"


def int_binary(op: str, a: str, b: str, dtype: str, where: str) -> str:
    if op in ("min", "max"):
        return f"{op}({a}, {b})"
    if op in ("div", "rem"):
        return f"rt.divide('{op}', {a}, {b}, '{dtype}', {where})"
    if op in ("shl", "shr"):
        return f"rt.shift('{op}', {a}, {b}, '{dtype}')"
    if op in COMPARISONS or op in ("and", "or", "xor"):
        return f"({a} {OPERATORS[op]} {b})"
    return f"rt.dtypes.wrap_int({a} {OPERATORS[op]} {b}, '{dtype}')"


def unary_text(op: str, x: str, dtype: str, kind: str) -> str:
    if kind == "int":
        if op == "not":
            return f"(not {x})" if dtype == "bool" else f"rt.dtypes.wrap_int(~{x}, '{dtype}')"
        return f"rt.dtypes.wrap_int({'-' if op == 'neg' else 'abs'}({x}), '{dtype}')"
    if kind == "float":
        return f"rt.scalar_unary('{op}', {x}, '{dtype}', DEVICE)"
    if op == "neg" and dtype not in ODD:
        return f"(-{x})"
    if op == "not" and dtype not in ODD:
        return f"(~{x})"
    if op in ("neg", "not", "abs") and dtype in ODD:
        return f"rt.elementwise.unary('{op}', {x}, '{dtype}')"
    return f"{x}.{op}()"


def strip(text: str) -> str:
    """Without one pair of outer parentheses, where they enclose the whole and no tuple."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for position, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if (depth == 0 and position < len(text) - 1) or (depth == 1 and character == ","):
            return text
    return text[1:-1]


def where_text(c: str, a: str, b: str, first: Type, second: Type) -> str:
    if isinstance(first, TensorType) and isinstance(second, TensorType):
        return f"torch.where({c}, {a}, {b})"
    return f"rt.select({c}, {a}, {b}, '{dtype_of(first)}', DEVICE)"


def scalar_text(x: str, type: Type) -> str:
    """A rank-0 tensor as the scalar that generated code holds."""
    return x if dtype_of(type) in dtypes.FLOATS else f"rt.number({x}, '{dtype_of(type)}')"
