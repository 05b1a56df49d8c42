"""Schemas that answers cannot be held to are refused, and the error names the place."""

from __future__ import annotations

import json
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
    # Numbers that the library would round, and answer with others.
    ({"type": "integer", "minimum": 2**53}, ".minimum is 9007199254740992; expected a number up"),
    ({"type": "number", "exclusiveMaximum": -1e20}, ".exclusiveMaximum is -1e+20; expected"),
    ({"items": {"minimum": 10**300}}, ".items.minimum is 1000"),
    ({"const": 2**53 + 1}, ".const holds an integer beyond 2**53 - 1"),
    ({"anyOf": [{"enum": [1, {"a": [2**60]}]}]}, ".anyOf[0].enum holds an integer beyond"),
    # Options of the library are no part of a schema.
    ({"x-guidance": {"lenient": True}, "not": {}}, ".not is not supported"),
    ({**NUMBER, "x-guidance": {"coerce_one_of": True}}, ".oneOf is supported only where"),
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


def takes(constraint: Constraint, said: str) -> bool:
    """Whether an answer may be this text, and end there."""
    grammars = Grammars(text().tokenizer, VOCABULARY, frozenset([IDS["<|im_end|>"]]))
    matcher = grammars.matcher(constraint)
    for token in [*said.encode(), IDS["<|im_end|>"]]:
        mask = matcher.mask()
        if mask is None or not mask[token // 8] >> (token % 8) & 1:
            return False
        matcher.add(token)
    return True


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("kind", ["integer", "number"])
@pytest.mark.parametrize("large", [2**53 - 1, 2**53, 2**53 + 1, 2**62, 2**63 - 1, 2**64, 10**20])
def test_large_bounds_are_kept(large: int, kind: str, sign: int) -> None:
    """A bound is never passed, at the price of a little of what lies below it."""
    validate = pytest.importorskip("jsonschema").validate
    for name in ("maximum", "exclusiveMaximum") if sign > 0 else ("minimum", "exclusiveMinimum"):
        schema = {"type": kind, name: sign * large}
        assert takes(Constraint("schema", schema), "5")
        for near in (-1, 0, 1, large // 10, 9 * large):
            value = sign * (large + near)
            if takes(Constraint("schema", schema), str(value)):
                validate(value, schema)


def test_thousands_of_choices() -> None:
    many = Constraint("choice", [f"choice {i}" for i in range(5000)])
    assert takes(many, "choice 4321") and not takes(many, "choice 5000")
    few = Constraint("choice", ["a", "ab", 'say "x"'])
    assert all(takes(few, said) for said in ("a", "ab", 'say "x"'))


def test_a_grammar_too_large_is_refused_at_once(server: Served) -> None:
    rule = " | ".join(f'"choice {i}"' for i in range(5000))
    error = refused(server, structured_outputs={"grammar": f"start: {rule}"})
    assert error["param"] == "structured_outputs" and "\n" not in error["message"]


def test_white_space_of_json_ends_wherever_it_stands(server: Served) -> None:
    """Also beside tools, where the schema is a part of a larger grammar."""
    schema = {
        "type": "object", "properties": {"a": {"enum": [1]}}, "required": ["a"],
        "additionalProperties": False,
    }  # fmt: skip
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    tool = {"type": "function", "function": {"name": "f", "strict": True}}
    for more in ({}, {"tools": [tool]}):
        body = {
            "model": NAME, "messages": HELLO, "response_format": form, **OFF, **more,
            "logit_bias": {str(ord(c)): 100 if c != "{" else 50 for c in " \n\t{"},
            "max_tokens": 200, "temperature": 0,
        }  # fmt: skip
        status, found, _ = server.ask("/v1/chat/completions", body)
        assert status == 200, found
        said = found["choices"][0]["message"]["content"].lstrip("\n")
        assert json.loads(said) == {"a": 1} and said.count("\n") <= 4, (more, said)


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
