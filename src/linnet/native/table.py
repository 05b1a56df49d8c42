"""Where every parameter, buffer and state stands in the table that an entry is given.

A kind takes as many places as it has leaves, its subs' included, in declaration order; an array of
equal subs lies one after another, so that `groups[i].linear[j].weight` is a linear form in `i`
and `j`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from linnet.dims import Dim
from linnet.ir.bound import Bound, KindMember
from linnet.native.node import Ix, Unsupported


@dataclass(frozen=True)
class Leaf:
    """A place of the table: a member of a block, by path."""

    slot: int
    path: str
    member: KindMember


class Table:
    def __init__(self, bound: Bound):
        self.bound = bound
        self._sizes: dict[str, int] = {}
        self._offsets: dict[tuple[str, str], int] = {}
        self.size = self.measure(bound.root)

    def measure(self, kind_id: str) -> int:
        """The places of a kind; notes where its members stand."""
        if kind_id in self._sizes:
            return self._sizes[kind_id]
        total = 0
        for member in self.bound.kinds[kind_id].members:
            self._offsets[kind_id, member.name] = total
            total += self.extent(member)
        self._sizes[kind_id] = total
        return total

    def extent(self, member: KindMember) -> int:
        if member.kind != "sub":
            return 1
        if not member.present:
            return 0
        if member.each is not None:
            return sum(self.measure(kind) for kind in member.each)
        assert member.sub is not None
        return self.measure(member.sub) * (1 if member.length is None else member.length)

    def offset(self, kind_id: str, name: str) -> int:
        self.measure(kind_id)
        return self._offsets[kind_id, name]

    def enter(self, place: Ix, kind_id: str, name: str, index: Ix | None) -> tuple[Ix, str]:
        """The place and kind of a sub of the block at `place`."""
        member = self.bound.kinds[kind_id].member(name)
        place = place + self.offset(kind_id, name)
        if member.each is not None:
            constant = index.const.constant if index is not None and not index.terms else None
            if constant is None:
                raise Unsupported(f"a run-time position in `{name}`, whose elements differ")
            skipped = sum(self.measure(kind) for kind in member.each[:constant])
            return place + skipped, member.each[constant]
        assert member.sub is not None
        if index is not None:
            place = place + index * Dim.const(self.measure(member.sub))
        return place, member.sub

    def leaves(self) -> Iterator[Leaf]:
        yield from self._walk(self.bound.root, "", 0)

    def _walk(self, kind_id: str, path: str, base: int) -> Iterator[Leaf]:
        for member in self.bound.kinds[kind_id].members:
            slot = base + self.offset(kind_id, member.name)
            below = f"{path}.{member.name}" if path else member.name
            if member.kind != "sub":
                yield Leaf(slot, below, member)
            elif member.present and member.length is None:
                assert member.sub is not None
                yield from self._walk(member.sub, below, slot)
            elif member.present:
                assert member.length is not None
                for i in range(member.length):
                    kind = member.element(i)
                    yield from self._walk(kind, f"{below}.{i}", slot)
                    slot += self.measure(kind)
