"""Chunks that are left half-way, at random, whatever the clock says: answers are the same bit for
bit, and nothing is left of one whose request has gone."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
import torch
from serve_models import KINDS, tokens
from steady import Steady

from linnet.native.compiler import why_not
from linnet.serve import Delta, Done, Engine, Request, Sampling

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


class Torn(Steady):
    """Chunks that are left after no time, or next to none."""

    def __init__(self, tokens: int, seed: int, longest: float = 5e-5):
        super().__init__(tokens)
        self.draw, self.longest, self.times = random.Random(seed), longest, 0

    def slice(self, room: float) -> float:
        return self.draw.choice((0.0, self.longest * self.draw.random()))

    def left(self, given: float, seconds: float) -> None:
        self.times += 1


def asked(which: int, **more: Any) -> Request:
    draw = random.Random(which)
    sampling = Sampling(temperature=0.0 if which % 2 else 1.3, seed=which)
    return Request(
        tokens(draw.randint(20, 200), which), sampling, n=1 + which % 3 % 2,
        max_tokens=draw.randint(1, 16), stop_tokens=frozenset(), logprobs=3, **more,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "dtype"), [("hybrid", "f32"), ("hybrid", "bf16"), ("plain", "bf16")]
)
def test_answers_are_the_same(kind: str, dtype: str) -> None:
    model = KINDS[kind](256, backend="native", T=dtype)
    with Engine(model, rows=1, pace=Steady(64), snapshot_bytes=0) as engine:
        alone = [engine.run(asked(which)).choices for which in range(8)]
    pace = Torn(64, 1)
    wrong: list[str] = []
    with Engine(model, rows=3, lanes=2, pace=pace, snapshot_bytes=200_000) as engine:

        def client(number: int) -> None:
            draw = random.Random(number)
            for _ in range(5):
                which = draw.randrange(8)
                if draw.random() < 0.3:
                    handle = engine.submit(asked(which, timeout=draw.choice((None, 0.01))))
                    threading.Event().wait(draw.random() * 0.02)
                    handle.cancel()
                    handle.result()
                elif engine.run(asked(which)).choices != alone[which]:
                    wrong.append(f"prompt {which}")

        threads = [threading.Thread(target=client, args=(i,)) for i in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert engine.drain(20)
        assert engine.runner.chunks == [None, None] and engine.stats().failed == 0
    assert not wrong
    assert pace.times > 50, "chunks were left half-way"


def begun(engine: Engine) -> Any:
    """Turns until a chunk has been left half-way."""
    runner = engine.runner
    for _ in range(20):
        engine._all_jobs()
        runner.turn()
        if any(runner.chunks):
            return runner
    raise AssertionError("no chunk was left")


def by_hand(kind: str, **options: Any) -> Engine:
    """An engine whose turns the test makes."""
    model = KINDS[kind](256, backend="native", T="f32")
    engine = Engine(model, pace=Torn(64, 2, 0.0), **options)
    engine.runner.warm()
    engine._phase = "ok"
    return engine


@pytest.mark.parametrize("kind", ["hybrid", "plain"])
@pytest.mark.parametrize("way", ["cancel", "timeout", "failure"])
def test_one_that_leaves_half_way(kind: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = by_hand(kind, rows=2, lanes=1)
    prompt = tokens(150, 3)
    timeout = 0.02 if way == "timeout" else None
    handle = engine.submit(
        Request(prompt, Sampling(temperature=0.0), max_tokens=4, timeout=timeout)
    )
    runner = begun(engine)
    chunk, kept = runner.chunks[0], runner.cache.snapshots
    if way == "cancel":
        handle.cancel()
    elif way == "timeout":
        threading.Event().wait(0.03)
    else:
        monkeypatch.setattr(chunk, "run", lambda seconds: 1 // 0)
    runner.turn()
    assert runner.chunks == [None] and not any(runner.schedule.lanes)
    assert runner.cache.snapshots == kept, "half a state is kept nowhere"
    if way == "failure":
        assert engine.stats().failed == 1
    else:
        assert handle.result().choices[0].reason == ("cancelled" if way == "cancel" else "timeout")
    second = engine.submit(
        Request(prompt, Sampling(temperature=0.0), max_tokens=6, stop_tokens=frozenset())
    )
    while engine._all_jobs():
        runner.turn()
    model = KINDS[kind](256, backend="native", T="f32")
    model.reset_state()
    for start in range(0, 150, 64):
        logits = model.prefill(torch.tensor([prompt[start : start + 64]]), pos=start)
    drawn = [int(logits[0].argmax())]
    while len(drawn) < 6:
        logits = model.decode(torch.tensor([[drawn[-1]]]), pos=149 + len(drawn))
        drawn.append(int(logits[0].argmax()))
    assert list(second.result().choices[0].tokens) == drawn


@pytest.mark.parametrize("kind", ["hybrid", "plain"])
def test_a_prompt_that_begins_alike_comes_while_a_chunk_is_half_way(kind: str) -> None:
    engine = by_hand(kind, rows=3, lanes=2)
    first, second = tokens(200, 5), [*tokens(200, 5)[:40], *tokens(60, 6)]
    greedy = Sampling(temperature=0.0)
    handles = [engine.submit(Request(first, greedy, max_tokens=3, stop_tokens=frozenset()))]
    runner = begun(engine)
    handles.append(engine.submit(Request(second, greedy, max_tokens=3, stop_tokens=frozenset())))
    while engine._all_jobs():
        runner.turn()
    found = [handle.result() for handle in handles]
    alone = by_hand(kind, rows=1, lanes=1)
    for prompt, given in zip((first, second), found, strict=True):
        same = alone.submit(Request(prompt, greedy, max_tokens=3, stop_tokens=frozenset()))
        while alone._all_jobs():
            alone.runner.turn()
        assert same.result().choices == given.choices
    if runner.layout.cuts:
        assert found[1].usage.cached_tokens == 40


def test_streams_go_on_while_a_chunk_is_half_way() -> None:
    engine = by_hand("plain", rows=2, lanes=1)
    told: list[object] = []
    stream = engine.submit(
        Request(tokens(5, 1), Sampling(temperature=0.0), max_tokens=200, stop_tokens=frozenset()),
        told.append,
    )
    while not told:
        engine._all_jobs()
        engine.runner.turn()
    engine.submit(Request(tokens(200, 2), Sampling(temperature=0.0), max_tokens=1))
    runner = begun(engine)
    before = sum(isinstance(event, Delta) for event in told)
    chunk = runner.chunks[0]
    turns = 0
    while runner.chunks[0] is chunk:
        runner.turn()
        turns += 1
    assert turns > 5
    assert sum(isinstance(event, Delta) for event in told) - before == turns
    stream.cancel()
    while engine._all_jobs():
        runner.turn()


def test_memory_that_calls_compute_in() -> None:
    """A chunk that is left half-way keeps its own: one for each lane, beside that of the steps."""
    told: list[str] = []
    engine = Engine(
        KINDS["plain"](256, backend="native", T="f32"), rows=2, lanes=2, pace=Torn(64, 2, 0.0),
        progress=told.append,
    )  # fmt: skip
    assert engine.memory().working == 0, "nothing is compiled yet"
    with engine:
        runner = engine.runner
        one = runner.lanes.working(min(256, runner.pace.largest))
        assert engine.memory().working == runner.rows.working + 2 * one > 2 * one > 0
        assert runner.lanes.working(8) < one
        assert any("steps and chunks in" in line for line in told)
        handles = [engine.submit(Request(tokens(150, i), max_tokens=2)) for i in range(3)]
        for handle in handles:
            handle.result()
        rooms = runner.lanes._bindings[0].model.native.module.rooms
        assert 0 < sum(room._size for room in rooms) <= 2 * one
    assert KINDS["plain"](256, backend="torch").working("decode", torch.zeros(1, 1), pos=0) is None


def test_when_events_are_handed_on() -> None:
    """Whoever collects what listeners are told has all of it when a request has ended, and what
    a step told before the next one computes."""
    held: list[object] = []
    given: list[int] = []
    engine = Engine(KINDS["plain"](256, backend="native", T="f32"), rows=2)
    engine.hand_on(lambda: given.append(len(held)))
    with engine:
        done = threading.Event()

        def listen(event: object) -> None:
            held.append(event)
            if isinstance(event, Done):
                done.set()

        engine.submit(
            Request(tokens(5, 1), max_tokens=6, stop_tokens=frozenset(), sampling=Sampling(seed=1)),
            listen,
        )
        assert done.wait(30) and engine.drain(10)
    assert given[-1] == len(held)
    assert {1, 2, 3, 4, 5, 6, 7}.intersection(given) >= {2, 3, 4, 5, 6}
    seconds = engine.stats().seconds
    assert set(seconds) == {"steps", "prompts", "rest"} and all(s > 0 for s in seconds.values())
