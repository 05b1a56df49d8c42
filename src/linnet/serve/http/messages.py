"""Messages of a chat, checked and put as chat templates expect them."""

from __future__ import annotations

import json
from typing import Any

from linnet.serve.http.errors import bad
from linnet.serve.http.fields import Fields

_ROLES = ("system", "developer", "user", "assistant", "tool")


def read_messages(items: list[Any] | None, where: str = "messages") -> list[dict[str, Any]]:
    """The messages of `/v1/chat/completions`. Raises ApiError naming the place."""
    if not items:
        raise bad(f"{where} is empty or missing; expected at least one message", where)
    return [_message(Fields(item, f"{where}[{i}]")) for i, item in enumerate(items)]


def _message(fields: Fields) -> dict[str, Any]:
    role = fields.one_of("role", _ROLES)
    if role is None:
        raise fields.missing("role", f"one of {', '.join(_ROLES)}")
    # Templates know one word for instructions from outside the conversation.
    message: dict[str, Any] = {"role": "system" if role == "developer" else role}
    fields_calls = fields.items("tool_calls") if role == "assistant" else None
    content = fields.take("content")
    if content is None and role != "assistant":
        raise fields.missing("content", "a string or a list of text parts")
    message["content"] = None if content is None else text_of(content, fields.path("content"))
    if (name := fields.text("name")) is not None:
        message["name"] = name
    if role == "assistant":
        thoughts = fields.text("reasoning_content")
        also = fields.text("reasoning")
        thoughts = thoughts if thoughts is not None else also
        if thoughts is not None:
            message["reasoning_content"] = thoughts
        if fields_calls:
            calls = (
                Fields(c, f"{fields.path('tool_calls')}[{i}]") for i, c in enumerate(fields_calls)
            )
            message["tool_calls"] = [_call(c) for c in calls]
        # What this API's own answers hold beside, so that an answer can be sent back as it came.
        fields.only("refusal")
        fields.only("audio")
        fields.only("function_call")
        fields.only("annotations", [])
        if content is None and not fields_calls and thoughts is None:
            raise fields.missing("content", "text, tool_calls or reasoning_content")
    if role == "tool":
        identity = fields.text("tool_call_id")
        if identity is None:
            raise fields.missing("tool_call_id", "the id of the call that this answers")
        message["tool_call_id"] = identity
    fields.done()
    return message


def text_of(content: object, where: str) -> str:
    """A message's content: a string, or a list of parts that are text."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise bad(f"{where} is {type(content).__name__}; expected a string or a list", where)
    texts = []
    for i, item in enumerate(content):
        part = Fields(item, f"{where}[{i}]")
        kind = part.text("type")
        if kind not in ("text", "input_text", "output_text", "refusal"):
            place = part.path("type")
            raise bad(f"{place} is {kind!r}; this server takes text only", place, "invalid_value")
        texts.append(part.need_text("refusal" if kind == "refusal" else "text"))
        part.only("annotations", [])
        part.only("logprobs", [])
        part.done()
    return "".join(texts)


def _call(fields: Fields) -> dict[str, Any]:
    identity = fields.need_text("id")
    fields.only("type", "function")
    fields.accept("index")
    function = fields.object("function")
    if function is None:
        raise fields.missing("function", "an object with name and arguments")
    name = function.need_text("name")
    arguments = arguments_of(function.need_text("arguments"), function.path("arguments"))
    function.done()
    fields.done()
    return {
        "id": identity,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def arguments_of(text: str, where: str) -> dict[str, Any]:
    """Templates take arguments as an object; the API writes them as JSON in a string."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        raise bad(f"{where} is not JSON; expected a JSON object in a string", where) from None
    if not isinstance(value, dict):
        raise bad(f"{where} holds {type(value).__name__}; expected a JSON object", where)
    return value
