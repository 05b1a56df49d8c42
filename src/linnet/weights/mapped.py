"""A file as private memory: writable without touching the file."""

from __future__ import annotations

import contextlib
import mmap
import os
import sys
from pathlib import Path

from linnet.errors import WeightsError
from linnet.weights.room import address_of


class MappedFile:
    """A file mapped copy-on-write.

    Pages stay shared with the page cache until written. Views keep the mapping alive, so
    `close` may come before their end.
    """

    def __init__(self, path: Path):
        self.path = path
        # Some of it is memory of this process now, which no page of the file stands behind.
        self.taken = False
        try:
            if not path.is_file():
                found = "a folder" if path.is_dir() else "nothing there"
                raise WeightsError(f"{path}: expected a file of weights, found {found}")
            with path.open("rb") as file:
                self.size = os.fstat(file.fileno()).st_size
                self._map = _map(file.fileno()) if self.size else None
        except OSError as error:
            reason = error.strerror or error
            raise WeightsError(f"{path}: cannot be read: {reason}") from error
        self._view = memoryview(self._map) if self._map is not None else memoryview(bytearray())

    def view(self, start: int, stop: int) -> memoryview:
        """Writable bytes `start` up to `stop`; writing changes this process's memory only."""
        return self._view[start:stop]

    @property
    def address(self) -> int:
        """Where byte 0 lies; 0 for an empty or a closed file."""
        return address_of(self._view) if self._map is not None else 0

    def release(self, start: int, stop: int) -> None:
        """Drop the resident pages that lie wholly inside, to be read again when touched.

        Only for bytes that nobody has written: private changes would be lost.
        """
        if self.taken:
            return
        page = mmap.PAGESIZE
        start = -(-start // page) * page
        stop = stop // page * page
        if self._map is not None and stop > start and hasattr(self._map, "madvise"):
            self._map.madvise(mmap.MADV_DONTNEED, start, stop - start)

    def close(self) -> None:
        self._view.release()
        if self._map is not None:
            try:
                self._map.close()
            except BufferError:
                pass  # views live on; the mapping goes with the last of them
            self._map = None


def _map(descriptor: int) -> mmap.mmap:
    if sys.platform == "linux":
        # Without NORESERVE a private writable mapping counts as memory to come, and one
        # larger than the machine's memory is refused although nothing of it is written.
        flags = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0x4000)
        made = mmap.mmap(descriptor, 0, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        with contextlib.suppress(OSError):  # the file read into large pages, where there are some
            made.madvise(mmap.MADV_HUGEPAGE)
        return made
    return mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY)
