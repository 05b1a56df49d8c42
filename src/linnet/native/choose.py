"""The largest of each row, found by the native library (`c/choose.c`)."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from linnet.native.module import NativeModule

TYPES = {"bf16": 0, "f32": 1}


class Largest:
    """`find(address, dtype, rows, width)` gives, for each row, the largest element (NaN where
    the row holds one) and its first place; None for another dtype.

    Rows lie one after another. Python is held meanwhile: it takes a tenth of a millisecond or
    two, and to get Python back from another thread may take longer than that.
    """

    def __init__(self, module: NativeModule):
        self._held = module  # the library stays while it is used
        self._call: Any = ctypes.PyDLL(str(module.path)).largest
        self._call.restype = ctypes.c_int
        self._call.argtypes = [
            ctypes.c_int, ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_void_p,
            ctypes.c_void_p,
        ]  # fmt: skip

    def find(
        self, address: int, dtype: str, rows: int, width: int
    ) -> tuple[list[float], list[int]] | None:
        kind = TYPES.get(dtype)
        if kind is None or rows < 1 or width < 1:
            return None
        top, at = (ctypes.c_double * rows)(), (ctypes.c_int64 * rows)()
        self._call(kind, address, rows, width, ctypes.addressof(top), ctypes.addressof(at))
        return list(top), list(at)
