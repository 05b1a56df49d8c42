"""Sampling: filters against their definitions, draws against their probabilities."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from linnet.errors import BackendError, InputError
from linnet.text.sampling import Sampling, SamplingState, sample


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return e / e.sum()


def draw(logits: np.ndarray, n: int, **settings: object) -> np.ndarray:
    """How often each token comes in `n` draws without memory."""
    state = SamplingState.start(Sampling(seed=7, **settings))  # type: ignore[arg-type]
    return np.bincount([sample(logits, state) for _ in range(n)], minlength=logits.size)


def expected(logits: np.ndarray, s: Sampling) -> np.ndarray:
    """The distribution by sorting: slow, and in the order that `sample` states."""
    x = logits.astype(np.float64) / s.temperature
    kept = np.ones(x.size, bool)
    if s.top_k:
        kept &= x >= np.sort(x)[::-1][min(s.top_k, x.size) - 1]
    p = softmax(np.where(kept, x, -np.inf))
    if s.top_p < 1:
        order = np.argsort(-p, kind="stable")
        before = np.cumsum(p[order]) - p[order]
        kept[order[before >= s.top_p]] = False
    p = softmax(np.where(kept, x, -np.inf))
    kept &= p >= s.min_p * p.max()
    return softmax(np.where(kept, x, -np.inf))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 3.0},
        {"top_k": 3},
        {"top_k": 100},
        {"top_p": 0.6},
        {"top_p": 0.05},
        {"min_p": 0.3},
        {"min_p": 1.0},
        {"temperature": 1.5, "top_k": 6, "top_p": 0.8, "min_p": 0.2},
    ],
)
def test_frequencies_are_the_probabilities(settings: dict[str, float]) -> None:
    logits = np.random.default_rng(1).normal(0, 1.5, 12).astype(np.float32)
    n = 20_000
    seen = draw(logits, n, **settings)
    p = expected(logits, Sampling(**settings))  # type: ignore[arg-type]
    assert (seen[p == 0] == 0).all()
    # Pearson's statistic: mean and variance of chi squared with that many degrees of freedom.
    alive = p > 0
    chi = float((((seen - n * p) ** 2)[alive] / (n * p[alive])).sum())
    freedom = int(alive.sum()) - 1
    assert chi <= freedom + 5 * math.sqrt(2 * freedom) + 1e-9


@pytest.mark.parametrize("settings", [{"top_p": 0.9}, {"top_p": 0.3}, {"top_k": 40, "top_p": 0.7}])
@pytest.mark.parametrize("spread", [0.01, 1.0, 6.0])
def test_large_rows_keep_what_the_definition_keeps(
    settings: dict[str, float], spread: float
) -> None:
    logits = np.random.default_rng(2).normal(0, spread, 20_000).astype(np.float32)
    p = expected(logits, Sampling(**settings))  # type: ignore[arg-type]
    seen = draw(logits, 300, **settings)
    assert p[seen > 0].min() > 0


def test_greedy_takes_the_first_of_the_largest() -> None:
    state = SamplingState.start(Sampling(temperature=0))
    assert sample(np.array([0, 5, 1, 5], np.float32), state) == 1
    assert sample(np.array([-np.inf, -3, -np.inf], np.float32), state) == 1


def test_a_tiny_temperature_is_greedy_and_a_large_one_is_even() -> None:
    logits = np.array([1.0, 1.001, -4.0], np.float32)
    for tiny in (1e-30, 1e-300):
        assert draw(logits, 50, temperature=tiny)[1] == 50
    even = draw(logits, 3000, temperature=1e30)
    assert even.min() > 800


def test_minus_infinity_is_never_drawn() -> None:
    logits = np.array([-np.inf, 0, -np.inf, 1], np.float32)
    for settings in ({}, {"top_k": 3}, {"top_p": 0.999}, {"temperature": 1e20}):
        seen = draw(logits, 500, **settings)
        assert seen[0] == seen[2] == 0


def test_the_seed_decides() -> None:
    rows = np.random.default_rng(3).normal(size=(40, 500)).astype(np.float32)

    def run(seed: int | None) -> list[int]:
        state = SamplingState.start(Sampling(seed=seed))
        return [sample(row, state) for row in rows]

    assert run(5) == run(5)
    assert run(5) != run(6)
    assert run(None) != run(None)


def test_penalties_by_hand() -> None:
    logits = np.array([2.0, -2.0, 1.0, 1.5], np.float32)
    before = logits.copy()

    def first(prompt: list[int], answer: list[int], **settings: float) -> int:
        state = SamplingState.start(Sampling(temperature=0, **settings), prompt)  # type: ignore
        for token in answer:
            state.add(token)
        return sample(logits, state)

    assert first([0], [], repetition_penalty=2) == 3  # 2 / 2 < 1.5
    assert first([0, 3, 99], [2], repetition_penalty=10) == 0  # 0.2, -2, 0.1, 0.15
    assert first([0], [], presence_penalty=1, frequency_penalty=1) == 0  # the prompt is free
    assert first([], [0], presence_penalty=0.4) == 0
    assert first([], [0], presence_penalty=0.6) == 3
    assert first([], [0, 0], frequency_penalty=0.3) == 3
    assert first([], [0], frequency_penalty=0.3) == 0
    assert first([], [1], frequency_penalty=-2) == 0
    assert first([], [1, 1, 1], frequency_penalty=-2) == 1
    assert (logits == before).all()


def test_repetition_penalty_equals_transformers() -> None:
    torch = pytest.importorskip("torch")
    processors = pytest.importorskip("transformers.generation.logits_process")
    from linnet.text.sampling import _penalize

    logits = np.random.default_rng(4).normal(size=200).astype(np.float32)
    ids = [3, 3, 17, 150]
    want = processors.RepetitionPenaltyLogitsProcessor(1.3)(
        torch.tensor([ids]), torch.tensor(logits)[None]
    )
    got = _penalize(logits, SamplingState.start(Sampling(repetition_penalty=1.3), ids))
    assert np.array_equal(got, want[0].numpy())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1), ("temperature", math.nan), ("temperature", math.inf),
        ("temperature", "1"), ("temperature", True), ("top_k", -1), ("top_k", 1.5),
        ("top_p", 0), ("top_p", 1.1), ("min_p", -0.1), ("min_p", 1.1),
        ("repetition_penalty", 0), ("presence_penalty", 2.1), ("frequency_penalty", -3),
        ("seed", -1), ("seed", 1.0),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_named(name: str, value: object) -> None:
    with pytest.raises(InputError, match=rf"^{name} is .*; expected "):
        Sampling(**{name: value})  # type: ignore[arg-type]


def test_damaged_logits() -> None:
    state = SamplingState()
    with pytest.raises(BackendError, match="NaN"):
        sample(np.array([0, np.nan], np.float32), state)
    with pytest.raises(BackendError, match="minus infinity"):
        sample(np.full(3, -np.inf, np.float32), state)
    with pytest.raises(InputError, match=r"shape \[1, 3\]"):
        sample(np.zeros((1, 3), np.float32), state)


def test_a_large_vocabulary_is_quick() -> None:
    logits = np.random.default_rng(5).normal(0, 3, 248_320).astype(np.float32)
    state = SamplingState.start(
        Sampling(temperature=0.7, top_k=20, top_p=0.9, repetition_penalty=1.1, seed=1), range(500)
    )
    sample(logits, state)
    began = time.perf_counter()
    for _ in range(5):
        sample(logits, state)
    assert (time.perf_counter() - began) / 5 < 0.1  # a few milliseconds on an idle machine
