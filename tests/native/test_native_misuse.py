"""What is done to a model behind its back: memory put in place of a parameter's, writes to packed
weights, a fork in the middle of a call."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import linnet
from linnet.errors import BackendError, InputError
from linnet.native import compiler
from linnet.native.module import thread_count

if compiler.why_not() is not None:
    pytest.skip(compiler.why_not() or "", allow_module_level=True)

TINY: dict[str, Any] = {
    "Vocab": 97, "H": 64, "Groups": 1, "HeadDim": 32, "Heads": 4, "KvHeads": 2, "KeyHeads": 2,
    "KeyDim": 16, "ValueHeads": 4, "ValueDim": 16, "Width": 4, "Conv": 128, "TopK": 2, "Experts": 6,
    "ExpertInner": 32, "SharedInner": 64, "Batch": 1, "MaxSeq": 256, "T": "f32",
}  # fmt: skip


@pytest.fixture
def model(models: Path) -> Any:
    return linnet.load(
        models / "qwen3.6-35b-a3b", weights="random", generics=TINY, backend="native"
    )


def test_other_memory_of_another_form_is_refused(model: Any) -> None:
    tokens = [[1, 2, 3]]
    before = model.forward(tokens)
    head = model.state_dict()["lm_head.weight"]
    kept = head.data
    for bad in (kept[:3].clone(), kept.bfloat16(), torch.zeros(1)):
        head.data = bad
        with pytest.raises(InputError, match=r"`lm_head.weight`: expected \[97, 64\] of f32"):
            model.forward(tokens)
    head.data = kept.t().clone().t()  # the same values, otherwise laid out
    assert torch.allclose(model.forward(tokens), before, atol=1e-4)
    head.data = kept
    assert torch.equal(model.forward(tokens), before)


def test_packed_weights_are_not_written_to(models: Path, tmp_path: Path) -> None:
    model: Any = linnet.load(
        models / "qwen3.6-35b-a3b", weights="random", generics=TINY, quantize="int8"
    )
    before = model.forward([[1, 2]])
    path, packed = next((p, t) for p, t in model.state_dict().items() if hasattr(t, "packed"))
    writes: list[Any] = [
        lambda: packed.zero_(),
        lambda: packed.mul_(2),
        lambda: packed.copy_(torch.zeros(packed.shape)),
        lambda: packed.__setitem__(0, 0.0),
        lambda: packed.__iadd__(1),
        lambda: setattr(packed, "data", torch.zeros(packed.shape)),
    ]
    for write in writes:
        with pytest.raises(InputError, match="packed as int8"):
            write()
    with pytest.raises(InputError, match=f"`{path}` is packed as int8"):
        model.load_state_dict({path: torch.zeros(packed.shape)})
    assert torch.equal(model.forward([[1, 2]]), before)
    assert torch.equal(packed + 0, packed.dense()) and packed.requires_grad_(False) is not None

    (tmp_path / "linnet.json").write_text("{}")
    with pytest.raises(InputError, match=r"linnet.json.*another folder"):
        model.save(tmp_path)


@pytest.mark.parametrize("text", ["0", "-1", "two", "1.5"])
def test_a_number_of_threads_that_is_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINNET_THREADS", text)
    with pytest.raises(BackendError, match=f"LINNET_THREADS.*'{text}'"):
        thread_count()
    monkeypatch.setenv("LINNET_THREADS", " ")
    assert thread_count() >= 1


def test_forks_while_another_thread_calls(model: Any) -> None:
    expected = model.forward([[5, 6, 7]])
    over = threading.Event()

    def call() -> None:
        while not over.is_set():
            model.forward([list(range(90))])

    other = threading.Thread(target=call)
    other.start()
    try:
        for _ in range(8):
            time.sleep(0.005)
            child = os.fork()
            if child == 0:
                signal.alarm(20)
                with torch.no_grad():
                    same = torch.equal(model.forward([[5, 6, 7]]), expected)
                os._exit(0 if same else 1)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        over.set()
        other.join()
