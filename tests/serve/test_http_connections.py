"""Connections that are slow, many, or no HTTP: each has an end, and others are served meanwhile."""

from __future__ import annotations

import io
import json
import logging
import os
import resource
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from http_fakes import NAME, ScriptedEngine, Served, served, until

from linnet.serve.http import connection
from linnet.serve.http.logs import Log, taken

BODY = {"model": NAME, "messages": [{"role": "user", "content": "hello"}]}
PATH = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
HEALTH = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"


@pytest.fixture
def engine() -> ScriptedEngine:
    return ScriptedEngine(lambda prompt: "</think>\n\nYes.")


@pytest.fixture
def server(engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(connection, "HEAD", 0.4)
    monkeypatch.setattr(connection, "STUCK", 0.4)
    with served(engine) as found:
        yield found
        assert found.ask("/v1/chat/completions", BODY)[0] == 200
        until(lambda: engine.running == 0)
        assert all("event" in json.loads(line) for line in found.log.getvalue().splitlines())


def connect(server: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.server.port), timeout=20)


def rest(s: socket.socket) -> bytes:
    """All that comes until the server closes."""
    found = b""
    try:
        while part := s.recv(65536):
            found += part
    except ConnectionResetError:
        pass
    return found


def answered(s: socket.socket) -> bool:
    """Reads one answer of `/health`, to its end."""
    found = b""
    while not found.endswith(b"}"):
        found += s.recv(65536)
    return found.startswith(b"HTTP/1.1 200 ")


def error(answer: bytes) -> Any:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"application/json" in head
    found = json.loads(body)["error"]
    assert set(found) == {"message", "type", "param", "code"}
    return found


def trickle(s: socket.socket, data: bytes) -> None:
    """A byte at a time, until the server has had enough."""
    for byte in data:
        try:
            s.sendall(bytes([byte]))
        except OSError:
            return
        time.sleep(0.02)


def test_a_head_that_comes_byte_by_byte(server: Served) -> None:
    with connect(server) as s:
        trickle(s, (PATH + b"x: y\r\n" * 100)[:60])
        answer = rest(s)
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert "head did not come" in error(answer)["message"]


def test_a_connection_that_says_nothing(server: Served) -> None:
    with connect(server) as s:
        assert rest(s) == b""


def test_the_second_head_has_a_deadline_too(server: Served) -> None:
    with connect(server) as s:
        s.sendall(HEALTH)
        assert answered(s)
        trickle(s, HEALTH[:-2] + b"x: y\r\n" * 10)
        assert rest(s) == b""


def test_slow_but_in_time(server: Served) -> None:
    with connect(server) as s:
        for _ in range(3):
            trickle(s, HEALTH[:8])
            s.sendall(HEALTH[8:])
            assert answered(s)


