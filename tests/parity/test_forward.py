"""`forward` and `next_token` against transformers, in f32 to 1e-4 of the logits' scale."""

from __future__ import annotations

import pytest
from oracle import share_of_scale

LENGTHS = (1, 2, 3, 63, 64, 65, 200)

# Sizes that differ where an implementation could confuse two: one or several value heads a key
# head, one or several query heads a key/value head, odd numbers, one expert, all experts.
SHAPES = {
    "usual": {},
    "equal heads": {"KeyHeads": 3, "ValueHeads": 3, "Heads": 2, "KvHeads": 2, "HeadDim": 24},
    "many experts": {"Experts": 32, "TopK": 5, "ExpertInner": 8, "Groups": 1},
    "one expert": {"Experts": 1, "TopK": 1, "Groups": 1},
    "all experts": {"Experts": 4, "TopK": 4, "Groups": 1},
    "wide key": {"KeyDim": 24, "ValueDim": 8, "KeyHeads": 1, "ValueHeads": 5, "Groups": 1},
    "short convolution": {"Width": 2, "Heads": 6, "KvHeads": 1, "Groups": 1},
}


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", ["text", "vision"])
def test_forward_equals_transformers(package, checkpoint, load, kind, length):
    reference = checkpoint(kind)
    model = load(package, reference)
    tokens = reference.tokens(2, length, seed=length)
    assert share_of_scale(model.forward(tokens), reference.logits(tokens)) < 1e-4


@pytest.mark.parametrize("shape", SHAPES)
def test_forward_at_other_sizes(package, checkpoint, load, shape):
    reference = checkpoint("text", seed=3, **SHAPES[shape])
    model = load(package, reference)
    tokens = reference.tokens(1, 67, seed=5)
    assert share_of_scale(model.forward(tokens), reference.logits(tokens)) < 1e-4


def test_next_token_is_the_last_of_forward(package, checkpoint, load):
    reference = checkpoint("text")
    model = load(package, reference)
    tokens = reference.tokens(3, 21)
    assert share_of_scale(model.next_token(tokens), reference.logits(tokens)[:, -1]) < 1e-4


@pytest.mark.parametrize("numerics", ["exact", "equivalent", "fast"])
def test_every_policy_agrees(package, checkpoint, load, numerics):
    reference = checkpoint("text", Groups=1)
    model = load(package, reference, numerics=numerics)
    tokens = reference.tokens(1, 9, seed=2)
    assert share_of_scale(model.forward(tokens), reference.logits(tokens)) < 1e-4


@pytest.mark.parametrize("length", [1, 2, 64, 200])
@pytest.mark.parametrize("tied", [True, False])
def test_llama_forward_equals_transformers(models, checkpoint, load, tied, length):
    reference = checkpoint("llama", tied=tied)
    model = load(models / "smollm2-135m-instruct", reference)
    tokens = reference.tokens(2, length, seed=length)
    assert share_of_scale(model.forward(tokens), reference.logits(tokens)) < 1e-4
