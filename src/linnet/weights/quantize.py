"""Bringing dense tensors into few bits, rows at a time."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import TYPE_CHECKING, Any

from linnet.errors import WeightsError
from linnet.weights.dtypes import SIZES, floats
from linnet.weights.packed import BITS, Packed, group_of, quantize_rows, sizes, unpack_rows
from linnet.weights.threads import each as each_of

if TYPE_CHECKING:
    import numpy as np

    from linnet.weights.checkpoint import Checkpoint

    Rows = Callable[[int, int], np.ndarray[Any, Any]]

STEP = 1 << 20  # elements that are dense at a time


def quantize_values(rows: Rows, shape: tuple[int, ...], kind: str) -> Packed:
    """Pack a weight whose f32 rows `rows(start, stop)` gives. Raises WeightsError for values
    that are not finite: a scale made of one would spoil its whole group."""
    import numpy as np

    width, count = shape[-1], prod(shape[:-1])
    group = group_of(width)
    assert group is not None
    each, scales = sizes(kind, shape)
    data = np.empty((count, each), np.int8 if BITS[kind] == 8 else np.uint8)
    scale = np.empty((count, scales), np.float32)
    step = max(1, STEP // width)

    def pack(start: int) -> None:
        stop = min(start + step, count)
        values = rows(start, stop)
        if not np.isfinite(values).all():
            bad = int(np.argmin(np.isfinite(values).all(1))) + start
            raise WeightsError(f"row {bad} holds a value that is not finite")
        data[start:stop], scale[start:stop] = quantize_rows(values, kind)

    each_of(pack, range(0, count, step))
    return Packed(kind, shape, group, data.data.cast("B"), scale.data.cast("B"))


def quantize_tensor(checkpoint: Checkpoint, name: str, shape: tuple[int, ...], kind: str) -> Packed:
    """Pack one tensor of a checkpoint; only a part of it is dense at a time where the file
    has it so. Raises WeightsError."""
    info = checkpoint.tensors[name]
    width = shape[-1]
    try:
        if info.dtype in BITS:
            held = checkpoint.packed(name)
            return quantize_values(lambda a, b: unpack_rows(held, a, b), shape, kind)
        dtype = info.dtype if info.dtype in ("bf16", "f16", "f32") else "f32"
        raw = checkpoint.read(name, dtype)
        each = SIZES[dtype] * width
        return quantize_values(
            lambda a, b: floats(raw[a * each : b * each], dtype).reshape(b - a, width),
            shape,
            kind,
        )
    except WeightsError as error:
        text = str(error)
        if f"`{name}`" not in text:
            text = f"{info.file}: tensor `{name}`: {text}"
        raise WeightsError(text) from error
