"""`/v1/responses`: text and function calls, without stored state."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from linnet.serve.events import Delta, Done, Finished, Usage
from linnet.serve.http.chat import ChatCall
from linnet.serve.http.errors import ApiError, bad
from linnet.serve.http.exchange import EventStream, data, json_response, read_json, while_listening
from linnet.serve.http.fields import Fields
from linnet.serve.http.formats import Format, constraint_of, read_schema, read_tools
from linnet.serve.http.messages import arguments_of, text_of
from linnet.serve.http.output import Output
from linnet.serve.http.prompt import read_effort, read_switches, render, switches
from linnet.serve.http.running import Run
from linnet.serve.http.sampling import read_ends, read_no_effect, read_sampling
from linnet.serve.http.service import Service, identity
from linnet.serve.request import Request

_UNSUPPORTED = (
    *("previous_response_id", "conversation", "prompt", "max_tool_calls", "context_management"),
    *("moderation", "access_programs", "background_options", "prompt_cache_options", "image"),
)
_LOGPROBS = "message.output_text.logprobs"


@dataclass(frozen=True)
class ResponseCall:
    """A request for a response, read; `echo` are the fields that the answer repeats."""

    chat: ChatCall
    echo: dict[str, Any]


async def responses(service: Service, http: HttpRequest) -> Response:
    async def work(body: Any) -> tuple[ResponseCall, Run]:
        engine, _ = service.decoder()
        call = await service.in_thread(lambda: read_response(service, body))
        run = Run(service, engine, [call.chat.request], http, "input")
        return call, await run.__aenter__()

    # Nothing holds the body while the request waits and runs: it may be large.
    call, run = await while_listening(http, work(await read_json(http, service.limits.body)))
    head = {
        "id": identity("resp_"),
        "object": "response",
        "created_at": int(time.time()),
        "model": service.name,
        **call.echo,
    }
    if call.chat.stream:
        numbers = count()
        events = _stream(call.chat, run, head, numbers)
        return EventStream(events, lambda error: _error_event(error, next(numbers)), run.cancel)
    try:
        whole = await while_listening(http, _whole(call.chat, run, head))
    finally:
        await run.__aexit__(None, None, None)
    return json_response(whole)


def read_response(service: Service, body: Any) -> ResponseCall:
    """Reads, renders and encodes a request. Raises ApiError, InputError or TextError."""
    engine, text = service.decoder()
    fields = Fields(body)
    service.check_model(fields.take("model"))
    stream = fields.flag("stream")
    if (options := fields.object("stream_options")) is not None:
        options.only("include_obfuscation", False)
        options.done()
    instructions = fields.text("instructions")
    messages = read_input(fields.take("input"))
    if instructions is not None:
        messages.insert(0, {"role": "system", "content": instructions})
    format, written = _format(fields)
    choice_shown = fields.take("tool_choice")
    tools_shown = fields.take("tools") or []
    parallel = fields.take("parallel_tool_calls")
    choice = read_tools(
        Fields(
            {"tools": tools_shown, "tool_choice": choice_shown, "parallel_tool_calls": parallel}
        ),
        nested=False,
    )
    variables = {**read_switches(fields, text), **_reasoning(fields, text.template)}
    include = fields.items("include") or []
    for i, item in enumerate(include):
        if item not in (_LOGPROBS, "reasoning.encrypted_content"):
            raise bad(f"include[{i}] is {item!r}; expected {_LOGPROBS}", "include")
    top = fields.whole("top_logprobs", 0, 20)
    if top and _LOGPROBS not in include:
        raise bad(f"top_logprobs is given without {_LOGPROBS} in include", "top_logprobs")
    sampling = read_sampling(fields, text)
    most = fields.whole("max_output_tokens", 1)
    values: dict[str, Any] = {
        "sampling": sampling,
        "max_tokens": most,
        "logprobs": (top or 0) if _LOGPROBS in include else None,
        "timeout": service.limits.timeout,
        **read_ends(fields, engine, text),
    }
    told = read_no_effect(fields)
    fields.only("truncation", "disabled")
    fields.only("service_tier", "auto", "default")
    fields.only("background", False)
    fields.refuse(*_UNSUPPORTED)
    fields.done()
    prompt = render(text, messages, choice, variables, "input")
    values["special"] = values["special"] or prompt.special
    request = Request(
        prompt.ids,
        constraint=constraint_of(format, choice, prompt.style, prompt.thinking),
        stable=prompt.stable,
        **values,
    )
    chat = ChatCall(
        request, text.tokenizer, stream, True,
        thinks=prompt.thinking.open or prompt.thinking.may,
        open=prompt.thinking.open,
        tools={t.name: dict(t.schema) for t in choice.tools} if choice.active else None,
        ends=request.stop_tokens or frozenset(),
    )  # fmt: skip
    echo = {
        "instructions": instructions,
        "max_output_tokens": most,
        "metadata": told["metadata"] or {},
        "parallel_tool_calls": parallel is not False,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "tool_choice": choice_shown or "auto",
        "tools": tools_shown,
        "text": {"format": written},
        "truncation": "disabled",
        "previous_response_id": None,
        "store": False,  # nothing is ever kept
        "user": told["user"],
        "error": None,
        "incomplete_details": None,
    }
    return ResponseCall(chat, echo)


def _reasoning(fields: Fields, template: Any) -> dict[str, Any]:
    given = fields.object("reasoning")
    if given is None:
        return {}
    known = switches(template.source) if template is not None else frozenset()
    variables = read_effort(given, known, "effort")
    given.only("summary", "auto")  # thoughts are given whole
    given.only("generate_summary", "auto")
    given.done()
    return variables


def _format(fields: Fields) -> tuple[Format, dict[str, Any]]:
    text = fields.object("text")
    if text is None:
        return Format(), {"type": "text"}
    text.only("verbosity", "medium")
    written = text.mapping("format")
    text.done()
    if written is None:
        return Format(), {"type": "text"}
    given = Fields(written, "text.format")
    kind = given.one_of("type", ("text", "json_object", "json_schema"))
    match kind:
        case None:
            raise given.missing("type", "text, json_object or json_schema")
        case "json_schema":
            return Format("schema", read_schema(given, "schema"), "text.format", "schema"), written
        case _:
            given.done()
            return Format("json" if kind == "json_object" else None, None, "text.format"), written


# Input items


def read_input(value: object) -> list[dict[str, Any]]:
    """`input` as messages for the template."""
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    if not isinstance(value, list) or not value:
        raise bad("input is missing or empty; expected a string or a list of items", "input")
    messages: list[dict[str, Any]] = []
    for i, item in enumerate(value):
        fields = Fields(item, f"input[{i}]")
        kind = fields.text("type") or "message"
        fields.accept("id", "status")
        match kind:
            case "message":
                _message(fields, messages)
            case "function_call":
                call = {
                    "id": fields.need_text("call_id"),
                    "type": "function",
                    "function": {
                        "name": fields.need_text("name"),
                        "arguments": arguments_of(
                            fields.need_text("arguments"), fields.path("arguments")
                        ),
                    },
                }
                _assistant(messages).setdefault("tool_calls", []).append(call)
            case "function_call_output":
                identity = fields.need_text("call_id")
                output = fields.take("output")
                if output is None:
                    raise fields.missing("output", "a string")
                content = text_of(output, fields.path("output"))
                messages.append({"role": "tool", "tool_call_id": identity, "content": content})
            case "reasoning":
                _thoughts(fields, messages)
            case _:
                place = fields.path("type")
                raise bad(f"{place} is {kind!r}; this server takes text and functions", place)
        fields.done()
    return messages


def _message(fields: Fields, messages: list[dict[str, Any]]) -> None:
    role = fields.one_of("role", ("system", "developer", "user", "assistant"))
    if role is None:
        raise fields.missing("role", "system, developer, user or assistant")
    content = fields.take("content")
    if content is None:
        raise fields.missing("content", "a string or a list of text parts")
    fields.accept("phase")
    text = text_of(content, fields.path("content"))
    if role == "assistant":
        _assistant(messages, text=True)["content"] = text
    else:
        messages.append({"role": "system" if role == "developer" else role, "content": text})


def _assistant(messages: list[dict[str, Any]], text: bool = False) -> dict[str, Any]:
    """The assistant's turn that an item belongs to: reasoning, text and calls are one turn."""
    last = messages[-1] if messages else {}
    same = last.get("role") == "assistant" and not (
        text and (last["content"] or "tool_calls" in last)
    )
    if not same:
        messages.append({"role": "assistant", "content": ""})
    return messages[-1]


