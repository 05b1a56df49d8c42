"""Checkpoints in 8-bit floats with a scale for each block, as Qwen and DeepSeek publish them.

`X.weight` is `f8_e4m3` `[Out, In]` and `X.weight_scale_inv` holds what each block of, usually,
128 × 128 is multiplied by; a scale alone is for the whole tensor. E4M3: Micikevicius et al., "FP8
formats for deep learning" (2022).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from linnet.errors import WeightsError
from linnet.weights.dtypes import CHUNK, SIZES, floats, packed
from linnet.weights.room import room
from linnet.weights.tensor_info import TensorInfo

if TYPE_CHECKING:
    import numpy as np

DTYPE = "f8_e4m3"
SUFFIXES = ("_scale_inv", "_scale")


def scale_of(info: TensorInfo, tensors: dict[str, TensorInfo]) -> str | None:
    """The name of the scales that belong to an 8-bit tensor, or None."""
    if info.dtype != DTYPE:
        return None
    return next((info.name + s for s in SUFFIXES if info.name + s in tensors), None)


def read_scaled(
    raw: memoryview,
    info: TensorInfo,
    scale_raw: memoryview,
    scale: TensorInfo,
    dtype: str,
    out: memoryview | None,
) -> memoryview:
    """The values in a float dtype, rounded to nearest even, a bounded part at a time."""
    import numpy as np

    if scale.dtype not in ("f32", "bf16", "f16"):
        raise WeightsError(f"its scales are {scale.dtype}, expected floats")
    scales = floats(scale_raw, scale.dtype).reshape(scale.shape)
    if not raw.nbytes:
        return room(0) if out is None else out
    width = info.shape[-1] if info.shape else 1
    rows = raw.nbytes // max(1, width)
    if scales.size == 1:
        tall, wide = max(1, rows), max(1, width)
        scales = scales.reshape(1, 1)
    elif scales.ndim == 2 and len(info.shape) == 2 and scales.size:
        tall, wide = (-(-n // m) for n, m in zip(info.shape, scales.shape))
    else:
        raise WeightsError(f"scales {list(scale.shape)} do not go with {list(info.shape)}")
    # Blocks have a side that is a power of two; only the last of a row or column is cut short.
    tall, wide = (_side(n) if m > 1 else n for n, m in zip((tall, wide), scales.shape))
    if scales.size > 1 and scales.shape != tuple(
        -(-n // m) for n, m in zip(info.shape, (tall, wide))
    ):
        raise WeightsError(f"scales {list(scale.shape)} do not go with {list(info.shape)}")
    if out is None:
        out = room(rows * width * SIZES[dtype])
    out = out.cast("B")
    table, columns = _table(), np.arange(width) // wide
    each = SIZES[dtype] * width
    step = max(1, CHUNK // max(1, width))
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        part = np.frombuffer(raw[start * width : stop * width], np.uint8)
        values = table[part].reshape(stop - start, width)
        values = values * scales[np.arange(start, stop) // tall][:, columns]
        out[start * each : stop * each] = packed(values, dtype)
    return out


def _side(n: int) -> int:
    """The least power of two that is not less."""
    return 1 << (n - 1).bit_length()


def _table() -> np.ndarray[Any, Any]:
    """The value of every byte: sign, 4 bits of exponent with bias 7, 3 of fraction."""
    import numpy as np

    byte = np.arange(256)
    exponent, fraction = (byte >> 3 & 15).astype(np.float32), (byte & 7).astype(np.float32)
    normal = np.exp2(exponent - 7) * (1 + fraction / 8)
    values = np.where(exponent == 0, np.float32(2.0**-6) * fraction / 8, normal)
    values = np.where(byte & 127 == 127, np.nan, values)
    return np.where(byte & 128, -values, values).astype(np.float32)
