"""The other endpoints through the official client: completions, responses, embeddings, models,
tokens, metrics."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from http_fakes import NAME, ScriptedEngine, Served, qwen_text, served
from test_http_chat import CALL, WEATHER

from linnet.text.open import TextModel
from linnet.text.template import ChatTemplate

openai = pytest.importorskip("openai")


def script(prompt: str) -> str:
    if "tool" in prompt.rpartition("user\n")[2]:
        return f"Look.\n</think>\n\n{CALL}"
    if prompt.endswith("<think>\n"):
        return "Hm.\n</think>\n\nHello, Zoë!"
    return f" and {prompt[-3:]} more"


@pytest.fixture(scope="module")
def engine() -> ScriptedEngine:
    return ScriptedEngine(script)


@pytest.fixture(scope="module")
def server(engine: ScriptedEngine) -> Iterator[Served]:
    with served(engine, names=(NAME, "other")) as found:
        yield found


@pytest.fixture
def client(server: Served) -> Any:
    return server.client()


# Completions


def test_a_completion(client: Any, engine: ScriptedEngine) -> None:
    answer = client.completions.create(model=NAME, prompt="one two")
    assert answer.object == "text_completion"
    assert answer.choices[0].text == " and two more" and answer.choices[0].finish_reason == "stop"
    assert engine.requests[-1].max_tokens == 16
    assert engine.requests[-1].prompt == tuple(b"one two")


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        (["one", "two"], [" and one more", " and two more"]),
        ([65, 66, 67], [" and ABC more"]),
        ([[65, 66, 67], [68, 69, 70]], [" and ABC more", " and DEF more"]),
    ],
)
@pytest.mark.parametrize("echo", [False, True])
def test_prompts_of_every_form(client: Any, prompt: Any, texts: list[str], echo: bool) -> None:
    asked = {"model": NAME, "prompt": prompt, "n": 2, "echo": echo, "max_tokens": 30}
    answer = client.completions.create(**asked)
    want = [t for text in texts for t in (text, text)]
    if echo:
        want = [t[5:8] + t for t in want]
    assert [c.text for c in answer.choices] == want
    assert [c.index for c in answer.choices] == list(range(len(want)))
    pieces: dict[int, str] = {}
    for chunk in client.completions.create(**asked, stream=True):
        for choice in chunk.choices:
            pieces[choice.index] = pieces.get(choice.index, "") + choice.text
    assert [pieces[i] for i in range(len(want))] == want


def test_a_completions_log_probabilities(client: Any) -> None:
    asked = {"model": NAME, "prompt": "one", "logprobs": 2}
    logprobs = client.completions.create(**asked).choices[0].logprobs
    assert "".join(logprobs.tokens) == " and one more" and set(logprobs.token_logprobs) == {-0.5}
    assert logprobs.text_offset == list(range(13)) and len(logprobs.top_logprobs[0]) == 2
    offsets: list[int] = []
    for chunk in client.completions.create(**asked, stream=True):
        for choice in chunk.choices:
            offsets += choice.logprobs.text_offset if choice.logprobs else []
    assert offsets == logprobs.text_offset


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": None}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [["a"]]}, "prompt"),
        ({"prompt": ["a"] * 300}, "prompt"),
        ({"suffix": "x"}, "suffix"),
        ({"best_of": 3}, "best_of"),
        ({"logprobs": 99}, "logprobs"),
        ({"echo": True, "logprobs": 1}, "echo"),
        ({"messages": []}, "messages"),
    ],
)
def test_wrong_completions(server: Served, body: dict[str, Any], param: str) -> None:
    status, found, _ = server.ask("/v1/completions", {"model": NAME, "prompt": "one", **body})
    assert status == 400 and found["error"]["param"] == param


# Responses


def test_a_response(client: Any, engine: ScriptedEngine) -> None:
    answer = client.responses.create(model=NAME, input="hi", instructions="be brief")
    assert answer.output_text == "Hello, Zoë!" and answer.status == "completed"
    assert [item.type for item in answer.output] == ["reasoning", "message"]
    assert answer.output[0].content[0].text == "Hm."
    assert answer.usage.total_tokens == answer.usage.input_tokens + answer.usage.output_tokens
    assert answer.usage.output_tokens_details.reasoning_tokens > 0
    assert "<|im_start|>system\nbe brief" in engine.prompts[-1]


def test_a_streamed_response_equals_it(client: Any) -> None:
    tool = {"type": "function", **WEATHER["function"], "strict": False}
    for asked in ({"input": "hi"}, {"input": "tool", "tools": [tool]}):
        answer = client.responses.create(model=NAME, **asked)
        with client.responses.stream(model=NAME, **asked) as stream:
            events = list(stream)
            final = stream.get_final_response()
        assert final.output_text == answer.output_text
        kinds = [event.type for event in events]
        assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
        numbers = [event.sequence_number for event in events]
        assert numbers == sorted(numbers)
        text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
        assert text == answer.output_text
        arguments = "".join(
            e.delta for e in events if e.type == "response.function_call_arguments.delta"
        )
        calls = [item.arguments for item in answer.output if item.type == "function_call"]
        assert arguments == "".join(calls)
        assert [i.type for i in final.output] == [i.type for i in answer.output]


def test_a_response_that_fails_on_its_way_says_so_in_an_event() -> None:
    failing = ScriptedEngine(lambda prompt: RuntimeError("gone"))
    with served(failing) as server:
        status, raw, _ = server.ask(
            "/v1/responses", {"model": NAME, "input": "hi", "stream": True}
        )  # fmt: skip
        assert status == 200
        events = [json.loads(x[6:]) for x in raw.decode().splitlines() if x.startswith("data: ")]
        assert [e["type"] for e in events] == ["response.created", "response.in_progress", "error"]
        assert [e["sequence_number"] for e in events] == [0, 1, 2]
        assert "gone" not in raw.decode() and events[-1]["message"]


def test_responses_go_on(client: Any, engine: ScriptedEngine) -> None:
    tool = {"type": "function", **WEATHER["function"]}
    first = client.responses.create(model=NAME, input="tool", tools=[tool])
    items: list[Any] = [{"role": "user", "content": "tool"}]
    items += [item.model_dump(exclude_none=True) for item in first.output]
    call = next(item for item in first.output if item.type == "function_call")
    items.append({"type": "function_call_output", "call_id": call.call_id, "output": "rain"})
    client.responses.create(model=NAME, input=items, tools=[tool])
    prompt = engine.prompts[-1]
    assert f"<think>\nLook.\n</think>\n\n{CALL}<|im_end|>" in prompt
    assert "<|im_start|>tool\nrain" in prompt


def test_a_response_cut_is_incomplete(client: Any) -> None:
    answer = client.responses.create(model=NAME, input="hi", max_output_tokens=9)
    assert answer.status == "incomplete"
    assert answer.incomplete_details.reason == "max_output_tokens"


def test_a_responses_log_probabilities(client: Any) -> None:
    answer = client.responses.create(
        model=NAME, input="hi", top_logprobs=1, include=["message.output_text.logprobs"]
    )
    assert answer.output[1].content[0].logprobs[-1].token == "!"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": None}, "input"),
        ({"input": [{"type": "input_image"}]}, "input[0].type"),
        ({"previous_response_id": "resp_1"}, "previous_response_id"),
        ({"background": True}, "background"),
        ({"truncation": "auto"}, "truncation"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"reasoning": {"effort": "low"}}, "reasoning.effort"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"n": 2}, "n"),
    ],
)
def test_wrong_responses(server: Served, body: dict[str, Any], param: str) -> None:
    status, found, _ = server.ask("/v1/responses", {"model": NAME, "input": "hi", **body})
    assert status == 400 and found["error"]["param"] == param, found


def test_a_prompt_past_the_context_names_the_field_it_came_in(server: Served) -> None:
    long = "x" * 5000
    for path, field, value in (
        ("/v1/completions", "prompt", long),
        ("/v1/responses", "input", long),
        ("/v1/chat/completions", "messages", [{"role": "user", "content": long}]),
    ):
        status, found, _ = server.ask(path, {"model": NAME, field: value})
        assert status == 400 and found["error"]["code"] == "context_length_exceeded"
        assert found["error"]["param"] == field and "4096" in found["error"]["message"]


def test_a_template_that_refuses_is_said_without_where_it_lies(tmp_path: Path) -> None:
    base = qwen_text()
    source = "{{ raise_exception('System message must be at the beginning.') }}"
    path = tmp_path / "chat_template.jinja"
    template = ChatTemplate(source, base.tokenizer.names, str(path))
    text = TextModel(base.tokenizer, template, base.settings, "bytes")
    with served(ScriptedEngine(script, text=text)) as server:
        for endpoint, field in (("/v1/chat/completions", "messages"), ("/v1/responses", "input")):
            body = {"model": NAME, field: [{"role": "user", "content": "hi"}]}
            status, found, _ = server.ask(endpoint, body)
            assert status == 400 and found["error"]["param"] == field
            said = found["error"]["message"]
            assert "at the beginning" in said and path.name not in said and "/" not in said


# Models, tokens


def test_models(client: Any, server: Served) -> None:
    assert [m.id for m in client.models.list()] == [NAME, "other"]
    assert client.models.retrieve("other").id == "other"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("none/such")
    assert client.completions.create(model="other", prompt="one").model == NAME


def test_tokens(server: Served) -> None:
    status, found, _ = server.ask("/tokenize", {"prompt": "Zoë", "return_token_strs": True})
    assert status == 200 and found["tokens"] == list("Zoë".encode()) and found["count"] == 4
    assert found["max_model_len"] == 4096 and len(found["token_strs"]) == 4
    _, chat, _ = server.ask("/tokenize", {"messages": [{"role": "user", "content": "hi"}]})
    _, back, _ = server.ask("/detokenize", {"tokens": chat["tokens"]})
    assert back["prompt"] == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n<think>\n"
    for path, body, param in (
        ("/detokenize", {"tokens": [5, 99999]}, "tokens"),
        ("/detokenize", {}, "tokens"),
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "x": 1}, "x"),
    ):
        status, found, _ = server.ask(path, body)
        assert status == 400 and found["error"]["param"] == param


def test_metrics(server: Served, client: Any) -> None:
    client.completions.create(model=NAME, prompt="one")
    status, text, headers = server.ask("/metrics")
    assert status == 200 and headers["content-type"].startswith("text/plain")
    lines = text.decode().splitlines()
    assert 'linnet_http_responses_total{endpoint="/v1/completions",status="200"}' in str(lines)
    for name in (
        *("linnet_requests_running", "linnet_requests_waiting", "linnet_cache_hits_total"),
        *("linnet_time_to_first_token_seconds_bucket", "linnet_inter_token_seconds_bucket"),
        *("linnet_request_seconds_bucket", "linnet_prompt_tokens_total", "linnet_rows"),
        *("linnet_generated_tokens_total", "linnet_aborts_total"),
    ):
        assert any(line.startswith(name) for line in lines) or "waiting" in name, name


# Embeddings


class FakeEncoder:
    context = 64
    text = qwen_text()

    def embed(self, inputs: Sequence[Sequence[int]], gone: Any = None) -> list[list[float]]:
        return [[float(len(ids)), float(ids[0]), 3.0, 4.0] for ids in inputs]


def test_embeddings(client: Any, server: Served) -> None:
    status, found, _ = server.ask("/v1/embeddings", {"model": NAME, "input": "a"})
    assert status == 400 and "decoder" in found["error"]["message"]
    with served(FakeEncoder()) as encoder:
        embed = encoder.client().embeddings.create
        # The client asks for base64 unless told otherwise.
        answer = embed(model=NAME, input=["a", "bb"])
        assert [d.embedding for d in answer.data] == [[1, 97, 3, 4], [2, 98, 3, 4]]
        assert answer.usage.prompt_tokens == 3
        plain = embed(model=NAME, input="bb", encoding_format="float", dimensions=2)
        [cut] = plain.data
        assert math.isclose(math.hypot(*cut.embedding), 1) and len(cut.embedding) == 2
        for body in ({"input": "x" * 65}, {"input": [[]]}, {"input": "a", "dimensions": 9}):
            status, found, _ = encoder.ask("/v1/embeddings", {"model": NAME, **body})
            assert status == 400 and found["error"]["param"] in ("input", "dimensions")
        lines = encoder.ask("/metrics")[1].decode()
        for line in (
            *('linnet_requests_total{reason="stop"} 2.0', "linnet_requests_running 0.0"),
            *('linnet_requests_total{reason="refused"} 3.0', "linnet_prompt_tokens_total 5.0"),
            "linnet_request_seconds_count 2.0",
        ):
            assert line in lines, lines
        status, found, _ = encoder.ask("/v1/chat/completions", {"model": NAME, "messages": []})
        assert status == 400 and "encoder" in found["error"]["message"]
        assert encoder.ask("/tokenize", {"prompt": "a"})[1]["tokens"] == [97]


def test_bodies_that_are_none(server: Served) -> None:
    path = "/v1/completions"
    for body in (b"", b"{", b"[]", b'"x"', b"\xff\xfe", b'{"a": NaN}', b"[" * 100_000, b"5"):
        status, found, _ = server.ask(path, body)
        assert status == 400 and found["error"]["type"] == "invalid_request_error"
    half = json.dumps({"model": NAME, "prompt": "\ud800"}).encode()
    assert server.ask(path, half)[0] == 400
    status, found, _ = server.ask(path, b"{}", {"content-type": "text/plain"})
    assert status == 415 and "application/json" in found["error"]["message"]


def test_paths_that_are_none(server: Served) -> None:
    status, found, _ = server.ask("/v1/nothing", {})
    assert status == 404 and found["error"]["message"] == "there is no POST /v1/nothing"
    status, found, headers = server.ask("/v1/chat/completions")
    assert status == 405 and "POST" in headers["allow"] and "GET" in found["error"]["message"]
