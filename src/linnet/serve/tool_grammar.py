"""Grammars that hold an answer to calls of given tools, in llguidance's dialect of Lark."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from linnet.errors import InputError
from linnet.serve.arguments import property_of, types
from linnet.serve.schemas import Unheld, prepared

# Keywords of a string's schema that its text, written without quotes, cannot be held to.
_UNHELD = ("format", "contentEncoding", "contentMediaType")


@dataclass(frozen=True)
class Tool:
    """A function that the model may call. `schema`: of its parameters, a JSON schema object;
    `path`: where that stands in the request."""

    name: str
    schema: Mapping[str, Any]
    strict: bool = False
    path: str = ""


def style_of(template: str) -> str | None:
    """How a chat template writes calls: `xml`, `json`, or None where it knows neither form."""
    if "<tool_call>" not in template:
        return None
    return "xml" if "<function=" in template else "json"


class ToolGrammar:
    """Rules for calls of some tools. `start` and the rules together are a grammar."""

    def __init__(self, style: str, tools: Sequence[Tool], exact: bool):
        """`exact`: arguments fit the schemas; else only those of strict tools do."""
        self._rules: list[str] = []
        self._style = style
        names = []
        for i, tool in enumerate(tools):
            held = exact or tool.strict
            rule = self._xml(i, tool, held) if style == "xml" else self._json(i, tool, held)
            names.append(rule)
        self._rules.append(f"call_body: {' | '.join(names)}")
        self._rules.append('call: "<tool_call>" call_body "</tool_call>"')
        self._rules.append(r"BREAKS: /\n{0,2}/")

    def calls(self, parallel: bool) -> str:
        """Nothing but calls."""
        more = " (BREAKS call)*" if parallel else ""
        return self._text(f"BREAKS call{more}")

    def calls_or(self, parallel: bool, other: str) -> str:
        """Calls, or what the expression `other` says."""
        more = " (BREAKS call)*" if parallel else ""
        return self._text(f"BREAKS ({other} | call{more})")

    def among_text(self, parallel: bool) -> str:
        """Any text, and calls in it."""
        free = r"/(?s:.*)/"
        self._rules += [
            f"FREE: {free} & ~/(?s:.*<tool_call>.*)/ & ~/(?s:.*<function=.*)/",
            f'opened[suffix="<tool_call>"]: {free} & ~/(?s:.*<function=.*)/',
            'opened_body: call_body "</tool_call>"',
        ]
        if not parallel:
            return self._text("FREE | opened opened_body")
        self._rules.append("rest: opened_body | opened_body again | opened_body FREE")
        self._rules.append("again: opened rest")
        return self._text("FREE | opened rest")

    def _text(self, start: str) -> str:
        return "\n".join([f"start: {start}", *self._rules]) + "\n"

    # One tool

    def _json(self, i: int, tool: Tool, held: bool) -> str:
        arguments = _held(tool.schema, tool.path) if held and tool.schema else {"type": "object"}
        whole: dict[str, Any] = {
            "type": "object",
            "properties": {"name": {"const": tool.name}, "arguments": arguments},
            "required": ["name", "arguments"],
            "additionalProperties": False,
        }
        # References count from the root of the whole schema.
        for key in ("$defs", "definitions"):
            if key in arguments:
                whole[key] = arguments.pop(key)
        self._rules.append(f'f{i}: "\\n" %json {json.dumps(prepared(whole))} "\\n"')
        return f"f{i}"

    def _xml(self, i: int, tool: Tool, held: bool) -> str:
        head, tail = _quoted(f"\n<function={tool.name}>\n"), _quoted("</function>\n")
        if not held:
            self._rules += [
                f"f{i}: {head} any{i}* {tail}",
                f'any{i}: "<parameter=" NAME{i} ">\\n" text{i}',
                f"NAME{i}: /[^<>\\n]+/",
                f'text{i}[suffix="\\n</parameter>\\n"]: /(?s:.*)/',
            ]
            return f"f{i}"
        stated = tool.schema.get("properties")
        needed = tool.schema.get("required")
        properties = stated if isinstance(stated, Mapping) else {}
        required = needed if isinstance(needed, list) else []
        parts = []
        for j, name in enumerate(properties):
            rule = f"p{i}_{j}"
            self._parameter(rule, str(name), tool)
            parts.append(rule if name in required else f"{rule}?")
        self._rules.append(f"f{i}: {head} {' '.join(parts)} {tail}")
        return f"f{i}"

    def _parameter(self, rule: str, name: str, tool: Tool) -> None:
        where = f"the parameter {name!r} of the tool {tool.name!r}"
        if re.search(r"[<>\n]", name):
            raise InputError(f"tools: {where} has a name that cannot be written as a tag")
        head, tail = _quoted(f"<parameter={name}>\n"), '"\\n</parameter>\\n"'
        schema = property_of(tool.schema, name)
        admitted = types(schema, tool.schema)
        if admitted != {"string"}:
            if not isinstance(schema, Mapping):
                schema = {}
            for key in ("$defs", "definitions"):
                if key in tool.schema:
                    schema = {**schema, key: tool.schema[key]}
            place = f"{tool.path}.properties.{name}"
            self._rules.append(f"{rule}: {head} %json {json.dumps(_held(schema, place))} {tail}")
            return
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(values, list) and values:
            texts = " | ".join(_quoted(str(v)) for v in values)
            self._rules.append(f"{rule}: {head} ({texts}) {tail}")
            return
        self._rules.append(f"{rule}: {head} {rule}_text")
        self._rules.append(f"{rule}_text[suffix={tail}]: /{_pattern(schema, where, tool)}/")


def _held(schema: Mapping[str, Any], place: str) -> dict[str, Any]:
    """A schema for the grammar library; `place`: where it stands in the request."""
    try:
        return prepared(schema)
    except Unheld as e:
        raise InputError(f"{place}{e}") from None


def _pattern(schema: Mapping[str, Any], where: str, tool: Tool) -> str:
    """A regular expression of the strings that a schema admits."""
    pattern, low, high = schema.get("pattern"), schema.get("minLength"), schema.get("maxLength")
    unheld = [key for key in _UNHELD if key in schema]
    if isinstance(pattern, str) and (low is not None or high is not None):
        unheld.append("pattern together with a length")
    if unheld and tool.strict:
        raise InputError(
            f"tools: {where} cannot be held to {', '.join(unheld)}; leave it out, or strict"
        )
    if isinstance(pattern, str):
        inner = pattern if pattern.startswith("^") else f"(?s:.*)({pattern}"
        if not pattern.startswith("^"):
            inner += ")"
        inner = inner.removeprefix("^")
        whole = inner.removesuffix("$") if inner.endswith("$") else f"({inner})(?s:.*)"
        return re.sub(r"(?<!\\)/", r"\/", whole)
    if low is not None or high is not None:
        return f"(?s:.{{{int(low or 0)},{'' if high is None else int(high)}}})"
    return "(?s:.*)"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
