"""Schemas that answers cannot be held to are refused, and the error names the place."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from http_fakes import NAME, Served, qwen_text, served
from serve_models import IDS, VOCABULARY, plain, text

from linnet.errors import InputError
from linnet.serve import Constraint, Engine
from linnet.serve.constraint import Grammars

pytest.importorskip("llguidance")

NUMBER = {"oneOf": [{"type": "number"}, {"type": "integer"}]}
REFUSED: list[tuple[dict[str, Any], str]] = [
    (NUMBER, ".oneOf is supported only where"),
    ({"type": "object", "properties": {"a": NUMBER}}, ".properties.a.oneOf is supported only"),
    ({"type": "array", "items": {"not": {"type": "null"}}}, ".items.not is not supported"),
    ({"anyOf": [{"type": "null"}, {"uniqueItems": True}]}, ".anyOf[1].uniqueItems is not supp"),
    ({"if": {"type": "string"}, "then": {"minLength": 2}}, ".if is not supported"),
    ({"contains": {"type": "string"}}, ".contains is not supported"),
    ({"propertyNames": {"pattern": "^a"}}, ".propertyNames is not supported"),
    ({"dependentRequired": {"a": ["b"]}}, ".dependentRequired is not supported"),
    ({"unevaluatedProperties": False}, ".unevaluatedProperties is not supported"),
    ({"type": "string", "format": "strange"}, " cannot be used: Unknown format: strange"),
    ({"type": "strin"}, " cannot be used: Invalid type: strin"),
    ({"$ref": "http://example.org/x"}, " cannot be used: "),
    ({"type": "integer", "minimum": 5, "maximum": 3}, " cannot be used: Unsatisfiable schema"),
]
HELLO = [{"role": "user", "content": "hello"}]
OFF = {"enable_thinking": False}


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with Engine(plain(512), qwen_text(), rows=2) as engine, served(engine) as found:
        yield found


@pytest.mark.parametrize("schema, said", REFUSED)
def test_each_is_named(schema: dict[str, Any], said: str) -> None:
    grammars = Grammars(text().tokenizer, VOCABULARY, frozenset([IDS["<|im_end|>"]]))
    with pytest.raises(InputError) as caught:
        grammars.matcher(Constraint("schema", schema))
    assert str(caught.value).startswith(f"schema{said}")


def refused(server: Served, path: str = "/v1/chat/completions", **more: Any) -> dict[str, Any]:
    body = {"model": NAME, "messages": HELLO, "chat_template_kwargs": OFF, **more}
    if path.endswith("responses"):
        body["input"] = body.pop("messages")
    status, found, _ = server.ask(path, body)
    assert status == 400, found
    error: dict[str, Any] = found["error"]
    return error


def test_the_field_is_named(server: Served) -> None:
    schema = {"type": "object", "properties": {"a": NUMBER}}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    error = refused(server, response_format=form)
    assert error["param"] == "response_format"
    place = "response_format.json_schema.schema.properties.a.oneOf "
    assert error["message"].startswith(place)
    error = refused(server, structured_outputs={"json": schema})
    assert error["param"] == "structured_outputs"
    assert error["message"].startswith("structured_outputs.json.properties.a.oneOf ")
    error = refused(server, response_format={"type": "regex", "pattern": "("})
    assert error["param"] == "response_format"
    assert error["message"].startswith("response_format.pattern cannot be used: ")
    form = {"format": {"type": "json_schema", "name": "x", "schema": schema}}
    error = refused(server, "/v1/responses", text=form)
    assert error["param"] == "text.format"
    assert error["message"].startswith("text.format.schema.properties.a.oneOf ")


def test_the_tool_is_named(server: Served) -> None:
    function = {"name": "f", "parameters": {"type": "object", "properties": {"a": NUMBER}}}
    plain_tool = {"type": "function", "function": {"name": "g"}}
    tools = [plain_tool, {"type": "function", "function": function}]
    error = refused(server, tools=tools, tool_choice="required")
    assert error["param"] == "tools"
    assert error["message"].startswith("tools[1].function.parameters.properties.a.oneOf ")


def test_without_the_library(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Free answers are served; one that is to be held to a form is the client's error."""
    monkeypatch.setitem(sys.modules, "llguidance", None)
    error = refused(server, response_format={"type": "json_object"})
    assert error["code"] == "unsupported_parameter" and error["param"] == "response_format"
    assert "llguidance" in error["message"]
    tool = {"type": "function", "function": {"name": "g"}}
    assert refused(server, tools=[tool], tool_choice="required")["param"] == "tools"
    body = {"model": NAME, "messages": HELLO, "max_tokens": 3}
    assert server.ask("/v1/chat/completions", body)[0] == 200


def test_temperatures_end_at_two(server: Served) -> None:
    assert refused(server, temperature=2.01)["param"] == "temperature"
    body = {"model": NAME, "messages": HELLO, "max_tokens": 3, "temperature": 2}
    assert server.ask("/v1/chat/completions", body)[0] == 200
