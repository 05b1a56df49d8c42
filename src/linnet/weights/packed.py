"""Packed weights: matrices in few bits, in the layouts that the native kernels read.

A weight `[…, In]` is rows of `In` elements. `int8` keeps i8 `[rows, In]` and f32 scales
`[rows, In / group]`; the value is `q * scale`. `int4` keeps u8 `[rows, In / 2]`, where byte j of
a group has element j in its low half and element j + group / 2 in its high half; the value is
`(q - 8) * scale`. The other formats are GGUF's blocks as a file has them, with their scales
inside (https://github.com/ggml-org/ggml/blob/master/docs/gguf.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from linnet.ir.groups import GROUPS, group_of
from linnet.weights.room import room

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

__all__ = ["BITS", "BLOCKS", "GROUPS", "Packed", "group_of", "quantize_rows", "unpack_rows"]
BITS = {"int8": 8, "int4": 4}
# GGUF's formats that kernels read as stored: elements and bytes of a block, the type's number.
BLOCKS = {
    "q4_0": (32, 18, 2),
    "q4_1": (32, 20, 3),
    "q8_0": (32, 34, 8),
    "q4_k": (256, 144, 12),
    "q6_k": (256, 210, 14),
}
LEAST = 1e-37  # a smaller scale has no inverse in f32: its group becomes zero
PART = 1 << 16  # elements worked on at a time: what is made on the way stays in the cache
# What the largest element of a group is divided by, for the scales that are tried. Beyond 8
# the largest ones are cut off so that the many small ones are met more closely.
DIVISORS = (7.0, 7.5, 8.0, 8.5, 9.0, 9.6, 10.4)


@dataclass(frozen=True, slots=True)
class Packed:
    """A weight of logical `shape`; `data` and `scale` are flat bytes, `scale` f32 or None."""

    kind: str
    shape: tuple[int, ...]
    group: int
    data: memoryview
    scale: memoryview | None

    @property
    def nbytes(self) -> int:
        return self.data.nbytes + (self.scale.nbytes if self.scale is not None else 0)

    @property
    def rows(self) -> int:
        return prod(self.shape[:-1])


def sizes(kind: str, shape: Sequence[int]) -> tuple[int, int]:
    """Bytes of a row's data, and how many scales it has, for "int8" or "int4"."""
    width = shape[-1]
    group = group_of(width)
    if group is None:
        raise ValueError(f"no group divides a row of {width}")
    return width * BITS[kind] // 8, width // group


def quantize_rows(values: Array, kind: str) -> tuple[Array, Array]:
    """f32 `[rows, In]` to data (i8 or u8) and f32 scales, a bounded part at a time.

    A group's scale is the one of several that leaves the least squared error, each first set
    to the least-squares scale of the integers that it leads to.
    """
    import numpy as np

    rows, width = values.shape
    group = group_of(width)
    if group is None:
        raise ValueError(f"no group divides a row of {width}")
    count = rows * (width // group)
    groups = values.reshape(count, group)
    each = group * BITS[kind] // 8
    data = np.empty((count, each), np.int8 if kind == "int8" else np.uint8)
    scale = np.empty(count, np.float32)
    step = max(1, PART // group)
    for start in range(0, count, step):
        part = slice(start, min(start + step, count))
        if kind == "int8":
            data[part], scale[part] = _eight(groups[part])
        else:
            q, scale[part] = _four(groups[part])
            data[part] = q[:, : group // 2] | q[:, group // 2 :] << 4
    return data.reshape(rows, -1), scale.reshape(rows, -1)


def _eight(x: Array) -> tuple[Array, Array]:
    import numpy as np

    scale = np.abs(x).max(1) / np.float32(127)
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale > LEAST)
    q = np.rint(x * inverse[:, None])
    return np.clip(q, -127, 127).astype(np.int8), scale


def _four(x: Array) -> tuple[Array, Array]:
    """Integers 0..15 (8 means zero) and scales, for groups `[n, group]`."""
    import numpy as np

    extreme = np.take_along_axis(x, np.abs(x).argmax(1)[:, None], 1)[:, 0]
    # The element of largest magnitude has the side with one place more, that of -8.
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.where(extreme != 0, -1 / extreme, 0).astype(np.float32)
    inverse[~np.isfinite(inverse)] = 0
    best = np.full(len(x), -1, np.float32)
    scale = np.zeros(len(x), np.float32)
    for divisor in DIVISORS:
        q = x * (inverse * np.float32(divisor))[:, None]
        np.rint(q, out=q)
        np.clip(q, -8, 7, out=q)
        along = np.einsum("ng,ng->n", x, q)
        square = np.einsum("ng,ng->n", q, q)
        # |x - s q|² is least at s = x·q / q·q, where it is |x|² - (x·q)² / q·q.
        fitted = np.divide(along, square, out=np.zeros_like(along), where=square > 0)
        gain = fitted * along
        better = gain > best
        best[better] = gain[better]
        scale[better] = fitted[better]
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=np.abs(scale) > LEAST)
    q = np.rint(x * inverse[:, None])
    return (np.clip(q, -8, 7) + 8).astype(np.uint8), scale


def round_rows(values: Array, kind: str) -> Array:
    """What plain rounding gives: the largest element of a group met exactly, the others rounded
    to its steps. What `quantize_rows` is measured against."""
    import numpy as np

    group = group_of(values.shape[-1])
    assert group is not None
    most = 127 if kind == "int8" else 7
    x = values.reshape(-1, group)
    scale = np.abs(x).max(1, keepdims=True) / np.float32(most)
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
    return (np.rint(x * inverse) * scale).reshape(values.shape)


def read_packed(packed: Packed, dtype: str, out: memoryview | None = None) -> memoryview:
    """All values of a packed weight as flat bytes of a float dtype, into `out` where given."""
    from linnet.weights.dtypes import SIZES
    from linnet.weights.dtypes import packed as narrowed

    width, rows = packed.shape[-1], packed.rows
    each = SIZES[dtype] * width
    if out is None:
        out = room(rows * each)
    step = max(1, PART // max(1, width))
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        out[start * each : stop * each] = narrowed(unpack_rows(packed, start, stop), dtype)
    return out


def unpack_rows(packed: Packed, start: int, stop: int) -> Array:
    """Rows `start` up to `stop` of a packed weight, as f32 `[rows, In]`."""
    import numpy as np

    rows, width = packed.rows, packed.shape[-1]
    each = packed.data.nbytes // rows if rows else 0
    raw = packed.data[start * each : stop * each]
    if packed.kind in BLOCKS:
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        blocks = np.frombuffer(raw, np.uint8).reshape(1, -1)
        number = GGMLQuantizationType(BLOCKS[packed.kind][2])
        with np.errstate(all="ignore"):  # whoever asks sees what is not finite
            found: Array = dequantize(blocks, number)
        return found.reshape(stop - start, width)
    assert packed.scale is not None
    count = width // packed.group
    scale = np.frombuffer(packed.scale[start * count * 4 : stop * count * 4], np.float32)
    if packed.kind == "int8":
        q = np.frombuffer(raw, np.int8).reshape(-1, packed.group).astype(np.float32)
    else:
        bytes_ = np.frombuffer(raw, np.uint8).reshape(-1, packed.group // 2)
        q = np.concatenate([bytes_ & 15, bytes_ >> 4], 1).astype(np.float32)
        q -= 8
    with np.errstate(all="ignore"):
        q *= scale[:, None]
    return q.reshape(stop - start, width)
