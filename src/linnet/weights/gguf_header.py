"""The header of a GGUF file: metadata values, and where each tensor lies.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3,
little-endian. Counts and lengths are checked against the file before they are believed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Any

from linnet.errors import WeightsError
from linnet.weights.mapped import MappedFile

# Metadata types with a fixed size, as `struct` reads them.
_SCALARS = {
    0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q",
    12: "<d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9
_MAX_DIMS = 4
_MAX_NESTING = 4

# Tensor types: number → (name, elements a block, bytes a block). Plain ones carry our names.
TYPES = {
    0: ("f32", 1, 4), 1: ("f16", 1, 2), 2: ("q4_0", 32, 18), 3: ("q4_1", 32, 20),
    6: ("q5_0", 32, 22), 7: ("q5_1", 32, 24), 8: ("q8_0", 32, 34), 9: ("q8_1", 32, 40),
    10: ("q2_k", 256, 84), 11: ("q3_k", 256, 110), 12: ("q4_k", 256, 144),
    13: ("q5_k", 256, 176), 14: ("q6_k", 256, 210), 15: ("q8_k", 256, 292),
    16: ("iq2_xxs", 256, 66), 17: ("iq2_xs", 256, 74), 18: ("iq3_xxs", 256, 98),
    19: ("iq1_s", 256, 50), 20: ("iq4_nl", 32, 18), 21: ("iq3_s", 256, 110),
    22: ("iq2_s", 256, 82), 23: ("iq4_xs", 256, 136), 24: ("i8", 1, 1), 25: ("i16", 1, 2),
    26: ("i32", 1, 4), 27: ("i64", 1, 8), 28: ("f64", 1, 8), 29: ("iq1_m", 256, 56),
    30: ("bf16", 1, 2), 34: ("tq1_0", 256, 54), 35: ("tq2_0", 256, 66), 39: ("mxfp4", 32, 17),
}  # fmt: skip
FLOAT_TYPES = frozenset({0, 1, 28, 30})


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """`shape` is row-major, the format's dimensions turned round; `start` a file offset."""

    name: str
    type: int
    shape: tuple[int, ...]
    start: int
    nbytes: int

    @property
    def dtype(self) -> str:
        return TYPES[self.type][0]


@dataclass(slots=True)
class _Strings:
    """An array of strings left in the file until it is asked for: vocabularies are long."""

    start: int
    count: int


