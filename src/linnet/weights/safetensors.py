"""The safetensors format: eight bytes of header length, a JSON header, the data.

Format: https://github.com/huggingface/safetensors#format. The header maps each name to
`dtype`, `shape` and `data_offsets`, counted from the end of the header; the data has neither
overlaps nor holes.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.errors import WeightsError
from linnet.weights.dtypes import SIZES, bytes_of
from linnet.weights.json_text import JsonError, read_json
from linnet.weights.mapped import MappedFile
from linnet.weights.packed import BITS, GROUPS, Packed
from linnet.weights.tensor_info import TensorInfo

if TYPE_CHECKING:
    from typing import TypeGuard

# The format's own limit on the header.
HEADER_LIMIT = 100_000_000
# In a file's metadata: which tensors are packed, as {name: {"format", "group"}}. Each has its
# bytes under its own name and its scales under that name and a suffix.
PACKED = "linnet.packed"
SCALE = ".scale"
# The format's names: ours, and bits an element.
FORMAT_DTYPES = {
    "BOOL": ("bool", 8), "I8": ("i8", 8), "I16": ("i16", 16), "I32": ("i32", 32),
    "I64": ("i64", 64), "U8": ("u8", 8), "U16": ("u16", 16), "U32": ("u32", 32),
    "U64": ("u64", 64), "F16": ("f16", 16), "BF16": ("bf16", 16), "F32": ("f32", 32),
    "F64": ("f64", 64),
    # Known to the format but to no program: listed, never loaded as they are.
    "F8_E4M3": ("f8_e4m3", 8), "F8_E5M2": ("f8_e5m2", 8), "F8_E8M0": ("f8_e8m0", 8),
    "F8_E4M3FNUZ": ("f8_e4m3fnuz", 8), "F8_E5M2FNUZ": ("f8_e5m2fnuz", 8),
    "F6_E2M3": ("f6_e2m3", 6), "F6_E3M2": ("f6_e3m2", 6), "F4": ("f4", 4),
    "C64": ("c64", 64),
}  # fmt: skip


class SafetensorsFile:
    """One file, its header validated as a whole before anything is handed out."""

    def __init__(self, path: Path):
        self.path = path
        self._file = MappedFile(path)
        self.tensors: dict[str, TensorInfo] = {}
        self.attributes: dict[str, str] = {}
        self._ranges: dict[str, tuple[int, int]] = {}
        self._lent: set[str] = set()
        self._groups: dict[str, int] = {}  # of packed tensors
        self.scales: dict[str, TensorInfo] = {}
        try:
            self._read_header()
        except BaseException:
            self._file.close()
            raise

    def view(self, name: str) -> memoryview:
        """The stored bytes: writable, private to this process, no copy where aligned."""
        start, stop = self._ranges[name]
        view = self._file.view(start, stop)
        info = self.tensors.get(name) or self.scales[name]
        if start % SIZES.get(info.dtype, 1):
            # The format does not align tensors. Vector code may need it, so such a one
            # (rare: odd counts of a narrow dtype before a wide one) is copied.
            return memoryview(bytearray(view))
        self._lent.add(name)
        return view

    def peek(self, name: str) -> memoryview:
        """The stored bytes, to be read now and not kept; `release` may follow."""
        return self._file.view(*self._ranges[name])

    def release(self, name: str) -> None:
        """Forget the resident pages of a tensor that was read and not handed out."""
        if name not in self._lent:
            self._file.release(*self._ranges[name])

    def forget(self, name: str) -> None:
        """As `release`, of a tensor handed out that nobody has written and nobody reads now."""
        self._lent.discard(name)
        self.release(name)

    @property
    def lent(self) -> tuple[MappedFile, list[tuple[int, int]]]:
        """The file and the ranges of its bytes that were handed out."""
        return self._file, [self._ranges[name] for name in self._lent]

    def close(self) -> None:
        self._file.close()

    def _fail(self, message: str, tensor: str | None = None) -> WeightsError:
        where = f"{self.path}: tensor `{tensor}`" if tensor else f"{self.path}"
        return WeightsError(f"{where}: {message}")

    def _read_header(self) -> None:
        size = self._file.size
        if size < 8:
            raise self._fail(f"not a safetensors file: {size} bytes, expected at least 8")
        length = int.from_bytes(self._file.view(0, 8), "little")
        if length > HEADER_LIMIT:
            raise self._fail(
                f"not a safetensors file: a header of {length} bytes is stated, the format "
                f"allows {HEADER_LIMIT}"
            )
        if 8 + length > size:
            raise self._fail(
                f"cut short: the header ends at byte {8 + length}, the file at byte {size}"
            )
        try:
            header = read_json(bytes(self._file.view(8, 8 + length)))
        except JsonError as error:
            raise self._fail(f"bad header: {error}") from error
        if not isinstance(header, dict):
            raise self._fail("bad header: expected a JSON object")
        attributes = header.pop("__metadata__", None) or {}
        if not isinstance(attributes, dict) or not all(
            isinstance(value, str) for value in attributes.values()
        ):
            raise self._fail("bad header: `__metadata__` is not an object of strings")
        self.attributes = attributes
        for name, entry in header.items():
            self._add(name, entry, 8 + length)
        self._check_ranges(8 + length)
        self._packed_ones()

    def packed(self, name: str) -> Packed:
        """A tensor that the header declares packed, in the mapped file itself."""
        if name not in self._groups:
            raise self._fail("is not packed", name)
        info = self.tensors[name]
        scale = self.view(name + SCALE)
        return Packed(info.dtype, info.shape, self._groups[name], self.view(name), scale)

    def _packed_ones(self) -> None:
        """Offer packed tensors by their logical shapes, and their scales not at all."""
        text = self.attributes.get(PACKED)
        if text is None:
            return
        try:
            declared = read_json(text)
        except JsonError as error:
            raise self._fail(f"bad metadata `{PACKED}`: {error}") from error
        if not isinstance(declared, dict):
            raise self._fail(f"bad metadata `{PACKED}`: expected an object")
        for name, form in declared.items():
            kind = form.get("format") if isinstance(form, dict) else None
            group = form.get("group") if isinstance(form, dict) else None
            data, scale = self.tensors.get(name), self.tensors.get(name + SCALE)
            if not isinstance(kind, str) or kind not in BITS or group not in GROUPS:
                raise self._fail(f"declared packed as {form!r}, which is not known here", name)
            if data is None or scale is None:
                raise self._fail(f"declared packed, but it or `{name}{SCALE}` is missing", name)
            width = data.shape[-1] * 8 // BITS[kind] if data.shape else 0
            stored = "i8" if kind == "int8" else "u8"
            wanted = (*data.shape[:-1], width // group)
            if data.dtype != stored or width % group or not width or len(data.shape) < 2:
                raise self._fail(
                    f"declared {kind} in groups of {group}, found {data.dtype} {list(data.shape)}",
                    name,
                )
            if scale.dtype != "f32" or scale.shape != wanted:
                raise self._fail(
                    f"scales are {scale.dtype} {list(scale.shape)}, expected f32 {list(wanted)}",
                    name,
                )
            self._groups[name] = group
            self.scales[name + SCALE] = self.tensors.pop(name + SCALE)
            shape = (*data.shape[:-1], width)
            nbytes = data.nbytes + scale.nbytes
            self.tensors[name] = TensorInfo(name, kind, shape, nbytes, self.path, True)

    def _add(self, name: str, entry: Any, base: int) -> None:
        if not isinstance(entry, dict):
            raise self._fail("bad header entry: expected an object", name)
        dtype, shape = entry.get("dtype"), entry.get("shape")
        offsets: Any = entry.get("data_offsets")
        if not isinstance(dtype, str) or dtype not in FORMAT_DTYPES:
            raise self._fail(f"unknown dtype {dtype!r}", name)
        if not _naturals(shape):
            raise self._fail(f"shape is {shape!r}, expected a list of non-negative integers", name)
        if not _naturals(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
            raise self._fail(f"data_offsets is {offsets!r}, expected [start, stop]", name)
        own, bits = FORMAT_DTYPES[dtype]
        found = offsets[1] - offsets[0]
        if prod(shape) * bits != found * 8:
            raise self._fail(
                f"{found} bytes stored, but {dtype} {list(shape)} takes {prod(shape) * bits / 8:g}",
                name,
            )
        self.tensors[name] = TensorInfo(name, own, tuple(shape), found, self.path)
        self._ranges[name] = (base + offsets[0], base + offsets[1])

    def _check_ranges(self, base: int) -> None:
        size = self._file.size
        at, previous = base, ""
        for name, (start, stop) in sorted(self._ranges.items(), key=lambda item: item[1]):
            if stop > size:
                raise self._fail(
                    f"cut short: its data ends at byte {stop}, the file at byte {size}", name
                )
            if start < at:
                raise self._fail(
                    f"its data starts at byte {start}, inside that of `{previous}`, which ends "
                    f"at byte {at}",
                    name,
                )
            if start > at:
                raise self._fail(f"{start - at} bytes before its data belong to no tensor", name)
            at, previous = stop, name
        if at != size:
            raise self._fail(f"{size - at} bytes at the end belong to no tensor")


def _naturals(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


# --- Writing ------------------------------------------------------------------------

INDEX = "model.safetensors.index.json"
OWN_FILE = re.compile(r"model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?")
_FORMAT_NAMES = {own: name for name, (own, _) in FORMAT_DTYPES.items() if own in SIZES}

Data = bytes | bytearray | memoryview
Item = tuple[str, str, Sequence[int], "Data | Callable[[], Data]"]


def save(
    folder: str | Path,
    tensors: Iterable[Item],
    *,
    metadata: Mapping[str, str] | None = None,
    shard_bytes: int = 5_000_000_000,
) -> list[Path]:
    """Write a checkpoint; the files written, without the index.

    Items are (name, our dtype, shape, packed little-endian bytes), the bytes possibly a
    callable that gives them when their turn comes, so that no second copy of a model is held.
    A name that comes twice with one dtype and shape (a tied tensor) is written once. One
    `model.safetensors`, or shards of about `shard_bytes` and an index. New files appear under
    their names only when all are complete; files of an earlier checkpoint there are replaced.
    """
    folder = Path(folder)
    shards = _shards(tensors, shard_bytes)
    one = len(shards) == 1
    names = [
        "model.safetensors" if one else f"model-{i:05}-of-{len(shards):05}.safetensors"
        for i in range(1, len(shards) + 1)
    ]
    started: dict[Path, Path] = {}  # temporary → final, in the order to rename
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, shard in zip(names, shards):
            temporary = folder / f".{name}.{os.getpid()}.tmp"
            started[temporary] = folder / name
            _write_file(temporary, shard, metadata or {"format": "pt"})
        if not one:
            temporary = folder / f".{INDEX}.{os.getpid()}.tmp"
            started[temporary] = folder / INDEX
            _write_index(temporary, dict(zip(names, shards)))
        for temporary, final in started.items():
            os.replace(temporary, final)
        kept = {final.name for final in started.values()}
        for old in folder.iterdir():
            if OWN_FILE.fullmatch(old.name) and old.name not in kept:
                old.unlink()
    except OSError as error:
        raise WeightsError(f"{folder}: cannot be written: {error.strerror or error}") from error
    finally:
        for temporary in started:
            temporary.unlink(missing_ok=True)
    return [folder / name for name in names]


def _shards(tensors: Iterable[Item], limit: int) -> list[list[Item]]:
    """The items in files of at most `limit` bytes, in order; a larger tensor stands alone."""
    seen: dict[str, tuple[str, tuple[int, ...]]] = {}
    shards: list[list[Item]] = [[]]
    filled = 0
    for item in tensors:
        name, dtype, shape, _ = item
        if dtype not in _FORMAT_NAMES:
            raise WeightsError(f"tensor `{name}`: dtype {dtype} cannot be saved")
        form = (dtype, tuple(shape))
        if name in seen:
            if seen[name] != form:
                raise WeightsError(
                    f"tensor `{name}` is given twice, as {_text(*seen[name])} and {_text(*form)}"
                )
            continue
        seen[name] = form
        size = bytes_of(dtype, shape)
        if shards[-1] and filled + size > limit:
            shards.append([])
            filled = 0
        shards[-1].append(item)
        filled += size
    return shards


def layout(
    items: Iterable[tuple[str, str, Sequence[int]]], metadata: Mapping[str, str]
) -> tuple[bytes, dict[str, int]]:
    """How a file of (name, dtype, shape) begins, its length included, and where in the file each
    tensor starts: wide elements first, so that each starts at a multiple of its element's size."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    at = 0
    starts: dict[str, int] = {}
    for name, dtype, shape in sorted(items, key=lambda item: (-SIZES[item[1]], item[0])):
        size = bytes_of(dtype, shape)
        header[name] = {
            "dtype": _FORMAT_NAMES[dtype],
            "shape": list(shape),
            "data_offsets": [at, at + size],
        }
        starts[name] = at
        at += size
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(len(text) + 8) % 64)  # the data begins where vector loads are aligned
    base = 8 + len(text)
    return len(text).to_bytes(8, "little") + text, {n: base + s for n, s in starts.items()}


