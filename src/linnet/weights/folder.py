"""Writing a checkpoint of packed weights: one tensor in memory, whole or not at all, to go on.

Shards are written in a folder beside the one asked for, `NAME.partial`, each under a passing
name until it is complete. A run that was stopped, at whatever moment, finds the complete ones
again, where the plan is the same, and makes the others; the last step renames the folder. The
plan's file is locked while a run writes, so that two runs never write the same folder.
"""

from __future__ import annotations

import contextlib
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

PLAN = ".plan.json"
SPARE = 16 << 20  # bytes that a file system wants for itself, and the text files
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
    before it gets its name. Raises WeightsError where `folder` is there and not empty, where
    another run writes it, and where the disk has too little room. Where it fails, shards that
    are complete stay for the next run, and nothing else.
    """
    _check_name(folder)
    work = folder.parent / f"{folder.name}.partial"
    shards = _shards(outputs, shard_bytes)
    total = sum(output.nbytes for output in outputs)
    names = _names(len(shards))
    lock: int | None = None
    named = False
    try:
        lock = _begin(work, outputs, about, shard_bytes)
        there = sum(
            sum(output.nbytes for output in shard)
            for name, shard in zip(names, shards)
            if _whole(work / name, shard, about)
        )
        _check_room(work, total - there)
        done = 0
        for name, shard in zip(names, shards):
            if not _whole(work / name, shard, about):
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
        if folder.is_dir():
            folder.rmdir()
        os.replace(work, folder)
        named = True
        (folder / PLAN).unlink()  # last: until then a stopped run is known as one
    except OSError as error:
        raise WeightsError(f"{folder}: cannot be written: {error.strerror or error}") from error
    finally:
        if lock is not None:
            if not named:
                _tidy(work, names)
            os.close(lock)
    return [folder / name for name in names]


def _check_name(folder: Path) -> None:
    """Refuse, before any work, a folder that a finished one could not be renamed to."""
    if folder.is_symlink():
        raise WeightsError(f"{folder}: is a link; name the folder itself")
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise WeightsError(f"{folder}: is there already; remove it or choose another folder")
    if folder.name in ("", ".."):
        raise WeightsError(f"{folder}: has no name of its own; name a folder to be made")
    if folder.is_dir() and os.path.ismount(folder):
        raise WeightsError(f"{folder}: a disk is mounted there; choose a folder in it")


def _tidy(work: Path, names: Sequence[str]) -> None:
    """After a run that failed, while it still has the lock: keep what the next one can use."""
    with contextlib.suppress(OSError):
        for path in work.glob(".*.tmp"):
            path.unlink()
        if not any((work / name).is_file() for name in names):
            shutil.rmtree(work)


def _whole(path: Path, shard: Sequence[Output], about: Mapping[str, str]) -> bool:
    """Whether a shard is there, in its length. It has had its name only since it was complete."""
    if not path.is_file():
        return False
    head, starts = _head(shard, about)
    parts = [part for output in shard for part in output.parts()]
    ends = [starts[name] + bytes_of(dtype, shape) for name, dtype, shape in parts]
    return path.stat().st_size == max(ends, default=len(head))


def _names(count: int) -> list[str]:
    if count == 1:
        return ["model.safetensors"]
    return [f"model-{i:05}-of-{count:05}.safetensors" for i in range(1, count + 1)]


def _begin(
    work: Path, outputs: Sequence[Output], about: Mapping[str, str], shard_bytes: int
) -> int:
    """Keep the complete shards of an earlier run with the same plan; drop everything else. The
    plan's file, open and locked."""
    listed = [[o.name, o.dtype, list(o.shape), o.kind] for o in outputs]
    text = json.dumps([dict(about), shard_bytes, listed], sort_keys=True)
    plan = json.dumps({"plan": hashlib.sha256(text.encode()).hexdigest()}).encode()
    known = work / PLAN
    if work.is_dir() and not known.is_file() and any(work.iterdir()):
        raise WeightsError(f"{work}: in the way, and not from an earlier run: remove it")
    work.mkdir(parents=True, exist_ok=True)
    lock = os.open(known, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o644)
    try:
        _locked(lock, work)
        if os.fstat(lock).st_ino != known.stat().st_ino:  # of a run that ended just now
            raise WeightsError(f"{work}: another run was writing there; start again")
        same = os.read(lock, 1000) == plan
        for path in work.iterdir():
            if path != known and (not same or path.name.endswith(".tmp")):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        if not same:
            os.ftruncate(lock, 0)
            os.pwrite(lock, plan, 0)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _locked(file: int, work: Path) -> None:
    """Where the system has locks, one run at a time; they end with their process."""
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise WeightsError(f"{work}: another run is writing there") from error


def _check_room(work: Path, needed: int) -> None:
    free = shutil.disk_usage(work).free
    if needed + SPARE > free:
        raise WeightsError(
            f"{work}: {needed / 1e9:.2f} GB are still to be written, and the disk has "
            f"{free / 1e9:.2f} GB left"
        )


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


def _head(shard: Sequence[Output], about: Mapping[str, str]) -> tuple[bytes, dict[str, int]]:
    """How its file begins, and where each part starts."""
    declared = {o.name: {"format": o.kind, "group": group_of(o.shape[-1])} for o in shard if o.kind}
    metadata = {"format": "pt", **about, PACKED: json.dumps(declared)}
    return layout([part for output in shard for part in output.parts()], metadata)


def _write_shard(
    path: Path,
    shard: list[Output],
    about: Mapping[str, str],
    done: int,
    total: int,
    progress: Callable[[int, int, str], None] | None,
) -> None:
    """Tensors in their order, each part at its place in the file."""
    head, starts = _head(shard, about)
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
        if hasattr(os, "posix_fadvise"):
            # Whoever loads it reads it anew, into larger pages than it was written in; and what
            # was written does not crowd out what is still to be read.
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
