"""`/v1/embeddings`, for encoder models."""

from __future__ import annotations

import asyncio
import base64
import math
import struct
import threading
from collections.abc import Callable
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from linnet.serve.http.completions import read_prompts
from linnet.serve.http.errors import ApiError, bad
from linnet.serve.http.exchange import json_response, read_json, while_listening
from linnet.serve.http.fields import Fields
from linnet.serve.http.sampling import read_no_effect
from linnet.serve.http.service import Service


async def embeddings(service: Service, http: HttpRequest) -> Response:
    body = await read_json(http, service.limits.body)
    service.encoder()
    stopped = threading.Event()
    with service.place(), service.metrics.embedding():
        work = service.in_thread(lambda: _embed(service, body, stopped.is_set))
        try:
            found = await asyncio.wait_for(while_listening(http, work), service.limits.timeout)
        except asyncio.TimeoutError:
            raise ApiError(504, "the request took longer than it may", code="timeout") from None
        finally:
            stopped.set()
    return json_response(found)


def _embed(service: Service, body: Any, gone: Callable[[], bool]) -> dict[str, Any]:
    encoder = service.encoder()
    fields = Fields(body)
    service.check_model(fields.take("model"))
    inputs = read_prompts(fields, "input", encoder.text, service.limits.prompts, special=False)
    form = fields.one_of("encoding_format", ("float", "base64")) or "float"
    size = fields.whole("dimensions", 1)
    read_no_effect(fields)
    fields.done()
    known = encoder.text.tokenizer.vocabulary_size
    for i, ids in enumerate(inputs):
        if len(ids) > encoder.context:
            raise bad(
                f"input[{i}] has {len(ids)} tokens; the model takes {encoder.context}",
                "input",
                "context_length_exceeded",
            )
        if max(ids) >= known:
            raise bad(f"input[{i}] holds a token id that is not below {known}", "input")
    with service.encoding:
        vectors = [] if gone() else encoder.embed(inputs, gone)
    if size is not None:
        if vectors and size > len(vectors[0]):
            raise bad(f"dimensions is {size}; the model has {len(vectors[0])}", "dimensions")
        vectors = [_cut(vector, size) for vector in vectors]
    total = sum(map(len, inputs))
    service.metrics.embedded(total)
    return {
        "object": "list",
        "data": [
            {"object": "embedding", "index": i, "embedding": _written(vector, form)}
            for i, vector in enumerate(vectors)
        ],
        "model": service.name,
        "usage": {"prompt_tokens": total, "total_tokens": total},
    }


def _cut(vector: list[float], size: int) -> list[float]:
    """The first dimensions, of length 1 again (Matryoshka, arXiv 2205.13147)."""
    part = vector[:size]
    norm = math.sqrt(sum(v * v for v in part))
    return [v / norm for v in part] if norm > 0 else part


def _written(vector: list[float], form: str) -> Any:
    if form == "float":
        return vector
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
