"""The comparison: the first block whose result parts from the reference, and how the gap grows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from linnet.errors import BackendError, InputError
from linnet.torch.block import Block
from linnet.torch.parity.mapping import map_blocks
from linnet.torch.parity.reference import LENGTHS, Reference
from linnet.torch.trace import Recorder, run_traced

# Largest difference as a share of the reference's largest magnitude.
TOLERANCES = {"f32": 1e-4, "f64": 1e-6, "bf16": 5e-2, "f16": 1e-2}


@dataclass(frozen=True, slots=True)
class Gap:
    """One block's result beside its module's. `gap` is the largest difference over the largest
    magnitude of the reference; `before` the same of what the two were given, None where those are
    no forms of the same rows; `where` is the block's place in the source."""

    path: str
    module: str
    block: str
    where: str
    gap: float
    before: float | None


@dataclass(frozen=True, slots=True)
class Parity:
    """`gaps` are in the order in which our blocks finish. `result` is the entry's own gap."""

    entry: str
    gaps: list[Gap]
    result: float
    tolerance: float
    unmatched: list[str]

    @property
    def first(self) -> Gap | None:
        """The first block that parts although what it was given agrees.

        A block whose input has parted already is a victim of what encloses it. Where a block's
        parting goes no further (a router that returns logits where the reference returns
        weights), what encloses it agrees, and it is passed over.
        """
        if self.result <= self.tolerance:
            return None
        by_path = {gap.path: gap for gap in self.gaps}
        parted: list[Gap] = []
        for gap in self.gaps:
            around = [by_path[p] for p in _above(gap.path) if p in by_path]
            if gap.gap > self.tolerance and (not around or around[0].gap > self.tolerance):
                parted.append(gap)
        for gap in parted:
            if gap.before is not None and gap.before <= self.tolerance:
                return gap
        return next((gap for gap in parted if gap.before is None), None)

    def growth(self) -> list[Gap]:
        """From the first on: it, what encloses it, and the blocks at the outermost level after."""
        first = self.first
        if first is None:
            return []
        after = self.gaps[self.gaps.index(first) :]
        mapped = {gap.path for gap in self.gaps}
        return [
            gap
            for gap in after
            if gap is first
            or gap.path in _above(first.path)
            or not any(p in mapped for p in _above(gap.path))
        ]


def compare(
    model: Any,
    reference: Reference,
    entry: str,
    inputs: Mapping[str, Any],
    tolerance: float | None = None,
) -> Parity:
    """Run both on the same input. Raises InputError or BackendError."""
    kept = model.bound.kinds
    held = model.state_dict()
    names = {path: model.tensor_names.get(path, path) for path in held}
    mapping = map_blocks(names, held, reference)
    theirs_result, theirs = reference.run(inputs, set(mapping.values()))
    recorder = _Results(model, mapping)
    trace = run_traced(model, entry, list(inputs.values()), {}, None, recorder)
    if not isinstance(trace.result, Tensor):
        raise BackendError(f"entry `{entry}` returns no single tensor to compare")
    kinds = {path: kind for path, kind, _ in model._blocks}
    gaps: list[Gap] = []
    for path, value in recorder.results.items():
        module = mapping[path]
        block = model.bound.program.blocks[kept[kinds[path]].block]
        other = theirs.get(module)
        if other is None or (module in reference.tuples and block.id.startswith("std.")):
            continue
        found = gap_of(value, other)
        if found is not None:
            name = block.id.rpartition("::")[2]
            where = str(block.span or block.id)
            mine, given = recorder.inputs.get(path), reference.inputs.get(module)
            before = None if mine is None or given is None else gap_of(mine, given)
            gaps.append(Gap(path, module, name, where, found, before))
    result = gap_of(trace.result, theirs_result)
    if result is None:
        raise BackendError(
            f"entry `{entry}` gives {list(trace.result.shape)}, the reference "
            f"{list(theirs_result.shape)}"
        )
    dtype = str(model.generics.get("T", "f32"))
    limit = tolerance if tolerance is not None else TOLERANCES.get(dtype, 1e-4)
    compared = {gap.path for gap in gaps}
    unmatched = [path for path, _, _ in model._blocks if path and path not in compared]
    return Parity(entry, gaps, result, limit, unmatched)


