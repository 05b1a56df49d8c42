"""Element types in torch: which torch dtype carries each of ours, and how values convert.

Torch has few operations on u16, u32 and u64. Values of these live in a wider signed
*carrier* (u16 in int32; u32 in int64; u64 as its bits in int64) and are brought back into
range after each operation that can leave it. Every other dtype carries itself.
"""

from __future__ import annotations

import torch
from torch import Tensor

STORAGE: dict[str, torch.dtype] = {
    "bool": torch.bool, "i8": torch.int8, "i16": torch.int16, "i32": torch.int32,
    "i64": torch.int64, "u8": torch.uint8, "u16": torch.uint16, "u32": torch.uint32,
    "u64": torch.uint64, "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32,
    "f64": torch.float64,
}  # fmt: skip
CARRIER: dict[str, torch.dtype] = {
    **STORAGE, "u16": torch.int32, "u32": torch.int64, "u64": torch.int64
}  # fmt: skip
NAMES: dict[torch.dtype, str] = {value: key for key, value in STORAGE.items()}
NARROW_FLOATS = frozenset({"f16", "bf16"})
FLOATS = frozenset({"f16", "bf16", "f32", "f64"})
_MASK = {"u16": 0xFFFF, "u32": 0xFFFFFFFF}
SIGN = -(2**63)


def limits(dtype: str) -> tuple[int, int]:
    """The lowest and highest value of an integer dtype (bool: 0 and 1)."""
    if dtype == "bool":
        return 0, 1
    bits = int(dtype[1:])
    return (0, 2**bits - 1) if dtype[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def wrap_int(value: int, dtype: str) -> int:
    """A Python integer reduced to the range of an integer dtype."""
    bits = int(dtype[1:])
    value &= (1 << bits) - 1
    if dtype[0] == "i" and value >> (bits - 1):
        value -= 1 << bits
    return value


def wrap(x: Tensor, dtype: str) -> Tensor:
    """A carrier value brought back into the range of its unsigned dtype."""
    mask = _MASK.get(dtype)
    return x if mask is None else x & mask


def to_carrier(x: Tensor, dtype: str) -> Tensor:
    """A tensor in the torch dtype of the same name, as its carrier."""
    if dtype == "u64":
        return x.view(torch.int64)
    return x if x.dtype is CARRIER[dtype] else x.to(CARRIER[dtype])


def from_carrier(x: Tensor, dtype: str) -> Tensor:
    """A carrier as a tensor of the torch dtype of the same name."""
    if dtype == "u64":
        return x.view(torch.uint64)
    return x if x.dtype is STORAGE[dtype] else x.to(STORAGE[dtype])


def _unsigned_double(x: Tensor) -> Tensor:
    """The value of a u64 as the nearest f64."""
    high = (x >> 32) & 0xFFFFFFFF
    return high.double() * 4294967296.0 + (x & 0xFFFFFFFF).double()


def _round_to_odd(x: Tensor) -> Tensor:
    """f64 to f32, inexact results with the last bit set.

    A further rounding to a dtype at least two bits narrower is then the correct single
    rounding (Boldo and Melquiond, "When double rounding is odd").
    """
    y = x.float()
    wide = y.double()
    bits = y.view(torch.int32)
    truncated = torch.where(wide.abs() > x.abs(), bits - 1, bits)
    inexact = (wide != x) & torch.isfinite(x)
    return torch.where(inexact, truncated | 1, bits).view(torch.float32)


def cast(x: Tensor, source: str, target: str) -> Tensor:
    """Convert a carrier of `source` to a carrier of `target`.

    bool gives 0 or 1; to bool tests `!= 0`; float to integer truncates toward zero;
    integers narrow by wrapping; floats round to nearest even, once.
    """
    if source == target:
        return x
    if target == "bool":
        return x != 0
    if target in FLOATS:
        if source == "u64":
            x = _unsigned_double(x)
            source = "f64"
        if target in NARROW_FLOATS and not x.requires_grad:
            if source in ("i32", "i64", "u32"):
                return _round_to_odd(x.double()).to(CARRIER[target])
            if source == "f64":
                return _round_to_odd(x).to(CARRIER[target])
        return x.to(CARRIER[target])
    if source in FLOATS and target != "i64":
        if target == "u64":
            big = x >= 9223372036854775808.0
            low = torch.where(big, x - 9223372036854775808.0, x).to(torch.int64)
            return torch.where(big, low ^ SIGN, low)
        x = x.to(torch.int64)
    return wrap(x.to(CARRIER[target]) if target not in _MASK else x.to(torch.int64), target).to(
        CARRIER[target]
    )


def constant(
    value: int | float | bool, dtype: str, device: torch.device | str | None = None
) -> Tensor:
    """A rank-0 carrier of a literal, rounded to nearest even."""
    if dtype in FLOATS:
        exact = torch.tensor(value, dtype=torch.float64, device=device)
        return cast(exact, "f64", dtype)
    if dtype == "bool":
        return torch.tensor(bool(value), device=device)
    number = wrap_int(int(value), dtype)
    if dtype == "u64" and number >= 2**63:
        number -= 2**64
    return torch.tensor(number, dtype=CARRIER[dtype], device=device)


def lowest(dtype: str) -> int | float:
    """The identity of `max`: a float's negative infinity, an integer's least value."""
    return float("-inf") if dtype in FLOATS else limits(dtype)[0]


def highest(dtype: str) -> int | float:
    """The identity of `min`."""
    return float("inf") if dtype in FLOATS else limits(dtype)[1]
