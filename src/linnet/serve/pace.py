"""How much of a prompt goes in between two steps.

A stream that runs should wait at most about twice its usual time between tokens while a prompt
comes in: so the chunks between two steps take about as long as a step. Where many wait to come in
that would help few at the cost of many, and of work too, since a step of many rows costs little
more than one of few: the time of chunks then grows with those who wait over those who run.

How the time of a chunk grows with its tokens, and that of a step with its rows, is measured once,
at start; how fast they are now, as they happen. One factor stands for all sizes, so that an hour
in which the machine is busy cannot leave a stale figure behind for a size that is then never
tried again.
"""

from __future__ import annotations

import math

LARGEST = 512
# Part of the pause that a chunk is planned to fill: the rest is for what varies.
FILL = 0.8
# A chunk reads all weights however short it is; tokens that cost next to nothing more come along.
FREE = 1.3
LEAST = 4
WORTH = 16  # a further chunk in the same pause has so many tokens at least
CROWD = (
    4.0  # steps' worth of chunks for each request, after the first, that waits for one that runs
)
LONGEST = 1.0  # seconds of a pause, whoever waits


class Pace:
    """Times of steps by rows and of chunks by tokens, and what follows for the next chunk."""

    def __init__(self, largest: int = LARGEST, fill: float = FILL):
        self.largest, self.fill = largest, fill
        self._steps: dict[int, float] = {}
        self._curve: dict[int, float] = {}
        self._step_factor = self._factor = 1.0

    def learned(self, tokens: int, seconds: float) -> None:
        """A chunk of so many tokens took so long at start; of several the quickest counts."""
        self._curve[tokens] = min(seconds, self._curve.get(tokens, seconds))

    def learned_step(self, size: int, seconds: float) -> None:
        """A step of so many rows took so long at start; of several the quickest counts."""
        self._steps[size] = min(seconds, self._steps.get(size, seconds))

    def stepped(self, size: int, seconds: float) -> None:
        """A step of `size` rows took so long, with all that goes with it."""
        usual = self._step(size)
        if usual is None:
            self.learned_step(size, seconds)
        else:
            self._step_factor = _blend(self._step_factor, seconds / usual)

    def prefilled(self, tokens: int, seconds: float) -> None:
        """A chunk took so long."""
        curve = self._at(tokens)
        if curve is None:
            self.learned(tokens, seconds)
        else:
            self._factor = _blend(self._factor, seconds / curve)

    def step_seconds(self, size: int) -> float | None:
        """What a step of `size` rows takes now."""
        usual = self._step(size)
        return None if usual is None else usual * self._step_factor

    def _step(self, size: int) -> float | None:
        """Lines between what is known, and a step of more rows bounds one of fewer; beyond what
        is known, the largest."""
        above = [(seconds, known) for known, seconds in self._steps.items() if known >= size]
        if not above:
            return self._steps.get(max(self._steps, default=0))
        most, upper = min(above)
        lower = max((known for known in self._steps if known < size), default=None)
        if lower is None:
            return most
        least = min(most, self._steps[lower])
        return least + (most - least) * (size - lower) / (upper - lower)

    def chunk_seconds(self, tokens: int) -> float | None:
        """What a chunk would take now."""
        curve = self._at(tokens)
        return None if curve is None else curve * self._factor

    def _at(self, tokens: int) -> float | None:
        """The curve: lines between what was measured, never falling; beyond, the last line."""
        known = sorted(self._curve.items())
        if not known:
            return None
        most = 0.0
        before: tuple[int, float] | None = None
        slope = known[0][1] / known[0][0]
        for size, seconds in known:
            most = max(most, seconds)
            if before is not None:
                slope = (most - before[1]) / (size - before[0])
            if tokens <= size:
                return most if before is None else most - slope * (size - tokens)
            before = (size, most)
        assert before is not None
        return before[1] + slope * (tokens - before[0])

    def room(self, size: int, waiting: int, running: int) -> float:
        """Seconds of chunks beside a step of `size` rows; `running` answers run and `waiting`
        requests wait or are coming in. Infinite while nothing is known."""
        step = self.step_seconds(size)
        if step is None or not self._curve:
            return math.inf
        crowd = CROWD * (waiting - 1) / max(1, running)
        return min(LONGEST, step * self.fill * max(1.0, crowd))

    def fits(self, room: float, first: bool = True) -> int:
        """How many tokens of a chunk take at most so many seconds; 0 where it is not worth one.
        The `first` chunk of a pause has some in any case: a prompt never stands still."""
        if math.isinf(room):
            return self.largest
        single = self.chunk_seconds(1)
        if single is None:
            return self.largest
        if first:
            room = max(room, single * FREE)
        low, high = 0, self.largest
        while low < high:  # the most tokens that fit the room
            middle = (low + high + 1) // 2
            seconds = self.chunk_seconds(middle)
            if seconds is not None and seconds <= room:
                low = middle
            else:
                high = middle - 1
        if first:
            return max(low, min(LEAST, self.largest))
        return low if low >= WORTH else 0


def _blend(before: float, now: float) -> float:
    """A running value that a single slow run moves little."""
    return before + 0.2 * (min(now, 3 * before) - before)
