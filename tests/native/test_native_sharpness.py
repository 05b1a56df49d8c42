"""Attention in bf16 gives low halves to large weights alone: how far results are off, and that a row
is the same in any company, whatever rows with and without low halves are beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from test_native_attention import LEVELS, Attending

SMALL = 1 / 32  # share of the sum from which on a weight has a low half
KEYS = 64  # of a block


@pytest.fixture(scope="module")
def attend(tmp_path_factory: pytest.TempPathFactory) -> Attending:
    folder: Path = tmp_path_factory.mktemp("sharpness")
    return Attending(folder, "bf16")


def rows(b: int, g: int, r: int, q: int, k: int, d: int, seed: int = 0) -> list[torch.Tensor]:
    """Queries from flat to sharp, one beside the other; keys with a sink; values around 1/2."""
    random = torch.Generator().manual_seed(seed)
    query = torch.randn((b, g * r, q, d), generator=random)
    spread = torch.tensor([0.0, 0.1, 1.0, 3.0, 12.0])
    query *= spread[torch.randint(0, 5, (b, g * r, q, 1), generator=random)] / d**0.5
    key = torch.randn((b, g, k, d), generator=random)
    if k > 2:
        query[:, ::3, :, 0] += 4  # some heads look at the first key, some at one on the way
        key[:, :, 0, 0] += 6
        query[:, 1::3, :, 1] += 3
        key[:, :, k * 2 // 3, 1] += 30
    value = torch.randn((b, g, k, d), generator=random) + 0.5
    return [x.to(torch.bfloat16) for x in (query, key, value)]


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a.contiguous().view(torch.int16), b.contiguous().view(torch.int16))


def exact(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> tuple[Any, ...]:
    """What `causal` is in f64: results, weights, and how far the values that count are from them."""
    each = query.shape[1] // key.shape[1]
    q, k, v = (x.double() for x in (query, key, value))
    k, v = (x.repeat_interleave(each, 1) for x in (k, v))
    scores = 0.3 * q @ k.mT
    n, s = scores.shape[-2:]
    scores.masked_fill_(torch.ones(n, s, dtype=torch.bool).triu(s - n + 1), float("-inf"))
    weights = scores.softmax(-1)
    return weights @ v, weights, v


@pytest.mark.parametrize("level", LEVELS)
def test_a_row_is_the_same_beside_sharp_and_flat_ones(
    level: str, attend: Attending, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINNET_NATIVE_LEVEL", level)
    attend.native()
    # Pieces of 192, 96 and 48 rows; tiles of six and of fewer; features that fill no vector.
    for sizes in [(4, 2, 3, 256, 300, 64), (1, 2, 8, 130, 330, 256), (1, 1, 5, 61, 200, 72)]:
        q, k, v = rows(*sizes)
        queries, keys = sizes[3], sizes[4]
        before = None
        for infinite in (False, True):
            if infinite:  # in features of their own, seen by most rows
                v[:, :, 17, 1] = float("inf")
                v[:, :, 90, 2] = float("-inf")
                v[:, :, 91, 3] = float("nan")
            together = attend("causal", q, k, v)
            for i in range(0, queries, 23):
                first = keys - queries + i + 1
                alone = attend("causal", q[:, :, i : i + 1], k[:, :, :first], v[:, :, :first])
                assert same(alone, together[:, :, i : i + 1]), (sizes, i, infinite)
                one = attend("causal", q[:1, :1, i : i + 1], k[:1, :1, :first], v[:1, :1, :first])
                assert same(one, together[:1, :1, i : i + 1]), (sizes, i, infinite, "a head")
            for start in (0, queries // 3):
                last = keys - queries + start + 40
                part = attend("causal", q[:, :, start : start + 40], k[:, :, :last], v[:, :, :last])
                assert same(part, together[:, :, start : start + 40]), (sizes, start, infinite)
            if before is not None:  # other features are what they were
                assert same(together[..., 4:], before)
                assert not together[:, :, -1, 1:4].isfinite().any()
            before = together[..., 4:]


@pytest.mark.parametrize("level", LEVELS)
def test_results_are_as_near_as_the_weights_say(
    level: str, attend: Attending, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINNET_NATIVE_LEVEL", level)
    attend.native()
    for sizes in [(1, 2, 3, 100, 700, 64), (1, 1, 2, 9, 4000, 96), (1, 2, 4, 64, 64, 33)]:
        q, k, v = rows(*sizes, seed=1)
        got = attend("causal", q, k, v).double()
        wanted, weights, values = exact(q, k, v)
        off, rounding = (got - wanted).abs(), wanted.abs() * 2**-8
        flat = weights * (weights < SMALL)
        apart = [
            w @ (values - y[..., None, :]).abs()
            for w, y in ((flat[:, :, i : i + 1], wanted[:, :, i]) for i in range(sizes[3]))
        ]
        bound = torch.cat(apart, -2) * 2**-8 + (weights @ values.abs()) * 2**-15
        assert (off <= (rounding + bound) * 1.01).all(), sizes
        # Usually far nearer: what rounding the results takes, and little more.
        rms = (off**2).mean(-1).sqrt()
        spread = values.std(-2).mean()
        usual = (wanted**2).mean(-1).sqrt() * 2**-9 * 1.5 + spread * (2**-9 * SMALL**0.5)
        assert (rms <= usual).all(), (sizes, (rms / usual).max())
        # Where the bound above is that of rounding alone, and where it is not.
        sharp = weights.amax(-1) > 1 - SMALL
        assert sharp.any() and not sharp.all(), sizes