def _thoughts(fields: Fields, messages: list[dict[str, Any]]) -> None:
    fields.accept("encrypted_content")
    texts = []
    for name in ("content", "summary"):
        parts = fields.items(name) or []
        for i, item in enumerate(parts):
            part = Fields(item, f"{fields.path(name)}[{i}]")
            part.one_of("type", ("reasoning_text", "summary_text"))
            texts.append(part.need_text("text"))
            part.done()
    messages.append({"role": "assistant", "content": "", "reasoning_content": "".join(texts)})


# Answers


def _finished(
    head: dict[str, Any], output: Output, usage: Usage, reasoning: int, reason: str
) -> dict[str, Any]:
    cut = reason == "length"
    return {
        **head,
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": output.items,
        "usage": {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens},
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": reasoning},
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        },
    }


async def _events(call: ChatCall, run: Run, head: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    """The events of a streamed response, `response.created` to `response.completed`."""
    begun = {**head, "status": "in_progress", "output": [], "usage": None}
    yield {"type": "response.created", "response": begun}
    yield {"type": "response.in_progress", "response": begun}
    output = Output(call.tokenizer if call.request.logprobs is not None else None, call.ends)
    reader = call.reader()
    reason = "stop"
    async for _, event in run:
        match event:
            case Delta():
                for one in output.add(reader.feed(event), event):
                    yield one
            case Finished():
                pieces, reason = reader.finish(event)
                for one in [*output.add(pieces), *output.end(cut=reason == "length")]:
                    yield one
            case Done(usage):
                whole = _finished(head, output, usage, reader.reasoning_tokens, reason)
                kind = "incomplete" if reason == "length" else "completed"
                yield {"type": f"response.{kind}", "response": whole}


async def _whole(call: ChatCall, run: Run, head: dict[str, Any]) -> dict[str, Any]:
    last: dict[str, Any] = {}
    async for event in _events(call, run, head):
        last = event
    return dict(last["response"])


async def _stream(
    call: ChatCall, run: Run, head: dict[str, Any], numbers: Iterator[int]
) -> AsyncIterator[str]:
    async for event in _events(call, run, head):
        yield data({**event, "sequence_number": next(numbers)}, event["type"])


def _error_event(error: ApiError, number: int) -> str:
    shown = error.body["error"]
    event = {"type": "error", "code": shown["code"], "message": shown["message"]}
    return data({**event, "param": shown["param"], "sequence_number": number}, "error")
