"""Live blocks: plain objects whose attributes are parameters, states and sub-blocks.

Generated code and the evaluator both read `self.gate.weight`; the same objects serve
both. An absent optional member is None, a block array is a list.
"""

from __future__ import annotations

import keyword
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from linnet.ir.specialize import Bound


class Block:
    """One instance of a block. Attributes are named by `attribute`; there are no others.

    `changes` counts what was set on any block: who keeps addresses looks them up again when it
    has moved, and need not look at every tensor before each step.
    """

    changes = 0

    def __setattr__(self, name: str, value: Any) -> None:
        Block.changes += 1
        self.__dict__[name] = value

    def __repr__(self) -> str:
        return f"Block({', '.join(self.__dict__)})"


@cache
def attribute(name: str) -> str:
    """The Python attribute for a member: its name, changed only where Python needs it."""
    if keyword.iskeyword(name) or name.startswith("__"):
        return f"m_{name}"
    return name


def build(bound: Bound) -> tuple[Block, list[tuple[str, str, Block]]]:
    """The tree of blocks below the root, and each block as (path, kind id, block).

    Parameters and states start as None.
    """
    found: list[tuple[str, str, Block]] = []

    def one(kind_id: str, path: str) -> Block:
        block = Block()
        found.append((path, kind_id, block))
        for member in bound.kinds[kind_id].members:
            name = attribute(member.name)
            below = f"{path}.{member.name}" if path else member.name
            if member.kind != "sub" or not member.present:
                setattr(block, name, None)
            elif member.length is None:
                setattr(block, name, one(member.element(0), below))
            else:
                subs = [one(member.element(i), f"{below}.{i}") for i in range(member.length)]
                setattr(block, name, subs)
        return block

    return one(bound.root, ""), found


def leaves(bound: Bound, found: list[tuple[str, str, Block]]) -> Iterator[tuple[str, Block, Any]]:
    """Every parameter, buffer and state as (path, owner, member), in declaration order."""
    for path, kind_id, block in found:
        for member in bound.kinds[kind_id].members:
            if member.kind != "sub":
                yield (f"{path}.{member.name}" if path else member.name), block, member
