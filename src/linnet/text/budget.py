"""Limits on what a chat template may use.

A template comes with a checkpoint, from strangers. The sandbox keeps it away from the machine;
a budget keeps it from looping for ever and from filling the memory.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any


class OverBudget(Exception):
    """The template asked for more than its budget. The text says of what."""


@dataclass
class Budget:
    """What one rendering may use; `charge` and `text` raise `OverBudget` past it."""

    steps: int = 5_000_000  # nodes of the template executed, items looked at
    characters: int = 4_000_000  # of the output and of any one string
    seconds: float = 10.0
    _end: float = field(init=False)

    def __post_init__(self) -> None:
        self._end = time.monotonic() + self.seconds

    def charge(self, steps: int) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise OverBudget("it runs too many steps: does it loop for ever?")
        if time.monotonic() > self._end:
            raise OverBudget("it takes too long")

    def length(self, characters: int) -> None:
        """A string of this length is about to be made, or was."""
        if characters > self.characters:
            raise OverBudget(f"it makes a text of more than {self.characters} characters")
        # Work on long strings takes time that steps do not see.
        self.charge(1 + characters // 32)

    def weigh(self, value: Any) -> int:
        """Characters of the value's text, about; charges a step an item.

        A list that holds another twice is small in memory and huge written out: the walk counts
        it as often as writing would.
        """
        size = 0
        stack = [value]
        while stack:
            v = stack.pop()
            if isinstance(v, str):
                size += len(v) + 4
            elif isinstance(v, dict):
                self.charge(1 + len(v))
                stack.extend(v.keys())
                stack.extend(v.values())
            elif isinstance(v, (list, tuple, set, frozenset)):
                self.charge(1 + len(v))
                stack.extend(v)
            elif isinstance(v, int):
                size += 8 + v.bit_length() // 3
            else:
                size += 8
            if size > self.characters:
                self.length(size)
        return size

    def items(self, values: Iterable[Any], steps: int) -> Iterator[Any]:
        """The items of a loop, each charged with what the loop's body may use."""
        for value in values:
            self.charge(steps)
            yield value


current: ContextVar[Budget | None] = ContextVar("template_budget", default=None)


def budget() -> Budget:
    """The budget of the rendering under way."""
    found = current.get()
    if found is None:  # at compile time: jinja2 then leaves the work to the rendering
        raise OverBudget("nothing is being rendered")
    return found