def _write_file(path: Path, items: list[Item], metadata: Mapping[str, str]) -> None:
    head, starts = layout([item[:3] for item in items], metadata)
    items = sorted(items, key=lambda item: starts[item[0]])
    with path.open("wb") as file:
        file.write(head)
        for name, dtype, shape, data in items:
            raw = memoryview(data() if callable(data) else data).cast("B")
            if raw.nbytes != bytes_of(dtype, shape):
                raise WeightsError(
                    f"tensor `{name}`: {raw.nbytes} bytes given, {_text(dtype, shape)} takes "
                    f"{bytes_of(dtype, shape)}"
                )
            file.write(raw)
        file.flush()
        os.fsync(file.fileno())


def _write_index(path: Path, files: Mapping[str, list[Item]]) -> None:
    total = sum(bytes_of(item[1], item[2]) for items in files.values() for item in items)
    write_index(path, {item[0]: name for name, items in files.items() for item in items}, total)


def write_index(path: Path, files: Mapping[str, str], total: int) -> None:
    """The index of a checkpoint in shards: the file of each tensor, and bytes in all."""
    index = {"metadata": {"total_size": total}, "weight_map": dict(files)}
    path.write_text(json.dumps(index, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _text(dtype: str, shape: Sequence[int]) -> str:
    return f"{dtype} {list(shape)}"
