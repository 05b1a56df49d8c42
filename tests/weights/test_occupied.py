"""What a model is going to take, said before it is loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import linnet
from linnet.check.path import check_path
from linnet.errors import BindError
from linnet.ir.manifest import root_block
from linnet.weights.occupied import state_bytes, weight_bytes

SIZES: dict[str, Any] = {
    "Groups": 1, "Vocab": 512, "H": 256, "Experts": 8, "TopK": 2, "ExpertInner": 128,
    "SharedInner": 128, "Heads": 4, "KvHeads": 2, "HeadDim": 64, "KeyHeads": 2, "KeyDim": 64,
    "ValueHeads": 4, "ValueDim": 64, "Width": 4, "Conv": 512, "MaxSeq": 32, "Batch": 1, "T": "bf16",
}  # fmt: skip


@pytest.fixture(scope="module")
def program(models: Path) -> tuple[Any, str]:
    found = check_path(models / "qwen3.6-35b-a3b")
    return found, root_block(found, "Model")


@pytest.mark.parametrize("cache", [None, "int8"])
def test_states(program: tuple[Any, str], cache: str | None) -> None:
    at = state_bytes(*program, SIZES, cache)
    model = linnet.load("qwen3.6-35b-a3b", weights="random", generics=SIZES, cache=cache)
    assert at(32) == sum(tensor.nbytes for tensor in model.held_state().values())
    each = 2 * 2 * (68 if cache else 128)
    assert at(132) - at(32) == 100 * each
    with pytest.raises(BindError):
        state_bytes(*program, {"H": 3})


@pytest.mark.parametrize(("quantize", "embedding"), [(None, 8), ("int8", 8), ("int4", 4)])
def test_weights(program: tuple[Any, str], quantize: str | None, embedding: int) -> None:
    found = weight_bytes(*program, SIZES, {}, None, quantize, embedding)
    model = linnet.load(
        "qwen3.6-35b-a3b", weights="random", generics=SIZES, quantize=quantize, embedding=embedding
    )
    assert found == sum(getattr(t, "bytes", t.nbytes) for t in model.state_dict().values())
