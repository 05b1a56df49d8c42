"""A call of an entry that is run in slices, with other calls in between.

Its threads leave it when a slice's time is over, each at its next piece of work, and go on there
in the next slice (`c/slice.c`). So the result is the same bit for bit however it was cut.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from linnet.errors import BackendError
from linnet.native.placed import Placed

if TYPE_CHECKING:
    from linnet.native.module import NativeEntry, NativeModule

KEPT = 2  # rooms that wait for the next call


def declare(library: Any) -> None:
    """The types of the functions of `c/slice.c`."""
    library.slice_new.restype = ctypes.c_void_p
    library.slice_new.argtypes = [ctypes.c_void_p]
    library.slice_begin.restype = None
    library.slice_begin.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    library.slice_run.restype = ctypes.c_int
    library.slice_run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64]
    library.slice_free.restype = None
    library.slice_free.argtypes = [ctypes.c_void_p]


class Room:
    """What such a call has of its own while it is not running: stacks for the threads, and an
    arena of at least `size` bytes."""

    def __init__(self, module: NativeModule):
        self.library = module.library
        self.process = os.getpid()
        self.slice: int | None = self.library.slice_new(module.pool())
        if not self.slice:
            raise BackendError("no memory for the stacks of a call in slices")
        self._arena: Any = None
        self._size = 0

    def arena(self, size: int) -> int:
        from linnet.native.module import ALIGN, anonymous

        if self._arena is None or self._size < size:
            self._arena = None
            self._arena = (ctypes.c_char * (size + ALIGN)).from_buffer(anonymous(size + ALIGN))
            self._size = size
        return (ctypes.addressof(self._arena) + ALIGN - 1) // ALIGN * ALIGN

    def __del__(self) -> None:
        held, self.slice = getattr(self, "slice", None), None
        if held:
            self.library.slice_free(held)


class Paused:
    """A call that has begun. Arguments as for `NativeEntry`; the memory behind all addresses,
    those in the table included, must stay until it has ended or was dropped. The table itself is
    copied: other memory may be bound meanwhile.

    Raises BackendError where there is no memory for it.
    """

    def __init__(
        self,
        entry: NativeEntry,
        inputs: Sequence[int | float],
        dims: dict[str, int],
        outputs: Sequence[int],
        table: Any = None,
    ):
        self.entry = entry
        module = entry.module
        plan = entry.plan(tuple(dims[name] for name in entry.instance.dims))
        self._placed = Placed([type for _, type in entry.params], len(entry.results))
        self._placed.fill(inputs, outputs)
        given = module.weights if table is None else table
        weights = type(given).from_buffer_copy(given)
        self._held = (plan, weights)
        with module.lock:
            rooms = module.rooms
            while rooms and rooms[-1].process != os.getpid():
                rooms.pop()
            self._room: Room | None = rooms.pop() if rooms else Room(module)
            self._placed.of(plan, ctypes.addressof(weights), self._room.arena(plan.size))
            module.library.slice_begin(self._room.slice, entry.address, self._placed.call)

    @property
    def ended(self) -> bool:
        return self._room is None

    def run(self, seconds: float | None = None) -> bool:
        """Goes on for about so many seconds (at least one piece of work; None: to the end).
        Returns whether the call has ended.

        Raises InputError at the end where an index computed on the way was outside its axis, and
        BackendError in another process than the one in which the call began.
        """
        if self._room is None:
            return True
        module = self.entry.module
        if self._room.process != os.getpid():
            raise BackendError("a call that is paused can go on in its own process only")
        nanoseconds = -1 if seconds is None else int(max(0.0, min(seconds, 1e9)) * 1e9)
        with module.lock:
            if not module.library.slice_run(module.pool(), self._room.slice, nanoseconds):
                return False
        self.drop()
        self.entry.checked(self._placed.error)
        return True

    def drop(self) -> None:
        """Ends it where it is; what it wrote so far stays written."""
        room, self._room = self._room, None
        if room is None:
            return
        module = self.entry.module
        if room.process == os.getpid() and len(module.rooms) < KEPT:
            module.rooms.append(room)

    def __del__(self) -> None:
        if getattr(self, "_room", None) is not None:
            self.drop()
