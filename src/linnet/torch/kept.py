"""Native code of a model from what an earlier process kept, without working it out again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from linnet.errors import BackendError
from linnet.native import kept
from linnet.torch.ranges import Condition, Ranges

if TYPE_CHECKING:
    from linnet.ir.bound import Bound
    from linnet.native.module import NativeModule


@dataclass
class Recalled:
    """A module, the ranges of its entries, and the entries that are not compiled, and why."""

    module: NativeModule
    ranges: dict[str, Ranges]
    refused: dict[str, str]


def recall(key: str | None, bound: Bound) -> Recalled | None:
    """The module kept under a key (of `kept.key`); `bound` is the program, not optimized."""
    found = None if key is None else kept.read(key)
    if found is None:
        return None
    from linnet.native.module import NativeModule

    ranges = {name: _ranges(form, found.dims) for name, form in found.more["ranges"].items()}
    try:
        module = NativeModule(bound, code=found.code, library=found.library)
    except (OSError, AttributeError, BackendError):  # the library is not what it was
        return None
    return Recalled(module, ranges, found.more["refused"])


def keep(
    key: str | None, module: NativeModule, ranges: dict[str, Ranges], refused: dict[str, str]
) -> None:
    """Keep what was just compiled for the next process."""
    if key is None or not module.entries:
        return
    dims = kept.DimsOut()
    forms = {name: _form(ranges[name], dims) for name in module.entries}
    kept.write(key, module.code, module.path, {"ranges": forms, "refused": refused}, dims)


def _form(ranges: Ranges, dims: kept.DimsOut) -> dict[str, Any]:
    """What a call asks of them, as JSON."""
    return {
        "conditions": [
            [
                c.argument, dims.put(c.offset), None if c.extent is None else dims.put(c.extent),
                sorted(map(dims.put, c.sizes)),
            ]
            for c in ranges.conditions
        ],
        "distinct": ranges.distinct,
        "extents": sorted(map(dims.put, ranges.extents)),
    }  # fmt: skip


def _ranges(form: dict[str, Any], dims: kept.DimsIn) -> Ranges:
    conditions = [
        Condition(
            argument,
            dims.get(offset),
            None if extent is None else dims.get(extent),
            frozenset(map(dims.get, sizes)),
        )
        for argument, offset, extent, sizes in form["conditions"]
    ]
    return Ranges(conditions, form["distinct"], extents=set(map(dims.get, form["extents"])))
