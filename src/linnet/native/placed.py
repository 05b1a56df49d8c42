"""A call's arguments where compiled code finds them: `struct call` of `c/runtime.h`.

Plain arrays of words, made once and filled for each call. After a step that read gigabytes of
weights, every object that a call looks at comes from memory: few, and kept, cost the least.
"""

from __future__ import annotations

import ctypes
import struct
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from linnet.ir.types import ScalarType, Type
from linnet.native import elements

if TYPE_CHECKING:
    from linnet.native.module import Plan

SCALARS: dict[str, Any] = {
    "bool": ctypes.c_uint8, "i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32,
    "i64": ctypes.c_int64, "u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32,
    "u64": ctypes.c_uint64, "f32": ctypes.c_float, "f64": ctypes.c_double,
    "bf16": ctypes.c_uint16, "f16": ctypes.c_uint16,
}  # fmt: skip
INPUTS, OUTPUTS, WEIGHTS, ARENA, OFFSETS, DIMS, ERROR = range(7)


class Placed:
    """Room for one call of an entry with parameters of these types and so many results."""

    def __init__(self, types: Sequence[Type], results: int):
        self._inputs = array("Q", bytes(8 * max(1, len(types))))
        self._outputs = array("Q", bytes(8 * max(1, results)))
        self._words = array("Q", bytes(8 * (ERROR + 1)))
        # A scalar's place and dtype; None for a tensor.
        self._scalars: list[tuple[Any, str] | None] = []
        for position, type in enumerate(types):
            if not isinstance(type, ScalarType):
                self._scalars.append(None)
                continue
            held = SCALARS[type.dtype]()
            self._scalars.append((held, type.dtype))
            self._inputs[position] = ctypes.addressof(held)
        self._words[INPUTS] = self._inputs.buffer_info()[0]
        self._words[OUTPUTS] = self._outputs.buffer_info()[0]
        self.call = self._words.buffer_info()[0]

    def fill(self, inputs: Sequence[int | float], outputs: Sequence[int]) -> None:
        """An address for a tensor, the value for a scalar; addresses of the results."""
        for position, (given, scalar) in enumerate(zip(inputs, self._scalars, strict=True)):
            if scalar is None:
                self._inputs[position] = int(given)
            else:
                scalar[0].value = encoded(given, scalar[1])
        for position, address in enumerate(outputs):
            self._outputs[position] = address

    def of(self, plan: Plan, weights: int, arena: int) -> None:
        """What the call works on: `weights` and `arena` are addresses. No error yet."""
        words = self._words
        words[WEIGHTS] = weights
        words[ARENA] = arena
        words[OFFSETS] = plan.offsets.buffer_info()[0]
        words[DIMS] = plan.dims.buffer_info()[0]
        words[ERROR] = 0

    @property
    def error(self) -> int:
        """Not 0 where an index computed on the way was outside its axis."""
        return self._words[ERROR]


def encoded(value: int | float, dtype: str) -> int | float:
    """A scalar as the number that its place in memory takes."""
    if dtype == "bf16":
        bits: int = struct.unpack("<I", struct.pack("<f", elements.narrow(float(value), "bf16")))[0]
        return bits >> 16
    if dtype == "f16":
        held: int = struct.unpack("<H", struct.pack("<e", elements.narrow(float(value), "f16")))[0]
        return held
    return value
