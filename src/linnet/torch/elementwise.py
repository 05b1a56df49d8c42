"""Scalar operations over carriers, element by element, with the language's meaning.

Each takes torch tensors that broadcast against each other and the dtype by our name.
A float operation in f16 or bf16 rounds once, as torch's own do. Integers wrap; `/` and `%`
of integers truncate toward zero.
"""

from __future__ import annotations

import torch
from torch import Tensor

from linnet.errors import InputError
from linnet.torch.dtypes import FLOATS, SIGN, wrap

_FLOAT_UNARY = {
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt,
    "sin": torch.sin,
    "cos": torch.cos,
    "tanh": torch.tanh,
}
_COMPARE = {
    "eq": torch.eq,
    "ne": torch.ne,
    "lt": torch.lt,
    "le": torch.le,
    "gt": torch.gt,
    "ge": torch.ge,
}
_BITS = {"and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor}


def unary(op: str, x: Tensor, dtype: str) -> Tensor:
    """`neg not abs exp log sqrt rsqrt sin cos tanh` of a carrier of `dtype`."""
    if op in _FLOAT_UNARY:
        return _FLOAT_UNARY[op](x)
    if op == "neg":
        return -x if dtype in FLOATS else wrap(-x, dtype)
    if op == "not":
        return ~x if dtype == "bool" else wrap(~x, dtype)
    if op == "abs":
        return x if dtype[0] == "u" else torch.abs(x)
    raise AssertionError(op)


def binary(op: str, a: Tensor, b: Tensor, dtype: str, where: object = None) -> Tensor:
    """A binary operation; `dtype` is the operands', `where` names the place in errors."""
    if op in _COMPARE:
        if dtype == "u64" and op not in ("eq", "ne"):
            a, b = a ^ SIGN, b ^ SIGN
        return _COMPARE[op](a, b)
    if op in _BITS:
        return _BITS[op](a, b)
    if op in ("min", "max"):
        flip = dtype == "u64"
        if flip:
            a, b = a ^ SIGN, b ^ SIGN
        y = torch.minimum(a, b) if op == "min" else torch.maximum(a, b)
        return y ^ SIGN if flip else y
    if dtype in FLOATS:
        if op == "add":
            return a + b
        if op == "sub":
            return a - b
        if op == "mul":
            return a * b
        if op == "div":
            return a / b
        if op == "rem":
            return torch.fmod(a, b)
    if op == "add":
        return wrap(a + b, dtype)
    if op == "sub":
        return wrap(a - b, dtype)
    if op == "mul":
        return wrap(a * b, dtype)
    if op in ("div", "rem"):
        return _divide(op, a, b, dtype, where)
    if op in ("shl", "shr"):
        return _shift(op, a, b, dtype)
    raise AssertionError(op)


def _divide(op: str, a: Tensor, b: Tensor, dtype: str, where: object) -> Tensor:
    if bool((b == 0).any()):
        place = f"{where}: " if where is not None else ""
        raise InputError(f"{place}integer division by zero")
    if dtype == "u64":
        return _divide_u64(op, a, b)
    if dtype[0] == "u":
        return torch.div(a, b, rounding_mode="trunc") if op == "div" else torch.fmod(a, b)
    # The least value over -1 does not fit and traps in the processor; -1 is set apart.
    minus = b == -1
    safe = torch.where(minus, torch.ones_like(b), b)
    if op == "div":
        return torch.where(minus, -a, torch.div(a, safe, rounding_mode="trunc"))
    return torch.where(minus, torch.zeros_like(a), torch.fmod(a, safe))


def _divide_u64(op: str, a: Tensor, b: Tensor) -> Tensor:
    import numpy as np

    x, y = torch.broadcast_tensors(a, b)
    p, q = (t.contiguous().cpu().numpy().view(np.uint64) for t in (x, y))
    z = p // q if op == "div" else p % q
    return torch.from_numpy(np.atleast_1d(z).view(np.int64)).reshape(x.shape).to(a.device)


def _shift(op: str, a: Tensor, b: Tensor, dtype: str) -> Tensor:
    """Amounts outside `[0, bits)` push every bit out."""
    bits = int(dtype[1:])
    out = (b < 0) | (b >= bits)
    amount = torch.where(out, torch.zeros_like(b), b)
    if op == "shl":
        return torch.where(out, torch.zeros_like(a), wrap(a << amount, dtype))
    if dtype == "u64":
        # Arithmetic shift, then the copies of the sign bit cleared.
        keep = ~((torch.full_like(a, -1) << 1) << (63 - amount))
        shifted = torch.where(amount == 0, a, (a >> amount) & keep)
        return torch.where(out, torch.zeros_like(a), shifted)
    shifted = a >> amount
    if dtype[0] == "u":
        return torch.where(out, torch.zeros_like(a), shifted)
    return torch.where(out, a >> (bits - 1), shifted)


def select(condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return torch.where(condition, a, b)


def reduce(kind: str, x: Tensor, axes: list[int], dtype: str) -> Tensor:
    """`sum prod max min any all` of a carrier of `dtype` over `axes`, none kept."""
    from linnet.torch.dtypes import CARRIER, highest, lowest

    if not axes:
        return x
    if kind == "sum":
        if dtype in FLOATS:
            return torch.sum(x, axes)
        return wrap(torch.sum(x, axes, dtype=torch.int64), dtype).to(CARRIER[dtype])
    if kind == "any":
        return torch.amax(x, axes) if _filled(x, axes) else _empty(x, axes, False)
    if kind == "all":
        return torch.amin(x, axes) if _filled(x, axes) else _empty(x, axes, True)
    if kind == "prod":
        for axis in sorted(axes, reverse=True):
            if dtype in FLOATS:
                x = torch.prod(x, axis)
            else:
                x = wrap(torch.prod(x, axis, dtype=torch.int64), dtype).to(CARRIER[dtype])
        return x
    if not _filled(x, axes):
        value = lowest(dtype) if kind == "max" else highest(dtype)
        if dtype == "u64" and kind == "min":
            value = -1
        return _empty(x, axes, value)
    if dtype == "u64":
        x = x ^ SIGN
    y = torch.amax(x, axes) if kind == "max" else torch.amin(x, axes)
    return y ^ SIGN if dtype == "u64" else y


def _filled(x: Tensor, axes: list[int]) -> bool:
    return all(x.shape[axis] for axis in axes)


def _empty(x: Tensor, axes: list[int], value: int | float | bool) -> Tensor:
    shape = [n for axis, n in enumerate(x.shape) if axis not in axes]
    return torch.full(shape, value, dtype=x.dtype, device=x.device)
