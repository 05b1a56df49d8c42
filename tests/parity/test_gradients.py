"""With `trainable=True` the gradients of `forward` equal those of transformers, in f32 to 1e-4 of
each tensor's scale."""

from __future__ import annotations

import pytest
import torch
from oracle import share_of_scale


@pytest.fixture(params=["founding", "ours", "llama"])
def case(request, models, checkpoint, load):
    if request.param == "llama":
        reference = checkpoint("llama", tied=True)
        return load(models / "smollm2-135m-instruct", reference, trainable=True), reference
    package = (
        request.getfixturevalue("founding_package")
        if request.param == "founding"
        else models / "qwen3.6-35b-a3b"
    )
    reference = checkpoint("text", Groups=1)
    return load(package, reference, trainable=True), reference


def test_gradients_equal_transformers(case):
    model, reference = case
    tokens = reference.tokens(2, 70, seed=40)
    weights = torch.randn(2, 70, int(reference.generics["Vocab"]), generator=seeded(41))
    reference.model.zero_grad()
    (reference.model(input_ids=tokens, use_cache=False).logits * weights).mean().backward()
    (model.forward(tokens) * weights).mean().backward()
    ours = dict(model.named_parameters())
    theirs = dict(reference.model.named_parameters())
    largest = max(p.grad.abs().max().item() for p in theirs.values())
    checked = 0
    for path, name in reference.bindings.items():
        if path not in ours:
            # The second path of a tied tensor: the gradient is with the first.
            assert name in [reference.bindings[p] for p in ours], path
            continue
        assert ours[path].grad is not None, path
        expected = theirs[name].grad
        # A tensor whose gradient is nothing but rounding has no scale of its own.
        if expected.abs().max() > 1e-6 * largest:
            assert share_of_scale(ours[path].grad, expected) < 1e-4, path
            checked += 1
    assert checked > len(ours) // 2


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
