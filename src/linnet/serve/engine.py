"""The engine: requests in, events out, one thread that runs the model.

What a turn of the loop does is in `runner`, who is served next in `scheduler`, the live states are
in `rows`, kept states in `prefix`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.errors import Error, InputError
from linnet.serve.answer import Answer
from linnet.serve.constraint import Grammars
from linnet.serve.errors import ContextExceeded, QueueFull, RequestFailed, Unavailable
from linnet.serve.events import Completion
from linnet.serve.handle import Handle, Listener
from linnet.serve.observer import Observer
from linnet.serve.pace import Pace
from linnet.serve.request import Request
from linnet.serve.runner import Runner
from linnet.serve.scheduler import Job
from linnet.serve.store import prepare, read, write
from linnet.serve.turns import generation_prompts, stable_length

if TYPE_CHECKING:
    from linnet.text.open import TextModel

STALLED = 30.0  # seconds without a turn of the loop while there is work


@dataclass(frozen=True)
class Memory:
    """Bytes that serving takes: `rows` are the live states, lanes among them; in `working` steps
    and chunks are computed, those that are left half-way too (0 until they are compiled, and
    on the torch backend)."""

    weights: int
    rows: int
    snapshots: int
    count: int
    context: int
    working: int = 0

    def __str__(self) -> str:
        from linnet.weights.amounts import figures

        working = f"; steps and chunks in {figures(self.working)}" if self.working else ""
        return (
            f"weights {figures(self.weights)}; {self.count} rows of {self.context} tokens "
            f"{figures(self.rows)}; snapshots up to {figures(self.snapshots)}{working}"
        )


@dataclass(frozen=True)
class Stats:
    """A look at the engine now, and what it counted since it started."""

    running: int
    waiting: int
    prefilling: int
    rows: int
    snapshot_bytes: int
    snapshot_count: int
    steps: int
    prompt_tokens: int
    cached_tokens: int
    new_tokens: int
    cache_hits: int
    cache_misses: int
    finished: int
    failed: int
    cancelled: int
    seconds: Mapping[str, float]  # of the engine's thread: in steps, in prompts, and the rest


class Engine:
    """Serves one decoder to many.

    `model` is a loaded `linnet` model with the entries `prefill` and `decode_rows` and states
    whose first axis is `Batch`; its weights are shared, its own states are not used. `text` is
    its tokenizer, template and defaults; without it answers are token ids only. `rows` answers
    run at once; `lanes` prompts come in side by side; `max_waiting` requests wait.
    `snapshot_bytes` bounds what is kept of prompts; with `snapshot_folder` it is kept there
    across restarts. `prompt_limit` is the longest prompt taken, at most the context. `progress`
    gets a line for each stage of starting.

    Raises BackendError for a model that cannot be served.
    """

    def __init__(
        self,
        model: Any,
        text: TextModel | None = None,
        *,
        rows: int = 8,
        lanes: int = 2,
        snapshot_bytes: int = 256 << 20,
        snapshot_folder: str | Path | None = None,
        max_waiting: int = 128,
        prompt_limit: int | None = None,
        observer: Observer | None = None,
        name: str | None = None,
        pace: Pace | None = None,
        progress: Callable[[str], None] = lambda line: None,
    ):
        for what, value in (("rows", rows), ("lanes", lanes), ("max_waiting", max_waiting)):
            if not isinstance(value, int) or value < 1:
                raise InputError(f"{what} is {value!r}; expected an integer above 0")
        self.model, self.text = model, text
        self._progress = progress
        self.name = name or model.name
        self.observer = observer or Observer()
        self.runner = Runner(model, rows, lanes, snapshot_bytes, max_waiting, pace or Pace())
        self.context = self.runner.layout.context
        self.prompt_limit = min(prompt_limit or self.context, self.context)
        self.vocabulary = _vocabulary(model)
        self.folder = None if snapshot_folder is None else Path(snapshot_folder)
        if self.folder is not None:
            prepare(self.folder)
        self._endings = generation_prompts(text)
        self._ends = frozenset() if text is None else text.settings.stop_tokens
        self._grammars = (
            None if text is None else Grammars(text.tokenizer, self.vocabulary, self._ends)
        )
        self._inbox: list[Job] = []
        self._wake = threading.Condition()
        self._phase = "new"
        self._hurry = False  # what there is is to be cancelled
        self._thread: threading.Thread | None = None
        self._trouble: BaseException | None = None
        self._beat = time.monotonic()

    # --- The client's side ------------------------------------------------------

    def start(self, wait: bool = True) -> None:
        """Starts the engine's thread, which compiles and measures first. With `wait` returns
        when that is done, and raises what went wrong."""
        with self._wake:
            if self._phase != "new":
                return
            self._phase = "starting"
        self._thread = threading.Thread(target=self._run, name="linnet engine", daemon=True)
        self._thread.start()
        if wait:
            with self._wake:
                self._wake.wait_for(lambda: self._phase != "starting")
            if self._trouble is not None:
                raise self._trouble

    def submit(self, request: Request, listener: Listener | None = None) -> Handle:
        """Queues a request; events go to `listener` (called in the engine's thread, must be
        quick) or to the handle. Raises ContextExceeded, QueueFull, Unavailable, or InputError
        for what this model cannot do."""
        handle = Handle(self._notify, listener)
        job = self._job(request, handle)
        with self._wake:
            if self._phase not in ("starting", "ok"):
                raise Unavailable(f"the engine takes no requests: it is {self._phase}")
            if self.health == "stalled":
                raise Unavailable("the engine takes no requests: its steps do not come back")
            waiting = len(self._inbox) + len(self.runner.schedule.waiting)
            if waiting >= self.runner.schedule.most_waiting:
                raise QueueFull(waiting, self.retry_after())
            if self._idle():
                self._beat = time.monotonic()  # the thread slept: it has not stalled
            self._inbox.append(job)
            self._wake.notify_all()
        self.observer.queued()
        return handle

    def run(self, request: Request) -> Completion:
        """Submits and waits. Raises as `submit`, and RequestFailed."""
        return self.submit(request).result()

    def __enter__(self) -> Engine:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def drain(self, timeout: float | None = None) -> bool:
        """Takes no more requests and waits for those there are; False if time ran out, and the
        rest was cancelled."""
        with self._wake:
            if self._phase in ("starting", "ok"):
                self._phase = "draining"
            idle = self._wake.wait_for(self._idle, timeout)
            if not idle:
                self._hurry = True
                self._wake.notify_all()
                self._wake.wait_for(self._idle, 10.0)
            return idle

    def close(self) -> None:
        """Cancels what there is and ends the thread; snapshots go to the folder if there is one."""
        with self._wake:
            if self._phase == "closed":
                return
            started = self._thread is not None
            self._phase = "closing" if started else "closed"
            self._wake.notify_all()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    @property
    def health(self) -> str:
        """`new`, `starting`, `ok`, `draining`, `stalled`, `failed` or `closed`."""
        if self._phase in ("ok", "draining") and not self._idle():
            if time.monotonic() - self._beat > STALLED:
                return "stalled"
        return "closed" if self._phase == "closing" else self._phase

    def retry_after(self) -> float:
        """About how many seconds until a place in the queue is free."""
        waiting = len(self._inbox) + len(self.runner.schedule.waiting)
        return max(
            1.0, round(self.runner.usual * (waiting + 1) / len(self.runner.schedule.rows), 1)
        )

    def hand_on(self, call: Callable[[], None]) -> None:
        """Lets `call` be called in the engine's thread when listeners have been told a part of
        what is to be told: before the model computes, and before the engine waits. Who passes
        events to another thread does so once for many, and while this one needs no Python."""
        self.runner.listening.append(call)

    def memory(self) -> Memory:
        lanes = len(self.runner.schedule.lanes)
        rows = len(self.runner.schedule.rows)
        weights = sum(getattr(t, "bytes", t.nbytes) for t in self.model.parameters())
        total = (rows + lanes) * self.runner.layout.row_bytes
        budget, working = self.runner.cache.budget, self.runner.working
        return Memory(weights, total, budget, rows, self.context, working)

    def stats(self) -> Stats:
        s = self.runner.schedule
        return Stats(
            running=s.running,
            waiting=len(s.waiting) + len(self._inbox) + len(s.forks),
            prefilling=s.prefilling,
            rows=len(s.rows),
            snapshot_bytes=self.runner.cache.bytes,
            snapshot_count=self.runner.cache.snapshots,
            seconds=dict(self.runner.seconds),
            **self.runner.counts,
        )

    # --- Taking requests --------------------------------------------------------

    def _job(self, request: Request, handle: Handle) -> Job:
        prompt = request.prompt
        if len(prompt) > self.prompt_limit:
            if self.prompt_limit == self.context:
                raise ContextExceeded(len(prompt), self.context)
            raise ContextExceeded(len(prompt), self.prompt_limit, "the limit for prompts is")
        largest = max(prompt)
        if largest >= self.vocabulary:
            at = prompt.index(largest)
            raise InputError(
                f"prompt[{at}] is {largest}; expected a token id below {self.vocabulary}"
            )
        for token in request.logit_bias:
            if token >= self.vocabulary:
                raise InputError(
                    f"logit_bias has the key {token}; expected a token id below {self.vocabulary}"
                )
        tokenizer = None if self.text is None else self.text.tokenizer
        if request.stop and tokenizer is None:
            raise InputError("stop: the engine has no tokenizer, so answers are no text")
        matcher = None
        if request.constraint is not None:
            if self._grammars is None:
                raise InputError("constraint: the engine has no tokenizer, so answers are no text")
            matcher = self._grammars.matcher(request.constraint)
        ends = self._ends if request.stop_tokens is None else request.stop_tokens
        answers = [
            Answer(
                request, i, tokenizer, frozenset(ends), self.context,
                matcher.copy() if matcher is not None else None,
            )
            for i in range(request.n)
        ]  # fmt: skip
        stable = request.stable
        if stable is None:
            stable = stable_length(prompt, self._endings)
        return Job(request, handle, answers, stable)

    def _notify(self) -> None:
        with self._wake:
            self._wake.notify_all()

    def _idle(self) -> bool:
        return not self._inbox and not self.runner.schedule.busy

    # --- The thread -------------------------------------------------------------

    def _run(self) -> None:
        try:
            self.runner.observer = self.observer
            self.runner.warm(self._progress)
            self._progress(str(self.memory()))
            self.runner.rows.alone()
            if self.folder is not None:
                read(self.runner.cache, self.model, self.folder, self._progress)
        except BaseException as error:
            self._become("failed", error)
            self._fail_all(error)
            return
        with self._wake:
            if self._phase == "starting":
                self._phase = "ok"
            self._wake.notify_all()
        faults = 0
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._phase == "closing" or not self._idle())
                if self._phase == "closing":
                    break
            self._beat = time.monotonic()
            steps = self.runner.counts["steps"]
            try:
                for job in self._all_jobs():
                    if self._hurry:
                        job.handle.cancelled = True
                self.runner.turn()
                if self.runner.counts["steps"] > steps:
                    faults = 0
            # A fault of ours or of the backend, never of one request; libraries in Rust raise
            # what is no Exception.
            except BaseException as error:
                faults += 1
                if faults >= 3:  # first, so that nothing is taken in that nobody would serve
                    self._become("failed", error)
                self._fail_all(error)
                if faults >= 3:
                    return
            if self._idle():
                self.runner.hand_on()
                with self._wake:
                    self._wake.notify_all()  # for those that wait for us to be idle
        for job in self._all_jobs():
            self.runner.end_job(job, "cancelled")
        self.runner.hand_on()
        if self.folder is not None:
            try:
                write(self.runner.cache, self.model, self.folder)
            except Error as error:
                self._progress(str(error))
        self._become("closed", None)

    def _become(self, phase: str, trouble: BaseException | None) -> None:
        with self._wake:
            self._phase, self._trouble = phase, trouble
            self._wake.notify_all()

    def _all_jobs(self) -> list[Job]:
        """Every request there is; new ones have joined the queue."""
        with self._wake:
            self.runner.schedule.waiting.extend(self._inbox)
            self._inbox = []
        return self.runner.schedule.jobs()

    def _fail_all(self, error: BaseException) -> None:
        shown = error if isinstance(error, Error) else RequestFailed(f"the engine failed: {error}")
        for job in self._all_jobs():
            self.runner.fail_job(job, shown)
        self.runner.hand_on()


def _vocabulary(model: Any) -> int:
    """Rows of the logits: the last dimension of what `decode_rows` returns."""
    result = model.entries["decode_rows"].instance.result
    size = result.shape[-1].constant
    assert size is not None
    return int(size)
