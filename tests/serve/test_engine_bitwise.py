"""On the native backend an answer is the same bit for bit, alone and in any company: tokens and
log probabilities of requests that come, leave and are cancelled beside others."""

from __future__ import annotations

import os
import random
import threading
from typing import Any

import pytest
from serve_models import KINDS, tokens
from steady import Steady

from linnet.native.compiler import why_not
from linnet.serve import Engine, QueueFull, Request, Sampling

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))

CHUNK = 64  # the delta rule's own chunks: a prompt is cut at their ends
PROMPTS = 16


def asked(which: int, **more: Any) -> Request:
    draw = random.Random(which)
    sampling = Sampling(temperature=0.0 if which % 2 else 1.3, seed=which)
    return Request(
        tokens(draw.randint(1, 200), which), sampling, n=1 + which % 3 % 2,
        max_tokens=draw.randint(1, 24), stop_tokens=frozenset(), logprobs=5, **more,
    )  # fmt: skip


def start(model: Any, rows: int, waiting: int = 64) -> Engine:
    return Engine(model, rows=rows, max_waiting=waiting, snapshot_bytes=0, pace=Steady(CHUNK))


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def soak(
    kind: str, dtype: str, count: int, clients: int, rows: int, **options: Any
) -> tuple[int, int]:
    model = KINDS[kind](256, backend="native", T=dtype, **options)
    with start(model, 1) as engine:
        alone = [engine.run(asked(which)).choices for which in range(PROMPTS)]
    wrong: list[str] = []
    served = left = 0
    lock = threading.Lock()
    before = threading.active_count(), open_files()

    def client(number: int) -> None:
        nonlocal served, left
        draw = random.Random(number)
        for _ in range(count // clients):
            which = draw.randrange(PROMPTS)
            try:
                handle = engine.submit(asked(which))
            except QueueFull:
                continue
            if draw.random() < 0.3:
                for _event in handle:
                    if draw.random() < 0.3:
                        handle.cancel()
                with lock:
                    left += 1
                continue
            found = handle.result().choices
            with lock:
                served += 1
                if found != alone[which]:
                    wrong.append(f"prompt {which}: {found} is not {alone[which]}")

    with start(model, rows, clients) as engine:
        threads = [threading.Thread(target=client, args=(i,)) for i in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert engine.drain(20)
        stats = engine.stats()
        assert (stats.running, stats.waiting, stats.prefilling, stats.failed) == (0, 0, 0, 0)
    assert not wrong, wrong[:2]
    assert (threading.active_count(), open_files()) == before
    return served, left


@pytest.mark.parametrize(("kind", "dtype"), [("hybrid", "bf16"), ("plain", "f32")])
def test_bitwise(kind: str, dtype: str) -> None:
    served, left = soak(kind, dtype, 96, 12, 5)
    assert served > 30 and left > 5


# Few bits; the cache of a hybrid model too.
PACKED = [
    ("hybrid", "bf16", {"quantize": "int4"}), ("hybrid", "f32", {"quantize": "int8"}),
    ("hybrid", "bf16", {"quantize": "int8", "cache": "int8"}),
    ("plain", "bf16", {"quantize": "int4", "cache": "int8"}), ("plain", "f32", {"quantize": "int4"}),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "dtype", "options"), [PACKED[0], PACKED[3]])
def test_packed_bitwise(kind: str, dtype: str, options: dict[str, str]) -> None:
    model = KINDS[kind](256, backend="native", T=dtype, **options)
    forms = [t.source.kind for t in model.state_dict().values() if hasattr(t, "source")]
    assert "int4" in forms and len(forms) > 8
    served, left = soak(kind, dtype, 96, 12, 5, **options)
    assert served > 30 and left > 5


@pytest.mark.fuzz
@pytest.mark.parametrize(
    ("kind", "dtype", "options"),
    [*((kind, dtype, {}) for kind in ("hybrid", "plain") for dtype in ("bf16", "f32")), *PACKED],
)
def test_a_thousand_bitwise(kind: str, dtype: str, options: dict[str, str]) -> None:
    served, left = soak(kind, dtype, 1000, 20, 7, **options)
    assert served > 400 and left > 100
