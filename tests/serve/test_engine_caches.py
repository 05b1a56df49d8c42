"""The engine over keys and values in 8 bits: rows, lanes, snapshots and their folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from serve_models import MODELS, VOCABULARY, alone, text, tokens

import linnet
from linnet.serve import Engine, Request, Sampling
from linnet.serve.layout import layout_of
from linnet.serve.store import fingerprint

SIZES: dict[str, dict[str, Any]] = {
    "qwen3.6-35b-a3b": {
        "Vocab": VOCABULARY, "H": 32, "Groups": 1, "HeadDim": 8, "Heads": 4, "KvHeads": 2,
        "KeyHeads": 2, "KeyDim": 8, "ValueHeads": 4, "ValueDim": 8, "Width": 4, "Conv": 64,
        "TopK": 2, "Experts": 4, "ExpertInner": 16, "SharedInner": 16, "Batch": 1,
        "MaxSeq": 128, "T": "f32",
    },
    "smollm2-135m-instruct": {
        "Vocab": VOCABULARY, "H": 32, "Inner": 48, "Heads": 4, "KvHeads": 2, "HeadDim": 8,
        "Layers": 2, "Batch": 1, "MaxSeq": 128, "T": "f32",
    },
}  # fmt: skip


@pytest.fixture(scope="module", params=list(SIZES))
def model(request: pytest.FixtureRequest) -> Any:
    return linnet.load(
        MODELS / request.param, weights="random", generics=SIZES[request.param], cache="int8",
        backend="torch",
    )  # fmt: skip


def greedy(prompt: list[int], count: int) -> Request:
    return Request(prompt, Sampling(temperature=0.0), max_tokens=count, stop_tokens=frozenset())


def test_a_row_takes_its_bytes(model: Any) -> None:
    layout = layout_of(model)
    held = model.held_state()
    assert layout.row_bytes == sum(t.nbytes for t in held.values())
    assert all(held[path].dtype == torch.uint8 for path in layout.positional)


def test_answers_beside_others_and_from_kept_prompts(model: Any, tmp_path: Path) -> None:
    prompts = [tokens(20 + 7 * i, 40 + i) for i in range(4)]
    expected = [alone(model, prompt, 6) for prompt in prompts]
    with Engine(model, text(), rows=3, snapshot_folder=tmp_path) as engine:
        handles = [engine.submit(greedy(prompt, 6)) for prompt in prompts]
        assert [handle.result().choices[0].tokens for handle in handles] == expected
        again = engine.run(greedy(prompts[2], 6))
        assert again.choices[0].tokens == expected[2]
        assert again.usage.cached_tokens > 0
    with Engine(model, text(), rows=3, snapshot_folder=tmp_path) as engine:
        again = engine.run(greedy(prompts[1], 6))
        assert again.choices[0].tokens == expected[1]
        assert again.usage.cached_tokens > 0


def test_kept_prompts_of_another_format_are_not_read(model: Any) -> None:
    name = next(n for n in SIZES if model.name == n)
    other = linnet.load(MODELS / name, weights="random", generics=SIZES[name], backend="torch")
    assert fingerprint(other) != fingerprint(model)
    assert fingerprint(other.rebind({"Batch": 3})) == fingerprint(other)
