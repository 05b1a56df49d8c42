"""Writing a checkpoint of packed weights: one tensor in memory, whole or not at all, to go on.

Shards are written in a folder beside the one asked for, `NAME.partial`, each under a passing
name until it is complete. A run that was stopped finds the complete ones again, where the plan
is the same, and makes the others; the last step renames the folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from linnet.errors import WeightsError
from linnet.weights.dtypes import bytes_of
from linnet.weights.packed import Packed, group_of, sizes
from linnet.weights.safetensors import INDEX, PACKED, SCALE, layout, write_index

PLAN = "plan.json"
Made = Packed | memoryview


@dataclass(frozen=True, slots=True)
class Output:
    """A tensor to write: dense in `dtype`, or packed as `kind`; `make` gives it at its turn."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    kind: str | None
    make: Callable[[], Made]

    def parts(self) -> list[tuple[str, str, tuple[int, ...]]]:
        """What it becomes in the file."""
        if self.kind is None:
            return [(self.name, self.dtype, self.shape)]
        each, scales = sizes(self.kind, self.shape)
        data = "i8" if self.kind == "int8" else "u8"
        return [
            (self.name, data, (*self.shape[:-1], each)),
            (self.name + SCALE, "f32", (*self.shape[:-1], scales)),
        ]

    @property
    def nbytes(self) -> int:
        return sum(bytes_of(dtype, shape) for _, dtype, shape in self.parts())


def write_folder(
    folder: Path,
    outputs: Sequence[Output],
    about: Mapping[str, str],
    *,
    shard_bytes: int = 2_000_000_000,
    progress: Callable[[int, int, str], None] | None = None,
    finish: Callable[[Path], None] | None = None,
) -> list[Path]:
    """Write the tensors as a safetensors folder; the files of weights.

    `about` identifies what is written: a partial folder with another one is begun anew.
    `progress(done, total, name)` counts bytes. `finish` puts other files into the folder
    before it gets its name. Raises WeightsError where `folder` is there and not empty.
    """
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise WeightsError(f"{folder}: is there already; remove it or choose another folder")
    work = folder.parent / f"{folder.name}.partial"
    shards = _shards(outputs, shard_bytes)
    total = sum(output.nbytes for output in outputs)
    names = _names(len(shards))
    try:
        _begin(work, outputs, about, shard_bytes)
        done = 0
        for name, shard in zip(names, shards):
            if not (work / name).is_file():
                temporary = work / f".{name}.tmp"
                _write_shard(temporary, shard, about, done, total, progress)
                os.replace(temporary, work / name)
            done += sum(output.nbytes for output in shard)
        if len(shards) > 1:
            files = {
                part[0]: name
                for name, shard in zip(names, shards)
                for output in shard
                for part in output.parts()
            }
            write_index(work / INDEX, files, total)
        if finish is not None:
            finish(work)
        (work / PLAN).unlink()
        if folder.is_dir():
            folder.rmdir()
        os.replace(work, folder)
    except OSError as error:
        raise WeightsError(f"{folder}: cannot be written: {error.strerror or error}") from error
    return [folder / name for name in names]


def _names(count: int) -> list[str]:
    if count == 1:
        return ["model.safetensors"]
    return [f"model-{i:05}-of-{count:05}.safetensors" for i in range(1, count + 1)]


def _begin(
    work: Path, outputs: Sequence[Output], about: Mapping[str, str], shard_bytes: int
) -> None:
    """Keep the complete shards of an earlier run with the same plan; drop everything else."""
    listed = [[o.name, o.dtype, list(o.shape), o.kind] for o in outputs]
    text = json.dumps([dict(about), shard_bytes, listed], sort_keys=True)
    plan = json.dumps({"plan": hashlib.sha256(text.encode()).hexdigest()})
    known = work / PLAN
    if work.is_dir():
        if not known.is_file():
            raise WeightsError(f"{work}: in the way, and not from an earlier run: remove it")
        if known.read_text(encoding="utf-8") == plan:
            for path in work.glob(".*.tmp"):
                path.unlink()
            return
        shutil.rmtree(work)
    work.mkdir(parents=True)
    known.write_text(plan, encoding="utf-8")


def _shards(outputs: Sequence[Output], limit: int) -> list[list[Output]]:
    shards: list[list[Output]] = [[]]
    filled = 0
    seen: set[str] = set()
    for output in outputs:
        for name, _, _ in output.parts():
            if name in seen:
                raise WeightsError(f"tensor `{name}` would be written twice")
            seen.add(name)
        if shards[-1] and filled + output.nbytes > limit:
            shards.append([])
            filled = 0
        shards[-1].append(output)
        filled += output.nbytes
    return shards


def _write_shard(
    path: Path,
    shard: list[Output],
    about: Mapping[str, str],
    done: int,
    total: int,
    progress: Callable[[int, int, str], None] | None,
) -> None:
    """Tensors in their order, each part at its place in the file."""
    declared = {o.name: {"format": o.kind, "group": group_of(o.shape[-1])} for o in shard if o.kind}
    metadata = {"format": "pt", **about, PACKED: json.dumps(declared)}
    head, starts = layout([part for output in shard for part in output.parts()], metadata)
    with path.open("wb") as file:
        file.write(head)
        for output in shard:
            made = output.make()
            raws = [made.data, made.scale] if isinstance(made, Packed) else [made]
            for (name, dtype, shape), raw in zip(output.parts(), raws, strict=True):
                if raw is None or raw.nbytes != bytes_of(dtype, shape):
                    raise WeightsError(f"tensor `{name}`: its bytes do not fit {dtype} {shape}")
                file.seek(starts[name])
                file.write(raw)
            done += output.nbytes
            if progress is not None:
                progress(done, total, output.name)
        file.flush()
        os.fsync(file.fileno())
