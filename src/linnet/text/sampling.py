"""Choosing the next token from a row of logits."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, fields

import numpy as np

from linnet.errors import BackendError, InputError

# A nucleus seldom holds more tokens than this, so top-p sorts these first and the whole row
# only when they do not carry enough probability.
_HEAD = 1024


@dataclass(frozen=True)
class Sampling:
    """How a token is drawn. The defaults draw from the model's own distribution.

    - `temperature` ≥ 0: logits are divided by it; 0 is greedy (the first of the largest logits).
    - `top_k` ≥ 0: keep the `k` largest logits, and those equal to the last of them; 0 keeps all.
    - `top_p` in (0, 1]: keep the fewest most likely tokens that together carry at least `top_p`
      (nucleus sampling, Holtzman et al., arXiv 1904.09751).
    - `min_p` in [0, 1]: keep tokens at least `min_p` times as likely as the likeliest
      (arXiv 2407.01082).
    - `repetition_penalty` > 0: logits of tokens seen in the prompt or the answer are divided by
      it where positive and multiplied where negative (CTRL, arXiv 1909.05858); 1 is none.
    - `presence_penalty`, `frequency_penalty` in [-2, 2]: subtracted from the logits of tokens in
      the answer, once, and once for each time they stand there (as in the OpenAI API).
    - `seed`: the same seed, logits and settings give the same tokens; None draws a fresh seed.

    Raises `InputError` naming the argument, the value and the range.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None

    def __post_init__(self) -> None:
        _check("temperature", self.temperature, 0.0, math.inf, "a number ≥ 0")
        _check_integer("top_k", self.top_k, "an integer ≥ 0 (0 keeps all tokens)")
        _check("top_p", self.top_p, 0.0, 1.0, "a number above 0 and at most 1", open_low=True)
        _check("min_p", self.min_p, 0.0, 1.0, "a number from 0 to 1")
        _check(
            "repetition_penalty", self.repetition_penalty, 0.0, math.inf,
            "a number above 0 (1 is no penalty)", open_low=True,
        )  # fmt: skip
        for name in ("presence_penalty", "frequency_penalty"):
            _check(name, getattr(self, name), -2.0, 2.0, "a number from -2 to 2")
        if self.seed is not None:
            _check_integer("seed", self.seed, "an integer ≥ 0")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    @property
    def penalized(self) -> bool:
        """Whether earlier tokens change the logits."""
        return (
            self.repetition_penalty != 1
            or self.presence_penalty != 0
            or self.frequency_penalty != 0
        )


SAMPLING_NAMES = tuple(f.name for f in fields(Sampling))


def _check(
    name: str, value: object, low: float, high: float, expected: str, open_low: bool = False
) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if number:
        v = float(value)  # type: ignore[arg-type]
        if math.isfinite(v) and low <= v <= high and not (open_low and v == low):
            return
    raise InputError(f"{name} is {value!r}; expected {expected}")


