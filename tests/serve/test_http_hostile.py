"""Clients that mean harm or know no better, at the level of bytes: each gets its error or is cut
off, and the server goes on serving others."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from http_fakes import NAME, ScriptedEngine, Served, served, until

from linnet.serve.http import exchange
from linnet.serve.http.service import Limits

HELLO = [{"role": "user", "content": "hello"}]
BODY = {"model": NAME, "messages": HELLO}
PATH = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine(lambda prompt: "</think>\n\nYes.")


@pytest.fixture
def server(engine: ScriptedEngine) -> Iterator[Served]:
    with served(engine, limits=Limits(body=1 << 20)) as found:
        yield found
        # Whatever came before: it serves on.
        assert found.ask("/v1/chat/completions", BODY)[0] == 200
        until(lambda: engine.running == 0)


def raw(server: Served, data: bytes, seconds: float = 5.0) -> bytes:
    """What the server says to some bytes until it closes or is quiet."""
    with socket.create_connection(("127.0.0.1", server.server.port), timeout=seconds) as s:
        s.sendall(data)
        found = b""
        try:
            while part := s.recv(65536):
                found += part
                if b"\r\n\r\n" in found:
                    break
        except (TimeoutError, ConnectionResetError):
            pass
        return found


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.") else 0


@pytest.mark.parametrize(
    "head",
    [
        b"content-length: 5\r\ncontent-length: 6\r\n",
        b"content-length: -1\r\n",
        b"content-length: 1e3\r\n",
        b"content-length: 5\r\ntransfer-encoding: gzip\r\n",
        b"transfer-encoding: chunked, identity\r\n",
        b"a: b\x00c\r\ncontent-length: 2\r\n",
        b"no colon here\r\n",
        b" folded: x\r\n",
    ],
)
def test_tricks_in_the_head(server: Served, head: bytes) -> None:
    assert status(raw(server, PATH + head + b"\r\n{}", 2.0)) in (0, 400, 415, 501)


def test_a_huge_head(server: Served) -> None:
    assert status(raw(server, PATH + b"x: " + b"y" * (1 << 20) + b"\r\n\r\n")) in (0, 400, 431)
    many = b"".join(b"x%d: y\r\n" % i for i in range(20_000))
    assert status(raw(server, PATH + many + b"\r\n")) in (0, 400, 431)


def test_bad_chunks(server: Served) -> None:
    head = PATH + b"transfer-encoding: chunked\r\n\r\n"
    for body in (b"zz\r\n", b"-5\r\nhello\r\n0\r\n\r\n", b"FFFFFFFFFFFFFFFFFF\r\n{}"):
        assert status(raw(server, head + body, 2.0)) in (0, 400, 413)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"[" * 200_000, "not JSON"),
        (b'{"a":' * 100_000, "not JSON"),
        (b'{"model": "\xff\xfe"}', "not UTF-8"),
        (b'{"model": "\\ud800"}', "not UTF-8"),
        (b'{"model": NaN}', "not JSON"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b'{"n": ' + b"9" * 5000 + b"}", ""),
        (b"null", "expected an object"),
    ],
)
def test_bodies_that_are_no_requests(server: Served, body: bytes, said: str) -> None:
    answer = raw(server, PATH + b"content-length: %d\r\n\r\n" % len(body) + body)
    assert status(answer) == 400, answer
    assert said in answer.decode() or said


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("n", 10**9),
        ("n", 129),
        ("stop", ["x"] * 17),
        ("top_logprobs", 10**6),
        ("max_tokens", -1),
        ("seed", 2**70),
        ("temperature", 1e308),
        ("logit_bias", {"999999": 1}),
        ("logit_bias", {"x" * 1000: 1}),
        ("logit_bias", {"1": 101}),
        ("messages", [{"role": "user", "content": [[[]]]}]),
        ("tools", [{"type": "function", "function": {"name": "x" * 65}}]),
        ("user\n", "x"),
    ],
)
def test_values_out_of_all_bounds(server: Served, field: str, value: Any) -> None:
    code, found, _ = server.ask("/v1/chat/completions", {**BODY, field: value})
    assert code == 400 and len(found["error"]["message"]) < 500
    assert found["error"]["param"]


def test_long_stop_strings_and_many_biases_take_no_time(server: Served) -> None:
    start = time.monotonic()
    more = {"stop": ["y" * 200_000] * 4, "logit_bias": {str(i): 1 for i in range(250)}}
    assert server.ask("/v1/chat/completions", {**BODY, **more})[0] == 200
    assert time.monotonic() - start < 10


def test_a_body_that_does_not_come(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_SLOW", 0.3)
    answer = raw(server, PATH + b"content-length: 100\r\n\r\n{")
    assert status(answer) == 408 and b"connection: close" in answer.lower()


def test_a_reader_that_does_not_read(server: Served, engine: ScriptedEngine) -> None:
    """What it does not take stays with it: others are served meanwhile."""
    engine.script = lambda prompt: "</think>\n\n" + "word " * (20_000 if "much" in prompt else 1)
    engine.context = 10**6
    data = json.dumps(
        {"model": NAME, "stream": True, "messages": [{"role": "user", "content": "much"}]}
    ).encode()
    with socket.create_connection(("127.0.0.1", server.server.port)) as s:
        s.sendall(PATH + b"content-length: %d\r\n\r\n" % len(data) + data)
        until(lambda: engine.running == 1 or len(engine.requests) == 1)
        for _ in range(5):
            assert server.ask("/v1/chat/completions", BODY)[0] == 200
    until(lambda: engine.running == 0, 60.0)


def test_many_connections_that_say_nothing(server: Served) -> None:
    held = []
    try:
        for _ in range(400):
            held.append(socket.create_connection(("127.0.0.1", server.server.port), timeout=5))
        held[0].sendall(b"POST /v1/chat")  # slow heads
        assert server.ask("/v1/chat/completions", BODY)[0] == 200
    finally:
        for s in held:
            s.close()


def test_large_bodies_come_in_a_few_at_a_time(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that do not end hold back other large ones for a while, and small ones not at all."""
    monkeypatch.setattr(exchange, "_SLOW", 2.0)
    head = PATH + b"content-length: 300000\r\n\r\n"
    held = []
    try:
        for _ in range(exchange.LARGE_AT_ONCE):
            s = socket.create_connection(("127.0.0.1", server.server.port), timeout=20)
            s.sendall(head + b"x" * 100_000)
            held.append(s)
        time.sleep(0.3)
        start = time.monotonic()
        assert server.ask("/v1/chat/completions", BODY)[0] == 200
        assert time.monotonic() - start < 1.0
        large = {**BODY, "user": "y" * 100_000}
        assert server.ask("/v1/chat/completions", large)[0] in (200, 408)
        until(lambda: server.ask("/v1/chat/completions", large)[0] == 200)
    finally:
        for s in held:
            s.close()
