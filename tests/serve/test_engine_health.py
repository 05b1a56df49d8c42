"""Whether the engine still turns, as `/health` tells it, and how soon a cancelled request is gone."""

from __future__ import annotations

import threading
import time

import pytest
from http_fakes import NAME, qwen_text, served, until
from serve_models import alone, plain, tokens

from linnet.serve import Engine, Request, Sampling

GREEDY = Sampling(temperature=0.0)


def greedy(prompt, count):
    return Request(prompt, GREEDY, max_tokens=count, stop_tokens=frozenset())


@pytest.fixture
def engine():
    with Engine(plain(), qwen_text(), rows=2) as found:
        yield found


def test_steps_that_stop_are_said(engine, monkeypatch):
    """A step that does not come back: 503 until it does, and then its request goes on."""
    monkeypatch.setattr("linnet.serve.engine.STALLED", 0.2)
    step, stuck, go = engine.runner.rows.step, threading.Event(), threading.Event()

    def slow(tokens, positions):
        stuck.set()
        go.wait(20)
        return step(tokens, positions)

    with served(engine) as server:
        assert server.ask("/health")[0] == 200
        monkeypatch.setattr(engine.runner.rows, "step", slow)
        prompt = tokens(9, 1)
        handle = engine.submit(greedy(prompt, 6))
        assert stuck.wait(10)
        until(lambda: server.ask("/health")[0] == 503)
        status, body, headers = server.ask("/health")
        assert (status, body["status"]) == (503, "stalled") and headers["retry-after"]
        body = {"model": NAME, "prompt": [1, 2], "max_tokens": 2}
        status, found, headers = server.ask("/v1/completions", body)
        assert status == 503 and "do not come back" in found["error"]["message"]
        assert headers["retry-after"]
        go.set()
        assert handle.result().choices[0].tokens == alone(engine.model, prompt, 6)
        assert server.ask("/health")[0] == 200
        assert server.ask("/v1/completions", body)[0] == 200


def test_who_slept_has_not_stalled(engine):
    """After hours without a request the first one finds the thread asleep, for a moment."""
    engine._beat = time.monotonic() - 3600
    with engine._wake:  # the thread cannot begin yet
        handle = engine.submit(greedy(tokens(5, 1), 2))
        assert engine.health == "ok"
    assert handle.result().choices[0].reason == "length" and engine.health == "ok"


@pytest.mark.parametrize("others", [0, 1])
def test_a_cancelled_answer_is_not_in_the_next_step(engine, monkeypatch, others):
    """Cancelled while a step runs, it takes part in none after that one."""
    step = engine.runner.rows.step
    sizes: list[int] = []
    handles = []
    ready = threading.Event()

    def counted(tokens, positions):
        assert ready.wait(10)
        sizes.append(len(positions))
        if sizes[-1] == 1 + others and sizes.count(1 + others) == 5:
            handles[0].cancel()
        return step(tokens, positions)

    monkeypatch.setattr(engine.runner.rows, "step", counted)
    beside = tokens(6, 2)
    handles.append(engine.submit(greedy(tokens(5, 1), 250)))
    handles += [engine.submit(greedy(beside, 40)) for _ in range(others)]
    ready.set()
    cancelled = handles[0].result().choices[0]
    assert cancelled.reason == "cancelled"
    for handle in handles[1:]:
        assert handle.result().choices[0].tokens == alone(engine.model, beside, 40)
    assert sizes.count(1 + others) == 5, sizes
