"""Many clients that behave badly: they leave, send nonsense, come all at once. Afterwards nothing is
held, and whoever stayed got the answer that a request alone gets."""

from __future__ import annotations

import gc
import http.client
import json
import os
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from http_fakes import NAME, Served, qwen_text, served, until
from serve_models import hybrid
from test_engine_slices import Torn

from linnet.native.compiler import why_not
from linnet.serve import Engine
from linnet.serve.pace import Pace

PROMPTS = [f"Number {i}: " + "tell me more. " * (i % 7) for i in range(24)]


def body(draw: random.Random, prompt: str) -> dict[str, Any]:
    return {
        "model": NAME, "prompt": prompt, "max_tokens": 4 + PROMPTS.index(prompt) % 13,
        "temperature": 1.0, "seed": PROMPTS.index(prompt), "n": 1 + PROMPTS.index(prompt) % 2,
        "stream": draw.random() < 0.5, "ignore_eos": True,
    }  # fmt: skip


NONSENSE = [
    b"", b"{", b"[]", b"\xff", b'{"model": "tiny"}', b'{"model": "tiny", "prompt": []}',
    b'{"model": "tiny", "prompt": "x", "n": -1}', b'{"model": "none", "prompt": "x"}',
    b'{"model": "tiny", "prompt": [99999]}', b'{"model": "tiny", "prompt": "x", "zz": 1}',
    json.dumps({"model": "tiny", "prompt": "x" * 5000}).encode(),
]  # fmt: skip


def texts(raw: bytes, stream: bool) -> list[str]:
    if not stream:
        return [c["text"] for c in json.loads(raw)["choices"]]
    found: dict[int, str] = {}
    for line in raw.decode().splitlines():
        if line.startswith("data: {"):
            event = json.loads(line[6:])
            assert "error" not in event, event
            for choice in event["choices"]:
                found[choice["index"]] = found.get(choice["index"], "") + choice["text"]
    return [found[i] for i in sorted(found)]


def one(
    server: Served, seed: int, alone: dict[str, list[str]], seen: dict[str, int], exact: bool
) -> None:
    draw = random.Random(seed)
    connection = http.client.HTTPConnection("127.0.0.1", server.server.port, timeout=120)
    head = {"content-type": "application/json"}
    try:
        if draw.random() < 0.2:
            connection.request("POST", "/v1/completions", draw.choice(NONSENSE), head)
            answer = connection.getresponse()
            error = json.loads(answer.read())["error"]
            assert answer.status in (400, 404, 413, 429) and error["message"]
            seen["nonsense"] += 1
            return
        prompt = draw.choice(PROMPTS)
        asked = body(draw, prompt)
        leaves = draw.random() < 0.3
        if leaves:
            asked["max_tokens"] = 100
        connection.request("POST", "/v1/completions", json.dumps(asked), head)
        if leaves:
            time.sleep(draw.random() * 0.2)
            if asked["stream"] and draw.random() < 0.5:
                connection.getresponse().read(50)
            seen["left"] += 1
            return
        answer = connection.getresponse()
        raw = answer.read()
        if answer.status == 429:
            assert int(answer.headers["retry-after"]) >= 1
            seen["refused"] += 1
            return
        assert answer.status == 200, raw
        same = texts(raw, asked["stream"]) == alone[prompt]
        assert same or not exact
        seen["served"] += 1
        seen["same"] += same
    finally:
        connection.close()


def held() -> tuple[int, int, int]:
    """Threads, open files and bytes of memory of this process."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    files = len(os.listdir("/proc/self/fd"))
    return threading.active_count(), files, pages * os.sysconf("SC_PAGE_SIZE")


def soak(
    requests: int,
    at_once: int,
    backend: str = "torch",
    pace: Pace | None = None,
    dtype: str = "f32",
) -> dict[str, int]:
    """What became of the requests. In f32 every answer that is served is the one of its request
    alone; in bf16 `same` counts those. The second half leaves nothing that the first did not."""
    seen = dict.fromkeys(("nonsense", "left", "refused", "served", "same"), 0)
    faults: list[BaseException] = []
    with Engine(
        hybrid(256, backend=backend, T=dtype), qwen_text(), rows=4, snapshot_bytes=4 << 20, max_waiting=10,
        pace=pace,
    ) as engine, served(engine) as server:  # fmt: skip
        alone: dict[str, list[str]] = {}
        for prompt in PROMPTS:
            asked = {**body(random.Random(0), prompt), "stream": False}
            status, found, _ = server.ask("/v1/completions", asked)
            assert status == 200, found
            alone[prompt] = [c["text"] for c in found["choices"]]
        lock = threading.Lock()

        def client(numbers: Iterator[int]) -> None:
            while True:
                with lock:
                    number = next(numbers, None)
                if number is None or faults:
                    return
                try:
                    one(server, number, alone, seen, dtype == "f32")
                except BaseException as e:
                    faults.append(e)

        def part(numbers: Iterator[int]) -> tuple[int, int, int]:
            threads = [threading.Thread(target=client, args=(numbers,)) for _ in range(at_once)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            if faults:
                raise faults[0]
            until(lambda: engine.stats().running == engine.stats().waiting == 0)
            return held()

        middle = part(iter(range(requests // 2)))
        end = part(iter(range(requests // 2, requests)))
        until(lambda: all(now <= then for now, then in zip(held()[:2], middle[:2], strict=True)))
        seen["grown"] = end[2] - middle[2]
        assert seen["grown"] < 24 << 20, (middle, end)
        stats = engine.stats()
        assert stats.prefilling == 0 and stats.snapshot_bytes <= 4 << 20
        assert server.ask("/health")[0] == 200
        # And it serves on.
        asked = {**body(random.Random(0), PROMPTS[0]), "stream": False}
        last = [c["text"] for c in server.ask("/v1/completions", asked)[1]["choices"]]
        assert last == alone[PROMPTS[0]] or dtype == "bf16"
    return seen


def test_a_short_soak() -> None:
    seen = soak(requests=80, at_once=16)
    assert min(seen["nonsense"], seen["left"], seen["served"]) > 5, seen


@pytest.mark.fuzz
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("backend", ["torch", "native"])
def test_a_soak_of_a_thousand(backend: str, dtype: str, capsys: pytest.CaptureFixture[str]) -> None:
    if backend == "native" and why_not() is not None:
        pytest.skip(str(why_not()))
    seen = soak(requests=1000, at_once=24, backend=backend, dtype=dtype)
    grown = seen.pop("grown")
    assert min(seen.values()) > 5, seen
    with capsys.disabled():  # the share is reported, whatever it is
        print(
            f"\n{backend} {dtype}: {seen['same']} of {seen['served']} survivors as alone; ", end=""
        )
        print(f"the second half took {grown / 2**20:.1f} MiB more")


@pytest.mark.fuzz
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
@pytest.mark.parametrize("seed", range(3))
def test_a_thousand_with_chunks_left_half_way(seed: int) -> None:
    """Clients go while a chunk of theirs, or of another's, waits half-way."""
    pace = Torn(64, seed, (0.0, 5e-5, 1e-3)[seed])
    seen = soak(requests=1000, at_once=24, backend="native", pace=pace)
    seen.pop("grown")
    assert min(seen.values()) > 5 and pace.times > 20, seen
