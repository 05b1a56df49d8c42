"""What an importer's recipe makes of the tensors it is given: elements move, none is computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from linnet.weights.dtypes import SIZES, bytes_of, convert
from linnet.weights.importers import Recipe
from linnet.weights.room import room
from linnet.weights.tensor_info import TensorInfo

if TYPE_CHECKING:
    import numpy as np

# A stored tensor's elements: with a dtype converted, with None as they are stored.
Read = Callable[[str, str | None, "memoryview | None"], memoryview]


def read_following(
    recipe: Recipe, infos: list[TensorInfo], read: Read, dtype: str, out: memoryview | None
) -> memoryview:
    """Parts that follow one another, each read to its place."""
    if out is None:
        out = room(bytes_of(dtype, recipe.info.shape))
    out = out.cast("B")
    start = 0
    for info in infos:
        stop = start + bytes_of(dtype, info.shape)
        read(info.name, dtype, out[start:stop])
        start = stop
    return out


def read_moved(
    recipe: Recipe, infos: list[TensorInfo], read: Read, dtype: str, out: memoryview | None
) -> memoryview:
    """The tensor as packed elements of `dtype`, row-major, in `out` where it is given."""
    import numpy as np

    # Forms that no program declares are unpacked first, the rest moves as it is stored.
    plain = all(info.dtype in SIZES and not info.importer for info in infos)
    stored = infos[0].dtype if plain else recipe.cast or dtype
    kind = np.dtype(f"<u{SIZES[stored]}")

    def part(info: TensorInfo) -> np.ndarray[Any, Any]:
        raw = read(info.name, None if plain else stored, None)
        found = np.frombuffer(raw, kind).reshape(info.shape)
        return found if recipe.transpose is None else found.transpose(recipe.transpose)

    whole = _whole(recipe, infos, part)
    if recipe.take is not None:
        axis, start, stop = recipe.take
        whole = whole[(slice(None),) * axis + (slice(start, stop),)]
    raw = np.ascontiguousarray(whole).reshape(-1).data.cast("B")
    if recipe.cast is not None and recipe.cast != stored:
        raw, stored = convert(raw, stored, recipe.cast), recipe.cast
    if out is None and stored == dtype and not raw.readonly:
        return raw
    return convert(raw, stored, dtype, out)


def _whole(
    recipe: Recipe, infos: list[TensorInfo], part: Callable[[TensorInfo], np.ndarray[Any, Any]]
) -> np.ndarray[Any, Any]:
    """The parts joined and stacked; of one part no copy."""
    import numpy as np

    if len(infos) == 1:
        return part(infos[0])[None] if recipe.stack else part(infos[0])
    rows = []
    for start in range(0, len(infos), recipe.each):
        row = [part(info) for info in infos[start : start + recipe.each]]
        rows.append(row[0] if len(row) == 1 else np.concatenate(row, recipe.join))
    return np.stack(rows) if recipe.stack else rows[0]
