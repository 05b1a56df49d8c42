"""Bindings for other sizes, by the pattern of those that the zoo's package has.

In a package's own bindings the position of a layer in a path and the layer's number in a tensor's
name go together: `layers.3` with `layers.3`, `groups.2.linear.1` with `layers.9`. The numbers of a
name are learned as sums of the path's positions, and read off for any size.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.)")


class Pattern:
    """One path with `*` for each position, and how the numbers of its tensor follow from them."""

    def __init__(self, examples: Mapping[tuple[int, ...], str]):
        origin = min(examples)
        self.parts = _NUMBER.split(examples[origin])
        first = _numbers(examples[origin])
        self.starts = [float(number) for number in first]
        self.steps: list[list[int]] = []
        for axis in range(len(origin)):
            beside = tuple(p + (i == axis) for i, p in enumerate(origin))
            there = _numbers(examples[beside]) if beside in examples else first
            self.steps.append([b - a for a, b in zip(first, there, strict=True)])
        self.origin = origin

    def name(self, positions: tuple[int, ...]) -> str:
        text = self.parts[0]
        for at, part in enumerate(self.parts[1:]):
            number = int(self.starts[at])
            for axis, position in enumerate(positions):
                number += self.steps[axis][at] * (position - self.origin[axis])
            text += f"{number}{part}"
        return text


def patterns(bindings: Mapping[str, str]) -> dict[str, Pattern]:
    examples: dict[str, dict[tuple[int, ...], str]] = {}
    for path, tensor in bindings.items():
        examples.setdefault(_stars(path), {})[_positions(path)] = tensor
    return {path: Pattern(found) for path, found in examples.items()}


def extend(
    known: Mapping[str, str], extra: Mapping[str, str], paths: Collection[str]
) -> dict[str, str]:
    """A tensor's name for each of `paths` whose pattern is known. `extra` maps paths with `*` to
    names with `*`, the numbers the same in both."""
    made = patterns(known)
    result: dict[str, str] = {}
    for path in paths:
        form, positions = _stars(path), _positions(path)
        if form in extra:
            name = extra[form]
            for position in positions:
                name = name.replace("*", str(position), 1)
            result[path] = name
        elif form in made:
            result[path] = made[form].name(positions)
    return result


def _stars(path: str) -> str:
    return _NUMBER.sub("*", path)


def _positions(path: str) -> tuple[int, ...]:
    return tuple(_numbers(path))


def _numbers(text: str) -> list[int]:
    return [int(number) for number in _NUMBER.findall(text)]
