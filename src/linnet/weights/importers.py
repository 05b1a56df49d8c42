"""Importers: checkpoints whose tensors lie otherwise than the bindings name them.

Each importer is a declaration of where one wanted tensor comes from: under another prefix,
or stacked from parts that lie one by one. Every source tensor is used once, whole, and
nothing but its place changes: no value is computed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from linnet.weights.tensor_info import TensorInfo

# The text model of a family that also has a vision tower is saved by itself under the
# second prefix, and as a part of the whole under the first.
PREFIXES = (("model.language_model.", "model."),)


@dataclass(frozen=True, slots=True)
class Stack:
    """`wanted` is made of `parts` for e = 0, 1, …: the parts of one e joined along their
    rows, and these stacked along a new first axis."""

    wanted: str
    parts: tuple[str, ...]


# Experts one by one, as transformers 5 saves them, for those that are kept in one tensor.
STACKS = (
    Stack(
        ".experts.gate_up_proj", (".experts.{e}.gate_proj.weight", ".experts.{e}.up_proj.weight")
    ),
    Stack(".experts.down_proj", (".experts.{e}.down_proj.weight",)),
)


@dataclass(frozen=True, slots=True)
class Recipe:
    """The stored tensors that follow one another in a wanted one, row-major."""

    parts: tuple[str, ...]
    info: TensorInfo


def recipes(wanted: Iterable[str], tensors: Mapping[str, TensorInfo]) -> dict[str, Recipe]:
    """How each wanted tensor that is not there by its own name can be made, if it can."""
    missing = [name for name in dict.fromkeys(wanted) if name not in tensors]
    found: dict[str, Recipe] = {}
    if not missing:
        return found
    known = _families(tensors)
    prefixes = [
        (long, short)
        for long, short in PREFIXES
        if not any(name.startswith(long) for name in tensors)
    ]
    taken: set[str] = set()
    for name in missing:
        names = [name]
        names += [s + name.removeprefix(p) for p, s in prefixes if name.startswith(p)]
        for other in names:
            recipe = _recipe(name, other, tensors, known)
            if recipe is not None and taken.isdisjoint(recipe.parts):
                found[name] = recipe
                taken.update(recipe.parts)
                break
    return found


def _families(tensors: Mapping[str, TensorInfo]) -> dict[str, int]:
    """How many numbered parts there are under each `….experts.`"""
    counts: dict[str, int] = {}
    for name in tensors:
        match = re.match(r"(.*\.experts)\.(\d{1,6})\.", name)
        if match:
            counts[match[1]] = max(counts.get(match[1], 0), int(match[2]) + 1)
    return counts


def _recipe(
    name: str, other: str, tensors: Mapping[str, TensorInfo], known: Mapping[str, int]
) -> Recipe | None:
    if other in tensors:
        info = tensors[other]
        return Recipe((other,), replace(info, name=name))
    for stack in STACKS:
        if not other.endswith(stack.wanted):
            continue
        stem = other.removesuffix(stack.wanted)
        count = known.get(f"{stem}.experts", 0)
        parts = [stem + part.format(e=expert) for expert in range(count) for part in stack.parts]
        infos = [tensors.get(part) for part in parts]
        first = infos[0] if infos else None
        if first is None or len(first.shape) != 2:
            continue
        if any(i is None or i.dtype != first.dtype or i.shape != first.shape for i in infos):
            continue
        rows, columns = first.shape
        shape = (count, rows * len(stack.parts), columns)
        nbytes = first.nbytes * len(parts)
        info = TensorInfo(name, first.dtype, shape, nbytes, first.file, first.importer)
        return Recipe(tuple(parts), info)
    return None
