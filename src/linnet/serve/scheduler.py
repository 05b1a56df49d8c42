"""Who is served next: requests in the order they came, lanes for prompts, rows for answers.

The top is `Scheduler`: a queue, a few lanes, and the rows. A request waits, then its prompt
comes in through a lane, then each of its answers takes a row; answers for which there is no row
yet wait with a snapshot. A prompt starts only when a row will be free for it, so that what is
held outside the rows is bounded by the lanes and by one request's answers.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from linnet.serve.answer import Answer
from linnet.serve.handle import Handle
from linnet.serve.request import Request
from linnet.serve.sequence import Snapshot


@dataclass(eq=False)
class Job:
    """A request on its way. `position` counts the prompt tokens that its lane holds; `marks` are
    positions at which a snapshot is to be kept, in order."""

    request: Request
    handle: Handle
    answers: list[Answer]
    stable: int | None
    submitted: float = field(default_factory=time.monotonic)
    position: int = 0
    coming: int = 0  # the position after the chunk that was begun
    cached: int = 0
    marks: list[int] = field(default_factory=list)
    first: float | None = None  # when the first token came
    left: int = 0  # answers that have not ended

    def __post_init__(self) -> None:
        self.left = len(self.answers)

    @property
    def prompt(self) -> tuple[int, ...]:
        prompt = self.request.prompt
        assert isinstance(prompt, tuple)
        return prompt

    @property
    def deadline(self) -> float | None:
        t = self.request.timeout
        return None if t is None else self.submitted + t

    def over(self, now: float) -> str | None:
        """Why the request is to end now, or None."""
        if self.handle.cancelled:
            return "cancelled"
        deadline = self.deadline
        return "timeout" if deadline is not None and now >= deadline else None


@dataclass(eq=False)
class Running:
    """An answer with its sequence: `position` tokens are in the state, `token` comes next."""

    job: Job
    answer: Answer
    position: int
    token: int
    told: float  # when its last token came
    snapshot: Snapshot | None = None  # while it waits for a row


class Scheduler:
    """Pure bookkeeping; nothing here touches the model."""

    def __init__(self, rows: int, lanes: int, most_waiting: int):
        self.waiting: deque[Job] = deque()
        self.lanes: list[Job | None] = [None] * lanes
        self.forks: deque[Running] = deque()
        self.rows: list[Running | None] = [None] * rows
        self.most_waiting = most_waiting
        self._turn = 0

    # --- What there is ----------------------------------------------------------

    @property
    def busy(self) -> bool:
        return bool(self.waiting or self.forks or self.prefilling or self.running)

    @property
    def prefilling(self) -> int:
        return sum(job is not None for job in self.lanes)

    @property
    def running(self) -> int:
        return sum(row is not None for row in self.rows)

    @property
    def used(self) -> int:
        """Rows up to the last that is taken."""
        return max((i + 1 for i, row in enumerate(self.rows) if row is not None), default=0)

    def live(self) -> Iterator[tuple[int, Running]]:
        for i, row in enumerate(self.rows):
            if row is not None:
                yield i, row

    def jobs(self) -> list[Job]:
        """Every request that has not ended, once."""
        found: dict[int, Job] = {id(job): job for job in self.waiting}
        found |= {id(job): job for job in self.lanes if job is not None}
        found |= {id(run.job): run.job for run in self.forks}
        found |= {id(run.job): run.job for _, run in self.live()}
        return list(found.values())

    # --- Moves ------------------------------------------------------------------

    def free_row(self) -> int | None:
        return next((i for i, row in enumerate(self.rows) if row is None), None)

    def admit(self) -> tuple[int, Job] | None:
        """The next request and a lane for it, where there is one and a row to come."""
        if not self.waiting or self.forks:
            return None
        if self.running + self.prefilling >= len(self.rows):
            return None
        lane = next((i for i, job in enumerate(self.lanes) if job is None), None)
        if lane is None:
            return None
        job = self.waiting.popleft()
        self.lanes[lane] = job
        return lane, job

    def next_lane(self) -> int | None:
        """The lane whose turn it is: each in turn, so that a short prompt gets by a long one."""
        count = len(self.lanes)
        for i in range(count):
            lane = (self._turn + i) % count
            if self.lanes[lane] is not None:
                self._turn = (lane + 1) % count
                return lane
        return None

    def holes(self, sizes: list[int]) -> Iterator[tuple[int, int]]:
        """Moves (from, to) that make the next step a smaller one, if some do."""
        running = self.running
        if not running:
            return
        smaller = next(size for size in sizes if size >= running)
        if self.used <= smaller:
            return
        free = [i for i in range(smaller) if self.rows[i] is None]
        for i in range(smaller, len(self.rows)):
            if self.rows[i] is not None:
                yield i, free.pop(0)
