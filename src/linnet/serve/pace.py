"""How much of a prompt goes in between two steps.

A stream that runs should wait at most about twice its usual time between tokens while a prompt
comes in: so the chunks between two steps take about as long as a step. Where many wait to come in
that would help few at the cost of many, and of work too, since a step of many rows costs little
more than one of few: the time of chunks then grows with those who wait over those who run.

How the time of a chunk grows with its tokens, and that of a step with its rows, is measured once,
at start; how fast they are now, as they happen. One factor stands for all sizes, so that an hour
in which the machine is busy cannot leave a stale figure behind for a size that is then never
tried again.

Where a chunk can be left half-way (`Lanes.pauses`), its length does not matter for the pauses: it
is given the time that there is (`slice`), and goes on after the next step.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median

LARGEST = 512
# Part of the pause that a chunk is planned to fill: the rest is for what varies.
FILL = 0.8
# A chunk reads all weights however short it is; tokens that cost next to nothing more come along.
FREE = 1.15
LEAST = 4
WORTH = 16  # a further chunk in the same pause has so many tokens at least
# Steps' worth of chunks for each request, after the first, that waits for one that runs: more of
# them where many wait, since steps of few rows cost the more of the whole.
CROWD, CROWDED, MOST_CROWD = 4.0, 4, 12.0
# And for each that waits after the second, however many run: those that come in last would
# otherwise run on in steps of few rows when the others have ended.
LATE = 1.5
# Where a chunk can be left: steps' worth from one token to the next that a stream waits at most,
# the part of it that is planned, and what a prompt gets in any case, in steps.
BOUND, PLANNED, FLOOR = 2.0, 0.71, 0.2
# Steps that say what is usual, and what one costs beside chunks now. The first are more: while a
# long prompt comes in none is added, and a slow moment before it must not stand for all of it.
USUAL, RECENT = 127, 31
LONGEST = 0.5  # seconds of a pause, whoever waits
IDLE = 0.1  # seconds of a chunk at once while nothing runs: new requests and those that left
SHORTEST = 0.0005  # seconds that are worth going on with a chunk for


class Pace:
    """Times of steps by rows and of chunks by tokens, and what follows for the next chunk."""

    def __init__(self, largest: int = LARGEST, fill: float = FILL):
        self.largest, self.fill = largest, fill
        self._steps: dict[int, float] = {}
        self._curve: dict[int, float] = {}
        self._step_factor = self._factor = 1.0
        # The last steps over what was measured at start: without a chunk before them, and with.
        self._alone: deque[float] = deque([1.0], USUAL)
        self._beside: deque[float] = deque(maxlen=RECENT)
        self._late = 0.0  # seconds that a chunk takes to be left
        self._far = 0.0  # seconds more for each token and each position before it

    def learned(self, tokens: int, seconds: float) -> None:
        """A chunk of so many tokens took so long at start; of several the quickest counts."""
        self._curve[tokens] = min(seconds, self._curve.get(tokens, seconds))

    def learned_far(self, tokens: int, position: int, seconds: float) -> None:
        """A chunk from `position` on took so long at start: attention reads what is there."""
        near = self._at(tokens)
        if near is not None and position > 0:
            self._far = max(0.0, (seconds - near) / (tokens * position))

    def learned_step(self, size: int, seconds: float) -> None:
        """A step of so many rows took so long at start; of several the quickest counts."""
        self._steps[size] = min(seconds, self._steps.get(size, seconds))

    def stepped(self, size: int, seconds: float, beside: bool = False) -> None:
        """A step of `size` rows took so long, with all that goes with it; `beside`: it came after
        a chunk, which leaves little of the weights in the caches."""
        usual = self._step(size)
        if usual is None:
            self.learned_step(size, seconds)
        elif beside:
            self._beside.append(seconds / usual)
        else:
            self._alone.append(seconds / usual)
            self._step_factor = _blend(self._step_factor, seconds / usual)

    def prefilled(self, tokens: int, seconds: float, position: int = 0) -> None:
        """A chunk that began at `position` took so long."""
        curve = self._curve_at(tokens, position)
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

    def chunk_seconds(self, tokens: int, position: int = 0) -> float | None:
        """What a chunk that begins at `position` would take now."""
        curve = self._curve_at(tokens, position)
        return None if curve is None else curve * self._factor

    def _curve_at(self, tokens: int, position: int) -> float | None:
        near = self._at(tokens)
        return None if near is None else near + self._far * tokens * position

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

    def room(self, size: int, waiting: int, running: int, pauses: bool = False) -> float:
        """Seconds of chunks beside a step of `size` rows; `running` answers run and `waiting`
        requests wait or are coming in; `pauses`: chunks can be left. Infinite while nothing is
        known."""
        step = self.step_seconds(size)
        if step is None or not self._curve:
            return math.inf
        worth = min(MOST_CROWD, CROWD + max(0, waiting - CROWDED) / 2)
        crowd = max(worth * (waiting - 1) / max(1, running), LATE * (waiting - 2))
        if not pauses:
            return min(LONGEST, step * self.fill * max(1.0, crowd))
        # Medians: a slow step or two before a long prompt must not stand for the usual one.
        usual = median(self._alone)
        part = max(FLOOR * usual, BOUND * PLANNED * usual - median(self._beside or self._alone))
        return min(LONGEST, max((self._step(size) or 0.0) * part, step * self.fill * crowd))

    def fits(self, room: float, first: bool = True, position: int = 0) -> int:
        """How many tokens from `position` on take at most so many seconds; 0 where it is not worth
        a chunk. The `first` chunk of a pause has some in any case: a prompt never stands still."""
        if math.isinf(room):
            return self.largest
        single = self.chunk_seconds(1, position)
        if single is None:
            return self.largest
        if first:
            room = max(room, single * FREE)
        low, high = 0, self.largest
        while low < high:  # the most tokens that fit the room
            middle = (low + high + 1) // 2
            seconds = self.chunk_seconds(middle, position)
            if seconds is not None and seconds <= room:
                low = middle
            else:
                high = middle - 1
        if first:
            return max(low, min(LEAST, self.largest))
        return low if low >= WORTH else 0

    def whole(self, room: float, first: bool = True) -> int:
        """How many tokens a chunk has that can be left half-way; 0 where the room is too small to
        go on in."""
        return self.largest if first or room >= SHORTEST else 0

    def slice(self, room: float) -> float:
        """Seconds to give to a chunk that can be left, so that it comes back within the room."""
        return IDLE if math.isinf(room) else max(0.0, room - self._late)

    def left(self, given: float, seconds: float) -> None:
        """A chunk was given so many seconds, and was left after `seconds`."""
        late = min(max(0.0, seconds - given), given + SHORTEST)
        self._late += 0.1 * (late - self._late)


def _blend(before: float, now: float) -> float:
    """A running value that a single slow run moves little."""
    return before + 0.2 * (min(now, 3 * before) - before)
