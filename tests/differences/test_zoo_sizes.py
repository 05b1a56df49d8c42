"""Models of the zoo at random small sizes: the reference, torch and native code give the same, in
every entry and in the states behind it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

import linnet
from differences.noise import noise
from linnet.native import compiler

MODELS = Path(__file__).resolve().parents[2] / "models"
FLOOR = 2e-3  # of the largest number; sums over a hundred terms in f32 are far below
Calls = list[tuple[str, tuple[Any, ...], dict[str, Any]]]


def size(draw: Random, most: int) -> int:
    """Often a small one, or one beside a power of two."""
    kind = draw.random()
    if kind < 0.3:
        return draw.randint(1, min(4, most))
    if kind < 0.6:
        return min(most, max(1, 2 ** draw.randint(0, most.bit_length()) + draw.choice((-1, 0, 1))))
    return draw.randint(1, most)


def attention(draw: Random) -> dict[str, int]:
    kv = draw.choice((1, 1, 2, 3))
    return {"KvHeads": kv, "Heads": kv * draw.randint(1, 4), "HeadDim": 2 * size(draw, 40)}


def decoder(draw: Random) -> dict[str, int]:
    return {
        "Vocab": size(draw, 120), "H": size(draw, 150), "Inner": size(draw, 150),
        "Layers": draw.randint(1, 3), **state(draw), **attention(draw),
    }  # fmt: skip


def state(draw: Random) -> dict[str, int]:
    return {"Batch": draw.randint(1, 4), "MaxSeq": draw.randint(20, 160)}


def hybrid(draw: Random, experts: bool) -> dict[str, int]:
    keys = draw.randint(1, 3)
    values, width, deep = keys * draw.randint(1, 3), size(draw, 40), size(draw, 40)
    found = {
        "Vocab": size(draw, 120), "H": size(draw, 150), "Groups": draw.choice((1, 1, 2)),
        **attention(draw), "KeyHeads": keys, "KeyDim": width, "ValueHeads": values,
        "ValueDim": deep, "Width": draw.randint(2, 6), "Conv": 2 * keys * width + values * deep,
        **state(draw),
    }  # fmt: skip
    found["HeadDim"] = 8 * size(draw, 10)
    if experts:
        many = draw.randint(1, 9)
        found |= {
            "Experts": many, "TopK": draw.randint(1, many), "ExpertInner": size(draw, 60),
            "SharedInner": size(draw, 60),
        }  # fmt: skip
    else:
        found["Inner"] = size(draw, 150)
    return found


def gpt(draw: Random) -> dict[str, int]:
    found = {
        "Vocab": size(draw, 120), "Heads": draw.randint(1, 4), "D": size(draw, 40),
        "Inner": size(draw, 150), "Layers": draw.randint(1, 3), **state(draw),
    }  # fmt: skip
    return {**found, "Positions": found["MaxSeq"] + draw.randint(0, 5)}


def encoder(draw: Random) -> dict[str, int]:
    return {
        "Vocab": size(draw, 120), "Positions": draw.randint(40, 90), "Types": draw.randint(1, 3),
        "Heads": draw.randint(1, 4), "D": size(draw, 40), "Inner": size(draw, 150),
        "Layers": draw.randint(1, 3),
    }  # fmt: skip


def seen(draw: Random) -> dict[str, int]:
    patch = draw.randint(1, 5)
    return {
        "Classes": size(draw, 60), "Side": patch * draw.randint(1, 5), "Patch": patch,
        "Heads": draw.randint(1, 3), "D": size(draw, 40), "Inner": size(draw, 100),
        "Layers": draw.randint(1, 2),
    }  # fmt: skip


def both(draw: Random) -> dict[str, int]:
    patch = draw.randint(1, 5)
    return {
        "Vocab": size(draw, 120), "Positions": draw.randint(20, 50), "TextHeads": draw.randint(1, 3),
        "TextD": size(draw, 40), "TextInner": size(draw, 100), "TextLayers": draw.randint(1, 2),
        "Side": patch * draw.randint(1, 5), "Patch": patch, "ImageHeads": draw.randint(1, 3),
        "ImageD": size(draw, 40), "ImageInner": size(draw, 100), "ImageLayers": draw.randint(1, 2),
        "Joint": size(draw, 60),
    }  # fmt: skip


def tokens(draw: Random, known: int, *shape: int) -> Tensor:
    numbers = torch.Generator().manual_seed(draw.randrange(1 << 30))
    return torch.randint(0, known, shape, generator=numbers, dtype=torch.int32)


def of_decoder(draw: Random, g: dict[str, int]) -> Calls:
    known, batch, most = g["Vocab"], g["Batch"], g["MaxSeq"]
    first = draw.randint(1, most - 8)
    second = draw.randint(1, min(70, most - first - 4))
    at = first + second
    calls: Calls = [
        ("forward", (tokens(draw, known, draw.randint(1, 3), draw.randint(1, most)),), {}),
        ("next_token", (tokens(draw, known, draw.randint(1, 3), draw.randint(1, 20)),), {}),
        ("prefill", (tokens(draw, known, batch, first),), {"pos": 0}),
        ("prefill", (tokens(draw, known, batch, second),), {"pos": first}),
        ("decode", (tokens(draw, known, batch, 1),), {"pos": at}),
    ]
    rows = draw.sample(range(batch), draw.randint(1, batch))
    longest = draw.randint(1, 15)
    lengths = [draw.randint(1, longest) for _ in rows]
    given = tokens(draw, known, len(rows), longest)
    calls.append(("prefill_slots", (given, rows, lengths), {}))
    positions = [lengths[rows.index(r)] if r in rows else at + 1 for r in range(batch)]
    for _ in range(2):
        calls.append(("decode_rows", (tokens(draw, known, batch, 1), list(positions)), {}))
        positions = [p + 1 for p in positions]
    return calls


def of_encoder(draw: Random, g: dict[str, int]) -> Calls:
    rows, length = draw.randint(1, 3), draw.randint(1, g["Positions"])
    lengths = [draw.randint(1, length) for _ in range(rows)]
    text, kinds = tokens(draw, g["Vocab"], rows, length), tokens(draw, g["Types"], rows, length)
    return [("forward", (text, kinds, lengths), {}), ("embed", (text, lengths), {})]


def pictures(draw: Random, g: dict[str, int]) -> Tensor:
    numbers = torch.Generator().manual_seed(draw.randrange(1 << 30))
    return torch.randn(draw.randint(1, 3), 3, g["Side"], g["Side"], generator=numbers)


def of_seen(draw: Random, g: dict[str, int]) -> Calls:
    images = pictures(draw, g)
    return [("forward", (images,), {}), ("features", (images,), {})]


def of_both(draw: Random, g: dict[str, int]) -> Calls:
    rows, length = draw.randint(1, 3), draw.randint(1, g["Positions"])
    lengths = [draw.randint(1, length) for _ in range(rows)]
    return [("forward", (pictures(draw, g), tokens(draw, g["Vocab"], rows, length), lengths), {})]


Draw = Callable[[Random], dict[str, int]]
FAMILIES: dict[str, tuple[Draw, Callable[[Random, dict[str, int]], Calls]]] = {
    "smollm2-135m-instruct": (decoder, of_decoder),
    "llama-3.2-1b-instruct": (decoder, of_decoder),
    "qwen3-0.6b": (decoder, of_decoder),
    "qwen3.6-35b-a3b": (lambda draw: hybrid(draw, True), of_decoder),
    "qwen3.8-27b": (lambda draw: hybrid(draw, False), of_decoder),
    "gpt2": (gpt, of_decoder),
    "all-minilm-l6-v2": (encoder, of_encoder),
    "vit-base-patch16-224": (seen, of_seen),
    "clip-vit-base-patch32": (both, of_both),
}


def flat(value: Any) -> list[Tensor]:
    if isinstance(value, tuple):
        return [leaf for item in value for leaf in flat(item)]
    return [value]


def gap(a: Tensor, b: Tensor) -> float:
    """The largest difference, over the largest number."""
    assert a.shape == b.shape and a.dtype == b.dtype
    if not a.numel():
        return 0.0
    x, y = a.double(), b.double()
    assert torch.equal(x.isnan(), y.isnan())  # of a vector of length 0 made one of length 1
    x, y = x.nan_to_num(), y.nan_to_num()
    return float((x - y).abs().max() / y.abs().max().clamp_min(0.1))


Outcome = tuple[list[Tensor], dict[str, Tensor]]


def outcomes(model: Any, calls: Calls) -> list[Outcome]:
    """What each call gave, and the states behind it."""
    found = []
    for call, args, keywords in calls:
        results = flat(getattr(model, call)(*args, **keywords))
        found.append((results, {path: kept.clone() for path, kept in model.state.items()}))
    return found


def gaps(mine: list[Outcome], reference: list[Outcome]) -> list[dict[str, float]]:
    return [
        {
            **{f"result {i}": gap(x, y) for i, (x, y) in enumerate(zip(a, b, strict=True))},
            **{path: gap(state[path], kept) for path, kept in states.items()},
        }
        for (a, state), (b, states) in zip(mine, reference, strict=True)
    ]


def check(name: str, seed: int) -> None:
    draw = Random(f"{name} {seed}")
    choose, ask = FAMILIES[name]
    generics = choose(draw)
    calls = ask(draw, generics)
    weights = draw.randrange(1 << 20)

    def loaded(**options: Any) -> Any:
        torch.manual_seed(weights)
        return linnet.load(
            MODELS / name, weights="random", generics={**generics, "T": "f32"}, **options
        )

    exact = loaded(numerics="exact")
    known = dict(exact.state_dict())
    reference = outcomes(exact, calls)
    spread: list[dict[str, float]] = []  # what rounding alone does to the reference
    for backend in ("torch", "native") if compiler.why_not() is None else ("torch",):
        model = loaded(backend=backend)
        model.load_state_dict(known)
        for at, found in enumerate(gaps(outcomes(model, calls), reference)):
            for what, far in found.items():
                if far >= FLOOR and not spread:
                    for shake in range(3):
                        again = loaded(numerics="exact")
                        again.load_state_dict(known)
                        with noise(shake):
                            spread += gaps(outcomes(again, calls), reference)
                noisy = max((s[what] for s in spread[at :: len(calls)]), default=0.0)
                assert far < FLOOR + 10 * noisy, (generics, calls[at][0], backend, what, far, noisy)
        assert backend == "torch" or model.native.module is not None


@pytest.mark.parametrize("name", ["gpt2", "all-minilm-l6-v2", "vit-base-patch16-224"])
def test_random_sizes(name: str) -> None:
    check(name, 1)


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(100, 112))
@pytest.mark.parametrize("name", FAMILIES)
def test_many_random_sizes(name: str, seed: int) -> None:
    check(name, seed)