@pytest.mark.parametrize("path", [b"/health", b"/v1/nothing", b"/v1/completions"])
def test_a_body_without_end_that_nobody_reads(server: Served, path: bytes) -> None:
    """The answer is there, and the client sends on."""
    with connect(server) as s:
        s.sendall(b"POST " + path + b" HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
        trickle(s, b"1\r\nx\r\n" * 20)
        assert rest(s).startswith(b"HTTP/1.1 4")


def test_a_request_that_takes_long_is_not_cut_off(engine: ScriptedEngine, server: Served) -> None:
    engine.pause = 0.1
    data = json.dumps(BODY).encode()
    with connect(server) as s:
        s.sendall(PATH + b"connection: close\r\ncontent-length: %d\r\n\r\n" % len(data) + data)
        assert b'"Yes."' in rest(s)


def test_a_reader_that_takes_nothing_is_cut_off(engine: ScriptedEngine, server: Served) -> None:
    engine.context = 10**6
    engine.script = lambda prompt: "</think>\n\n" + "word " * (10_000 if "much" in prompt else 1)
    data = json.dumps(
        {"model": NAME, "stream": True, "messages": [{"role": "user", "content": "much"}]}
    ).encode()
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(("127.0.0.1", server.server.port))
        s.sendall(PATH + b"content-length: %d\r\n\r\n" % len(data) + data)
        until(lambda: any(e.get("gone") for e in server.events()))


def test_answers_that_nobody_takes_hold_no_connection(server: Served) -> None:
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(("127.0.0.1", server.server.port))
        s.settimeout(3.0)
        try:
            for _ in range(40_000):
                s.sendall(HEALTH)
        except OSError:
            pass
        until(lambda: not server.server._server.server_state.connections)


def test_requests_one_after_the_other_in_one_write(server: Served) -> None:
    data = json.dumps(BODY).encode()
    one = PATH + b"content-length: %d\r\n\r\n" % len(data) + data
    last = HEALTH.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n")
    with connect(server) as s:
        s.sendall(HEALTH + one * 5 + HEALTH + last)
        answers = rest(s)
    assert answers.count(b"HTTP/1.1 200 OK") == 8 and answers.count(b'"Yes."') == 5


def test_who_leaves_after_sending_the_next_request_too(
    engine: ScriptedEngine, server: Served
) -> None:
    """That it has gone is seen though there is more to read of it."""
    engine.pause = 0.05
    engine.script = lambda prompt: "</think>\n\n" + "word " * 2000
    data = json.dumps(BODY).encode()
    with connect(server) as s:
        s.sendall((PATH + b"content-length: %d\r\n\r\n" % len(data) + data) * 2)
        until(lambda: engine.drawn > 2)
    until(lambda: engine.running == 0 and engine.cancelled == 1, 5.0)
    engine.pause, engine.script = 0.0, lambda prompt: "</think>\n\nYes."


@pytest.mark.parametrize("data", [b"\x16\x03\x01\x02\x00\x01\x00\x01", b"GET\r\n\r\n", b"\0" * 99])
def test_what_is_no_http(server: Served, data: bytes) -> None:
    with connect(server) as s:
        s.sendall(data)
        answer = rest(s)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert error(answer)["code"] == "invalid_http"


def test_more_connections_than_there_may_be(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "most_connections", lambda: 20)
    held = [connect(server) for _ in range(60)]
    try:
        refused = [s for s in held[-30:] if rest(s).startswith(b"HTTP/1.1 503 ")]
        assert len(refused) == 30
        until(lambda: not server.server._server.server_state.connections)
    finally:
        for s in held:
            s.close()


def test_hundreds_that_come_at_once_with_few_files_left(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are counted before the files run out, and nobody who comes later finds the door shut."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = [socket.socket() for _ in range(700)]
    others = len(os.listdir("/proc/self/fd"))
    limit = others + connection.SPARE + 100
    monkeypatch.setattr(connection, "SPARE", connection.SPARE + others)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        for s in held:
            s.setblocking(False)
            s.connect_ex(("127.0.0.1", server.server.port))
        time.sleep(1.0)
        assert server.ask("/health")[0] == 200
        assert "out of system resource" not in server.log.getvalue()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for s in held:
            s.close()


def test_some_files_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    for files, most in ((1024, 1024 - connection.SPARE), (64, 16), (10**6, connection.MOST)):
        monkeypatch.setattr(resource, "getrlimit", lambda kind, files=files: (files, files))
        assert connection.most_connections() == most


def test_a_path_makes_no_lines_of_its_own() -> None:
    stream = io.StringIO()
    scope = {"method": "GET", "path": "/\n12:00:00 ready \x1b[31m" + "x" * 9999, "client": None}
    Log(stream, plain=True).request(scope, "req_1", 404, 0.1, False)
    (line,) = stream.getvalue().splitlines()
    assert "\\n12:00:00 ready \\x1b[31m" in line and len(line) < 500


def test_what_the_libraries_say_is_a_line_of_the_log() -> None:
    stream = io.StringIO()
    logger = logging.getLogger("asyncio")
    with taken(Log(stream)):
        try:
            raise ValueError("my secret")
        except ValueError as error:
            for _ in range(50):
                logger.error("it failed\nmy secret", exc_info=error)
    (line,) = stream.getvalue().splitlines()
    found = json.loads(line)
    assert found["text"] == "it failed" and found["fault"] == "ValueError" and found["where"]
    assert "my secret" not in line and logger.propagate and not logger.handlers
