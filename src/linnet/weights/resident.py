"""Mapped weights brought in at load, in large pages.

A mapped file comes in as it is touched, in whatever pages the page cache has, many of them small.
Random experts over small pages miss the table of addresses at every turn, and tokens that read
their experts one page fault after another take far longer than reading the file from end to end
(`bench/whole.py`, with and without `--mapped`). So where memory is plentiful a file is read at
load, and what the page cache holds in small pages is copied into large ones, which then stand at
the addresses of the mapping: nobody who holds a tensor notices. What lies in large pages stays the
page cache's, shared with other processes.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from linnet.errors import InputError, WeightsError
from linnet.weights.available import available_memory
from linnet.weights.large import large_ranges
from linnet.weights.mapped import MappedFile
from linnet.weights.room import PAGE
from linnet.weights.threads import threads

PIECE = 64 << 20  # bytes brought in at a time, by each thread
LEAST = 32 << 20  # bytes of weights below which it is not worth while
SPARE = 1 << 30  # bytes left to everything else, and at least a sixteenth of the machine
# From Linux's headers, where Python has no name for them.
POPULATE_READ = 22
MOVED, FIXED = 1, 2
BAD = (errno.EFAULT, errno.EIO, 133)  # 133: EHWPOISON
Ranges = Iterable[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole large pages of a mapped file, by address."""

    file: MappedFile
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Brought:
    """Bytes that were read in, and those of them that were copied into large pages."""

    read: int = 0
    copied: int = 0


def chosen(wanted: bool | None) -> bool | None:
    """What was asked for by argument or `$LINNET_RESIDENT` (0 or 1); None leaves it to memory."""
    if wanted is not None:
        return wanted
    text = os.environ.get("LINNET_RESIDENT", "")
    if text not in ("", "0", "1"):
        raise InputError(f"LINNET_RESIDENT: expected 0 or 1, found {text!r}")
    return None if not text else text == "1"


