"""Importers: checkpoints whose tensors lie otherwise than the bindings name them.

Each importer is a declaration of where wanted tensors come from: under another prefix, stacked,
joined, split, transposed or cast. Those of layouts that many checkpoints share are here and apply
where a wanted tensor is missing; a card can name a file with its own (`importer_file`), which
applies to the checkpoint as it is. Every source tensor is used once, whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from linnet.errors import WeightsError
from linnet.weights.dtypes import SIZES, bytes_of, is_float
from linnet.weights.importer_file import Rule, fill, matcher
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
    """How a wanted tensor is made of stored ones. Each of `parts` is transposed; `each` of them
    at a time are joined along `join`; the results are stacked on a new first axis if `stack`;
    `take` is the axis, start and stop of what is wanted of that. `info.dtype` is `cast` if that is
    given. With none of these but parts that follow one another, nothing is moved.
    """

    parts: tuple[str, ...]
    info: TensorInfo
    transpose: tuple[int, ...] | None = None
    each: int = 1
    join: int = 0
    stack: bool = False
    take: tuple[int, int, int] | None = None
    cast: str | None = None

    @property
    def follows(self) -> bool:
        """Whether the parts' elements, one after another, are the tensor's."""
        plain = self.transpose is None and self.take is None and self.cast is None
        return plain and self.join == 0


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


def declared(
    rules: Sequence[Rule], wanted: Iterable[str], tensors: Mapping[str, TensorInfo]
) -> dict[str, Recipe]:
    """What an importer's rules make of these tensors. A rule that matches none makes nothing.

    Raises `WeightsError` with all that is wrong: a tensor that two rules use, or that is bound
    under its own name besides; parts that are missing or do not fit; a name that is there already.
    """
    problems: list[str] = []
    used: dict[str, Rule] = {}
    made: dict[str, Recipe] = {}
    for rule in rules:
        for stars, rows in _groups(rule, tensors).items():
            try:
                parts = _parts(rule, stars, rows)
                for part in parts:
                    if part in used:
                        other = used[part].where.rpartition(": ")[2]
                        raise _fail(rule, f"`{part}` is used already, by {other}")
                results = _results(rule, stars, parts, tensors)
            except WeightsError as error:
                problems.append(str(error))
                continue
            used.update(dict.fromkeys(parts, rule))
            for recipe in results:
                if recipe.info.name in made:
                    problems.append(f"{rule.where}: to: `{recipe.info.name}` is made twice")
                made[recipe.info.name] = recipe
    for name in made:
        if name in tensors and name not in used:
            file = rules[0].where.rpartition(": ")[0]
            problems.append(f"{file}: `{name}` is made here, and is in the checkpoint too")
    for name in dict.fromkeys(wanted):
        if name in used and name not in made:
            where = used[name].where
            problems.append(f"{where}: `{name}` is used here, and bound under its own name too")
    if problems:
        raise WeightsError("\n".join(problems), problems)
    return made


def idle(rules: Sequence[Rule], tensors: Mapping[str, TensorInfo]) -> list[Rule]:
    """The rules that no tensor matches."""
    return [rule for rule in rules if not _groups(rule, tensors)]


Rows = dict[int | None, dict[int, str]]  # what `#` stands for → which source → its name


def _groups(rule: Rule, tensors: Mapping[str, TensorInfo]) -> dict[tuple[str, ...], Rows]:
    """The tensors that a rule takes together, by what `*` stands for."""
    found: dict[tuple[str, ...], Rows] = {}
    for at, source in enumerate(rule.sources):
        pattern = matcher(source)
        for name in tensors:
            match = pattern.fullmatch(name)
            if match is None:
                continue
            number = match["number"] if rule.stacks else None
            groups = list(match.groups())
            if number is not None:
                del groups[pattern.groupindex["number"] - 1]
            index = None if number is None else int(number)
            if number is None or number == str(index):
                found.setdefault(tuple(groups), {}).setdefault(index, {})[at] = name
    return found


def _parts(rule: Rule, stars: tuple[str, ...], rows: Rows) -> tuple[str, ...]:
    """Every part that the group needs, in order."""
    numbers = [n for n in rows if n is not None]
    wanted: Sequence[int | None] = range(max(numbers) + 1) if numbers else [None]
    if len(wanted) > len(rows):
        absent = next(n for n in wanted if n not in rows)
        name = fill(rule.sources[0], stars, absent)
        raise _fail(rule, f"`{name}` is missing; there are others up to number {len(wanted) - 1}")
    parts: list[str] = []
    for number in wanted:
        row = rows[number]
        for at, source in enumerate(rule.sources):
            if at not in row:
                beside = next(iter(row.values()))
                raise _fail(rule, f"`{fill(source, stars, number)}` is missing beside `{beside}`")
            parts.append(row[at])
    return tuple(parts)


def _results(
    rule: Rule, stars: tuple[str, ...], parts: tuple[str, ...], tensors: Mapping[str, TensorInfo]
) -> list[Recipe]:
    infos = [tensors[part] for part in parts]
    first, each = infos[0], len(rule.sources)
    shapes = [_turned(rule, info) for info in infos]
    order = _order(rule, first)
    for info, shape in zip(infos, shapes):
        if info.dtype != first.dtype:
            told = f"`{info.name}` is {info.dtype}, `{first.name}` {first.dtype}"
            raise _fail(rule, f"{told}; what becomes one tensor has one dtype")
        axes = [n for at, n in enumerate(shape) if at != rule.join]
        if len(shape) != len(shapes[0]) or axes != [
            n for at, n in enumerate(shapes[0]) if at != rule.join
        ]:
            told = f"`{info.name}` is {list(shape)}, `{first.name}` {list(shapes[0])}"
            raise _fail(rule, f"{told}; they do not go together")
    whole = list(shapes[0])
    if rule.join is not None:
        if rule.join >= len(whole):
            raise _fail(rule, f"join: `{first.name}` has no axis {rule.join}")
        sums = [sum(s[rule.join] for s in shapes[i : i + each]) for i in range(0, len(parts), each)]
        rows = [shapes[i : i + each] for i in range(0, len(parts), each)]
        if any(row != rows[0] for row in rows):
            raise _fail(rule, f"the parts stacked with `{first.name}` differ in shape")
        whole[rule.join] = sums[0]
    if rule.stacks:
        whole = [len(parts) // each, *whole]
    if rule.cast is not None and not (is_float(first.dtype) or first.importer):
        raise _fail(rule, f"cast: `{first.name}` is {first.dtype}; only floats are cast")
    made: list[Recipe] = []
    for target, take in zip(rule.targets, _takes(rule, whole), strict=True):
        own = list(whole)
        if take is not None:
            own[take[0]] = take[2] - take[1]
        plain = first.dtype in SIZES
        dtype = rule.cast or (first.dtype if plain else "mixed")
        nbytes = bytes_of(dtype, own) if dtype in SIZES else sum(i.nbytes for i in infos)
        importer = first.importer and rule.cast is None
        info = TensorInfo(fill(target, stars), dtype, tuple(own), nbytes, first.file, importer)
        join = rule.join or 0
        made.append(Recipe(parts, info, order, each, join, rule.stacks, take, rule.cast))
    return made


def _order(rule: Rule, info: TensorInfo) -> tuple[int, ...] | None:
    if rule.transpose == ():
        return tuple(reversed(range(len(info.shape))))
    return rule.transpose


def _turned(rule: Rule, info: TensorInfo) -> tuple[int, ...]:
    order = _order(rule, info)
    if order is None:
        return info.shape
    if len(order) != len(info.shape):
        told = f"`{info.name}` has {len(info.shape)} axes, {list(info.shape)}"
        raise _fail(rule, f"transpose: {told}; expected {len(order)}")
    return tuple(info.shape[axis] for axis in order)


def _takes(rule: Rule, whole: list[int]) -> list[tuple[int, int, int] | None]:
    if rule.split is None:
        return [None]
    axis, count = rule.split, len(rule.targets)
    if axis >= len(whole):
        raise _fail(rule, f"split: there is no axis {axis} of {whole}")
    if not rule.sizes and whole[axis] % count:
        raise _fail(rule, f"split: axis {axis} of {whole} has no {count} equal parts: give `sizes`")
    sizes = rule.sizes or (whole[axis] // count,) * count
    if sum(sizes) != whole[axis]:
        raise _fail(rule, f"sizes: they add up to {sum(sizes)}, axis {axis} of {whole} does not")
    ends = [sum(sizes[: i + 1]) for i in range(count)]
    return [(axis, end - size, end) for size, end in zip(sizes, ends)]


def _fail(rule: Rule, message: str) -> WeightsError:
    return WeightsError(f"{rule.where}: {message}")


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
        return Recipe(tuple(parts), info, each=len(stack.parts), stack=True)
    return None
