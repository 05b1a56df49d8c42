"""How much of a prompt goes in between two steps.

A stream that runs should wait at most about twice its usual time between tokens while a prompt
comes in: so a chunk takes about as long as a step. Both are measured as they happen.
"""

from __future__ import annotations

from collections import deque

LARGEST = 512
GRAIN = 16
# Part of the pause that a chunk is planned to fill: the rest is for what varies.
FILL = 0.8


class Pace:
    """Times of steps by rows and of chunks by tokens, and what follows for the next chunk."""

    def __init__(self, largest: int = LARGEST, fill: float = FILL):
        self.largest, self.fill = largest, fill
        self._steps: dict[int, float] = {}
        self._chunks: dict[int, float] = {}
        self._recent: deque[float] = deque(maxlen=64)

    def stepped(self, size: int, seconds: float) -> None:
        """A step of `size` rows took so long, with all that goes with it."""
        self._steps[size] = _blend(self._steps.get(size), seconds)

    def prefilled(self, tokens: int, seconds: float) -> None:
        key = _bucket(tokens)
        self._chunks[key] = _blend(self._chunks.get(key), seconds)

    def step_seconds(self, size: int) -> float | None:
        """The usual time of a step of `size` rows, from the nearest size known."""
        if not self._steps:
            return None
        near = min(self._steps, key=lambda known: (abs(known - size), known))
        return self._steps[near]

    def chunk_seconds(self, tokens: int) -> float | None:
        """A guess from measured chunks: between two sizes along the line, outside by share."""
        known = sorted(self._chunks.items())
        if not known:
            return None
        below = [k for k in known if k[0] <= tokens]
        above = [k for k in known if k[0] > tokens]
        if below and above:
            (a, s), (b, t) = below[-1], above[0]
            return s + (t - s) * (tokens - a) / (b - a)
        if below:
            a, s = below[-1]
            return s * tokens / a
        b, t = above[0]
        return t * (0.1 + 0.9 * tokens / b)  # some of it does not shrink

    def chunk(self, size: int | None) -> int:
        """How many tokens the next chunk may have; `size` is the rows of the step beside which
        it runs, None where no stream waits."""
        step = None if size is None else self.step_seconds(size)
        if step is None:
            return self.largest
        if not self._chunks:
            return GRAIN
        room = step * self.fill
        best = 1
        tokens = self.largest
        while tokens >= 1:
            guess = self.chunk_seconds(tokens)
            if guess is not None and guess <= room:
                best = tokens
                break
            tokens = tokens - GRAIN if tokens > GRAIN else tokens // 2
        return max(1, best)


def _bucket(tokens: int) -> int:
    """Sizes told apart: powers of two and the middles between them."""
    power = 1 << (tokens.bit_length() - 1)
    middle = power + power // 2
    return middle if tokens >= middle and power > 1 else power


def _blend(before: float | None, now: float) -> float:
    """A running value that a single slow run moves little."""
    if before is None:
        return now
    return before + 0.2 * (min(now, 3 * before) - before)
