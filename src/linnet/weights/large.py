"""Which addresses of this process lie in large pages, from the system's table of pages.

The request: https://docs.kernel.org/admin-guide/mm/pagemap.html (Linux 6.7 and later).
"""

from __future__ import annotations

import ctypes
import os

SCAN = 0xC0606610  # PAGEMAP_SCAN
HUGE = 1 << 6  # PAGE_IS_HUGE
REGIONS = 256


class _Region(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("start", "end", "categories")]


class _Scan(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "size", "flags", "start", "end", "walk_end", "vec", "vec_len", "max_pages",
            "category_inverted", "category_mask", "category_anyof_mask", "return_mask",
        )
    ]  # fmt: skip


def large_ranges(start: int, stop: int) -> list[tuple[int, int]]:
    """The ranges between two addresses that lie in large pages, in order; none where the system
    does not say."""
    try:
        import fcntl

        table = os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)
    except (ImportError, OSError):
        return []
    regions = (_Region * REGIONS)()
    found: list[tuple[int, int]] = []
    try:
        while start < stop:
            scan = _Scan(
                size=ctypes.sizeof(_Scan), start=start, end=stop,
                vec=ctypes.addressof(regions), vec_len=REGIONS,
                category_mask=HUGE, return_mask=HUGE,
            )  # fmt: skip
            count = fcntl.ioctl(table, SCAN, scan)
            found += [(region.start, region.end) for region in regions[:count]]
            if scan.walk_end <= start:
                break
            start = scan.walk_end
    except OSError:
        return []
    finally:
        os.close(table)
    return found
