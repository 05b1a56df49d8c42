"""The API over the real engine and tiny random models: forms that answers are held to, tool calls
that are asked for, clients that leave."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from http_fakes import NAME, Served, qwen_text, served, until
from serve_models import hybrid, plain

from linnet.serve import Engine
from linnet.serve.http.service import Limits

openai = pytest.importorskip("openai")
jsonschema = pytest.importorskip("jsonschema")
pytest.importorskip("llguidance")

TOOL = {
    "type": "function",
    "function": {
        "name": "move",
        "parameters": {
            "type": "object",
            "properties": {
                "to": {"type": "string", "pattern": "^[a-h][1-8]$"},
                "count": {"type": "integer", "minimum": 0, "maximum": 9},
                "fast": {"type": "boolean"},
                "piece": {"enum": ["king", "rook"]},
            },
            "required": ["to", "count", "piece"],
            "additionalProperties": False,
        },
    },
}
OTHER = {"type": "function", "function": {"name": "pass"}}
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer", "maximum": 99, "minimum": 0}, "b": {"enum": ["x", "y"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}  # fmt: skip
HELLO = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(plain(2048), qwen_text(), rows=4, snapshot_bytes=1 << 22) as found:
        yield found


@pytest.fixture(scope="module")
def server(engine: Engine) -> Iterator[Served]:
    with served(engine) as found:
        yield found


@pytest.fixture
def chat(server: Served) -> Any:
    client = server.client()

    def ask(**asked: Any) -> Any:
        extra = {"chat_template_kwargs": {"enable_thinking": False}, **asked.pop("extra", {})}
        given = {"model": NAME, "messages": HELLO, "temperature": 1.2, "max_tokens": 600, **asked}
        return client.chat.completions.create(**given, extra_body=extra)

    return ask


def calls(answer: Any) -> list[tuple[str, Any]]:
    found = []
    for choice in answer.choices:
        for call in choice.message.tool_calls or []:
            found.append((call.function.name, json.loads(call.function.arguments)))
    return found


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "move"}}])
def test_a_call_that_is_asked_for_comes(chat: Any, choice: Any) -> None:
    answer = chat(tools=[TOOL, OTHER], tool_choice=choice, parallel_tool_calls=False, n=4, seed=1)
    found = calls(answer)
    assert len(found) == 4
    for c in answer.choices:
        assert c.finish_reason == "tool_calls" and c.message.content is None
    for name, arguments in found:
        if isinstance(choice, dict):
            assert name == "move"
        if name == "move":
            jsonschema.validate(arguments, TOOL["function"]["parameters"])
        else:
            assert (name, arguments) == ("pass", {})


def test_a_strict_tool_is_held_to_its_schema_amid_text(chat: Any) -> None:
    strict = {"type": "function", "function": {**TOOL["function"], "strict": True}}
    answer = chat(
        tools=[strict], max_tokens=300, n=4, seed=3, logit_bias={"260": 9}  # <tool_call>
    )  # fmt: skip
    whole = [c for c in answer.choices if c.finish_reason == "tool_calls"]
    assert any(c.message.tool_calls for c in answer.choices)
    for c in whole:
        for call in c.message.tool_calls:
            jsonschema.validate(json.loads(call.function.arguments), TOOL["function"]["parameters"])


@pytest.mark.parametrize("thinking", [True, False])
def test_a_schema_holds_what_follows_the_thought(chat: Any, thinking: bool) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "ab", "schema": SCHEMA}}
    extra: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": thinking}}
    bias = {"259": 8} if thinking else {}  # </think>, or a random model would never get there
    answer = chat(response_format=form, n=4, seed=5, extra=extra, logit_bias=bias)
    for choice in answer.choices:
        assert choice.finish_reason == "stop"
        jsonschema.validate(json.loads(choice.message.content), SCHEMA)


def test_patterns_grammars_and_choices(chat: Any) -> None:
    for form, pattern in (
        ({"response_format": {"type": "regex", "pattern": "[ab]{3}-[0-9]"}}, r"[ab]{3}-\d"),
        ({"response_format": {"type": "grammar", "grammar": 'start: "x" /[0-9]{2}/'}}, r"x\d\d"),
        ({"structured_outputs": {"regex": "z{2,4}"}}, r"z{2,4}"),
        ({"structured_outputs": {"choice": ["yes", "no"]}}, r"yes|no"),
        ({"structured_outputs": {"grammar": 'start: "q"+'}}, r"q+"),
        ({"structured_outputs": {"json": {"type": "boolean"}}}, r"true|false"),
    ):
        answer = chat(extra=form, max_tokens=40, seed=2)
        text = answer.choices[0].message.content
        assert re.fullmatch(pattern, text), (form, text)
    answer = chat(response_format={"type": "json_object"}, max_tokens=2, seed=2)
    assert answer.choices[0].message.content.startswith("{")


@pytest.mark.parametrize(
    ("form", "param"),
    [
        ({"structured_outputs": {"regex": "("}}, "structured_outputs"),
        ({"structured_outputs": {"grammar": "nonsense"}}, "structured_outputs"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "odd"}}}},
            "response_format",
        ),
        ({"tools": [TOOL], "tool_choice": "required", "response_format": {"type": "json_object"}}, "response_format"),
    ],
)  # fmt: skip
def test_a_form_that_is_none_is_named(server: Served, form: Any, param: str) -> None:
    body = {"model": NAME, "messages": HELLO, "enable_thinking": False, **form}
    status, found, _ = server.ask("/v1/chat/completions", body)
    assert status == 400 and found["error"]["param"] == param, found


def test_tools_or_a_schema(chat: Any) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "ab", "schema": SCHEMA}}
    answer = chat(tools=[TOOL], response_format=form, n=4, seed=9)
    for choice in answer.choices:
        if choice.message.tool_calls:
            continue
        jsonschema.validate(json.loads(choice.message.content), SCHEMA)


def test_the_same_seed_says_the_same_streamed_or_not(chat: Any) -> None:
    asked: dict[str, Any] = {"seed": 11, "max_tokens": 60, "temperature": 1.0}
    first = chat(**asked)
    pieces = [
        chunk.choices[0].delta.content or "" for chunk in chat(**asked, stream=True) if chunk.choices
    ]  # fmt: skip
    assert "".join(pieces) == (first.choices[0].message.content or "")
    assert first.usage.prompt_tokens_details.cached_tokens >= 0
    again = chat(**asked)
    assert again.usage.prompt_tokens_details.cached_tokens > 0
    assert again.choices[0].message.content == first.choices[0].message.content


def test_log_probabilities_are_those_of_the_model(chat: Any) -> None:
    answer = chat(max_tokens=5, logprobs=True, top_logprobs=3, temperature=0)
    for entry in answer.choices[0].logprobs.content:
        assert entry.logprob <= 0 and len(entry.top_logprobs) == 3
        assert abs(entry.top_logprobs[0].logprob - entry.logprob) < 1e-5


def test_token_ids_out_of_the_vocabulary(server: Served) -> None:
    status, found, _ = server.ask("/v1/completions", {"model": NAME, "prompt": [1, 99999]})
    assert status == 400 and found["error"]["param"] == "prompt"
    assert "prompt[1]" in found["error"]["message"]


def test_a_client_that_leaves_frees_its_rows(server: Served, engine: Engine) -> None:
    client = server.client()
    with client.completions.create(
        model=NAME, prompt="x", max_tokens=1500, n=4, stream=True, extra_body={"ignore_eos": True}
    ) as stream:
        next(iter(stream))
    until(lambda: engine.stats().running == 0, seconds=3)
    assert client.completions.create(model=NAME, prompt="x", max_tokens=2).usage


def test_the_engines_metrics_are_there(server: Served) -> None:
    text = server.ask("/metrics")[1].decode()
    for name in ("linnet_rows 4.0", "linnet_requests_running", "linnet_cache_bytes"):
        assert name in text
    for doing in ("steps", "prompts", "rest"):
        assert f'linnet_engine_seconds_total{{doing="{doing}"}}' in text


def test_a_request_has_its_time(engine: Engine) -> None:
    body = {"model": NAME, "prompt": "x", "max_tokens": 2000, "ignore_eos": True}
    with served(engine, limits=Limits(timeout=0.2)) as server:
        engine.drain, engine.close = lambda timeout=None: True, lambda: None  # it serves others
        try:
            status, found, _ = server.ask("/v1/completions", body)
            assert status == 504 and found["error"]["code"] == "timeout"
            with pytest.raises(openai.APIError, match="longer than it may"):
                stream = server.client().completions.create(
                    model=NAME, prompt="x", max_tokens=2000, stream=True,
                    extra_body={"ignore_eos": True},
                )  # fmt: skip
                assert list(stream)
            last = server.events()[-1]
            assert last["code"] == "timeout" and last["prompt_tokens"] == 1
            assert last["new_tokens"] > 0
        finally:
            server.server.stop()
            server.thread.join(20)
            del engine.drain, engine.close


def test_a_second_turn_computes_the_visible_answer_and_the_new_message() -> None:
    """With thoughts, which the template drops from earlier turns, on a model with recurrent states."""
    text = qwen_text()
    with Engine(hybrid(1024), text, rows=2) as engine, served(engine) as server:
        client = server.client()
        first: list[Any] = [{"role": "user", "content": "tell me more. " * 30}]
        asked: dict[str, Any] = {"model": NAME, "max_tokens": 40, "temperature": 1.0, "seed": 4}
        client.chat.completions.create(messages=first, **asked)
        said = {"role": "assistant", "content": "Well.", "reasoning_content": "Hm. " * 9}
        messages = [*first, said, {"role": "user", "content": "And?"}]
        usage = client.chat.completions.create(messages=messages, **asked).usage
        stable = len(text.tokenizer.encode(text.chat(first, add_generation_prompt=False)))
        assert stable > 400 and usage.prompt_tokens_details.cached_tokens >= stable
