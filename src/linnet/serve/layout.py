"""How a model's states are laid out: which axis is the batch's, and which one holds positions.

Found from the manifest alone: a state's shape at another `Batch` and at another `MaxSeq` says
which axes follow them. A state without an axis of `MaxSeq` places is one that moves on with
every token (recurrent); it can be copied, but not cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from linnet.errors import BackendError
from linnet.ir.manifest import manifest
from linnet.weights.dtypes import bytes_of

BATCH, CONTEXT = "Batch", "MaxSeq"


@dataclass(frozen=True)
class Layout:
    """`positional` maps a path to its axis of positions, counted without the batch's axis;
    `recurrent` are the other paths. Sizes are in bytes."""

    positional: dict[str, int]
    recurrent: tuple[str, ...]
    context: int
    position_bytes: int  # one position of every positional state of one row
    recurrent_bytes: int  # the other states of one row

    @property
    def row_bytes(self) -> int:
        return self.context * self.position_bytes + self.recurrent_bytes

    @property
    def cuts(self) -> bool:
        """Whether a text's state can be cut back to any of its positions."""
        return not self.recurrent

    def span(self, states: dict[str, Tensor], row: int, start: int, end: int) -> list[Tensor]:
        """Views of positions `start … end` of one row, a tensor for each positional state."""
        return [
            states[path][row].narrow(axis, start, end - start)
            for path, axis in self.positional.items()
        ]

    def moving(self, states: dict[str, Tensor], row: int) -> list[Tensor]:
        """Views of one row of each recurrent state."""
        return [states[path][row] for path in self.recurrent]


def layout_of(model: Any) -> Layout:
    """Raises BackendError for a model that cannot be served in rows, naming what is missing."""
    generics = model.generics
    for name in (BATCH, CONTEXT):
        if not isinstance(generics.get(name), int):
            raise BackendError(f"{model.name} has no generic `{name}`; serving needs one")
    for entry in ("prefill", "decode_rows"):
        if entry not in model.entries:
            raise BackendError(f"{model.name} has no entry `{entry}`; serving needs one")
    program = model.bound.program
    block = model.bound.kinds[model.bound.root].block

    def shapes(**change: int) -> dict[str, Any]:
        listed = manifest(program, block, {**generics, **change}, model.present)
        return {p.path: p for p in listed if p.kind == "state"}

    context, batch = int(generics[CONTEXT]), int(generics[BATCH])
    plain, wider, longer = shapes(), shapes(Batch=batch + 1), shapes(MaxSeq=context + 1)
    positional: dict[str, int] = {}
    recurrent: list[str] = []
    position_bytes = recurrent_bytes = 0
    for path, state in plain.items():
        more = (batch + 1, *state.shape[1:])
        if not state.shape or state.shape[0] != batch or wider[path].shape != more:
            raise BackendError(
                f"state `{path}` {list(state.shape)}: its first axis is not `{BATCH}`, so that a "
                "sequence has no row of its own"
            )
        row = state.shape[1:]
        changed = [i for i, (a, b) in enumerate(zip(row, longer[path].shape[1:])) if a != b]
        if len(changed) == 1 and row[changed[0]] == context:
            positional[path] = changed[0]
            position_bytes += model.state_bytes(path) // context // batch
        else:
            recurrent.append(path)
            recurrent_bytes += bytes_of(state.dtype, row)
    return Layout(positional, tuple(recurrent), context, position_bytes, recurrent_bytes)


def copy_all(to: list[Tensor], source: list[Tensor]) -> None:
    with torch.no_grad():
        for a, b in zip(to, source, strict=True):
            a.copy_(b)
