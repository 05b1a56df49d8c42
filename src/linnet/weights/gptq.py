"""Checkpoints of GPTQ and AWQ: integers packed into i32, a scale and a zero for each group.

For `X.weight` `[Out, In]` they hold `X.qweight`, `X.qzeros`, `X.scales` `[groups, Out]`. GPTQ packs
along `In` and may have `X.g_idx`, the group of each column; its zeros are one less than meant, but
in the format that the configuration beside the file calls `gptq_v2`. AWQ packs along `Out`, eight
columns to an i32 in the order 0 2 4 6 1 3 5 7. Frantar et al., "GPTQ" (2022); Lin et al., "AWQ"
(2023).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.errors import WeightsError
from linnet.weights.dtypes import CHUNK, SIZES, floats, packed
from linnet.weights.json_text import JsonError, read_json
from linnet.weights.room import room
from linnet.weights.tensor_info import TensorInfo

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

PARTS = ("qweight", "qzeros", "scales", "g_idx")
_SCALES = ("f16", "bf16", "f32")
_FORMATS = ("gptq", "gptq_v2")
_AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)  # where in an i32 column j of eight stands


@dataclass(frozen=True, slots=True)
class Integers:
    """One weight: `parts` by their last name, `bits` of an integer, and whose packing it is."""

    info: TensorInfo
    parts: dict[str, TensorInfo]
    bits: int
    awq: bool
    less: int = 0  # how much less than meant the zeros are


def integers(tensors: Mapping[str, TensorInfo]) -> dict[str, Integers]:
    """The weights that are packed so, by the names of dense ones. Raises WeightsError."""
    found: dict[str, Integers] = {}
    less: dict[Path, int] = {}
    for name, q in tensors.items():
        if not name.endswith(".qweight"):
            continue
        stem = name.removesuffix("qweight")
        parts = {part: tensors[stem + part] for part in PARTS if stem + part in tensors}
        if len(parts) == 1 or q.dtype != "i32" or len(q.shape) != 2:
            continue
        _check_parts(stem, parts, tensors)
        zeros, scales = parts["qzeros"], parts["scales"]
        out = scales.shape[-1]
        awq = q.shape[1] != out
        index = parts.get("g_idx")
        if awq:
            bits, width = 4, q.shape[0]
        else:
            bits = 32 * zeros.shape[-1] // max(1, out)
            width = index.shape[0] if index is not None else q.shape[0] * 32 // max(1, bits)
        groups = scales.shape[0]
        fits = bits in (4, 8) and groups and width and (index is not None or width % groups == 0)
        packs = 32 // bits if fits else 1
        rows = (width, out // packs) if awq else (width // packs, out)
        fits = fits and width % packs == 0 and (index is None or index.shape == (width,))
        if not fits or q.shape != rows or zeros.shape != (groups, out // packs):
            raise WeightsError(
                f"{q.file}: tensor `{name}` {list(q.shape)} with zeros {list(zeros.shape)} and "
                f"scales {list(scales.shape)}: neither GPTQ's layout nor AWQ's, of 4 or 8 bits"
            )
        nbytes = sum(part.nbytes for part in parts.values())
        kind = "awq" if awq else "gptq"
        info = TensorInfo(f"{stem}weight", kind, (out, width), nbytes, q.file, importer=True)
        folder = q.file.parent
        if not awq and folder not in less:
            less[folder] = 0 if _format(folder) == "gptq_v2" else 1
        found[info.name] = Integers(info, parts, bits, awq, 0 if awq else less[folder])
    return found


def _check_parts(stem: str, parts: Mapping[str, TensorInfo], tensors: Mapping[str, Any]) -> None:
    """Raises WeightsError for a part that is missing or of a wrong dtype or rank."""
    q = parts["qweight"]
    for part in ("qzeros", "scales"):
        if part not in parts:
            raise WeightsError(f"{q.file}: tensor `{q.name}`: `{stem}{part}` is missing beside it")
    for part, info in parts.items():
        floating, rank = part == "scales", 1 if part == "g_idx" else 2
        if (info.dtype not in _SCALES if floating else info.dtype != "i32") or (
            len(info.shape) != rank
        ):
            wanted = "floats" if floating else "i32"
            raise WeightsError(
                f"{info.file}: tensor `{info.name}`: expected {wanted} of {rank} "
                f"dimension{'s' * (rank > 1)}, found {info.dtype} {list(info.shape)}"
            )
    if f"{stem}weight" in tensors:
        raise WeightsError(
            f"{q.file}: tensor `{stem}weight` is there, and packed as `{q.name}` too"
        )


def _format(folder: Path) -> object:
    """What the configuration beside a file says of GPTQ's format. Raises WeightsError where it
    cannot be read: the zeros mean one thing or another."""
    for name in ("quantize_config.json", "config.json"):
        file = folder / name
        try:
            raw = file.read_bytes()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise WeightsError(f"{file}: cannot be read ({error.strerror})") from error
        try:
            found = read_json(raw)
        except JsonError as error:
            raise WeightsError(f"{file}: {error}") from error
        if name == "config.json" and isinstance(found, dict):
            found = found.get("quantization_config")
        if isinstance(found, dict) and "checkpoint_format" in found:
            if found["checkpoint_format"] not in _FORMATS:
                raise WeightsError(
                    f"{file}: `checkpoint_format` is {found['checkpoint_format']!r}, expected one "
                    f"of {', '.join(_FORMATS)}"
                )
            return found["checkpoint_format"]
    return None


def read_integers(
    weight: Integers,
    peek: Callable[[str], memoryview],
    dtype: str,
    out: memoryview | None,
) -> memoryview:
    """The values `[Out, In]` in a float dtype, some rows at a time."""
    import numpy as np

    rows, width = weight.info.shape

    def part(name: str) -> Array:
        info = weight.parts[name]
        return np.frombuffer(peek(info.name), "<i4").view("<u4").reshape(info.shape)

    scales_info = weight.parts["scales"]
    scales = floats(peek(scales_info.name), scales_info.dtype).reshape(scales_info.shape)
    groups = len(scales)
    if "g_idx" in weight.parts:
        index = np.frombuffer(peek(weight.parts["g_idx"].name), "<i4")
        if index.size and not 0 <= index.min() <= index.max() < groups:
            raise WeightsError("g_idx names a group that is not there")
    else:
        index = np.arange(width) // (width // groups)
    per = 32 // weight.bits
    order = np.array(_AWQ_ORDER if weight.awq else range(per), np.uint32)
    shifts = order * np.uint32(weight.bits)
    mask = np.uint32((1 << weight.bits) - 1)
    qweight, qzeros = part("qweight"), part("qzeros")

    def opened(x: Array) -> Array:
        """The integers along the last axis of i32s."""
        return (x[..., None] >> shifts & mask).reshape(*x.shape[:-1], -1)

    each = SIZES[dtype] * width
    if out is None:
        out = room(rows * each)
    out = out.cast("B")
    step = max(per, CHUNK // max(1, width) // per * per)
    for start in range(0, rows, step):
        stop = min(start + step, rows)
        words = slice(start // per, -(-stop // per))
        zeros = opened(qzeros[:, words]).astype(np.float32) + weight.less
        if weight.awq:
            q = opened(qweight[:, words]).T
        else:
            q = opened(np.ascontiguousarray(qweight[:, start:stop].T))
        values = q.astype(np.float32) - zeros.T[:, index]
        values *= scales[:, start:stop].T[:, index]
        out[start * each : stop * each] = packed(values, dtype)
    return out
