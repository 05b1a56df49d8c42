"""Soaks in which chunks are left half-way all the time: clients that go, chunks that fail, engines
that are closed and opened again on the same model, models loaded anew. Every answer that is
given is the one of the model alone, bit for bit, and nothing is left behind."""

from __future__ import annotations

import gc
import math
import os
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from serve_models import KINDS, tokens
from steady import Steady
from test_engine_slices import Torn

from linnet.native.compiler import why_not
from linnet.serve import Engine, QueueFull, Request, RequestFailed, Sampling, Unavailable
from linnet.serve.rows import Chunk

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

PROMPTS = 12


def asked(which: int, **more: Any) -> Request:
    draw = random.Random(which)
    sampling = Sampling(temperature=0.0 if which % 2 else 1.3, seed=which)
    return Request(
        tokens(draw.randint(20, 230), which), sampling, n=1 + which % 3 % 2,
        max_tokens=draw.randint(1, 12), stop_tokens=frozenset(), logprobs=2, **more,
    )  # fmt: skip


class Soak:
    """Clients of one engine after the other, on one model after the other."""

    def __init__(self, load: Callable[[], Any], seed: int):
        self.load, self.seed = load, seed
        self.model = load()
        self.alone = self.answers()
        self.wrong: list[str] = []
        self.faults: list[BaseException] = []
        self.seen = dict.fromkeys(("served", "left", "failed", "refused", "closed"), 0)
        self.times = 0
        self.lock = threading.Lock()

    def answers(self) -> list[Any]:
        with Engine(self.model, rows=1, pace=Steady(64), snapshot_bytes=0) as engine:
            return [engine.run(asked(which)).choices for which in range(PROMPTS)]

    def reload(self) -> None:
        self.model = None
        gc.collect()
        self.model = self.load()
        self.alone = self.answers()

    def count(self, what: str) -> None:
        with self.lock:
            self.seen[what] += 1

    def client(self, engine: Engine, number: int, count: int) -> None:
        try:
            draw = random.Random(number)
            for _ in range(count):
                self.one(engine, draw)
        except BaseException as error:
            self.faults.append(error)

    def one(self, engine: Engine, draw: random.Random) -> None:
        which = draw.randrange(PROMPTS)
        kind = draw.random()
        timeout = draw.random() * 0.03 if kind < 0.1 else None
        while True:
            try:
                handle = engine.submit(asked(which, timeout=timeout))
                break
            except QueueFull:
                self.count("refused")
                time.sleep(0.005)
            except Unavailable:
                self.count("closed")
                return
        if 0.1 < kind < 0.35:
            time.sleep(draw.random() ** 3 * 0.05)
            handle.cancel()
        try:
            found = handle.result().choices
        except RequestFailed as error:
            assert "torn" in str(error)
            self.count("failed")
            return
        whole = all(choice.reason == "length" for choice in found)
        self.count("served" if whole else "left")
        for choice, expected in zip(found, self.alone[which], strict=True):
            if choice.tokens != expected.tokens[: len(choice.tokens)] or (
                whole and choice != expected
            ):
                self.wrong.append(f"prompt {which}: {choice} is not {expected}")

    def round(self, number: int, clients: int, count: int, end_early: bool) -> None:
        draw = random.Random(self.seed * 1000 + number)
        pace = Torn(64, draw.random(), draw.choice((0.0, 5e-5, 2e-3)))  # type: ignore[arg-type]
        engine = Engine(
            self.model, rows=draw.randint(1, 5), lanes=draw.randint(1, 3), pace=pace,
            snapshot_bytes=draw.choice((0, 200_000)), max_waiting=max(1, clients // 3),
        )  # fmt: skip
        engine.start()
        threads = [
            threading.Thread(
                target=self.client, args=(engine, number * 100 + i, count), daemon=True
            )
            for i in range(clients)
        ]
        for thread in threads:
            thread.start()
        if end_early:
            until = time.monotonic() + 20
            while not any(engine.runner.chunks) and time.monotonic() < until:
                time.sleep(0.0005)
            engine.close()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive(), "a client waits for ever"
        if not end_early:
            assert engine.drain(20)
            stats = engine.stats()
            assert (stats.running, stats.waiting, stats.prefilling) == (0, 0, 0)
        engine.close()
        assert engine.runner.chunks == [None] * len(engine.runner.schedule.lanes)
        self.times += pace.times
        module = engine.runner.rows._bind(engine.runner.rows.count).model.native.module
        assert module is not None and len(module.rooms) <= 2
        assert not self.faults, self.faults[0]
        assert not self.wrong, self.wrong[:2]


def soak(
    kind: str, dtype: str, threads: int, monkeypatch: pytest.MonkeyPatch,
    rounds: int, clients: int, count: int, seed: int,
) -> Soak:  # fmt: skip
    monkeypatch.setenv("LINNET_THREADS", str(threads))
    fails = random.Random(seed)
    run = Chunk.run

    def torn(chunk: Chunk, seconds: float) -> bool:
        # Those of the start run to the end, and are nobody's request.
        if sure and math.isfinite(seconds) and fails.random() < 0.004:
            raise RuntimeError("torn")
        return run(chunk, seconds)

    sure = False
    monkeypatch.setattr(Chunk, "run", torn)
    made = Soak(lambda: KINDS[kind].__wrapped__(256, backend="native", T=dtype), seed)
    before = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for number in range(rounds):
        sure = True
        made.round(number, clients, count, end_early=number % 3 == 1)
        sure = False
        assert (threading.active_count(), len(os.listdir("/proc/self/fd"))) == before
        if number % 4 == 3:
            made.reload()
    return made


@pytest.mark.parametrize(("kind", "threads"), [("hybrid", 2), ("plain", 1)])
def test_a_short_paused_soak(kind: str, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = soak(kind, "bf16", threads, monkeypatch, rounds=3, clients=6, count=6, seed=1)
    assert seen.seen["served"] > 15 and seen.seen["left"] > 1 and seen.times > 50


@pytest.mark.fuzz
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
@pytest.mark.parametrize("kind", ["hybrid", "plain"])
def test_a_thousand_paused(
    kind: str, dtype: str, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = soak(kind, dtype, threads, monkeypatch, rounds=10, clients=10, count=12, seed=threads)
    assert seen.seen["served"] > 200 and min(seen.seen.values()) > 2, seen.seen
    assert seen.times > 500
