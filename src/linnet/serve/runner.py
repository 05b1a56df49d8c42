"""What one turn does: a step for every running sequence, then a part of the prompts.

A `Runner` holds the live states, the queue and the snapshots, and has no thread of its own:
`Engine` calls `turn` from one, tests call it by hand.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor

from linnet.errors import Error
from linnet.serve.errors import RequestFailed
from linnet.serve.events import Done, Failed, Prefilled, Usage
from linnet.serve.layout import layout_of
from linnet.serve.observer import Observer
from linnet.serve.pace import Pace
from linnet.serve.prefix import PrefixCache, common
from linnet.serve.rows import Chunk, Lanes, Rows
from linnet.serve.sampling import Drawn, draw
from linnet.serve.scheduler import Job, Running, Scheduler
from linnet.serve.sequence import Snapshot, move, snapshot

if TYPE_CHECKING:
    from linnet.serve.answer import Answer

WORTH = 32  # tokens that a snapshot must save to be taken where two prompts part
TAIL = 8  # tokens that are not left over for a chunk of their own
FAR = 4096  # the position at which attention's part of a chunk is measured
STRIDE = 1024  # tokens between snapshots within a long prompt, at least
COUNTS = (
    "steps", "prompt_tokens", "cached_tokens", "new_tokens", "cache_hits", "cache_misses",
    "finished", "failed", "cancelled",
)  # fmt: skip


class Runner:
    """See `Engine` for the arguments. `counts` only ever grow."""

    def __init__(
        self, model: Any, rows: int, lanes: int, snapshot_bytes: int, most_waiting: int, pace: Pace
    ):
        self.layout = layout_of(model)
        self.rows = Rows(model, self.layout, rows)
        self.lanes = Lanes(model, self.layout, lanes)
        self.chunks: list[Chunk | None] = [None] * lanes  # that were left half-way
        self.cache = PrefixCache(self.layout, snapshot_bytes)
        self.schedule = Scheduler(rows, lanes, most_waiting)
        self.pace = pace
        self.working = 0  # bytes that steps and chunks compute in, when `warm` has compiled them
        self._beside = False  # whether a chunk ran, or a part of one, since the last step
        self.observer = Observer()
        # Called before the model computes: a good time to hand on what was told.
        self.listening: list[Callable[[], None]] = []
        self.counts = dict.fromkeys(COUNTS, 0)
        self.seconds = {"steps": 0.0, "prompts": 0.0, "rest": 0.0}  # of the turns
        self.usual = 1.0  # seconds that a request takes, about

    def hand_on(self) -> None:
        for call in self.listening:
            call()

    def turn(self) -> None:
        start, seconds = time.perf_counter(), self.seconds
        computed = seconds["steps"] + seconds["prompts"]
        self._leave_early()
        stepped = self._step()
        self._place()
        self._prompts(stepped)
        computed = seconds["steps"] + seconds["prompts"] - computed
        seconds["rest"] += time.perf_counter() - start - computed

    def warm(self, progress: Callable[[str], None] = lambda line: None) -> None:
        """Compiles each entry and measures it, so that the first clients do not wait for it."""
        progress("compiling")
        start = time.perf_counter()
        sizes = self.rows.compile()
        progress(f"compiled in {time.perf_counter() - start:.1f} s; measuring steps and prompts")
        for size in sizes:
            for again in range(4):
                start = time.perf_counter()
                self.rows.step([0] * size, [0] * size)
                if again:  # the first one may compile
                    self.pace.learned_step(size, time.perf_counter() - start)
        most = min(self.layout.context, self.pace.largest)
        for tokens in sorted({1, min(16, most), min(64, most), min(256, most)}):
            for again in range(3 if tokens > 1 else 4):
                start = time.perf_counter()
                self.lanes.begin(0, [0] * tokens, 0).run(math.inf)
                if again or tokens > 1:  # the very first one compiles
                    self.pace.learned(tokens, time.perf_counter() - start)
        far = min(self.layout.context, FAR) - 16
        if far >= 16 * 16:
            taken = []
            for _ in range(3):
                start = time.perf_counter()
                self.lanes.begin(0, [0] * 16, far).run(math.inf)
                taken.append(time.perf_counter() - start)
            self.pace.learned_far(16, far, min(taken))
        self.working = self.rows.working + len(self.lanes.states) * self.lanes.working(most)

    # --- One turn ---------------------------------------------------------------

    def _leave_early(self) -> None:
        """Requests whose client or time is gone leave, wherever they are."""
        now = time.monotonic()
        for job in self.schedule.jobs():
            reason = job.over(now)
            if reason is not None:
                self.end_job(job, reason)

    def _step(self) -> bool:
        """One token for every running sequence."""
        schedule = self.schedule
        if not schedule.running:
            return False
        start = time.perf_counter()
        for source, to in schedule.holes(self.rows.sizes):
            run = schedule.rows[source]
            assert run is not None
            move(self.layout, self.rows.states, source, self.rows.states, to, run.position)
            schedule.rows[to], schedule.rows[source] = run, None
        tokens, positions = [0] * schedule.used, [0] * schedule.used
        live = list(schedule.live())
        for row, run in live:
            tokens[row], positions[row] = run.token, run.position
        self.hand_on()
        begun = time.perf_counter()
        logits = self.rows.step(tokens, positions)
        self.seconds["steps"] += time.perf_counter() - begun
        for _, run in live:
            run.position += 1
        if len(live) < len(tokens):
            logits = logits[[row for row, _ in live]]
        for (row, run), drawn in zip(live, self._draw(logits, [r for _, r in live]), strict=True):
            if self._advance(run, drawn):
                self._leave(row, run)
        seconds = time.perf_counter() - start
        self.pace.stepped(self.rows.size_for(len(tokens)), seconds, self._beside)
        self.counts["steps"] += 1
        self.observer.step(len(live), seconds)
        return True

    def _draw(self, logits: Tensor, runs: list[Running]) -> list[Drawn]:
        """A token for each; where a grammar fails, its answer alone ends."""
        draws, places = [], []
        result = [Drawn(0, None, "ended")] * len(runs)
        for i, run in enumerate(runs):
            try:
                draws.append(run.answer.draw())
                places.append(i)
            except Error as error:
                result[i] = Drawn(0, None, str(error))
        if draws:
            part = logits if len(places) == len(runs) else logits[places]
            for i, drawn in zip(places, draw(part, draws, self.rows.largest), strict=True):
                result[i] = drawn
        return result

    def _advance(self, run: Running, drawn: Drawn) -> bool:
        """Takes one token; returns whether the answer has ended."""
        answer, job = run.answer, run.job
        if drawn.error is not None:
            answer.end("error", drawn.error)
            return True
        try:
            delta = answer.add(drawn)
        except Error as error:
            answer.end("error", str(error))
            return True
        run.token = drawn.token
        now = time.monotonic()
        self.counts["new_tokens"] += 1
        if job.first is None:
            job.first = now
            self.observer.first_token(now - job.submitted)
        elif len(answer.tokens) > 1:
            self.observer.between_tokens(now - run.told)
        run.told = now
        if delta is not None:
            job.handle.tell(delta)
        return answer.reason is not None

    def _leave(self, row: int, run: Running) -> None:
        """An answer has ended: its row is free, and its state may serve the next turn."""
        self.schedule.rows[row] = None
        if run.answer.reason == "error":
            self.rows.clear(row)
        elif run.answer.reason in ("stop", "length") and run.position > len(run.job.prompt):
            held = [*run.job.prompt, *run.answer.tokens][: run.position]
            if self.layout.cuts or 8 * self.layout.recurrent_bytes <= self.cache.budget:
                self.cache.keep(held, self.rows.states, row, weak=True)
        self._end_answer(run.job, run.answer)

    def _place(self) -> None:
        """Answers that wait for a row get one."""
        schedule = self.schedule
        while schedule.forks and (row := schedule.free_row()) is not None:
            run = schedule.forks.popleft()
            assert run.snapshot is not None
            run.snapshot.restore(self.layout, self.rows.states, row)
            run.snapshot = None
            schedule.rows[row] = run

    # --- Prompts ----------------------------------------------------------------

    def _prompts(self, stepped: bool) -> None:
        """As much of the prompts as may come in between two steps; one chunk where none runs."""
        schedule = self.schedule
        room = math.inf
        self._beside = False
        if stepped:
            waiting = len(schedule.waiting) + schedule.prefilling
            size = self.rows.size_for(max(1, schedule.used))
            room = self.pace.room(size, waiting, schedule.running, self.lanes.pauses)
        first = True
        while self._fits(room, first) > 0:
            while not self._shares() and (admitted := schedule.admit()) is not None:
                self._guard(admitted[1], self._begin, *admitted)
            lane = schedule.next_lane()
            if lane is None:
                return
            job = schedule.lanes[lane]
            assert job is not None
            tokens = self._fits(room, first, job.position)
            if tokens == 0:
                return
            start = time.perf_counter()
            self._beside = self.lanes.pauses
            self._guard(job, self._chunk, lane, job, tokens, room)
            if math.isinf(room):
                return
            room -= time.perf_counter() - start
            first = False

    def _fits(self, room: float, first: bool, position: int = 0) -> int:
        """How many tokens the next chunk has; 0 where there is no room for one."""
        if self.lanes.pauses:
            return self.pace.whole(room, first)
        return self.pace.fits(room, first, position)

    def _shares(self) -> bool:
        """Whether the next request begins like a prompt that is coming in, which is then to be
        computed once: the next waits until what both have is in, and is kept there."""
        waiting = self.schedule.waiting
        lanes = [job for job in self.schedule.lanes if job is not None]
        if not waiting or not lanes:
            return False
        prompt = waiting[0].prompt
        known: int | None = None
        for job in lanes:
            same = common(job.prompt, prompt)
            need = same * self.layout.position_bytes + self.layout.recurrent_bytes
            if same <= job.position or same < WORTH or 2 * need > self.cache.budget:
                continue
            if known is None:
                known = self.cache.depth(prompt)
            if same - known >= WORTH:
                at = max(same, min(job.coming, len(job.prompt)))  # not within what was begun
                if at > same and not self.layout.cuts:
                    continue
                job.marks = sorted({*job.marks, at})
                return True
        return False

    def _guard(self, job: Job, work: Any, *args: Any) -> Any:
        """Runs a part of one request; its failure is its own."""
        try:
            return work(*args)
        except Exception as error:
            for lane, held in enumerate(self.schedule.lanes):
                if held is job:
                    self._drop(lane)
                    self.lanes.clear(lane)
            self.fail_job(job, error)
            return None

    def _drop(self, lane: int) -> None:
        """What was left half-way in a lane is of no use to anybody."""
        chunk, self.chunks[lane] = self.chunks[lane], None
        if chunk is not None:
            chunk.drop()

    def _begin(self, lane: int, job: Job) -> None:
        """What is known of the prompt goes into the lane."""
        found, shared = self.cache.find(job.prompt, whole=True)
        length = len(job.prompt)
        job.cached = job.position = 0 if found is None else found.position
        self.counts["cache_hits" if found is not None else "cache_misses"] += 1
        if found is not None and found.position == length:
            self.schedule.lanes[lane] = None
            assert found.logits is not None
            self._answer(job, found.logits, found, None)
            return
        if found is not None:
            found.restore(self.layout, self.lanes.states[lane], 0)
        marks = {length}
        if not self.layout.cuts:
            if job.stable is not None:
                marks.add(job.stable)
            if shared - job.position >= WORTH:
                marks.add(shared)
            marks.update(self._strides(job.position, length))
        job.marks = sorted(m for m in marks if job.position < m <= length)

    def _strides(self, start: int, end: int) -> range:
        """Places within a long prompt, as many as a quarter of the budget holds."""
        most = self.cache.budget // 4 // max(1, self.layout.recurrent_bytes)
        if end - start <= 2 * STRIDE or most == 0:
            return range(0)
        stride = max(STRIDE, -(-(end - start) // most))
        stride = -(-stride // 64) * 64
        return range((start // stride + 1) * stride, end, stride)

    def _chunk(self, lane: int, job: Job, tokens: int, room: float) -> None:
        """The next tokens of one prompt, about so many; or more of those that were left half-way
        for want of room, which they may be again."""
        start = time.perf_counter()
        chunk = self.chunks[lane]
        if chunk is None:
            end = min(job.position + tokens, job.marks[0])
            if job.marks[0] - end < TAIL and job.marks[0] - job.position <= self.pace.largest:
                end = job.marks[0]  # a chunk of a few tokens takes as long as one of many
            part = job.prompt[job.position : end]
            chunk = self.chunks[lane] = self.lanes.begin(lane, part, job.position)
            job.coming = end
        given = self.pace.slice(room - (time.perf_counter() - start))
        before = chunk.seconds
        self.hand_on()
        ended = chunk.run(given)
        self.seconds["prompts"] += chunk.seconds - before
        if not ended:
            self.pace.left(given, chunk.seconds - before)
            return
        self.chunks[lane] = None
        end = job.coming
        job.position = end
        self.pace.prefilled(chunk.length, chunk.seconds, end - chunk.length)
        self.counts["prompt_tokens"] += chunk.length
        self.observer.chunk(chunk.length, chunk.seconds)
        logits = chunk.logits
        whole = end == len(job.prompt)
        kept = False
        states = self.lanes.states[lane]
        if end == job.marks[0]:
            job.marks.pop(0)
            kept = self.cache.keep(
                job.prompt[:end], states, 0, logits if whole else None, weak=whole
            )
        if whole:
            self.schedule.lanes[lane] = None
            found = (
                self.cache.find(job.prompt, whole=True)[0]
                if kept and len(job.answers) > 1
                else None
            )
            self._answer(job, logits, found, lane)

    def _answer(self, job: Job, logits: Tensor, held: Snapshot | None, lane: int | None) -> None:
        """The prompt is in: the first token of each answer, and a row for each while there are
        some. The state is in `held`, in a lane, or in both."""
        self.counts["cached_tokens"] += job.cached
        job.handle.tell(Prefilled(len(job.prompt), job.cached))
        now = time.monotonic()
        length = len(job.prompt)
        runs = [Running(job, a, length, 0, now) for a in job.answers if a.reason is None]
        for answer in job.answers:
            if answer.reason is not None:
                self._end_answer(job, answer)
        if not runs:
            return
        for run, drawn in zip(
            runs, self._draw(logits.unsqueeze(0).expand(len(runs), -1), runs), strict=True
        ):
            if self._advance(run, drawn):
                self._end_answer(job, run.answer)
        for run in (r for r in runs if r.answer.reason is None):
            row = self.schedule.free_row()
            if row is not None and held is None:
                assert lane is not None
                states = self.lanes.states[lane]
                move(self.layout, states, 0, self.rows.states, row, length)
                self.schedule.rows[row] = run
            elif row is not None:
                assert held is not None
                held.restore(self.layout, self.rows.states, row)
                self.schedule.rows[row] = run
            else:
                if held is None:
                    assert lane is not None
                    held = snapshot(self.layout, self.lanes.states[lane], 0, length)
                run.snapshot = held
                self.schedule.forks.append(run)

    # --- Ends -------------------------------------------------------------------

    def _end_answer(self, job: Job, answer: Answer) -> None:
        answer.told = True
        delta, finished = answer.finish()
        if delta is not None:
            job.handle.tell(delta)
        job.handle.tell(finished)
        job.left -= 1
        if job.left == 0:
            new = sum(len(a.tokens) for a in job.answers)
            self._count_end(job, finished.reason, new)  # counted when the client knows
            job.handle.tell(Done(Usage(len(job.prompt), job.cached, new)))

    def _count_end(self, job: Job, reason: str, new: int) -> None:
        seconds = time.monotonic() - job.submitted
        kind = {"cancelled": "cancelled", "error": "failed"}.get(reason, "finished")
        self.counts[kind] += 1
        if kind == "finished":
            self.usual += 0.1 * (seconds - self.usual)
        self.observer.finished(reason, seconds, len(job.prompt), job.cached, new)

    def _withdraw(self, job: Job) -> list[Answer]:
        """Takes a request out of wherever it is; returns the answers that had not ended."""
        s = self.schedule
        open_answers = [a for a in job.answers if not a.told]
        if job in s.waiting:
            s.waiting.remove(job)
        for lane, held in enumerate(s.lanes):
            if held is job:
                self._drop(lane)
                s.lanes[lane] = None
        for run in [run for run in s.forks if run.job is job]:
            s.forks.remove(run)
        s.rows = [None if run is not None and run.job is job else run for run in s.rows]
        return open_answers

    def end_job(self, job: Job, reason: str) -> None:
        for answer in self._withdraw(job):
            answer.end(reason)
            self._end_answer(job, answer)

    def fail_job(self, job: Job, error: Exception) -> None:
        for answer in self._withdraw(job):
            answer.end("error", str(error))
        job.left = 0
        if not isinstance(error, Error):
            error = RequestFailed(f"the request failed: {error}")
        self._count_end(job, "error", sum(len(a.tokens) for a in job.answers))
        job.handle.tell(Failed(error))
