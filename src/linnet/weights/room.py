"""Memory for weights: in large pages where the system has them.

A model's weights are read from end to end for every token. In pages of 4 KB a good part of that
time goes into finding the pages.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from functools import cache
from typing import Any

LARGE = 4 << 20  # bytes from which large pages are asked for
PAGE = 2 << 20


def room(size: int) -> memoryview:
    """`size` writable bytes, zero."""
    if size < LARGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return memoryview(bytearray(size))
    made = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a system without large pages
        made.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(made)


def address_of(memory: memoryview) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def in_large_pages(address: int, size: int) -> None:
    """Ask for large pages in memory that was not touched yet. No more than a wish."""
    start = -(-address // PAGE) * PAGE
    stop = (address + size) // PAGE * PAGE
    if size >= LARGE and stop > start and hasattr(mmap, "MADV_HUGEPAGE"):
        _madvise()(start, stop - start, mmap.MADV_HUGEPAGE)


@cache
def _madvise() -> Any:
    function = ctypes.CDLL(None).madvise
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return function
