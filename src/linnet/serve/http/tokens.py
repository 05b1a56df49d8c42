"""`/tokenize`, `/detokenize` and `/v1/models`."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from linnet.serve.http.errors import ApiError, bad
from linnet.serve.http.exchange import json_response, read_json
from linnet.serve.http.fields import Fields, shown
from linnet.serve.http.formats import read_tools
from linnet.serve.http.messages import read_messages
from linnet.serve.http.prompt import read_switches, render
from linnet.serve.http.service import Service


async def tokenize(service: Service, http: HttpRequest) -> Response:
    """`{"prompt"}` or `{"messages"}` to `{"tokens", "count", "max_model_len"}`."""
    body = await read_json(http, service.limits.body)
    return json_response(await service.in_thread(lambda: _tokenize(service, body)))


def _tokenize(service: Service, body: Any) -> dict[str, Any]:
    text, context = service.tokenizer_side()
    fields = Fields(body)
    service.check_model(fields.take("model"), required=False)
    spelled = fields.flag("return_token_strs")
    if fields.has("messages"):
        if fields.has("prompt"):
            raise bad("prompt and messages exclude each other", "prompt")
        messages = read_messages(fields.items("messages"))
        choice = read_tools(fields)
        ids = render(text, messages, choice, read_switches(fields, text)).ids
    else:
        prompt = fields.need_text("prompt")
        begin = fields.flag("add_special_tokens", True)
        ids = text.tokenizer.encode(prompt, begin=begin)
    fields.done()
    result: dict[str, Any] = {"tokens": ids, "count": len(ids), "max_model_len": context}
    if spelled:
        result["token_strs"] = [text.tokenizer.spelling(i) for i in ids]
    return result


async def detokenize(service: Service, http: HttpRequest) -> Response:
    """`{"tokens"}` to `{"prompt"}`; special tokens are written out."""
    fields = Fields(await read_json(http, service.limits.body))
    text, _ = service.tokenizer_side()
    size = service.engine.vocabulary if service.engine else text.tokenizer.vocabulary_size
    service.check_model(fields.take("model"), required=False)
    ids = fields.items("tokens")
    if ids is None:
        raise fields.missing("tokens", "a list of token ids")
    fields.done()
    for i, token in enumerate(ids):
        whole = isinstance(token, int) and not isinstance(token, bool)
        if not whole or not 0 <= token < size:
            raise bad(
                f"tokens[{i}] is {shown(token)}; expected a token id below {size}",
                "tokens",
                "invalid_value",
            )
    tokenizer = text.tokenizer
    return json_response(
        {"prompt": await service.in_thread(lambda: tokenizer.decode(ids, special=True))}
    )


def models(service: Service) -> Response:
    service.check_loaded()
    return json_response({"object": "list", "data": [_model(service, n) for n in service.names]})


def model(service: Service, name: str) -> Response:
    service.check_loaded()
    if name not in service.names:
        raise ApiError(
            404, f"the model {shown(name)} is not served here", param="model",
            code="model_not_found",
        )  # fmt: skip
    return json_response(_model(service, name))


def _model(service: Service, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": name,
        "object": "model",
        "created": service.created,
        "owned_by": "linnet",
    }
    side = service.engine or service.embedder
    if side is not None:
        found["max_model_len"] = side.context
    return found
