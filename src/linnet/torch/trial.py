"""Entries tried on random weights, as a process of its own: `python -m linnet.torch.trial FOLDER`.

The registry's check starts it and bounds its time and memory. Sizes are the card's, made smaller
until weights and states fit; an entry's own sizes are those of `[check]`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from linnet.nest.checks.limits import begin, finish, restrict
from linnet.nest.checks.report import Step

BUDGET = 128 << 20  # bytes of weights and states
FLOOR = 16  # sizes above it are not made smaller than it
DEFAULT_SIZE = 1  # of an entry's own generic that `[check]` does not give


def main(arguments: list[str]) -> None:
    import torch  # its import is no part of any step

    from linnet.errors import Error

    restrict()
    torch.set_num_threads(1)
    begin("load")
    step = Step("load")
    try:
        model, card, step.detail = _load(Path(arguments[0]))
    except Error as error:
        step.problems.append(str(error))
        finish(step)
        return
    finish(step)
    for name in model.entries:
        begin(name)
        step = Step(name)
        try:
            step.detail = _try(model.entries[name], card.check)
        except Error as error:
            step.problems.append(f"entry `{name}`: {error}")
        except (MemoryError, RuntimeError) as error:
            step.problems.append(f"entry `{name}`: {str(error).splitlines()[0]}")
        finish(step)


def _load(folder: Path) -> tuple[Any, Any, str]:
    from linnet.check.path import check_path
    from linnet.ir.manifest import root_block
    from linnet.nest.card import read_card
    from linnet.torch.load import load

    card = read_card(folder)
    program = check_path(folder)
    generics = smaller(program, root_block(program, card.root), card.generics, BUDGET)
    # Without compiling C: for one call of small sizes that would take longest by far.
    model = load(folder, weights="random", generics=generics, backend="torch")
    changed = ", ".join(f"{n}={v}" for n, v in generics.items() if card.generics.get(n) != v)
    return model, card, f"random weights{f', made smaller: {changed}' if changed else ''}"


def smaller(
    program: Any, root: str, generics: Mapping[str, int | str], budget: int
) -> dict[str, int | str]:
    """Sizes at which the program's `where` clauses hold and all that it keeps fits `budget`
    bytes, as far as halving the largest ones leads there. Raises BindError for sizes that do not
    fit the program as they are."""
    from linnet.errors import BindError
    from linnet.ir.memory import element_bits, storage
    from linnet.ir.specialize import bind_root

    bind_root(program, root, generics)
    kept = [s for s in storage(program, root) if not s.optional]
    sizes = dict(generics)

    def occupied() -> int:
        bound = {n: v for n, v in sizes.items() if isinstance(v, int)}
        return sum(s.elements.evaluate(bound) * element_bits(s.dtype, sizes) // 8 for s in kept)

    stuck: set[str] = set()
    now = occupied()
    while now > budget:
        numbers = {n: v for n, v in sizes.items() if isinstance(v, int) and n not in stuck}
        name = max(numbers, key=lambda n: numbers[n], default=None)
        if name is None:
            break
        before = numbers[name]
        half = max(FLOOR, before // 2) if before > FLOOR else before // 2
        sizes[name] = half
        try:
            if not 0 < half < before:
                raise BindError("no smaller size")
            bind_root(program, root, sizes)
            less = occupied()
            if less >= now:
                raise BindError("nothing is won")
            now = less
        except BindError:
            sizes[name] = before
            stuck.add(name)
    return sizes


def _try(entry: Any, check: Mapping[str, int | str]) -> str:
    """Call an entry on made-up arguments inside the ranges that it states; what came out."""
    import torch

    own = {
        name: int(check.get(name, DEFAULT_SIZE)) for name in entry.signature.dims
    }  # a dtype is no size
    values, named = made_up(entry, own)
    result = entry(*values, **named)
    parts = result if isinstance(result, tuple) else (result,)
    broken = [
        part
        for part in parts
        if isinstance(part, torch.Tensor) and part.is_floating_point() and not part.isfinite().all()
    ]
    at = ", ".join(f"{n}={v}" for n, v in own.items())
    shapes = ", ".join(
        f"{list(part.shape)} {str(part.dtype).removeprefix('torch.')}"
        if isinstance(part, torch.Tensor)
        else type(part).__name__
        for part in parts
    )
    remark = "; not all finite on random weights" if broken else ""
    return f"{shapes}{f' at {at}' if at else ''}{remark}"


def made_up(entry: Any, own: Mapping[str, int]) -> tuple[list[Any], dict[str, int]]:
    """Arguments for an entry of a loaded model, inside the ranges that it states, where `own` are
    its own sizes; and those sizes that no argument's shape shows, to be given by name."""
    import torch

    ranges = entry.ranges()
    lows: dict[str, int] = {}
    highs: dict[str, int] = {}
    for condition in ranges.conditions:
        name, offset = condition.argument, condition.offset.evaluate(own)
        if name is None:  # it speaks of sizes alone
            continue
        if condition.extent is None:
            lows[name] = max(lows.get(name, 0), -offset)
        else:
            most = condition.extent.evaluate(own) - 1 - offset
            highs[name] = min(highs.get(name, most), most)
    limits = {
        name: (lows.get(name, 0), highs.get(name, lows.get(name, 0) + 1))
        for name in entry.signature.names
    }
    generator = torch.Generator().manual_seed(0)
    values = [
        _make(type, own, limits[name], name in ranges.distinct, generator)
        for name, type in zip(entry.signature.names, entry.signature.types, strict=True)
    ]
    return values, _unbound(entry, own)


def _unbound(entry: Any, own: Mapping[str, int]) -> dict[str, int]:
    """The entry's sizes that no argument's shape shows."""
    from linnet.ir.types import TensorType

    shown = {
        str(dim)
        for type in entry.signature.types
        if isinstance(type, TensorType)
        for dim in type.shape
    }
    return {name: size for name, size in own.items() if name not in shown}


def _make(
    type: Any, own: Mapping[str, int], limits: tuple[int, int], distinct: bool, generator: Any
) -> Any:
    import torch

    from linnet.ir.types import EnumType, OptionalType, ScalarType, StructType, TupleType
    from linnet.torch import dtypes

    match type:
        case OptionalType():
            return None
        case TupleType(items):
            return tuple(_make(item, own, limits, distinct, generator) for item in items)
        case StructType(fields=fields):
            return {n: _make(t, own, limits, distinct, generator) for n, t in fields}
        case EnumType(variants=variants):
            return variants[0]
    shape = [] if isinstance(type, ScalarType) else [dim.evaluate(own) for dim in type.shape]
    if type.dtype in dtypes.FLOATS:
        value = torch.randn(shape, generator=generator).to(dtypes.STORAGE[type.dtype])
    elif type.dtype == "bool":
        value = torch.ones(shape, dtype=torch.bool)
    elif distinct:
        count = 1
        for size in shape:
            count *= size
        value = limits[0] + torch.arange(count).reshape(shape)
    else:
        low, high = limits
        value = torch.randint(low, max(low, high) + 1, shape, generator=generator)
    return value.item() if isinstance(type, ScalarType) else value


if __name__ == "__main__":
    main(sys.argv[1:])
