"""A compiled program: its table of parameters and states, and its entries as calls.

Memory stays with the caller: parameters, states, inputs and results are addresses. What an entry
needs besides (the arena) is planned once for each set of dimensions and kept.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
import weakref
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linnet.errors import BackendError, InputError
from linnet.ir.bound import Bound, Instance
from linnet.ir.types import Type
from linnet.native import compiler, elements
from linnet.native.code import Code, emit
from linnet.native.frame import Function, flat_types
from linnet.native.node import Buffer
from linnet.native.paused import Paused, Room, declare
from linnet.native.placed import Placed
from linnet.native.table import Leaf, Table

ALIGN = 64


class CWeight(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("scale", ctypes.c_void_p), ("zero", ctypes.c_void_p),
        ("kind", ctypes.c_int32), ("group", ctypes.c_int32),
    ]  # fmt: skip


KINDS = {
    "dense": 0,
    "int8": 1,
    "int4": 2,
    "q4_0": 3,
    "q4_1": 4,
    "q8_0": 5,
    "q4_k": 6,
    "q6_k": 7,
    "cache8": 8,
}


def thread_count() -> int:
    """`$LINNET_THREADS`, else `$OMP_NUM_THREADS`, else the processors this process may use.

    Raises BackendError where the first is no number of threads.
    """
    own = os.environ.get("LINNET_THREADS", "").strip()
    if own and not (own.isdecimal() and int(own) > 0):
        raise BackendError(f"LINNET_THREADS: expected a whole number of at least 1, found {own!r}")
    for text in (own, os.environ.get("OMP_NUM_THREADS", "")):
        if text.isdecimal() and int(text) > 0:
            return min(int(text), 256)
    return len(os.sched_getaffinity(0))


_modules: weakref.WeakSet[NativeModule] = weakref.WeakSet()


def _in_child() -> None:
    """After a fork: a call of another thread may have held the lock, and does not exist here."""
    for module in _modules:
        module.lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


@dataclass
class Plan:
    """The arena of an entry at one set of dimensions."""

    offsets: array[int]
    dims: array[int]
    size: int


class NativeModule:
    """`covered` gives, for each entry, the run-time indices that its checks keep in range;
    `caches` are the states kept in 8 bits, as (block id, member). With `code` and `library`
    nothing is written or compiled: `bound` then need not be optimized."""

    def __init__(
        self,
        bound: Bound,
        entries: Iterable[str] | None = None,
        covered: dict[str, frozenset[int]] | None = None,
        threads: int | None = None,
        caches: frozenset[tuple[str, str]] = frozenset(),
        code: Code | None = None,
        library: Path | None = None,
    ):
        self.bound = bound
        self.table = Table(bound)
        self.leaves: list[Leaf] = list(self.table.leaves())
        self.threads = threads or thread_count()
        self.weights = self.new_weights()
        self.slots = {leaf.path: leaf.slot for leaf in self.leaves}
        if code is None:
            names = entries if entries is not None else list(bound.entries)
            code = emit(bound, self.table, names, covered or {}, caches)
        self.code = code
        self.refused, self.packable, self.dense = code.refused, code.packable, code.dense
        self.choices = {name: function.choices for name, function in code.functions.items()}
        self.path = library or compiler.build(code.parts, self.threads)
        try:
            self.library = ctypes.CDLL(str(self.path))
        except OSError:
            if library is not None:
                raise
            self.path = compiler.build(code.parts, self.threads, anew=True)
            try:
                self.library = ctypes.CDLL(str(self.path))
            except OSError as error:
                raise BackendError(f"what was compiled cannot be loaded: {error}") from None
        self.library.team_create.restype = ctypes.c_void_p
        self.library.team_create.argtypes = [ctypes.c_int]
        self.library.team_run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        self.library.team_run.restype = None
        self.library.team_wake.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
        self.library.team_wake.restype = None
        self.library.team_destroy.argtypes = [ctypes.c_void_p]
        declare(self.library)
        self.lock = threading.Lock()
        _modules.add(self)
        self.rooms: list[Room] = []  # of calls in slices that have ended
        self.team: int | None = None
        self.owner = 0
        self.arena: Any = None
        self.arena_size = self.arena_at = 0
        self.entries = {
            name: NativeEntry(self, bound.functions[bound.entries[name]], function)
            for name, function in code.functions.items()
        }

    @property
    def text(self) -> str:
        """The C, where it was written in this process."""
        return "".join(self.code.parts)

    # --- Memory ------------------------------------------------------------------

    def new_weights(self) -> Any:
        """A table of addresses, none given yet: the code runs on any such table."""
        return (CWeight * max(1, self.table.size))()

    def bind(
        self,
        path: str,
        data: int,
        kind: str = "dense",
        scale: int = 0,
        zero: int = 0,
        group: int = 0,
        table: Any = None,
    ) -> None:
        """Give the address of a parameter, buffer or state; the caller keeps the memory alive.
        `table` is another one of `new_weights` than the module's own."""
        place = CWeight(data, scale, zero, KINDS[kind], group)
        (self.weights if table is None else table)[self.slots[path]] = place

    def room(self, size: int) -> int:
        if self.arena is None or self.arena_size < size:
            self.arena = None
            self.arena = (ctypes.c_char * (size + ALIGN)).from_buffer(anonymous(size + ALIGN))
            self.arena_size = size
            self.arena_at = (ctypes.addressof(self.arena) + ALIGN - 1) // ALIGN * ALIGN
        return self.arena_at

    def pool(self) -> int:
        if self.team is None or self.owner != os.getpid():  # a forked child has no threads
            self.team = self.library.team_create(self.threads)
            self.owner = os.getpid()
            if not self.team:
                raise BackendError(f"cannot start {self.threads} threads")
        return self.team

    def wake(self, lines: array[int]) -> None:
        """A call will follow: its threads wake meanwhile. `lines` are addresses of memory that
        its caller is about to read: they are fetched, whatever is there."""
        if self.team is not None and self.owner == os.getpid():
            self.library.team_wake(self.team, *lines.buffer_info())

    def __del__(self) -> None:
        team, self.team = getattr(self, "team", None), None
        if team and self.owner == os.getpid():
            self.library.team_destroy(team)


