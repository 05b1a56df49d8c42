"""The model bound for steps and for prompts: one set of weights, and the live states.

`Rows` holds `count` rows. A step computes the first few of them, as many as there are sequences
where native code leaves its batch open. Elsewhere the weights are bound at some sizes up to
`count`, whose states are views of the same rows, so a step of two sequences does not cost one of
sixteen; rows of a step that serve nobody compute along, which moves their recurrent state, and
nothing is ever kept there.

`Lanes` are rows of their own for prompts that come in by chunks. A lane is not in any step, so a
prompt may pause between two chunks, and where native code computes them within one, for as long
as it likes.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from linnet.serve.layout import BATCH, Layout
from linnet.torch.shared import call_at

if TYPE_CHECKING:
    from linnet.torch.native import Native


class _Binding:
    """A rebound model that works on tensors lent to it."""

    def __init__(self, model: Any):
        self.model = model
        self.states: dict[str, Tensor] | None = None

    def use(self, states: dict[str, Tensor]) -> None:
        if states is not self.states:
            self.model.use_state(states)
            self.states = states

    def settle(self) -> None:
        """Where an entry replaced a state instead of writing it, the lent tensor gets it."""
        assert self.states is not None
        replaced = False
        for path, tensor in self.model.held_state().items():
            lent = self.states[path]
            if tensor is not lent:
                lent.copy_(tensor)
                replaced = True
        if replaced:
            self.model.use_state(self.states)


def sizes_up_to(count: int) -> list[int]:
    """Sizes of steps: powers of two below `count`, and `count`."""
    sizes = [1 << i for i in range(count.bit_length()) if 1 << i < count]
    return [*sizes, count]


class Rows:
    """`count` rows of live states, and steps over the first of them."""

    def __init__(self, model: Any, layout: Layout, count: int, sizes: Sequence[int] | None = None):
        self.layout, self.count = layout, count
        self.sizes = sorted({*(sizes or sizes_up_to(count)), count})
        self._model = model
        self._steps: dict[int, _Binding] = {}
        self._native: Native | None = None  # where steps run as native code
        whole = self._bind(count)
        whole.model.allocate()
        self.states: dict[str, Tensor] = whole.model.held_state()
        whole.use(self.states)

    def compile(self) -> list[int]:
        """Compiles the step; the sizes to measure."""
        measured = list(self.sizes)
        native = self._bind(self.count).model.native
        if native.open:
            self.sizes = list(range(1, self.count + 1))
        if native.entry("decode_rows") is not None:
            self._native = native
        return measured

    def alone(self) -> None:
        """Where native threads run the steps, torch has little to do, and does it in the calling
        thread: threads of its own would take the processors from them."""
        if self._bind(self.count).model.native.open:
            torch.set_num_threads(1)

    @property
    def working(self) -> int:
        """Bytes that the largest step computes in; 0 on the torch backend, which tells nothing."""
        tokens = torch.zeros(self.count, 1, dtype=torch.int32)
        positions = torch.zeros(self.count, dtype=torch.int32)
        return self._bind(self.count).model.working("decode_rows", tokens, positions) or 0

    def _bind(self, size: int) -> _Binding:
        found = self._steps.get(size)
        if found is None:
            found = self._steps[size] = _Binding(self._model.rebind({BATCH: size}, free=(BATCH,)))
            if size < self.count:
                found.use({path: tensor[:size] for path, tensor in self.states.items()})
        return found

    def size_for(self, used: int) -> int:
        """The size of a step that computes rows 0 … used - 1."""
        return next(size for size in self.sizes if size >= used)

    def step(self, tokens: list[int], positions: list[int]) -> Tensor:
        """One token for each of the first rows; logits `[len(tokens), Vocab]`.

        Row `r` gets `tokens[r]` at `positions[r]`; what serves nobody gets token 0 at 0.
        """
        size = self.size_for(len(tokens))
        if size == len(tokens) < self.count:
            found: Tensor | None = self._open_step(tokens, positions)
            if found is not None:
                return found
        binding = self._bind(size)
        idle = [0] * (size - len(tokens))
        t = torch.tensor([*tokens, *idle], dtype=torch.int32).view(size, 1)
        p = torch.tensor([*positions, *idle], dtype=torch.int32)
        logits: Tensor = binding.model.decode_rows(t, p)
        binding.settle()
        return logits[: len(tokens)]

    def _open_step(self, tokens: list[int], positions: list[int]) -> Any:
        """The step on code for any size; None where there is none."""
        size = len(tokens)
        given = [
            torch.tensor(tokens, dtype=torch.int32).view(size, 1),
            torch.tensor(positions, dtype=torch.int32),
        ]
        return call_at(self._bind(self.count).model, "decode_rows", given, {BATCH: size})

    def largest(self, logits: Tensor) -> tuple[list[float], list[int]] | None:
        """The largest of each row of logits and its first place, by native code; None without."""
        return self._native.largest(logits) if self._native is not None else None

    def clear(self, row: int) -> None:
        """Zero everywhere: for a row whose numbers went wrong."""
        with torch.no_grad():
            for tensor in self.states.values():
                tensor[row].zero_()


class Chunk:
    """A part of a prompt on its way into a lane, whose state is half written until it has ended."""

    def __init__(self, lanes: Lanes, lane: int, tokens: Sequence[int], position: int):
        self.seconds = 0.0  # that it has taken so far
        self.length = len(tokens)
        self._whole = lambda: lanes.prefill(lane, tokens, position)
        self._settle = lambda: lanes.settle(lane)
        self._slices = lanes.slices(lane, tokens, position) if lanes.pauses else None
        self._logits: Tensor | None = None

    def run(self, seconds: float) -> bool:
        """Goes on for about so many seconds; where it cannot be left, to the end. Returns whether
        it has ended."""
        start = time.perf_counter()
        if self._slices is None:
            self._logits = self._whole()
        elif self._slices.run(seconds):
            self._settle()
            self._logits = self._slices.result[0]
        self.seconds += time.perf_counter() - start
        return self._logits is not None

    @property
    def logits(self) -> Tensor:
        """`[Vocab]`, after the last token, when it has ended."""
        assert self._logits is not None
        return self._logits

    def drop(self) -> None:
        if self._slices is not None:
            self._slices.drop()


class Lanes:
    """`count` single rows for prompts."""

    def __init__(self, model: Any, layout: Layout, count: int):
        self.layout = layout
        # One for each: a call of a lane whose states it knows looks no address up.
        self._bindings = [_Binding(model.rebind({BATCH: 1}, free=(BATCH,))) for _ in range(count)]
        self.states: list[dict[str, Tensor]] = [b.model.held_state() for b in self._bindings]
        for binding, states in zip(self._bindings, self.states, strict=True):
            binding.use(states)

    @property
    def pauses(self) -> bool:
        """Whether a chunk can be left half-way. Compiles it."""
        return self._bindings[0].model.native.entry("prefill") is not None

    def working(self, tokens: int) -> int:
        """Bytes that a chunk of so many tokens computes in, which it keeps while it is left
        half-way; 0 on the torch backend."""
        chunk = torch.zeros(1, tokens, dtype=torch.int32)
        return self._bindings[0].model.working("prefill", chunk, pos=0) or 0

    def begin(self, lane: int, tokens: Sequence[int], position: int) -> Chunk:
        """The next tokens of a lane's text at `position …`: nothing is computed yet."""
        return Chunk(self, lane, tokens, position)

    def slices(self, lane: int, tokens: Sequence[int], position: int) -> Any:
        """The same as a call in slices of native code, which writes the lane's states in place."""
        chunk = torch.tensor([list(tokens)], dtype=torch.int32)
        return self._bindings[lane].model.slices("prefill", chunk, pos=position)

    def settle(self, lane: int) -> None:
        """For a call that was run as a whole after all, on the torch backend."""
        self._bindings[lane].settle()

    def prefill(self, lane: int, tokens: Sequence[int], position: int) -> Tensor:
        """The next tokens of a lane's text at `position …`; logits `[Vocab]` after the last."""
        chunk = torch.tensor([list(tokens)], dtype=torch.int32)
        binding = self._bindings[lane]
        logits: Tensor = binding.model.prefill(chunk, pos=position)
        binding.settle()
        return logits[0]

    def clear(self, lane: int) -> None:
        with torch.no_grad():
            for tensor in self.states[lane].values():
                tensor.zero_()
