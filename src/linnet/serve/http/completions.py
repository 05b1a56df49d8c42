"""`/v1/completions`: texts or tokens continued, without a template."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from linnet.serve.events import Delta, Done, Finished, TokenLogprob, Usage
from linnet.serve.http.chat import usage_of
from linnet.serve.http.errors import bad
from linnet.serve.http.exchange import (
    DONE,
    EventStream,
    data,
    json_response,
    read_json,
    while_listening,
)
from linnet.serve.http.fields import Fields, shown
from linnet.serve.http.formats import Thinking, ToolChoice, constraint_of, read_format
from linnet.serve.http.logprobs import completion_logprobs, said
from linnet.serve.http.running import Run
from linnet.serve.http.sampling import read_ends, read_no_effect, read_sampling, read_stream
from linnet.serve.http.service import Service, identity
from linnet.serve.request import Request
from linnet.text.open import TextModel
from linnet.text.tokenizer import Tokenizer

_LENGTH = 16  # what OpenAI's API takes where max_tokens is not given


@dataclass(frozen=True)
class TextCall:
    """A request for completions, read: one engine request for each prompt."""

    requests: list[Request]
    tokenizer: Tokenizer
    echo: bool
    stream: bool
    usage: bool
    ends: frozenset[int]

    @property
    def n(self) -> int:
        return self.requests[0].n

    def start(self, number: int) -> str:
        """What the choices of a prompt begin with."""
        return self.tokenizer.decode(self.requests[number].prompt) if self.echo else ""


async def completions(service: Service, http: HttpRequest) -> Response:
    async def work(body: Any) -> tuple[TextCall, Run]:
        engine, _ = service.decoder()
        call = await service.in_thread(lambda: read_completion(service, body))
        return call, await Run(service, engine, call.requests, http, "prompt").__aenter__()

    # Nothing holds the body while the request waits and runs: it may be large.
    call, run = await while_listening(http, work(await read_json(http, service.limits.body)))
    head = {
        "id": identity("cmpl-"),
        "object": "text_completion",
        "created": int(time.time()),
        "model": service.name,
    }
    if call.stream:
        return EventStream(_stream(call, run, head), on_end=run.cancel)
    try:
        whole = await while_listening(http, _whole(call, run))
    finally:
        await run.__aexit__(None, None, None)
    return json_response({**head, **whole})


def read_completion(service: Service, body: Any) -> TextCall:
    """Reads and encodes a request. Raises ApiError, InputError or TextError."""
    engine, text = service.decoder()
    fields = Fields(body)
    service.check_model(fields.take("model"))
    stream, usage = read_stream(fields)
    prompts = read_prompts(fields, "prompt", text, service.limits.prompts)
    most = fields.whole("max_tokens", 0)
    n = fields.whole("n", 1, 128) or 1
    logprobs = fields.whole("logprobs", 0, 20)
    echo = fields.flag("echo")
    if echo and logprobs is not None:
        raise bad("logprobs together with echo is not supported: prompts have none", "echo")
    values: dict[str, Any] = {
        "sampling": read_sampling(fields, text),
        "n": n,
        "max_tokens": _LENGTH if most is None else most,
        "logprobs": logprobs,
        "timeout": service.limits.timeout,
        "constraint": constraint_of(read_format(fields), ToolChoice(mode="none"), None, Thinking()),
        **read_ends(fields, engine, text),
    }
    read_no_effect(fields)
    best = fields.take("best_of")
    if best is not None and best != n:
        raise fields.wrong("best_of", best, f"n ({n}): choosing among more is not supported")
    fields.refuse("suffix")
    fields.done()
    requests = [Request(prompt, **values) for prompt in prompts]
    ends = requests[0].stop_tokens or frozenset()
    return TextCall(requests, text.tokenizer, echo, stream, usage, ends)


def read_prompts(
    fields: Fields, name: str, text: TextModel, most: int, special: bool = True
) -> list[list[int]]:
    """A string, a list of strings, token ids, or a list of lists of them; as token ids.
    `special`: whether special tokens spelled out in a string count as such."""
    value = fields.take(name)
    if value is None:
        raise fields.missing(name, "a string, token ids, or a list of either")
    items: list[Any]
    if isinstance(value, list) and value and all(_whole_number(t) for t in value):
        items = [value]
    elif isinstance(value, list):
        items = value
    else:
        items = [value]
    if not items:
        raise bad(f"{name} is empty; expected a string, token ids, or a list of either", name)
    if len(items) > most:
        raise bad(f"{name} has {len(items)} entries; expected at most {most}", name)
    prompts: list[list[int]] = []
    for i, item in enumerate(items):
        where = f"{name}[{i}]" if isinstance(value, list) and items is value else name
        if isinstance(item, str):
            ids = text.tokenizer.encode(item, special, begin=True)
        elif isinstance(item, list) and all(_whole_number(t) and t >= 0 for t in item):
            ids = item
        else:
            raise bad(
                f"{where} is {shown(item)}; expected a string or token ids", name, "invalid_value"
            )  # fmt: skip
        if not ids:
            raise bad(f"{where} is empty; expected at least one token", name, "invalid_value")
        prompts.append(ids)
    return prompts


def _whole_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _reason(event: Finished) -> str:
    return "length" if event.reason in ("length", "context") else "stop"


async def _whole(call: TextCall, run: Run) -> dict[str, Any]:
    count = len(call.requests) * call.n
    texts = [call.start(i // call.n) for i in range(count)]
    tokens: list[list[TokenLogprob]] = [[] for _ in range(count)]
    reasons = [""] * count
    usages: list[Usage] = []
    async for number, event in run:
        match event:
            case Delta(choice, text):
                texts[number * call.n + choice] += text
                tokens[number * call.n + choice] += said(event, call.ends)
            case Finished(choice):
                reasons[number * call.n + choice] = _reason(event)
            case Done(usage):
                usages.append(usage)
    choices = []
    for i in range(count):
        logprobs = None
        if call.requests[0].logprobs is not None:
            logprobs, _ = completion_logprobs(call.tokenizer, tokens[i], 0)
        choices.append(
            {"index": i, "text": texts[i], "logprobs": logprobs, "finish_reason": reasons[i]}
        )
    return {"choices": choices, "usage": _sum(usages)}


async def _stream(call: TextCall, run: Run, head: dict[str, Any]) -> AsyncIterator[str]:
    offsets: dict[int, int] = {}
    usages: list[Usage] = []

    def chunk(index: int, text: str, reason: str | None = None, logprobs: Any = None) -> str:
        choice = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}
        usage = {"usage": None} if call.usage else {}
        return data({**head, "choices": [choice], **usage})

    if call.echo:
        for i in range(len(call.requests) * call.n):
            yield chunk(i, call.start(i // call.n))
    async for number, event in run:
        match event:
            case Delta(choice, text):
                index = number * call.n + choice
                logprobs = None
                if call.requests[0].logprobs is not None:
                    tokens = said(event, call.ends)
                    if tokens:
                        offset = offsets.get(index, 0)
                        logprobs, offsets[index] = completion_logprobs(
                            call.tokenizer, tokens, offset
                        )
                if text or logprobs:
                    yield chunk(index, text, None, logprobs)
            case Finished(choice):
                yield chunk(number * call.n + choice, "", _reason(event))
            case Done(usage):
                usages.append(usage)
    if call.usage:
        yield data({**head, "choices": [], "usage": _sum(usages)})
    yield DONE


def _sum(usages: list[Usage]) -> dict[str, Any]:
    total = Usage(
        sum(u.prompt_tokens for u in usages),
        sum(u.cached_tokens for u in usages),
        sum(u.completion_tokens for u in usages),
    )
    return usage_of(total, 0)