def anonymous(size: int) -> Any:
    """Memory of this process alone, in large pages where the system has them."""
    import mmap

    made = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= 4 << 20:
        with contextlib.suppress(OSError):
            made.madvise(mmap.MADV_HUGEPAGE)
    return made


class NativeEntry:
    """One entry. Call it with addresses (or Python scalars), dimensions, result addresses."""

    KEEP = 64

    def __init__(self, module: NativeModule, instance: Instance, function: Function):
        self.module, self.instance, self.function = module, instance, function
        self.address = ctypes.cast(getattr(module.library, function.name), ctypes.c_void_p).value
        self.results: list[Type] = flat_types(instance.result)
        self.params = instance.params
        self.plans: OrderedDict[tuple[int, ...], Plan] = OrderedDict()
        self.placed = Placed(
            [type for _, type in self.params], len(self.results)
        )  # used while the lock is held

    def plan(self, dims: tuple[int, ...]) -> Plan:
        known = self.plans.get(dims)
        if known is not None:
            self.plans.move_to_end(dims)
            return known
        names = dict(zip(self.instance.dims, dims, strict=True))
        offsets, size = arrange(self.function.arena, names)
        made = Plan(
            array("q", offsets or [0]),
            array("q", dims or (0,)),
            size,
        )
        self.plans[dims] = made
        if len(self.plans) > self.KEEP:
            self.plans.popitem(last=False)
        return made

    def __call__(
        self,
        inputs: Sequence[int | float],
        dims: dict[str, int],
        outputs: Sequence[int],
        table: Any = None,
    ) -> None:
        """`inputs`: an address for a tensor, the value for a scalar, in the entry's order."""
        plan = self.plan(tuple(dims[name] for name in self.instance.dims))
        module = self.module
        with module.lock:
            placed = self.placed
            placed.fill(inputs, outputs)
            weights = ctypes.addressof(module.weights if table is None else table)
            placed.of(plan, weights, module.room(plan.size))
            module.library.team_run(module.pool(), self.address, placed.call)
            error = placed.error
        self.checked(error)

    def start(
        self,
        inputs: Sequence[int | float],
        dims: dict[str, int],
        outputs: Sequence[int],
        table: Any = None,
    ) -> Paused:
        """The same call, to be run in slices: nothing is computed yet."""
        return Paused(self, inputs, dims, outputs, table)

    def checked(self, error: int) -> None:
        """Raises InputError where a call that has ended met a wrong index."""
        if error:
            raise InputError(
                f"entry `{self.instance.source.name}`: an index computed on the way is "
                "outside its axis"
            )


def arrange(buffers: Sequence[Buffer], names: dict[str, int]) -> tuple[list[int], int]:
    """Offsets for the buffers: largest first, each at the lowest place free while it lives."""
    sizes: list[int] = []
    for buffer in buffers:
        assert buffer.size is not None
        raw = max(0, buffer.size.evaluate(names)) * elements.BYTES[buffer.dtype]
        if buffer.output is not None:
            raw = 0
        sizes.append((raw + ALIGN - 1) // ALIGN * ALIGN + ALIGN)
    offsets = [0] * len(buffers)
    placed: list[int] = []
    total = 0
    for index in sorted(range(len(buffers)), key=lambda i: (-sizes[i], i)):
        buffer = buffers[index]
        taken = sorted(
            (offsets[other], offsets[other] + sizes[other])
            for other in placed
            if buffers[other].first <= buffer.last and buffer.first <= buffers[other].last
        )
        at = 0
        for start, stop in taken:
            if at + sizes[index] <= start:
                break
            at = max(at, stop)
        offsets[index] = at
        placed.append(index)
        total = max(total, at + sizes[index])
    return offsets, total
