"""200 greedy tokens, one prompt after another, equal to those of transformers in f32."""

from __future__ import annotations

import pytest
import torch


def greedy(model, tokens: torch.Tensor, count: int) -> list[int]:
    """The next `count` tokens of one prompt `[1, S]`, by `prefill` and `decode`."""
    model.reset_state()
    out = [int(model.prefill(tokens, pos=0)[0].argmax())]
    for pos in range(tokens.shape[1], tokens.shape[1] + count - 1):
        out.append(int(model.decode(torch.tensor([[out[-1]]]), pos=pos)[0].argmax()))
    return out


@pytest.mark.parametrize("kind", ["text", "vision"])
def test_greedy_equals_transformers(package, checkpoint, load, kind):
    reference = checkpoint(kind)
    model = load(package, reference)
    prompt = reference.tokens(1, 17, seed=11)
    assert greedy(model, prompt, 200) == reference.greedy(prompt, 200)


def test_llama_greedy_equals_transformers(models, checkpoint, load):
    reference = checkpoint("llama", tied=False)
    model = load(models / "smollm2-135m-instruct", reference)
    prompt = reference.tokens(1, 17, seed=11)
    assert greedy(model, prompt, 200) == reference.greedy(prompt, 200)
