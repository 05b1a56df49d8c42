"""Many requests of all kinds with clients that go away: nothing is left behind, and every
survivor's answer is that of the model alone."""

from __future__ import annotations

import gc
import random
import threading

import pytest
from serve_models import KINDS, alone, tokens

from linnet.errors import InputError
from linnet.serve import ContextExceeded, Engine, Finished, QueueFull, Request, Sampling

GREEDY = Sampling(temperature=0.0)


def soak(model, count, clients, seed):
    random_ = random.Random(seed)
    prompts = [tokens(random_.randint(1, 120), i) for i in range(20)]
    expected = [alone(model, p, 24) for p in prompts]
    wrong: list[str] = []
    survivors = refused = 0
    lock = threading.Lock()

    def client(number):
        nonlocal survivors, refused
        mine = random.Random(1000 * seed + number)
        for _ in range(count // clients):
            which = mine.randrange(len(prompts))
            kind = mine.random()
            try:
                if kind < 0.05:
                    engine.submit(Request(tokens(300, 1)))
                elif kind < 0.1:
                    engine.submit(Request([10**6]))
                length = mine.randint(0, 24)
                handle = engine.submit(
                    Request(
                        prompts[which], GREEDY, n=mine.choice((1, 1, 1, 2, 5)), max_tokens=length,
                        stop_tokens=frozenset(),
                        timeout=0.01 if mine.random() < 0.05 else None,
                    )
                )  # fmt: skip
            except (ContextExceeded, InputError, QueueFull):
                with lock:
                    refused += 1
                continue
            leaves = mine.random() < 0.3
            drawn: dict[int, list[int]] = {}
            for event in handle:
                if hasattr(event, "tokens") and not isinstance(event, Finished):
                    drawn.setdefault(event.choice, []).extend(event.tokens)
                if leaves and mine.random() < 0.1:
                    handle.cancel()
                if isinstance(event, Finished):
                    got = tuple(drawn.get(event.choice, ()))
                    if got != expected[which][: len(got)]:
                        wrong.append(f"prompt {which}: {got} is not {expected[which]}")
                    if event.reason == "length":
                        assert len(got) == length
                        with lock:
                            survivors += 1

    with Engine(model, rows=4, max_waiting=clients // 2 + 1, snapshot_bytes=300_000) as engine:
        threads = [threading.Thread(target=client, args=(i,)) for i in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert engine.drain(20)
        stats = engine.stats()
        schedule = engine.runner.schedule
        assert (stats.running, stats.waiting, stats.prefilling) == (0, 0, 0)
        assert schedule.free_row() == 0 and not schedule.forks and not any(schedule.lanes)
        assert stats.snapshot_bytes <= 300_000
        assert stats.failed == 0
    gc.collect()
    assert not wrong, wrong[:3]
    return survivors, refused


@pytest.mark.parametrize("kind", ["hybrid", "plain"])
def test_soak(kind):
    survivors, refused = soak(KINDS[kind](), 120, 12, 1)
    assert survivors > 30 and refused > 0


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", ["hybrid", "plain"])
@pytest.mark.parametrize("seed", range(3))
def test_long_soak(kind, seed):
    survivors, _ = soak(KINDS[kind](), 1000, 20, 10 + seed)
    assert survivors > 200