def _check_integer(name: str, value: object, expected: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InputError(f"{name} is {value!r}; expected {expected}")


@dataclass
class SamplingState:
    """What sampling remembers of one sequence: its random stream and the tokens so far."""

    sampling: Sampling = field(default_factory=Sampling)
    prompt: frozenset[int] = frozenset()
    counts: dict[int, int] = field(default_factory=dict)
    random: np.random.Generator = field(init=False)

    def __post_init__(self) -> None:
        self.random = np.random.Generator(np.random.PCG64(self.sampling.seed))

    @classmethod
    def start(cls, sampling: Sampling, prompt: Iterable[int] = ()) -> SamplingState:
        """The state before the first new token, after the prompt's token ids."""
        return cls(sampling, frozenset(int(t) for t in prompt))

    def add(self, token: int) -> None:
        """Counts a token of the answer; `sample` does so for the tokens it draws."""
        self.counts[token] = self.counts.get(token, 0) + 1


def sample(logits: np.ndarray, state: SamplingState) -> int:
    """Draws the next token id from `logits [V] f32`, and counts it in `state`.

    The order is: penalties, temperature, top-k, top-p, min-p, as in transformers. Each filter
    sees what the ones before it kept. `logits` is not changed. Minus infinity means never; a row
    with NaN, or with nothing but minus infinity, raises `BackendError`.
    """
    if logits.ndim != 1 or logits.size == 0:
        raise InputError(f"logits have shape {list(logits.shape)}; expected one row [Vocab]")
    s = state.sampling
    if s.penalized:
        logits = _penalize(logits, state)
    best = int(np.argmax(logits))  # argmax finds a NaN first if there is one
    top = float(logits[best])
    if math.isnan(top):
        raise BackendError("the logits hold NaN: the weights or the computation are damaged")
    if top == -math.inf:
        raise BackendError("every logit is minus infinity: no token can be drawn")
    if s.greedy or top == math.inf or s.top_k == 1:
        token = best
    else:
        token = _draw(logits, top, state)
    state.add(token)
    return token


def _penalize(logits: np.ndarray, state: SamplingState) -> np.ndarray:
    """A copy with the logits of tokens seen before lowered. Ids past the row are left out."""
    s = state.sampling
    out = logits.astype(np.float32, copy=True)
    counts = {t: c for t, c in state.counts.items() if t < out.size}
    if s.repetition_penalty != 1:
        seen = np.fromiter({*counts, *(t for t in state.prompt if t < out.size)}, dtype=np.int64)
        values = out[seen]
        p = np.float32(s.repetition_penalty)
        out[seen] = np.where(values > 0, values / p, values * p)
    if counts and (s.presence_penalty or s.frequency_penalty):
        ids = np.fromiter(counts.keys(), dtype=np.int64, count=len(counts))
        times = np.fromiter(counts.values(), dtype=np.float32, count=len(counts))
        out[ids] -= np.float32(s.presence_penalty) + np.float32(s.frequency_penalty) * times
    return out


def _draw(logits: np.ndarray, top: float, state: SamplingState) -> int:
    """One draw with temperature above 0. Works on the candidates that the filters leave."""
    s = state.sampling
    ids: np.ndarray | None = None  # None: every id
    if 0 < s.top_k < logits.size:
        kth = np.partition(logits, logits.size - s.top_k)[logits.size - s.top_k]
        ids = np.flatnonzero(logits >= kth)
        logits = logits[ids]
    # exp of differences: the likeliest has weight 1, so nothing overflows.
    scaled = logits.astype(np.float32, copy=False) - np.float32(top)
    likeliest = scaled == 0
    # A tiny temperature sends the others to minus infinity, and may itself round to 0 in f32.
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        if s.temperature != 1:
            scaled = scaled / np.float32(s.temperature)
    weights = np.exp(scaled)
    weights[likeliest] = 1
    if s.top_p < 1:
        chosen = _nucleus(weights, s.top_p)
        ids = chosen if ids is None else ids[chosen]
        weights = weights[chosen]
    if s.min_p > 0:
        chosen = np.flatnonzero(weights >= np.float32(s.min_p))
        ids = chosen if ids is None else ids[chosen]
        weights = weights[chosen]
    cumulative = np.cumsum(weights, dtype=np.float64)
    at = int(np.searchsorted(cumulative, state.random.random() * cumulative[-1], side="right"))
    at = min(at, int(np.searchsorted(cumulative, cumulative[-1])))  # the last with weight
    return at if ids is None else int(ids[at])


def _nucleus(weights: np.ndarray, p: float) -> np.ndarray:
    """The indices of the fewest largest weights that carry at least `p` of the sum."""
    needed = p * float(np.sum(weights, dtype=np.float64))
    head = np.arange(weights.size)
    if weights.size > 2 * _HEAD:
        head = np.argpartition(weights, weights.size - _HEAD)[weights.size - _HEAD :]
        if float(np.sum(weights[head], dtype=np.float64)) < needed:
            head = np.arange(weights.size)
    # A stable sort of ascending ids: of equal weights the lower id stands first.
    head = np.sort(head)
    order = head[np.argsort(-weights[head], kind="stable")]
    carried = np.cumsum(weights[order], dtype=np.float64)
    return order[: int(np.searchsorted(carried, needed)) + 1]