def gap_of(ours: Tensor, theirs: Tensor) -> float | None:
    """None where the two are no forms of the same rows."""
    if not (ours.is_floating_point() and theirs.is_floating_point()):
        same = ours.shape == theirs.shape and not ours.is_floating_point()
        return 0.0 if same and bool((ours == theirs).all()) else None
    if ours.shape != theirs.shape:
        same_rows = ours.numel() == theirs.numel() and ours.shape[-1:] == theirs.shape[-1:]
        if not same_rows or min(ours.dim(), theirs.dim()) > 2:
            return None  # other axes: heads before positions, say
        theirs = theirs.reshape(ours.shape)
    a, b = ours.double(), theirs.double()
    if not (a.isfinite().all() and b.isfinite().all()):
        return float("inf")
    scale = b.abs().max().item() if b.numel() else 0.0
    return ((a - b).abs().max().item() if b.numel() else 0.0) / max(scale, 1e-30)


def make_inputs(
    model: Any, entry: str, size: int, seed: int, ids: Sequence[int] | None = None
) -> dict[str, Any]:
    """Arguments for an entry that both sides take: token ids, whole rows, pictures.

    `ids` are one row's tokens in place of random ones.
    """
    from linnet.ir.types import TensorType
    from linnet.torch import dtypes

    if entry not in model.entries:
        known = ", ".join(f"`{name}`" for name in model.entries)
        raise InputError(f"there is no entry `{entry}`; the entries are {known}")
    signature = model.entries[entry].signature
    own = dict.fromkeys(signature.dims, 1)
    if ids is not None and not ids:
        raise InputError("the prompt has no token")
    if "S" in own:
        own["S"] = size if ids is None else len(ids)
    generator = torch.Generator().manual_seed(seed)
    values: dict[str, Any] = {}
    for name, type in zip(signature.names, signature.types, strict=True):
        if not isinstance(type, TensorType):
            raise InputError(
                f"`{entry}` takes the scalar `{name}`; expected an entry for whole rows"
            )
        shape = [dim.evaluate(own) for dim in type.shape]  # type: ignore[union-attr]
        if type.dtype in dtypes.FLOATS:
            drawn = torch.randn(shape, generator=generator)
            values[name] = drawn.to(dtypes.STORAGE[type.dtype])
        elif name == LENGTHS:
            values[name] = torch.full(shape, own.get("S", 1))
        elif name == "types":
            values[name] = torch.zeros(shape, dtype=torch.long)
        elif ids is not None:
            values[name] = torch.tensor([list(ids)])
        else:
            vocab = int(model.generics.get("Vocab", 2))
            values[name] = torch.randint(0, vocab, shape, generator=generator)
    return values


class _Results(Recorder):
    """Keeps the last result of each block wanted: that of its outermost call."""

    def __init__(self, model: Any, wanted: Collection[str]):
        super().__init__(model, None)
        self.wanted = wanted
        self.results: dict[str, Tensor] = {}
        self.inputs: dict[str, Tensor] = {}

    def __call__(
        self, block: Block | None, name: str | None, value: Any, args: Sequence[Any] = ()
    ) -> None:
        if name is not None or block is None or not isinstance(value, Tensor):
            return
        path = self.paths.get(id(block), "")
        if path in self.wanted:
            self.results.pop(path, None)  # its place is where it was finished
            self.results[path] = value.detach().clone()
            self.inputs.pop(path, None)
            given = next((arg for arg in args if isinstance(arg, Tensor)), None)
            if given is not None:
                self.inputs[path] = given.detach().clone()


def _above(path: str) -> list[str]:
    """What encloses a path, the nearest first."""
    parts = path.split(".")
    return [".".join(parts[:length]) for length in range(len(parts) - 1, 0, -1)]