class GgufHeader:
    def __init__(self, file: MappedFile):
        self._file = file
        self._at = 0
        # The cursor below reads from one view; strings are cut from it.
        self._data = file.view(0, file.size)
        magic = bytes(self._data[:4])
        if magic != b"GGUF":
            raise self._fail(f"not a GGUF file: it starts with {magic!r}")
        self._at = 4
        version = self._number("<I", "version")
        if version & 0xFFFF == 0:
            raise self._fail("big-endian GGUF is not supported")
        if version not in (2, 3):
            raise self._fail(f"GGUF version {version} is not supported; supported: 2, 3")
        tensors = self._number("<Q", "tensor count")
        pairs = self._number("<Q", "metadata count")
        self.values: dict[str, Any] = {}
        for _ in range(self._counted(pairs, 12, "metadata count")):
            key = self._string("metadata key")
            if key in self.values:
                raise self._fail(f"metadata key `{key}` stands twice")
            self.values[key] = self._value(self._number("<I", key), key)
        self.tensors = self._tensors(self._counted(tensors, 24, "tensor count"))

    def value(self, key: str, default: Any = None) -> Any:
        value = self.values.get(key, default)
        if isinstance(value, _Strings):
            self._at = value.start
            value = self.values[key] = [self._string(key) for _ in range(value.count)]
        return value

    def _tensors(self, count: int) -> list[StoredTensor]:
        alignment = self.values.get("general.alignment", 32)
        if type(alignment) is not int or alignment <= 0 or alignment % 8:
            raise self._fail(
                f"metadata `general.alignment` is {alignment!r}, expected a multiple of 8"
            )
        described = [self._describe() for _ in range(count)]
        base = -(-self._at // alignment) * alignment
        found: dict[str, StoredTensor] = {}
        for tensor in described:
            if tensor.name in found:
                raise self._fail("stands twice", tensor.name)
            if tensor.start % alignment:
                raise self._fail(f"its data offset {tensor.start} is not aligned", tensor.name)
            start = base + tensor.start
            if start + tensor.nbytes > self._file.size:
                raise self._fail(
                    f"cut short: its data ends at byte {start + tensor.nbytes}, the file at byte "
                    f"{self._file.size}",
                    tensor.name,
                )
            found[tensor.name] = StoredTensor(
                tensor.name, tensor.type, tensor.shape, start, tensor.nbytes
            )
        placed = sorted(found.values(), key=lambda tensor: (tensor.start, tensor.nbytes))
        for before, after in pairwise(placed):
            if before.start + before.nbytes > after.start:
                raise self._fail(f"its data overlaps that of `{before.name}`", after.name)
        return list(found.values())

    def _describe(self) -> StoredTensor:
        name = self._string("tensor name")
        dims = self._number("<I", name)
        if dims > _MAX_DIMS:
            raise self._fail(f"{dims} dimensions, the format allows {_MAX_DIMS}", name)
        sizes = [self._number("<Q", name) for _ in range(dims)]
        kind = self._number("<I", name)
        offset = self._number("<Q", name)
        if kind not in TYPES:
            raise self._fail(f"unknown tensor type {kind}", name)
        dtype, block, size = TYPES[kind]
        columns = sizes[0] if sizes else 1
        if columns % block:
            raise self._fail(f"rows of {columns} are not whole blocks of {block} ({dtype})", name)
        return StoredTensor(name, kind, tuple(reversed(sizes)), offset, prod(sizes) // block * size)

    # --- The cursor ---------------------------------------------------------------

    def _value(self, kind: int, key: str, depth: int = 0) -> Any:
        if kind in _SCALARS:
            return self._number(_SCALARS[kind], key)
        if kind == _STRING:
            return self._string(key)
        if kind != _ARRAY or depth == _MAX_NESTING:
            raise self._fail(f"metadata `{key}` has an unknown type {kind}")
        item = self._number("<I", key)
        count = self._number("<Q", key)
        if item in _SCALARS:
            form = _SCALARS[item]
            self._counted(count, struct.calcsize(form), f"length of `{key}`")
            start = self._at
            self._skip(count * struct.calcsize(form), key)
            return list(struct.unpack_from(f"<{count}{form[1]}", self._data, start))
        self._counted(count, 8, f"length of `{key}`")
        if item == _STRING:
            start = self._at
            for _ in range(count):
                self._skip(self._number("<Q", key), key)
            return _Strings(start, count)
        values = [self._value(item, key, depth + 1) for _ in range(count)]
        return [self._strings(value, key) for value in values]

    def _strings(self, value: Any, key: str) -> Any:
        if not isinstance(value, _Strings):
            return value
        here, self._at = self._at, value.start
        strings = [self._string(key) for _ in range(value.count)]
        self._at = here
        return strings

    def _number(self, form: str, what: str) -> Any:
        start = self._at
        self._skip(struct.calcsize(form), what)
        return struct.unpack_from(form, self._data, start)[0]

    def _string(self, what: str) -> str:
        length = self._number("<Q", what)
        start = self._at
        self._skip(length, what)
        # Tokens of byte-level vocabularies need not be whole characters.
        return str(self._data[start : self._at], "utf-8", "replace")

    def _skip(self, count: int, what: str) -> None:
        self._at += count
        if self._at > self._file.size:
            raise self._fail(f"cut short: the file ends inside {what}")

    def _counted(self, count: int, least: int, what: str) -> int:
        if count * least > self._file.size - self._at:
            raise self._fail(f"{what} is {count}, more than the rest of the file can hold")
        return count

    def _fail(self, message: str, tensor: str | None = None) -> WeightsError:
        where = f"{self._file.path}: tensor `{tensor}`" if tensor else f"{self._file.path}"
        return WeightsError(f"{where}: {message}")
