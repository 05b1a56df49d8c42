"""Servers in this process: one that says what a script tells it, one on a tiny random model."""

from __future__ import annotations

import contextlib
import io
import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from types import SimpleNamespace
from typing import Any

from serve_models import IDS, VOCABULARY, text

from linnet.serve.answer import Answer
from linnet.serve.errors import ContextExceeded, QueueFull, Unavailable
from linnet.serve.events import Done, Failed, Prefilled, TokenLogprob, Usage
from linnet.serve.handle import Handle
from linnet.serve.http.app import application
from linnet.serve.http.logs import Log
from linnet.serve.http.server import Server
from linnet.serve.http.service import Limits, Service
from linnet.serve.sampling import Drawn
from linnet.text.open import TextModel
from linnet.text.template import ChatTemplate

NAME = "tiny"
# Tools and thoughts in the way of the Qwen3.6 family.
TEMPLATE = """\
{%- if tools -%}
<|im_start|>system
# Tools: call as <tool_call><function=name><parameter=key>value</parameter></function></tool_call>
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif -%}
{%- set ns = namespace(last=-1) -%}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor -%}
{%- for m in messages -%}
<|im_start|>{{ m.role }}
{% if m.reasoning_content and loop.index0 > ns.last -%}
<think>
{{ m.reasoning_content }}
</think>

{% endif -%}
{{ m.content }}
{%- for call in m.tool_calls or [] %}
<tool_call>
<function={{ call.function.name }}>
{% for key, value in call.function.arguments | items -%}
<parameter={{ key }}>
{{ value if value is string else value | tojson }}
</parameter>
{% endfor -%}
</function>
</tool_call>
{%- endfor -%}
<|im_end|>
{% endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% if enable_thinking is defined and enable_thinking is false -%}
<think>

</think>

{% else -%}
<think>
{% endif -%}
{%- endif -%}
"""


@cache
def qwen_text() -> TextModel:
    base = text()
    template = ChatTemplate(TEMPLATE, base.tokenizer.names, "template")
    return TextModel(base.tokenizer, template, base.settings, "bytes")


@dataclass
class ScriptedEngine:
    """Has what the API needs of an Engine. `script` maps a rendered prompt to an answer, or to
    an error; each token takes `pause` seconds."""

    script: Callable[[str], str | Exception]
    pause: float = 0.0
    context: int = 4096
    room: int = 64
    vocabulary: int = VOCABULARY
    health: str = "ok"
    text: TextModel = field(default_factory=qwen_text)
    requests: list[Any] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)
    drawn: int = 0
    running: int = 0
    cancelled: int = 0
    closed: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def submit(self, request: Any, listener: Any = None) -> Handle:
        if self.health != "ok":
            raise Unavailable(f"the engine is {self.health}")
        if len(request.prompt) > self.context:
            raise ContextExceeded(len(request.prompt), self.context)
        with self.lock:
            if self.running >= self.room:
                raise QueueFull(self.running, 7.0)
            self.running += 1
        self.requests.append(request)
        self.prompts.append(self.text.tokenizer.decode(request.prompt, special=True))
        handle = Handle(lambda: None, listener)
        said = self.script(self.prompts[-1])
        threading.Thread(target=self._answer, args=(request, handle, said), daemon=True).start()
        return handle

    def _answer(self, request: Any, handle: Handle, said: str | Exception) -> None:
        try:
            self._say(request, handle, said)
        finally:
            with self.lock:
                self.running -= 1
                self.cancelled += handle.cancelled

    def _say(self, request: Any, handle: Handle, said: str | Exception) -> None:
        if isinstance(said, Exception):
            handle.tell(Failed(said))
            return
        t = self.text.tokenizer
        ends = request.stop_tokens
        if ends is None:
            ends = self.text.settings.stop_tokens
        tokens = [*t.encode(said), IDS["<|im_end|>"]]
        answers = [
            Answer(request, i, t, ends, self.context, None) for i in range(request.n)
        ]  # fmt: skip
        cached = len(request.prompt) // 2
        handle.tell(Prefilled(len(request.prompt), cached))
        for token in tokens:
            if all(answer.reason is not None for answer in answers):
                break
            if self.pause:
                time.sleep(self.pause)
            for answer in answers:
                if handle.cancelled:
                    answer.end("cancelled")
                if answer.reason is not None:
                    continue
                top = tuple((i, -1.0 - i) for i in range(request.logprobs or 0))
                told = TokenLogprob(token, -0.5, top) if request.logprobs is not None else None
                delta = answer.add(Drawn(token, told))
                self.drawn += 1
                if delta is not None and delta.text:
                    handle.tell(delta)
        for answer in answers:
            delta, end = answer.finish()
            if delta is not None:
                handle.tell(delta)
            handle.tell(end)
        new = sum(len(answer.tokens) for answer in answers)
        handle.tell(Done(Usage(len(request.prompt), cached, new)))

    def stats(self) -> Any:
        return SimpleNamespace(running=self.running, waiting=0, rows=4, cache_hits=3)

    def drain(self, timeout: float | None = None) -> bool:
        self.health = "draining"
        end = time.monotonic() + (timeout or 0)
        while self.running and time.monotonic() < end:
            time.sleep(0.005)
        return not self.running

    def close(self) -> None:
        self.closed = True
        self.health = "closed"


@dataclass
class Served:
    """A server that runs in a thread."""

    server: Server
    service: Service
    log: io.StringIO
    thread: threading.Thread

    @property
    def url(self) -> str:
        return self.server.url

    def client(self, key: str = "none", **more: Any) -> Any:
        import openai

        return openai.OpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0, **more)

    def ask(
        self, path: str, body: Any = None, headers: dict[str, str] | None = None, method: str = ""
    ) -> tuple[int, Any, dict[str, str]]:
        """Status, body (JSON where it is) and headers."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        head = {"content-type": "application/json", **(headers or {})}
        request = urllib.request.Request(
            self.url + path, data, {k: v for k, v in head.items() if v}, method=method or None
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                status, raw, found = answer.status, answer.read(), dict(answer.headers)
        except urllib.error.HTTPError as e:
            status, raw, found = e.code, e.read(), dict(e.headers)
        found = {k.lower(): v for k, v in found.items()}
        is_json = found.get("content-type", "").startswith("application/json")
        return status, json.loads(raw) if is_json and raw else raw, found

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.log.getvalue().splitlines()]


@contextlib.contextmanager
def served(
    engine: Any,
    *,
    wait: bool = True,
    limits: Limits | None = None,
    names: tuple[str, ...] = (NAME,),
    drain: float = 5.0,
    load: Callable[..., Any] | None = None,
    **options: Any,
) -> Iterator[Served]:
    """Serves an engine at a free port. `load` replaces what opens it."""
    log = io.StringIO()
    service = Service(names, limits or Limits())
    app = application(service, log=Log(log), **options)
    server = Server(
        service, app, load or (lambda progress: engine), port=0, drain=drain, log=Log(log)
    )

    def run() -> None:
        with contextlib.suppress(BaseException):
            server.run()

    thread = threading.Thread(target=run, daemon=True)
    found = Served(server, service, log, thread)
    thread.start()
    until(lambda: answers(found))
    if wait:
        until(lambda: service.phase != "loading")
    try:
        yield found
    finally:
        server.stop()
        thread.join(20)
        assert not thread.is_alive()
        workers = service.threads._threads
        until(lambda: not any(worker.is_alive() for worker in workers))  # none outlives the server


def answers(found: Served) -> bool:
    try:
        found.ask("/health")
        return True
    except OSError:
        return False


def until(done: Callable[[], bool], seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.005)
