"""A call in slices gives what the whole call gives, bit for bit, whatever runs in between."""

from __future__ import annotations

import gc
import os
import random
from pathlib import Path
from typing import Any

import pytest
import torch

import linnet
from linnet.errors import BackendError, InputError
from linnet.native import compiler

if compiler.why_not() is not None:
    pytest.skip(compiler.why_not() or "", allow_module_level=True)

HYBRID: dict[str, Any] = {
    "Vocab": 97, "H": 64, "Groups": 2, "HeadDim": 32, "Heads": 4, "KvHeads": 2, "KeyHeads": 2,
    "KeyDim": 16, "ValueHeads": 4, "ValueDim": 16, "Width": 4, "Conv": 128, "TopK": 2, "Experts": 6,
    "ExpertInner": 32, "SharedInner": 48, "Batch": 1, "MaxSeq": 400,
}  # fmt: skip
PLAIN: dict[str, Any] = {
    "Vocab": 97, "H": 128, "Inner": 256, "Heads": 4, "KvHeads": 2, "HeadDim": 32, "Layers": 4,
    "Batch": 1, "MaxSeq": 400,
}  # fmt: skip
PACKAGES = {"hybrid": ("qwen3.6-35b-a3b", HYBRID), "plain": ("smollm2-135m-instruct", PLAIN)}
CASES = [(kind, dtype, threads) for kind in PACKAGES for dtype in ("f32", "bf16")
         for threads in (1, 2)]  # fmt: skip


def loaded(models: Path, kind: str, dtype: str, threads: int, monkeypatch: Any) -> Any:
    monkeypatch.setenv("LINNET_BACKEND", "native")
    monkeypatch.setenv("LINNET_THREADS", str(threads))
    package, generics = PACKAGES[kind]
    return linnet.load(models / package, weights="random", generics={**generics, "T": dtype})


def text(length: int, seed: int) -> torch.Tensor:
    return torch.randint(0, 97, (1, length), generator=torch.Generator().manual_seed(seed))


