"""What an answer is held to: response formats, grammars and tools, as one constraint."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from linnet.serve.constraint import library
from linnet.serve.errors import ConstraintsUnavailable
from linnet.serve.http.errors import bad
from linnet.serve.http.fields import Fields
from linnet.serve.request import Constraint
from linnet.serve.schemas import Unheld, prepared
from linnet.serve.tool_grammar import Tool, ToolGrammar

_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,64}\Z")
_STRUCTURED = {"json": "schema", "regex": "regex", "choice": "choice", "grammar": "lark"}


@dataclass(frozen=True)
class Format:
    """`kind` and `value` as in Constraint; kind None: free text. `param`: the field's name;
    `inside`: where in it the value stands."""

    kind: str | None = None
    value: Any = None
    param: str = "response_format"
    inside: str = ""

    @property
    def called(self) -> str:
        return f"{self.param}.{self.inside}" if self.inside else self.param


@dataclass(frozen=True)
class ToolChoice:
    """The tools of a request, and which the model may or must use.

    `mode`: auto, none, required, or named (`tools` then holds that one alone beside `shown`,
    what the template shows)."""

    tools: tuple[Tool, ...] = ()
    shown: tuple[dict[str, Any], ...] = ()
    mode: str = "auto"
    parallel: bool = True

    @property
    def active(self) -> bool:
        return bool(self.tools) and self.mode != "none"


@dataclass(frozen=True)
class Thinking:
    """What is known of thoughts in the answer: `open`, the prompt ends within one; `may`, the
    model may begin one itself; `end`, the token ids that close one, where that is certain."""

    open: bool = False
    may: bool = False
    end: tuple[int, ...] = field(default=())


def read_format(fields: Fields) -> Format:
    """`response_format` and `structured_outputs` of a chat; at most one may be given."""
    found = [f for f in (_response_format(fields), _structured(fields)) if f.kind is not None]
    if len(found) > 1:
        raise bad("structured_outputs and response_format exclude each other", "structured_outputs")
    return found[0] if found else Format()


def _response_format(fields: Fields) -> Format:
    given = fields.object("response_format")
    if given is None:
        return Format()
    kind = given.one_of("type", ("text", "json_object", "json_schema", "regex", "grammar"))
    if kind is None:
        raise given.missing("type", "text, json_object, json_schema, regex or grammar")
    result = Format()
    match kind:
        case "json_object":
            result = Format("json")
        case "json_schema":
            inner = given.object("json_schema")
            if inner is None:
                raise given.missing("json_schema", "an object with name and schema")
            result = Format("schema", read_schema(inner, "schema"), inside="json_schema.schema")
        case "regex":
            result = Format("regex", given.need_text("pattern"), inside="pattern")
        case "grammar":
            result = Format("lark", given.need_text("grammar"), inside="grammar")
    given.done()
    return result


def read_schema(fields: Fields, name: str) -> Any:
    """A named schema: `name`, `description`, `strict` and the schema itself.

    The answer is always held to the schema, so `strict` true or false gives the same."""
    title = fields.need_text("name")
    if not _NAME.match(title):
        raise fields.wrong("name", title, "letters, digits, _ and -, at most 64")
    fields.accept("description", "strict")
    schema = fields.take(name)
    if schema is None:
        raise fields.missing(name, "a JSON schema")
    if not isinstance(schema, (dict, bool)):
        raise fields.wrong(name, schema, "a JSON schema")
    fields.done()
    return schema


def _structured(fields: Fields) -> Format:
    given = fields.object("structured_outputs")
    if given is None:
        return Format()
    names = [n for n in (*_STRUCTURED, "json_object") if given.has(n)]
    if len(names) != 1:
        path = fields.path("structured_outputs")
        raise bad(
            f"{path} has {len(names)} of json, json_object, regex, choice, grammar; expected one",
            path,
        )  # fmt: skip
    name = names[0]
    if name == "json_object":
        if not given.flag(name):
            raise given.wrong(name, False, "true")
        result = Format("json", param="structured_outputs")
    else:
        result = Format(_STRUCTURED[name], given.take(name), "structured_outputs", name)
    given.done()
    return result


# Tools


def read_tools(fields: Fields, nested: bool = True) -> ToolChoice:
    """`tools`, `tool_choice` and `parallel_tool_calls`. `nested`: as in chat completions, where a
    function stands in an object of its own; in responses its fields stand in the tool."""
    items = fields.items("tools") or []
    shown = [_tool(Fields(item, f"tools[{i}]"), nested) for i, item in enumerate(items)]
    tools = [
        Tool(
            f["function"]["name"], f["function"]["parameters"], bool(f["function"].get("strict")),
            f"tools[{i}].{'function.' if nested else ''}parameters",
        )
        for i, f in enumerate(shown)
    ]  # fmt: skip
    names = [tool.name for tool in tools]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise bad(f"tools[{i}] has the name {name!r}, as another has", f"tools[{i}]")
    choice = fields.take("tool_choice")
    parallel = fields.take("parallel_tool_calls")
    if parallel is not None and not isinstance(parallel, bool):
        raise fields.wrong("parallel_tool_calls", parallel, "true or false")
    if not tools:
        if choice not in (None, "none", "auto"):
            raise bad("tool_choice is given without tools", "tool_choice")
        return ToolChoice(mode="none")
    parallel = parallel is not False
    if choice is None or choice in ("auto", "none", "required"):
        mode = choice or "auto"
        return ToolChoice(tuple(tools), tuple(shown), mode, parallel)
    return _named_choice(choice, tools, shown, parallel, nested)


def _named_choice(
    choice: object, tools: list[Tool], shown: list[dict[str, Any]], parallel: bool, nested: bool
) -> ToolChoice:
    if not isinstance(choice, dict):
        raise bad(
            f"tool_choice is {choice!r}; expected auto, none, required or a function", "tool_choice"
        )
    fields = Fields(choice, "tool_choice")
    kind = fields.one_of("type", ("function", "allowed_tools"))
    if kind == "allowed_tools":
        inner = fields.object("allowed_tools") or fields if nested else fields
        mode = inner.one_of("mode", ("auto", "required")) or "auto"
        allowed_tools = inner.items("tools") or []
        wanted = [Fields(t, f"tool_choice.tools[{i}]") for i, t in enumerate(allowed_tools)]
        names = [_function_name(item, nested) for item in wanted]
        inner.done()
    else:
        mode = "named"
        names = [_function_name(fields, nested)]
    fields.done()
    for name in names:
        if name not in [tool.name for tool in tools]:
            raise bad(f"tool_choice names {name!r}, which is none of the tools", "tool_choice")
    allowed = tuple(tool for tool in tools if tool.name in names)
    if not allowed:
        raise bad("tool_choice allows no tool", "tool_choice")
    return ToolChoice(allowed, tuple(shown), mode, parallel and mode != "named")


def _function_name(fields: Fields, nested: bool) -> str:
    fields.only("type", "function")
    if not nested:
        return fields.need_text("name")
    function = fields.object("function")
    if function is None:
        raise fields.missing("function", "an object with name")
    name = function.need_text("name")
    function.done()
    return name


def _tool(fields: Fields, nested: bool) -> dict[str, Any]:
    kind = fields.take("type")
    if kind != "function":
        place = fields.path("type")
        raise bad(f"{place} is {kind!r}; expected function", place, "invalid_value")
    function = fields.object("function") if nested else fields
    if function is None:
        raise fields.missing("function", "an object with a name")
    name = function.need_text("name")
    if not _NAME.match(name):
        raise function.wrong("name", name, "letters, digits, _ and -, at most 64")
    made: dict[str, Any] = {"name": name}
    if (description := function.text("description")) is not None:
        made["description"] = description
    parameters = function.mapping("parameters")
    made["parameters"] = parameters if parameters else {"type": "object", "properties": {}}
    if function.flag("strict"):
        made["strict"] = True
    function.done()
    fields.done()
    return {"type": "function", "function": made}


# The constraint


def constraint_of(
    format: Format, choice: ToolChoice, style: str | None, thinking: Thinking
) -> Constraint | None:
    """What the engine holds the answer to. Raises ApiError or InputError where it cannot."""
    grammar: str | None = None
    if choice.active:
        assert style is not None
        if choice.mode in ("required", "named"):
            if format.kind is not None:
                raise bad(
                    f"{format.param} and a tool_choice that asks for a call exclude each other",
                    format.param,
                )  # fmt: skip
            grammar = ToolGrammar(style, choice.tools, exact=True).calls(choice.parallel)
        elif format.kind is not None:
            rules = ToolGrammar(style, choice.tools, exact=False)
            grammar = rules.calls_or(choice.parallel, _expression(format))
        elif not choice.parallel or any(tool.strict for tool in choice.tools):
            rules = ToolGrammar(style, choice.tools, exact=False)
            grammar = rules.among_text(choice.parallel)
    if grammar is None and format.kind is None:
        return None
    if thinking.open and not thinking.end:
        raise bad(
            "this model closes its thoughts with more than one token, so what follows cannot be "
            "held to a form; turn thinking off with chat_template_kwargs",
            format.param,
        )
    if thinking.may:
        grammar = _after_a_thought(grammar or f"start: BREAKS {_expression(format)}\n")
    elif grammar is None and thinking.open and format.kind in ("json", "schema"):
        grammar = f"start: BREAKS {_expression(format)}\nBREAKS: /\\n{{0,2}}/\n"
    after = thinking.end if thinking.open else ()
    try:
        library()
    except ConstraintsUnavailable as e:
        field = format.param if format.kind is not None else "tools"
        raise bad(f"{field}: {e}", field, "unsupported_parameter") from None
    if grammar is not None:
        schemas = [(tool.path, tool.schema) for tool in choice.tools if choice.active]
        if format.kind == "schema":
            schemas.append((format.called, format.value))
        called = format.called if format.kind is not None else "tools"
        return Constraint("lark", grammar, after, called, tuple(schemas))
    return Constraint(str(format.kind), format.value, after, format.called)


def _expression(format: Format) -> str:
    """A format as an expression within a grammar."""
    match format.kind:
        case "json":
            return f"%json {json.dumps(prepared({'type': 'object'}))}"
        case "schema":
            return f"%json {json.dumps(_held(format))}"
        case "regex":
            pattern = re.sub(r"(?<!\\)/", r"\/", str(format.value))
            return f"/{pattern}/"
        case "choice":
            values: Sequence[Any] = (
                format.value if isinstance(format.value, list) else [format.value]
            )
            return f"({' | '.join(json.dumps(str(v), ensure_ascii=False) for v in values)})"
        case _:
            raise bad(
                "a grammar of one's own goes neither with tools nor with a model that may think",
                format.param,
            )  # fmt: skip


def _held(format: Format) -> Any:
    """A format's schema, for the grammar library."""
    if not isinstance(format.value, Mapping):
        return format.value
    try:
        return prepared(format.value)
    except Unheld as e:
        raise bad(f"{format.called}{e}", format.param, "invalid_value") from None


def _after_a_thought(grammar: str) -> str:
    """The grammar, with a thought allowed before it."""
    start, _, rules = grammar.partition("\n")
    body = start.removeprefix("start: ")
    lines = [
        f"start: ({body}) | thought ({body})",
        'thought[suffix="</think>"]: /\\n?<think>(?s:.*)/',
        rules,
    ]
    if "BREAKS:" not in rules:
        lines.append(r"BREAKS: /\n{0,2}/")
    return "\n".join(lines)