def fits(size: int, free: int | None, total: int) -> bool:
    """Whether `size` bytes may be taken of `free` ones, on a machine with `total`."""
    return free is not None and size + max(SPARE, total // 16) <= free


def bring_in(lent: Sequence[tuple[MappedFile, Ranges]], wanted: bool | None = None) -> Brought:
    """Bring in the ranges of files that were handed out.

    With None that is done where they are some tens of megabytes, memory has room to spare and the
    system has large pages; with True wherever memory has room. Raises WeightsError for a file
    that cannot be read, and with True where memory lacks.
    """
    wanted = chosen(wanted)
    if wanted is False or sys.platform != "linux":
        return Brought()
    pieces = [piece for file, ranges in lent for piece in _pieces(file, ranges)]
    size = sum(piece.stop - piece.start for piece in pieces)
    if not size or (wanted is None and _not_worth_it(size)):
        return Brought()
    free, total = available_memory(), _total()
    if not fits(size, free, total):
        if wanted is None:
            return Brought()
        known = "an unknown number" if free is None else f"{free / 1e9:.1f} GB"
        raise WeightsError(
            f"{pieces[0].file.path.parent}: {size / 1e9:.1f} GB of weights were to be read into "
            f"memory, which has {known} left, some of it for everything else; leave them mapped"
        )
    # Where memory has no room for both, what was copied does not stay in the page cache.
    short = free is not None and 2 * size > free
    copied = 0
    with ThreadPoolExecutor(threads()) as pool:
        for _ in range(2):  # reading the last ones may have driven out some of the first
            rest: list[Piece] = []
            for left in pool.map(lambda piece: _bring(piece, short), pieces):
                rest += left
            there = sum(piece.stop - piece.start for piece in rest)
            copied = size - there
            pieces = rest
    return Brought(size, copied)


def outlook(size: int) -> tuple[bool, str]:
    """Whether a load would now bring in `size` bytes of mapped weights, and the reason."""
    wanted = chosen(None)
    if sys.platform != "linux":
        return False, "only Linux reads them in"
    if wanted is False:
        return False, "LINNET_RESIDENT is 0"
    if wanted is None and (reason := _not_worth_it(size)):
        return False, reason
    free, total = available_memory(), _total()
    if free is None:
        return False, "how much memory is free is not known"
    told = f"{free / 1e9:.1f} GB of memory are free"
    if not fits(size, free, total):
        return False, f"{told}, and {max(SPARE, total // 16) / 1e9:.1f} GB of them are to stay so"
    return True, told


def _not_worth_it(size: int) -> str:
    """Why nothing is brought in unasked, whatever memory has room for; empty where it is."""
    if size < LEAST:
        return "they are few"
    return "" if _large_pages() else "the system gives no large pages"


def _total() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _pieces(file: MappedFile, ranges: Ranges) -> Iterator[Piece]:
    """Whole large pages, by address, that have some of the ranges in them."""
    base = file.address
    last = -(-base // PAGE) * PAGE
    limit = (base + file.size) // PAGE * PAGE
    for start, stop in sorted(ranges):
        low = max((base + start) // PAGE * PAGE, last)
        last = max(last, min(limit, -(-(base + stop) // PAGE) * PAGE))
        for at in range(low, last, PIECE):
            yield Piece(file, at, min(at + PIECE, last))


def _bring(piece: Piece, short: bool) -> list[Piece]:
    """Read a piece, and copy what then lies in small pages; the parts that were not copied."""
    if _system().madvise(piece.start, piece.stop - piece.start, POPULATE_READ):
        reason = ctypes.get_errno()
        if reason in BAD:
            path = piece.file.path
            raise WeightsError(f"{path}: cannot be read to its end: cut short, or a bad disk")
    _touch(piece)
    kept: list[Piece] = []
    at = piece.start
    for start, stop in (*large_ranges(piece.start, piece.stop), (piece.stop, piece.stop)):
        if start > at:
            if _replace(at, start - at):
                piece.file.taken = True
                if short:
                    _uncache(piece.file, at, start)
            else:
                kept.append(Piece(piece.file, at, start))
        if stop > start:
            kept.append(Piece(piece.file, start, stop))
        at = stop
    return kept


def _touch(piece: Piece) -> None:
    """Read a byte of each page. In a virtual machine the host finds a page only when a processor
    asks for it; one that a disk has filled costs a token the time of a fault otherwise."""
    import numpy as np

    memory = memoryview((ctypes.c_char * (piece.stop - piece.start)).from_address(piece.start))
    np.frombuffer(memory.cast("B"), np.uint8)[:: mmap.PAGESIZE].max()


def _replace(address: int, size: int) -> bool:
    """Put large pages with the same bytes in the place of others; False where none are given."""
    system = _system()
    kind = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    base = system.mmap(None, size + PAGE, mmap.PROT_READ | mmap.PROT_WRITE, kind, -1, 0)
    if base == ctypes.c_void_p(-1).value:
        return False
    start = -(-base // PAGE) * PAGE
    system.madvise(start, size, mmap.MADV_HUGEPAGE)
    ctypes.memmove(start, address, size)
    if system.mremap(start, size, size, MOVED | FIXED, address) != address:
        system.munmap(base, size + PAGE)
        return False
    for at, stop in ((base, start), (start + size, base + size + PAGE)):
        if stop > at:  # what alignment left over on both sides
            system.munmap(at, stop - at)
    return True


def _uncache(file: MappedFile, start: int, stop: int) -> None:
    base = file.address
    with contextlib.suppress(OSError):
        found = os.open(file.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(found, start - base, stop - start, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(found)


def _large_pages() -> bool:
    """Whether the system gives large pages to who asks."""
    try:
        text = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    except OSError:
        return False
    return "[never]" not in text


@cache
def _system() -> Any:
    library = ctypes.CDLL(None, use_errno=True)
    pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
    library.mmap.restype = pointer
    library.mmap.argtypes = [pointer, size, number, number, number, ctypes.c_long]
    library.mremap.restype = pointer
    library.mremap.argtypes = [pointer, size, size, number, pointer]
    library.munmap.argtypes = [pointer, size]
    library.madvise.argtypes = [pointer, size, number]
    return library
