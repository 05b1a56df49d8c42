"""How long a context fits the memory there is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from linnet.errors import InputError
from linnet.weights.amounts import figures
from linnet.weights.available import available_memory

# Left free for activations, the allocator and everything else that runs.
_RESERVE = 512 << 20
_SHARE = 0.8
_STEP = 256
# Below this a context is of no use: it is taken although it may not fit, and said.
_LEAST = 1024


@dataclass(frozen=True)
class Context:
    """A context length chosen or given: `length` tokens of at most `most`; `state` and `free`
    are bytes; `fits` says whether the memory holds it."""

    length: int
    most: int | None
    state: int
    free: int | None
    fits: bool

    def __str__(self) -> str:
        of = f" of {self.most}" if self.most is not None and self.most != self.length else ""
        free = "" if self.free is None else f", {figures(self.free)} free"
        warning = "" if self.fits else "; this may not fit"
        return f"context {self.length}{of} tokens: state takes {figures(self.state)}{free}{warning}"


def choose_context(
    state_bytes: Callable[[int], int],
    most: int | None,
    *,
    wanted: int | None = None,
    weights: int = 0,
    free: int | None = None,
) -> Context:
    """The longest context that fits the memory, or the one that was asked for.

    `state_bytes(MaxSeq)` are the bytes of the model's state at that many positions (linear in
    it); `most` is the model's own maximum; `wanted` is what the user asked for; `weights` are
    bytes still to be loaded; `free` is the memory there is, by default this machine's. Raises
    `InputError` where `wanted` is not a length the model has.
    """
    if free is None:
        free = available_memory()
    if wanted is not None and wanted <= 0:
        raise InputError(f"max-seq is {wanted}; expected an integer above 0")
    if wanted is not None and most is not None and wanted > most:
        raise InputError(f"max-seq is {wanted}; the model was made for at most {most} tokens")
    room = None if free is None else int((free - weights - _RESERVE) * _SHARE)
    if wanted is not None:
        state = state_bytes(wanted)
        return Context(wanted, most, state, free, room is None or state <= room)
    ceiling = most if most is not None else 8192
    if room is None:
        length = min(ceiling, 8192)
        return Context(length, most, state_bytes(length), free, True)
    length = _longest(state_bytes, ceiling, room)
    state = state_bytes(length)
    return Context(length, most, state, free, state <= room)


def _longest(state_bytes: Callable[[int], int], ceiling: int, room: int) -> int:
    if ceiling <= _STEP or state_bytes(ceiling) <= room:
        return ceiling
    low, high = _STEP, min(2 * _STEP, ceiling)
    # State is linear in the context: two points give the line.
    slope = (state_bytes(high) - state_bytes(low)) / (high - low) if high > low else 0
    if slope <= 0:  # the state does not grow: what it takes, it takes at any length
        return ceiling
    length = int(low + (room - state_bytes(low)) / slope) // _STEP * _STEP
    return max(min(length, ceiling), min(_LEAST, ceiling))