def whole(model: Any, tokens: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    model.reset_state()
    first = model.prefill(tokens[:, :192], pos=0)
    logits = torch.cat([first, model.prefill(tokens[:, 192:], pos=192)])
    return logits, {path: state.clone() for path, state in model.state.items()}


@pytest.mark.parametrize(("kind", "dtype", "threads"), CASES)
def test_slices_equal_the_whole(
    kind: str, dtype: str, threads: int, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = loaded(models, kind, dtype, threads, monkeypatch)
    tokens = text(300, 1)
    logits, states = whole(model, tokens)
    draw = random.Random(2)
    for budget in (lambda: 0.0, lambda: draw.random() * 1e-3, lambda: None):
        model.reset_state()
        found, slices = [], 0
        for start, end in ((0, 192), (192, 300)):
            call = model.slices("prefill", tokens[:, start:end], pos=start)
            while not call.run(budget()):
                slices += 1
            found.append(call.result)
        assert torch.equal(torch.cat(found), logits)
        assert all(torch.equal(model.state[path], state) for path, state in states.items())
        assert slices > 20 or budget() != 0.0


@pytest.mark.parametrize(("kind", "threads"), [("hybrid", 2), ("plain", 1), ("plain", 2)])
def test_other_calls_in_between(
    kind: str, threads: int, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps of other rows, and two calls in slices that take turns, each on states of its own."""
    model = loaded(models, kind, "bf16", threads, monkeypatch)
    tokens = [text(300, 1), text(260, 2)]
    expected = [whole(model, given) for given in tokens]
    rows = model.rebind({"Batch": 3}, free=("Batch",))
    steps = torch.tensor([[3], [4], [5]], dtype=torch.int32)
    positions = torch.zeros(3, dtype=torch.int32)
    step = rows.decode_rows(steps, positions)
    lanes = [model.rebind({"Batch": 1}, free=("Batch",)) for _ in tokens]
    for lane, given in zip(lanes, tokens, strict=True):
        lane.prefill(given[:, :192], pos=0)
    calls = [
        lane.slices("prefill", given[:, 192:], pos=192)
        for lane, given in zip(lanes, tokens, strict=True)
    ]
    draw = random.Random(3)
    while not all(call.ended for call in calls):
        draw.choice(calls).run(draw.random() * 2e-4)
        if draw.random() < 0.3:
            rows.reset_state()
            assert torch.equal(rows.decode_rows(steps, positions), step)
    for call, lane, (logits, states) in zip(calls, lanes, expected, strict=True):
        assert torch.equal(call.result, logits[1:])
        assert all(torch.equal(lane.state[path], state) for path, state in states.items())
    module = lanes[0].native.module
    assert module is not None and len(module.rooms) == 2, "their memory waits for the next"


def test_dropped_half_way(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = loaded(models, "plain", "f32", 2, monkeypatch)
    tokens = text(300, 4)
    logits, states = whole(model, tokens)
    model.reset_state()
    for explicit in (True, False, True):
        call = model.slices("prefill", tokens[:, 100:], pos=100)
        assert not call.run(0.0)
        if explicit:
            call.drop()
            with pytest.raises(InputError, match="was dropped"):
                call.run()
        with pytest.raises(InputError, match="has not ended"):
            _ = call.result
        del call
        gc.collect()
        assert len(model.native.module.rooms) == 1
    again, found = whole(model, tokens)
    assert torch.equal(again, logits)
    assert all(torch.equal(found[path], state) for path, state in states.items())
    for lane in [model.slices("prefill", tokens[:, :9], pos=0) for _ in range(4)]:
        lane.run(0.0)
        lane.drop()
    assert len(model.native.module.rooms) == 2, "and no more than that"


def test_memory_that_was_bound_stays(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A call goes on with the weights and states that it began with."""
    model = loaded(models, "plain", "f32", 2, monkeypatch)
    tokens = text(120, 5)
    expected = model.prefill(tokens, pos=0)
    model.reset_state()
    call = model.slices("prefill", tokens, pos=0)
    assert not call.run(0.0)
    for path, (block, name, _) in model._params.items():
        setattr(block, name, torch.full_like(getattr(block, name), 1e6))
        del path
    for block, name, _ in model._states.values():
        setattr(block, name, torch.zeros_like(getattr(block, name)))
    gc.collect()
    assert not torch.equal(model.prefill(tokens, pos=0), expected)
    assert call.run() and torch.equal(call.result, expected)


def test_wrong_arguments_and_the_torch_backend(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = loaded(models, "plain", "f32", 1, monkeypatch)
    with pytest.raises(InputError, match="pos"):
        model.slices("prefill", text(20, 1), pos=390)
    with pytest.raises(InputError, match="no entry `prefil`"):
        model.slices("prefil", text(20, 1), pos=0)
    monkeypatch.setenv("LINNET_BACKEND", "torch")
    package, generics = PACKAGES["plain"]
    other = linnet.load(models / package, weights="random", generics={**generics, "T": "f32"})
    call = other.slices("prefill", text(20, 1), pos=0)
    assert call.run(0.0), "the first slice is the whole"
    other.reset_state()
    assert torch.equal(call.result, other.prefill(text(20, 1), pos=0))


def test_without_memory_for_stacks(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The call is then run as a whole."""
    model = loaded(models, "plain", "f32", 1, monkeypatch)
    expected = model.prefill(text(50, 7), pos=0)
    monkeypatch.setattr(model.native.module, "library", Refusing(model.native.module.library))
    model.reset_state()
    call = model.slices("prefill", text(50, 7), pos=0)
    assert call.run(0.0) and torch.equal(call.result, expected)


class Refusing:
    """A library that has no memory for slices."""

    def __init__(self, library: Any):
        self._library = library

    def __getattr__(self, name: str) -> Any:
        return (lambda pool: None) if name == "slice_new" else getattr(self._library, name)


def test_a_forked_child_cannot_go_on(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = loaded(models, "plain", "f32", 2, monkeypatch)
    tokens = text(120, 6)
    expected = model.prefill(tokens, pos=0)
    model.reset_state()
    call = model.slices("prefill", tokens, pos=0)
    assert not call.run(0.0)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            call.run()
        except BackendError:
            call.drop()
            model.reset_state()
            fresh = model.slices("prefill", tokens, pos=0)
            while not fresh.run(0.0):
                pass
            code = 0 if torch.equal(fresh.result, expected) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert call.run() and torch.equal(call.result, expected)
