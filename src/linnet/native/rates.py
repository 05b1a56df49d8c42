"""What this machine can do: bytes read and products a second, by all threads of a team.

Plain loops in `c/rates.c` for the same instruction set that models are compiled for: the limits
that `linnet bench` holds a model against.
"""

from __future__ import annotations

import ctypes
import mmap
import time
from array import array
from collections.abc import Callable

from linnet.errors import BackendError
from linnet.ir.types import TensorType
from linnet.native import compiler
from linnet.native.module import Plan, thread_count
from linnet.native.placed import Placed

READ_BYTES = 512 << 20  # far beyond any cache
BLOCKS = 20_000  # of products in one call: some milliseconds


class Rates:
    """A team of `threads` that runs the loops. Raises BackendError without a C compiler."""

    def __init__(self, threads: int | None = None):
        self.threads = threads or thread_count()
        text = (compiler.SOURCES / "rates.c").read_text()
        library = ctypes.CDLL(str(compiler.build([text], self.threads)))
        library.team_create.restype = ctypes.c_void_p
        library.team_create.argtypes = [ctypes.c_int]
        library.team_run.argtypes = [ctypes.c_void_p] * 3
        library.team_run.restype = None
        library.team_destroy.argtypes = [ctypes.c_void_p]
        self.library = library
        self.team = library.team_create(self.threads)
        if not self.team:
            raise BackendError(f"cannot start {self.threads} threads")
        self.words = (ctypes.c_uint64 * (8 * self.threads))()
        self.operations = ctypes.c_uint64(0)

    def read(self, size: int = READ_BYTES, times: int = 10) -> float:
        """Bytes a second read from memory: the best of `times` passes over `size` bytes."""
        size = max(256 * self.threads, size // 256 * 256)
        memory = mmap.mmap(-1, size + 64)
        buffer = (ctypes.c_char * (size + 64)).from_buffer(memory)
        address = (ctypes.addressof(buffer) + 63) // 64 * 64
        ctypes.memset(address, 1, size)  # pages never written are all one page of zeros
        best = min(self._time("rate_read", [address], size) for _ in range(times))
        del buffer
        memory.close()
        return size / best

    def products(self, dtype: str = "bf16", times: int = 10) -> float:
        """Operations a second (a product and its addition are two) for weights of `dtype`: bf16
        by the machine's own instruction where it has one, everything else in f32."""
        name = "rate_bf16" if dtype == "bf16" else "rate_f32"
        best = min(self._time(name, [], BLOCKS) for _ in range(times))
        return self.operations.value * BLOCKS * self.threads / best

    def _time(self, name: str, inputs: list[int], dim: int) -> float:
        function: Callable[..., None] = getattr(self.library, name)
        placed = Placed([TensorType((), "u8")] * len(inputs), 2)
        placed.fill(inputs, [ctypes.addressof(self.words), ctypes.addressof(self.operations)])
        plan = Plan(array("q", [0]), array("q", [dim]), 0)  # kept until the call is over
        placed.of(plan, 0, 0)
        address = ctypes.cast(function, ctypes.c_void_p)  # type: ignore[arg-type]
        start = time.perf_counter()
        self.library.team_run(self.team, address, placed.call)
        return time.perf_counter() - start

    def close(self) -> None:
        team, self.team = self.team, None
        if team:
            self.library.team_destroy(team)
