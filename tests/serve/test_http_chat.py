"""/v1/chat/completions through the official client, over a scripted engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from http_fakes import NAME, ScriptedEngine, Served, served

openai = pytest.importorskip("openai")

HELLO = [{"role": "user", "content": "hello"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "code": {"type": "string"},
                "days": {"type": "integer"},
            },
            "required": ["city"],
        },
    },
}
CALL = (
    "<tool_call>\n<function=weather>\n<parameter=city>\nZürich\n</parameter>\n"
    "<parameter=code>\n08001\n</parameter>\n<parameter=days>\n3\n</parameter>\n"
    "</function>\n</tool_call>"
)
ANSWERS = {
    "hello": "They greet me.\n</think>\n\nHello, Zoë! 🐦",
    "quick": "</think>\n\nYes.",
    "weather": f"I should look.\n</think>\n\nLet me look.\n\n{CALL}\n{CALL}",
    "forgot": f"I should look.\n{CALL}",
    "long": "</think>\n\n" + "word " * 300,
}


def script(prompt: str) -> str:
    last = prompt.rpartition("<|im_start|>user\n")[2]
    word = last.partition("<|im_end|>")[0].split()[0]
    answer = ANSWERS[word]
    return answer if prompt.endswith("<think>\n") else answer.partition("</think>\n\n")[2]


@pytest.fixture(scope="module")
def engine() -> ScriptedEngine:
    return ScriptedEngine(script)


@pytest.fixture(scope="module")
def server(engine: ScriptedEngine) -> Iterator[Served]:
    with served(engine) as found:
        yield found


@pytest.fixture
def client(server: Served) -> Any:
    return server.client()


def whole(chunks: Any) -> dict[str, Any]:
    """What a stream says, put together: for each choice its text, thoughts, calls, reason."""
    found: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        for choice in chunk.choices:
            made = found.setdefault(
                choice.index, {"content": "", "thoughts": "", "calls": [], "reason": None}
            )
            made["content"] += choice.delta.content or ""
            made["thoughts"] += getattr(choice.delta, "reasoning_content", None) or ""
            for call in choice.delta.tool_calls or []:
                if call.id:
                    assert call.index == len(made["calls"])
                    made["calls"].append([call.function.name, ""])
                made["calls"][call.index][1] += call.function.arguments or ""
            made["reason"] = made["reason"] or choice.finish_reason
    return found[0] if len(found) == 1 else found


def at_once(answer: Any) -> dict[str, Any]:
    [choice] = answer.choices
    m = choice.message
    calls = [[c.function.name, c.function.arguments] for c in m.tool_calls or []]
    return {
        "content": m.content or "",
        "thoughts": getattr(m, "reasoning_content", None) or "",
        "calls": calls,
        "reason": choice.finish_reason,
    }


def test_an_answer(client: Any, engine: ScriptedEngine) -> None:
    answer = client.chat.completions.create(model=NAME, messages=HELLO)
    assert answer.object == "chat.completion" and answer.model == NAME
    message = answer.choices[0].message
    assert message.content == "Hello, Zoë! 🐦" and message.role == "assistant"
    assert message.reasoning_content == message.reasoning == "They greet me."
    assert answer.choices[0].finish_reason == "stop" and answer.choices[0].logprobs is None
    usage = answer.usage
    assert usage.prompt_tokens == len(engine.requests[-1].prompt)
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens // 2
    assert usage.completion_tokens_details.reasoning_tokens == len("They greet me.\n")


@pytest.mark.parametrize("word", ANSWERS)
@pytest.mark.parametrize("thinking", [True, False])
def test_a_stream_says_what_an_answer_says(client: Any, word: str, thinking: bool) -> None:
    asked = {
        "model": NAME, "messages": [{"role": "user", "content": word}], "tools": [WEATHER],
        "extra_body": {"chat_template_kwargs": {"enable_thinking": thinking}},
    }  # fmt: skip
    answer = at_once(client.chat.completions.create(**asked))
    assert whole(client.chat.completions.create(**asked, stream=True)) == answer
    if word == "weather":
        arguments = {"city": "Zürich", "code": "08001", "days": 3}
        assert [json.loads(a) for _, a in answer["calls"]] == [arguments, arguments]
        assert answer["content"] == "Let me look." and answer["reason"] == "tool_calls"


def test_thinking_is_switched_by_the_template(client: Any, engine: ScriptedEngine) -> None:
    for body, thinks in (
        ({"enable_thinking": False}, False),
        ({"chat_template_kwargs": {"enable_thinking": False}}, False),
        ({"reasoning_effort": "none"}, False),
        ({"reasoning_effort": "high"}, True),
        ({}, True),
    ):
        answer = client.chat.completions.create(model=NAME, messages=HELLO, extra_body=body)
        assert bool(getattr(answer.choices[0].message, "reasoning_content", None)) == thinks
        assert engine.prompts[-1].endswith("<think>\n") == thinks


def test_a_call_in_a_thought_that_never_ends_is_a_call(client: Any) -> None:
    asked = {"model": NAME, "messages": [{"role": "user", "content": "forgot"}], "tools": [WEATHER]}
    answer = at_once(client.chat.completions.create(**asked))
    assert [name for name, _ in answer["calls"]] == ["weather"]
    assert answer["thoughts"] == "I should look."


def test_without_tools_text_stays_text(client: Any) -> None:
    messages = [{"role": "user", "content": "weather"}]
    for more in ({}, {"tools": [WEATHER], "tool_choice": "none"}):
        answer = client.chat.completions.create(model=NAME, messages=messages, **more)
        assert answer.choices[0].message.tool_calls is None
        assert answer.choices[0].message.content == f"Let me look.\n\n{CALL}\n{CALL}"
        assert answer.choices[0].finish_reason == "stop"


def test_a_stream_ends_with_the_usage(client: Any) -> None:
    chunks = list(
        client.chat.completions.create(
            model=NAME, messages=HELLO, n=2, stream=True, stream_options={"include_usage": True}
        )
    )
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens > 0
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert {chunk.id for chunk in chunks} == {chunks[0].id}
    assert set(whole(chunks)) == {0, 1}


def test_choices_have_numbers(client: Any) -> None:
    answer = client.chat.completions.create(model=NAME, messages=HELLO, n=3)
    assert [c.index for c in answer.choices] == [0, 1, 2]


def test_log_probabilities(client: Any) -> None:
    answer = client.chat.completions.create(
        model=NAME, messages=[{"role": "user", "content": "quick"}], logprobs=True, top_logprobs=2
    )
    entries = answer.choices[0].logprobs.content
    assert [e.token for e in entries] == ["</think>", "\n", "\n", "Y", "e", "s", "."]
    assert bytes(b for e in entries for b in e.bytes) == b"</think>\n\nYes."
    assert all(len(e.top_logprobs) == 2 and e.logprob == -0.5 for e in entries)
    streamed = client.chat.completions.create(
        model=NAME, messages=[{"role": "user", "content": "quick"}], logprobs=True, stream=True
    )
    tokens = [
        e.token
        for chunk in streamed
        for choice in chunk.choices
        if choice.logprobs
        for e in choice.logprobs.content
    ]
    assert tokens == [e.token for e in entries]


def test_fields_reach_the_engine(client: Any, engine: ScriptedEngine) -> None:
    client.chat.completions.create(
        model=NAME, messages=HELLO, temperature=0.5, top_p=0.9, seed=-1, stop=["x", "y"],
        logit_bias={"65": -5}, presence_penalty=0.1, frequency_penalty=0.2,
        max_completion_tokens=9, n=2, user="u", metadata={"a": "b"}, store=False,
        extra_body={
            "top_k": 5, "min_p": 0.1, "repetition_penalty": 1.1, "stop_token_ids": [7],
            "skip_special_tokens": False,
        },
    )  # fmt: skip
    request = engine.requests[-1]
    s = request.sampling
    assert (s.temperature, s.top_p, s.top_k, s.min_p) == (0.5, 0.9, 5, 0.1)
    assert (s.presence_penalty, s.frequency_penalty, s.repetition_penalty) == (0.1, 0.2, 1.1)
    assert s.seed == 2**64 - 1 and request.stop == ("x", "y") and request.max_tokens == 9
    assert dict(request.logit_bias) == {65: -5.0} and 7 in request.stop_tokens and request.n == 2
    assert request.special and request.timeout == 600


def test_length_and_stop(client: Any) -> None:
    asked: dict[str, Any] = {"model": NAME, "messages": [{"role": "user", "content": "long"}]}
    cut = client.chat.completions.create(**asked, max_tokens=20)
    assert cut.choices[0].finish_reason == "length" and cut.usage.completion_tokens == 20
    for stream in (False, True):
        answer = client.chat.completions.create(**asked, stop="word word", stream=stream)
        read = whole(answer) if stream else at_once(answer)
        assert read["content"] == "" and read["reason"] == "stop"


def test_answers_can_be_sent_back(client: Any, engine: ScriptedEngine) -> None:
    messages: list[Any] = [{"role": "user", "content": "weather"}]
    first = client.chat.completions.create(model=NAME, messages=messages, tools=[WEATHER])
    messages.append(first.choices[0].message.model_dump())
    calls = first.choices[0].message.tool_calls
    messages += [{"role": "tool", "tool_call_id": c.id, "content": "rain"} for c in calls]
    client.chat.completions.create(model=NAME, messages=messages, tools=[WEATHER])
    prompt = engine.prompts[-1]
    # The turn of the model is what the model wrote, thoughts included.
    assert ANSWERS["weather"].partition("\n\nLet")[0] in prompt and prompt.count(CALL) == 2
    for name in ("reasoning", "reasoning_content"):
        said = {"role": "assistant", "content": "Yes.", name: "It is late."}
        client.chat.completions.create(model=NAME, messages=[*HELLO, said, *HELLO])
        assert "It is late." not in engine.prompts[-1]  # an old thought
        client.chat.completions.create(model=NAME, messages=[*HELLO, said])
        assert "<think>\nIt is late.\n</think>" in engine.prompts[-1]


def test_roles_and_parts(client: Any, engine: ScriptedEngine) -> None:
    client.chat.completions.create(
        model=NAME,
        messages=[
            {"role": "developer", "content": "be brief"},
            {"role": "user", "content": [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]},
        ],
    )  # fmt: skip
    assert "<|im_start|>system\nbe brief<|im_end|>" in engine.prompts[-1]
    assert "<|im_start|>user\nhello<|im_end|>" in engine.prompts[-1]


def chat(server: Served, **body: Any) -> tuple[int, Any]:
    status, found, _ = server.ask(
        "/v1/chat/completions", {"model": NAME, "messages": HELLO, **body}
    )
    return status, found


WRONG: list[tuple[dict[str, Any], str | None]] = [
    ({"messages": None}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": "x", "mood": 1}]}, "messages[0].mood"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]},
        "messages[0].content[0].type",
    ),
    ({"messages": [*HELLO, {"role": "tool", "content": "x"}]}, "messages[1].tool_call_id"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": -1}, "temperature"),
    ({"temperature": True}, "temperature"),
    ({"top_p": 2}, "top_p"),
    ({"top_k": 1.5}, "top_k"),
    ({"min_p": 3}, "min_p"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"presence_penalty": 3}, "presence_penalty"),
    ({"n": 0}, "n"),
    ({"n": 1000}, "n"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 5, "max_completion_tokens": 6}, "max_tokens"),
    ({"stop": [""]}, "stop"),
    ({"stop": ["a"] * 50}, "stop"),
    ({"seed": "x"}, "seed"),
    ({"logit_bias": {"a": 1}}, "logit_bias"),
    ({"logit_bias": {"999999": 1}}, "logit_bias"),
    ({"logit_bias": {"5": 101}}, "logit_bias"),
    ({"stop_token_ids": [100000]}, "stop_token_ids"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": True, "stream_options": {"x": 1}}, "stream_options.x"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
    ({"tools": [{"type": "code"}]}, "tools[0].type"),
    ({"tools": [WEATHER, WEATHER]}, "tools[1]"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
    ({"tools": [WEATHER], "tool_choice": "always"}, "tool_choice"),
    (
        {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "x"}}},
        "tool_choice",
    ),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"tools": [WEATHER], "parallel_tool_calls": "no"}, "parallel_tool_calls"),
    ({"chat_template_kwargs": {"mood": 1}}, "chat_template_kwargs.mood"),
    ({"reasoning_effort": "low"}, "reasoning_effort"),
    ({"reasoning_effort": "much"}, "reasoning_effort"),
    ({"functions": []}, "functions"),
    ({"audio": {}}, "audio"),
    ({"service_tier": "priority"}, "service_tier"),
    ({"colour": "red"}, "colour"),
    ({"user": 5}, "user"),
    ({"metadata": "x"}, "metadata"),
    ({"store": "no"}, "store"),
    ({"safety_identifier": []}, "safety_identifier"),
    ({"prompt_cache_key": 1}, "prompt_cache_key"),
    ({"model": 5}, "model"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "param"), WRONG, ids=[str(b)[:60] for b, _ in WRONG])
def test_wrong_fields_are_named(server: Served, body: dict[str, Any], param: str) -> None:
    status, found = chat(server, **body)
    assert status == 400, found
    error = found["error"]
    assert set(found) == {"error"} and set(error) == {"message", "type", "param", "code"}
    assert error["type"] == "invalid_request_error" and error["param"] == param
    assert param.split("[")[0].split(".")[0] in error["message"]


def test_null_is_not_given(server: Served) -> None:
    names = (
        *("temperature", "top_p", "n", "stop", "seed", "tools", "tool_choice", "logit_bias"),
        *("max_tokens", "response_format", "stream_options", "functions", "user", "logprobs"),
    )
    assert chat(server, **dict.fromkeys(names))[0] == 200


def test_a_prompt_past_the_context(server: Served, engine: ScriptedEngine) -> None:
    messages = [{"role": "user", "content": "hello " + "x" * engine.context}]
    status, found = chat(server, messages=messages)
    assert status == 400 and found["error"]["code"] == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError, match="4096"):
        server.client().chat.completions.create(model=NAME, messages=messages)


def test_another_model_is_not_found(client: Any) -> None:
    with pytest.raises(openai.NotFoundError) as found:
        client.chat.completions.create(model="gpt", messages=HELLO)
    assert found.value.code == "model_not_found" and found.value.param == "model"
