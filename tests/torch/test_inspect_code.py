"""What is generated for a real decoder: no masks, no copies of caches, kernels with reasons."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import linnet
from linnet.torch import inspect
from linnet.torch.ranges import analyze

MODEL = Path(__file__).parents[2] / "models" / "qwen3.6-35b-a3b"
SIZES = {
    "Vocab": 31, "H": 16, "Heads": 4, "KvHeads": 2, "HeadDim": 16, "KeyHeads": 2, "ValueHeads": 4,
    "KeyDim": 4, "ValueDim": 4, "Conv": 32, "Width": 4, "Experts": 8, "TopK": 2, "ExpertInner": 8,
    "SharedInner": 8, "Groups": 2, "Batch": 2, "MaxSeq": 64, "T": "bf16",
}  # fmt: skip
ENTRIES = ("forward", "next_token", "prefill", "decode", "prefill_slots", "decode_rows")


@pytest.fixture(scope="module")
def model():
    return linnet.load(MODEL, weights="random", generics=SIZES)


@pytest.mark.parametrize("entry", ENTRIES)
def test_generated_code_is_python_with_places(model, entry):
    text = inspect.code(model, entry)
    functions = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)]
    assert len(functions) == len({f.name for f in functions})
    assert re.search(r"# \w+\.linnet:\d+", text)


@pytest.mark.parametrize("entry", ["decode", "decode_rows", "prefill"])
def test_a_step_makes_no_mask_and_copies_no_cache(model, entry):
    text = inspect.code(model, entry)
    assert "rt.Causal(" in text and "causal_mask" not in text
    assert "grid(" not in text  # nothing is left to the evaluator
    assert ".clone()" not in text and "_new(" not in text
    assert not re.search(r"cache_\w+\.copy_\(", text)


def test_kernels_are_listed_with_reason_and_test(model):
    text = inspect.kernels(model, "decode")
    assert "std.nn.recurrent::gated_delta_step -> gated_delta_step (fast" in text
    assert "tests/torch/test_kernels.py::test_experts" in text
    exact = linnet.load(MODEL, weights="random", generics=SIZES, numerics="exact")
    assert "its body (exact: every op runs as its body)" in inspect.kernels(exact, "decode")


def conditions(model, entry):
    bound, _ = model.compiler.optimized(True)
    found = analyze(bound, bound.entries[entry])
    assert not found.open
    limits: dict[str, list[int]] = {}
    for c in found.conditions:
        at = {"S": 6, "M": 2, "B": 2}
        low, high = limits.setdefault(c.argument, [-(10**9), 10**9])
        offset = c.offset.evaluate(at)
        if c.extent is None:
            limits[c.argument] = [max(low, -offset), high]
        else:
            limits[c.argument] = [low, min(high, c.extent.evaluate(at) - 1 - offset)]
    return limits, found.distinct


def test_ranges_follow_from_the_program(model):
    """With S = 6 tokens; nothing here knows the arguments' names."""
    assert conditions(model, "forward")[0] == {"tokens": [0, 30]}
    limits = conditions(model, "prefill")[0]
    assert limits.pop("pos") == [0, 58] and list(limits.values()) == [[0, 30]]
    limits = conditions(model, "decode")[0]
    assert limits.pop("pos") == [0, 63] and list(limits.values()) == [[0, 30]]
    limits = conditions(model, "decode_rows")[0]
    assert limits.pop("positions") == [0, 63] and list(limits.values()) == [[0, 30]]
    limits, distinct = conditions(model, "prefill_slots")
    assert limits.pop(None)[1] == 58  # of no argument: six tokens from position 0 fit the cache
    assert limits == {"tokens": [0, 30], "slots": [0, 1], "lengths": [1, 6]}
    assert distinct == ["slots"]
