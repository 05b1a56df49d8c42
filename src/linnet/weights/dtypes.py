"""Element types as bytes: sizes, and conversion between float formats.

All files read here are little-endian, and so is every machine supported.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from linnet.errors import WeightsError
from linnet.weights.room import room

if TYPE_CHECKING:
    import numpy as np

# Bytes an element.
SIZES = {
    "bool": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "u8": 1, "u16": 2, "u32": 4, "u64": 8,
    "f16": 2, "bf16": 2, "f32": 4, "f64": 8,
}  # fmt: skip
# What each float format holds: (bits of precision, bits of exponent).
_FLOATS = {"f16": (11, 5), "bf16": (8, 8), "f32": (24, 8), "f64": (53, 11)}
# Elements converted at a time: the temporaries stay in the cache, and small.
CHUNK = 1 << 18


def bytes_of(dtype: str, shape: Sequence[int]) -> int:
    """The bytes of a dense tensor; a `bool` takes one byte an element."""
    return SIZES[dtype] * prod(shape)


def is_float(dtype: str) -> bool:
    return dtype in _FLOATS


def widens(source: str, target: str) -> bool:
    """Whether every value of one float format is a value of the other."""
    if source not in _FLOATS or target not in _FLOATS:
        return False
    (p, e), (q, f) = _FLOATS[source], _FLOATS[target]
    return p <= q and e <= f


def convert(raw: memoryview, source: str, target: str, out: memoryview | None = None) -> memoryview:
    """Convert packed elements between float formats, rounding to nearest even.

    `raw` and the result are flat bytes; `out`, where given, is filled and returned. NaN stays
    NaN, and what overflows becomes infinite. Integers and `bool` only pass through unchanged:
    anything else is a `WeightsError`.
    """
    count = raw.nbytes // SIZES[source]
    if out is None:
        out = room(count * SIZES[target])
    if out.nbytes != count * SIZES[target]:
        raise WeightsError(
            f"the memory to fill has {out.nbytes} bytes; {count} elements of {target} need "
            f"{count * SIZES[target]}"
        )
    raw, out = raw.cast("B"), out.cast("B")
    if source == target:
        out[:] = raw
        return out
    if not (is_float(source) and is_float(target)):
        raise WeightsError(f"cannot convert {source} to {target}: only floats are converted")
    a, b = SIZES[source], SIZES[target]
    for start in range(0, count, CHUNK):
        stop = min(start + CHUNK, count)
        elements = floats(raw[start * a : stop * a], source)
        out[start * b : stop * b] = packed(elements, target)
    return out


def floats(raw: memoryview | bytes, dtype: str) -> np.ndarray[Any, Any]:
    """Packed floats as a numpy array: f64 as f64, everything else as f32 (exact)."""
    import numpy as np

    if dtype == "bf16":
        return (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
    if dtype == "f16":
        return np.frombuffer(raw, "<f2").astype("<f4")
    return np.frombuffer(raw, "<f4" if dtype == "f32" else "<f8")


def packed(elements: np.ndarray[Any, Any], dtype: str) -> memoryview:
    """An f32 or f64 array as flat bytes of a float dtype, rounded to nearest even."""
    import numpy as np

    elements = np.ascontiguousarray(elements)
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype == "bf16":
            if elements.dtype == np.float64:
                elements = _round_to_odd(elements)
            bits = elements.reshape(-1).view(np.uint32)
            # Adding half of the last kept place, less one where the kept part is even,
            # carries exactly when rounding to nearest even goes up. NaNs must not carry.
            rounded = bits >> 16
            rounded &= 1
            rounded += 0x7FFF
            rounded += bits
            rounded >>= 16
            nan = (bits & 0x7FFFFFFF) > 0x7F800000
            if nan.any():
                rounded[nan] = bits[nan] >> 16 | 0x40
            return rounded.astype("<u2").data.cast("B")
        kind = {"f16": "<f2", "f32": "<f4", "f64": "<f8"}[dtype]
        return elements.reshape(-1).astype(kind, copy=False).data.cast("B")


def _round_to_odd(elements: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """f64 to f32 such that a second rounding, to bf16, equals one rounding from f64.

    Boldo and Melquiond, "When double rounding is odd" (2005): cut toward zero and set the
    last bit where anything was lost.
    """
    import numpy as np

    single = elements.astype(np.float32)
    back = single.astype(np.float64)
    bits = single.reshape(-1).view(np.uint32)
    flat = elements.reshape(-1)
    wide = back.reshape(-1)
    lost = (wide != flat) & ~np.isnan(flat)
    bits = np.where(lost & (np.abs(wide) > np.abs(flat)), bits - 1, bits)
    return np.where(lost, bits | 1, bits).view(np.float32).reshape(elements.shape)
