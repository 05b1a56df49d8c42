"""The lines of an entry being written, the memory that they need, and when it is touched.

Each step records what memory it reads and writes: from that follow where the threads must meet,
and which memory may be used again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from linnet.dims import Dim
from linnet.native.node import Buffer, Mem, Node, row_major, volume


class Steps:
    """`epoch` counts the places where all threads meet; a buffer lives from the first epoch that
    touches it to the last."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.serial = 0
        self.arena: list[Buffer] = []
        self.epoch = 0
        self.read: set[Buffer] = set()
        self.written: set[Buffer] = set()
        self.fence = False
        self.touched: list[set[Buffer]] = []
        self.log: list[Node] = []  # nodes in the order in which they were made

    def line(self, text: str) -> None:
        self.lines.append(text)

    def fresh(self, stem: str) -> str:
        self.serial += 1
        return f"{stem}{self.serial}"

    def buffer(self, dtype: str, size: Dim) -> Buffer:
        made = Buffer(self.fresh("b"), dtype, size, len(self.arena), self.epoch, self.epoch)
        self.arena.append(made)
        return made

    def new(self, shape: Sequence[Dim], dtype: str, order: Sequence[int] | None = None) -> Mem:
        """Fresh memory; `order` lists the axes from the slowest in memory to the fastest."""
        shape = tuple(shape)
        buffer = self.buffer(dtype, volume(shape))
        if order is None:
            return Mem(buffer, shape, row_major(shape), dtype)
        strides = [Dim.const(1)] * len(shape)
        for axis, stride in zip(order, row_major([shape[a] for a in order]), strict=True):
            strides[axis] = stride
        return Mem(buffer, shape, tuple(strides), dtype)

    def step(self, reads: Iterable[Buffer], writes: Iterable[Buffer]) -> int:
        """Note a step; whether the threads may have to meet before it."""
        r = {root for b in reads for root in b.roots if not root.constant}
        w = {root for b in writes for root in b.roots}
        hazard = self.fence or bool(self.written & (r | w)) or bool(self.read & w)
        if hazard:
            self.boundary()
            self.fence = False
        self.read |= r
        self.written |= w
        for buffer in r | w:
            buffer.first = min(buffer.first, self.epoch)
            buffer.last = max(buffer.last, self.epoch)
            for group in self.touched:
                group.add(buffer)
        return int(hazard)

    def boundary(self) -> None:
        self.epoch += 1
        self.read, self.written = set(), set()

    def enclose(self, write: Callable[[], None]) -> None:
        """A loop or branch: what was made before and is touched inside lives until its end."""
        self.fence = True
        start = self.epoch + 1
        self.boundary()
        self.touched.append(set())
        write()
        self.boundary()
        for buffer in self.touched.pop():
            if buffer.first < start:
                buffer.last = max(buffer.last, self.epoch)
        self.boundary()
        self.fence = True

    def forget(self, mark: int) -> None:
        """What was made since `mark` is not there on every path from here on."""
        for node in self.log[mark:]:
            node.made = None  # type: ignore[attr-defined]
        del self.log[mark:]
