"""Bodies made of random values in every field: each is read, or refused with an error that is meant."""

from __future__ import annotations

import random
from typing import Any

import pytest
from http_fakes import NAME, ScriptedEngine
from test_http_chat import WEATHER

from linnet.errors import Error
from linnet.serve.http.chat import read_chat
from linnet.serve.http.completions import read_completion
from linnet.serve.http.errors import ApiError, api_error
from linnet.serve.http.responses import read_response
from linnet.serve.http.service import Service
from linnet.serve.http.tokens import _tokenize

FIELDS = {
    "chat": (
        *("messages", "temperature", "top_p", "top_k", "min_p", "n", "stop", "seed", "logprobs"),
        *("top_logprobs", "logit_bias", "max_tokens", "max_completion_tokens", "stream", "tools"),
        *("stream_options", "response_format", "structured_outputs", "tool_choice", "user"),
        *("parallel_tool_calls", "chat_template_kwargs", "reasoning_effort", "enable_thinking"),
        *("stop_token_ids", "ignore_eos", "metadata", "modalities", "functions", "model"),
    ),
    "text": ("prompt", "n", "echo", "logprobs", "best_of", "suffix", "max_tokens", "stream", "stop"),
    "response": (
        *("input", "instructions", "text", "tools", "tool_choice", "reasoning", "include", "store"),
        *("top_logprobs", "truncation", "metadata", "background", "max_output_tokens", "user"),
    ),
    "tokens": ("prompt", "messages", "tools", "add_special_tokens", "return_token_strs"),
}  # fmt: skip
READERS = {
    "chat": read_chat, "text": read_completion, "response": read_response, "tokens": _tokenize,
}  # fmt: skip
HELLO = [{"role": "user", "content": "hello"}]
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
SEEDS: list[Any] = [
    HELLO, [*HELLO, {"role": "assistant", "content": None, "tool_calls": [CALL]}],
    [{"role": "tool", "tool_call_id": "c", "content": "x"}], [WEATHER], "required", "none", "auto",
    {"type": "function", "function": {"name": "weather"}}, {"type": "json_object"},
    {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}},
    {"type": "regex", "pattern": "a+"}, {"regex": "b"}, {"choice": ["a", "b"]}, {"choice": "a"},
    {"enable_thinking": True}, {"enable_thinking": "x"}, {"include_usage": True}, {"5": 3.5},
    {"effort": "none"}, {"format": {"type": "text"}}, {"mode": "auto", "type": "allowed_tools"},
    [{"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}],
    [{"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "h"}]}],
    [{"type": "function_call_output", "call_id": "c", "output": "x"}], ["message.output_text.logprobs"],
]  # fmt: skip


def value(draw: random.Random, depth: int = 0) -> Any:
    if depth < 3 and draw.random() < 0.45:
        return draw.choice(SEEDS)
    match draw.randrange(9 if depth < 4 else 6):
        case 0:
            return draw.choice([True, False, None])
        case 1:
            return draw.choice([0, 1, 2, -1, 5, 10**6, 10**30, -(10**400)])
        case 2:
            return draw.choice([0.0, 0.5, 1.0, -1.5, 1e308, 1e-320])
        case 3 | 4 | 5:
            return draw.choice(["", "a", "hello", "é🐦", "none", "high", "text", "\n", "x" * 300])
        case 6 | 7:
            return [value(draw, depth + 1) for _ in range(draw.randrange(4))]
        case _:
            names = ["type", "role", "content", "name", "text", "function", "a", "id", "tools"]
            return {draw.choice(names): value(draw, depth + 1) for _ in range(draw.randrange(4))}


def broken(draw: random.Random, whole: Any) -> Any:
    """A value with one place of it changed."""
    if isinstance(whole, dict) and whole and draw.random() < 0.8:
        name = draw.choice(list(whole))
        return {**whole, name: broken(draw, whole[name])}
    if isinstance(whole, list) and whole and draw.random() < 0.8:
        at = draw.randrange(len(whole))
        return [*whole[:at], broken(draw, whole[at]), *whole[at + 1 :]]
    return value(draw)


@pytest.mark.parametrize("kind", FIELDS)
def test_random_bodies(kind: str) -> None:
    service = Service([NAME])
    service.start(ScriptedEngine(lambda prompt: ""))
    draw = random.Random(kind)
    start: dict[str, Any] = {"model": NAME}
    start |= {"chat": {"messages": HELLO}, "text": {"prompt": "a"}, "response": {"input": "a"}}.get(
        kind, {"prompt": "a"}
    )
    read = refused = 0
    for _ in range(800):
        body = dict(start)
        for name in draw.sample(FIELDS[kind], draw.randrange(1, 4)):
            new = draw.choice(SEEDS) if draw.random() < 0.5 else value(draw)
            body[name] = broken(draw, new) if draw.random() < 0.3 else new
        try:
            READERS[kind](service, body)
            read += 1
        except (ApiError, Error) as e:
            shown = api_error(e)
            assert shown.status in (400, 404), (body, shown.message)
            assert shown.message and len(shown.message) < 1000
            refused += 1
    assert min(read, refused) > 5
