"""`/v1/chat/completions`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from linnet.serve.events import Delta, Done, Finished, Usage
from linnet.serve.http.choices import ChoiceReader
from linnet.serve.http.errors import bad
from linnet.serve.http.exchange import (
    DONE,
    EventStream,
    data,
    json_response,
    read_json,
    while_listening,
)
from linnet.serve.http.fields import Fields
from linnet.serve.http.formats import constraint_of, read_format, read_tools
from linnet.serve.http.logprobs import chat_logprobs, said
from linnet.serve.http.messages import read_messages
from linnet.serve.http.prompt import read_switches, render
from linnet.serve.http.running import Run
from linnet.serve.http.sampling import read_ends, read_no_effect, read_sampling, read_stream
from linnet.serve.http.service import Service, identity
from linnet.serve.reasoning import Thought
from linnet.serve.request import Request
from linnet.serve.tools import Arguments, Call, Text
from linnet.text.tokenizer import Tokenizer

_UNSUPPORTED = ("audio", "function_call", "functions", "prediction", "web_search_options")


@dataclass(frozen=True)
class ChatCall:
    """A request for a chat completion, read."""

    request: Request
    tokenizer: Tokenizer
    stream: bool
    usage: bool
    thinks: bool
    open: bool
    tools: dict[str, Any] | None
    ends: frozenset[int]

    def reader(self) -> ChoiceReader:
        return ChoiceReader(self.thinks, self.open, self.tools)


async def chat_completions(service: Service, http: HttpRequest) -> Response:
    async def work(body: Any) -> tuple[ChatCall, Run]:
        engine, _ = service.decoder()
        call = await service.in_thread(lambda: read_chat(service, body))
        return call, await Run(service, engine, [call.request], http).__aenter__()

    # Nothing holds the body while the request waits and runs: it may be large.
    call, run = await while_listening(http, work(await read_json(http, service.limits.body)))
    head = {
        "id": identity("chatcmpl-"),
        "created": int(time.time()),
        "model": service.name,
    }
    if call.stream:
        events = _stream(call, run, {**head, "object": "chat.completion.chunk"})
        return EventStream(events, on_end=run.cancel)
    try:
        whole = await while_listening(http, _whole(call, run))
    finally:
        await run.__aexit__(None, None, None)
    return json_response({**head, "object": "chat.completion", **whole})


def read_chat(service: Service, body: Any) -> ChatCall:
    """Reads, renders and encodes a request. Raises ApiError, InputError or TextError."""
    engine, text = service.decoder()
    fields = Fields(body)
    service.check_model(fields.take("model"))
    stream, usage = read_stream(fields)
    messages = read_messages(fields.items("messages"))
    choice = read_tools(fields)
    format = read_format(fields)
    values: dict[str, Any] = {
        "sampling": read_sampling(fields, text),
        "n": fields.whole("n", 1, 128) or 1,
        "max_tokens": _most(fields),
        "logprobs": _logprobs(fields),
        "timeout": service.limits.timeout,
        **read_ends(fields, engine, text),
    }
    variables = read_switches(fields, text)
    read_no_effect(fields)
    fields.only("modalities", ["text"])
    fields.only("service_tier", "auto", "default")
    fields.only("verbosity", "medium")
    fields.refuse(*_UNSUPPORTED)
    fields.done()
    prompt = render(text, messages, choice, variables)
    values["special"] = values["special"] or prompt.special
    request = Request(
        prompt.ids,
        constraint=constraint_of(format, choice, prompt.style, prompt.thinking),
        stable=prompt.stable,
        **values,
    )
    return ChatCall(
        request,
        text.tokenizer,
        stream,
        usage,
        thinks=prompt.thinking.open or prompt.thinking.may,
        open=prompt.thinking.open,
        tools={t.name: dict(t.schema) for t in choice.tools} if choice.active else None,
        ends=request.stop_tokens or frozenset(),
    )


def _most(fields: Fields) -> int | None:
    most = fields.whole("max_completion_tokens", 1)
    also = fields.whole("max_tokens", 1)
    if most is not None and also is not None and most != also:
        raise bad("max_tokens and max_completion_tokens differ; give one of them", "max_tokens")
    return most if most is not None else also


def _logprobs(fields: Fields) -> int | None:
    asked = fields.flag("logprobs")
    top = fields.whole("top_logprobs", 0, 20)
    if top is not None and top > 0 and not asked:
        raise bad("top_logprobs is given without logprobs: true", "top_logprobs")
    return (top or 0) if asked else None


def usage_of(usage: Usage, reasoning: int) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


# The whole answer at once


async def _whole(call: ChatCall, run: Run) -> dict[str, Any]:
    readers = [call.reader() for _ in range(call.request.n)]
    messages = [_Message() for _ in readers]
    reasons: dict[int, str] = {}
    usage = Usage(0, 0, 0)
    logprobs: dict[int, list[Any]] = {i: [] for i in range(call.request.n)}
    async for _, event in run:
        match event:
            case Delta(choice):
                messages[choice].add(readers[choice].feed(event))
                if call.request.logprobs is not None:
                    logprobs[choice] += chat_logprobs(call.tokenizer, said(event, call.ends))
            case Finished(choice):
                pieces, reasons[choice] = readers[choice].finish(event)
                messages[choice].add(pieces)
            case Done(usage):
                pass
    choices = []
    for i, message in enumerate(messages):
        made: dict[str, Any] = {
            "index": i,
            "message": message.value(),
            "logprobs": None,
            "finish_reason": reasons[i],
        }
        if call.request.logprobs is not None:
            made["logprobs"] = {"content": logprobs[i], "refusal": None}
        choices.append(made)
    reasoning = sum(reader.reasoning_tokens for reader in readers)
    return {"choices": choices, "usage": usage_of(usage, reasoning)}


class _Message:
    def __init__(self) -> None:
        self.thoughts: list[str] = []
        self.texts: list[str] = []
        self.calls: list[dict[str, Any]] = []

    def add(self, pieces: list[Any]) -> None:
        for piece in pieces:
            match piece:
                case Thought(text):
                    self.thoughts.append(text)
                case Text(text):
                    self.texts.append(text)
                case Call(_, name):
                    function = {"name": name, "arguments": ""}
                    self.calls.append(
                        {"id": identity("call_"), "type": "function", "function": function}
                    )
                case Arguments(index, text):
                    self.calls[index]["function"]["arguments"] += text

    def value(self) -> dict[str, Any]:
        text = "".join(self.texts)
        message: dict[str, Any] = {
            "role": "assistant",
            "content": text if text or not (self.calls or self.thoughts) else None,
            "refusal": None,
        }
        if self.thoughts:
            # Clients know the one name or the other.
            message["reasoning_content"] = message["reasoning"] = "".join(self.thoughts)
        if self.calls:
            message["tool_calls"] = self.calls
        return message


# The answer as it comes


async def _stream(call: ChatCall, run: Run, head: dict[str, Any]) -> AsyncIterator[str]:
    readers = [call.reader() for _ in range(call.request.n)]

    def chunk(index: int, delta: dict[str, Any], **more: Any) -> str:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": None, **more}
        usage = {"usage": None} if call.usage else {}
        return data({**head, "choices": [choice], **usage})

    for i in range(call.request.n):
        yield chunk(i, {"role": "assistant", "content": "", "refusal": None})
    async for _, event in run:
        match event:
            case Delta(choice):
                deltas = [_delta(piece) for piece in readers[choice].feed(event)]
                more: dict[str, Any] = {}
                if call.request.logprobs is not None:
                    entries = chat_logprobs(call.tokenizer, said(event, call.ends))
                    more = {"logprobs": {"content": entries, "refusal": None}} if entries else {}
                if more and not deltas:
                    deltas = [{}]
                for i, delta in enumerate(deltas):
                    yield chunk(choice, delta, **(more if i == 0 else {}))
            case Finished(choice):
                pieces, reason = readers[choice].finish(event)
                for piece in pieces:
                    yield chunk(choice, _delta(piece))
                yield chunk(choice, {}, finish_reason=reason)
            case Done(usage):
                if call.usage:
                    reasoning = sum(reader.reasoning_tokens for reader in readers)
                    yield data({**head, "choices": [], "usage": usage_of(usage, reasoning)})
    yield DONE


def _delta(piece: Any) -> dict[str, Any]:
    match piece:
        case Thought(text):
            return {"reasoning_content": text, "reasoning": text}
        case Text(text):
            return {"content": text}
        case Call(index, name):
            function = {"name": name, "arguments": ""}
            made = {"index": index, "id": identity("call_"), "type": "function"}
            return {"tool_calls": [{**made, "function": function}]}
        case _:
            made = {"index": piece.index, "function": {"arguments": piece.text}}
            return {"tool_calls": [made]}
