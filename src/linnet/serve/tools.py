"""Tool calls in a model's answer, told from its text as it comes.

Two forms are read, whichever the model writes:

    <tool_call>                              <tool_call>
    <function=weather>                       {"name": "weather", "arguments": {"city": "Bern"}}
    <parameter=city>                         </tool_call>
    Bern
    </parameter>
    </function>
    </tool_call>

The first is that of Qwen3-Coder and Qwen3.5/3.6: a value is the text between the line breaks, and
its type comes from the tool's schema. The second is that of Hermes, Qwen2.5 and Qwen3. However the
text is cut, the parts, joined, are the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from linnet.serve.arguments import convert, is_text
from linnet.serve.reasoning import held

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_FUNCTION, _FUNCTION_END = "<function=", "</function>"
_PARAMETER, _PARAMETER_END = "<parameter=", "</parameter>"
_NAME = re.compile(r"[\w.:\-]{1,128}\Z")
_LONGEST_NAME = 160


@dataclass(frozen=True)
class Text:
    """A piece of what the answer says beside its calls."""

    text: str


@dataclass(frozen=True)
class Call:
    """A call begins: its number in the answer, from 0, and the function's name."""

    index: int
    name: str


@dataclass(frozen=True)
class Arguments:
    """A piece of a call's arguments, which joined are a JSON object."""

    index: int
    text: str


Part = Text | Call | Arguments


class Tools:
    """Tells calls from text. `schemas` maps a tool's name to the schema of its parameters.

    White space between text and a call, and between calls, belongs to the form and is left out.
    What begins like a call and is none stays text.
    """

    def __init__(self, schemas: Mapping[str, Mapping[str, Any]]):
        self._schemas = schemas
        self._state = "text"
        self._buffer = ""
        self._space = ""  # held: white space that a call would swallow
        self._raw = ""  # what to say if this turns out to be no call
        self.calls = 0
        self._schema: Mapping[str, Any] = {}
        self._names: list[str] = []  # parameters of the call so far
        self._name = ""
        self._skip = False  # a parameter named twice: the first stands
        self._streams = False
        self._value: list[str] = []

    def feed(self, text: str) -> list[Part]:
        self._buffer += text
        parts: list[Part] = []
        while self._step(parts):
            pass
        return _joined(parts)

    def finish(self, complete: bool = True) -> list[Part]:
        """What was held back. A call that the answer broke off is closed if `complete`, so that
        its arguments are JSON; of one cut by a limit they end where the text ends."""
        parts: list[Part] = []
        rest, self._buffer = self._buffer, ""
        match self._state:
            case "text":
                if not self.calls or rest:
                    self._say(rest, parts)
                    if self._space and not self.calls:
                        parts.append(Text(self._space))
            case "opened" | "name":
                self._say(self._raw + rest, parts)
                if self._space:
                    parts.append(Text(self._space))
            case "json":
                if not self._json(rest.strip(), parts):
                    self._say(self._raw + rest, parts)
            case "first":
                if complete:
                    if self._streams and not self._skip:
                        self._argue('"', parts)
                    self._end_value(parts)
                    self._argue("}", parts)
            case "value":
                self._more(rest.removesuffix("\n") if complete else rest, parts)
                if complete:
                    self._end_value(parts)
                    self._argue("}", parts)
            case "body" | "parameter":
                if complete:
                    self._argue("}", parts)
        self._state, self._space = "text", ""
        return _joined(parts)

    def _step(self, parts: list[Part]) -> bool:
        step = getattr(self, f"_in_{self._state}")
        return bool(step(self._buffer, parts))

    # Text, and where a call begins

    def _in_text(self, buffer: str, parts: list[Part]) -> bool:
        at, mark = _first(buffer, _OPEN, _FUNCTION)
        if mark is None:
            keep = held(buffer, _OPEN, _FUNCTION)
            self._say(buffer[: len(buffer) - keep], parts)
            self._buffer = buffer[len(buffer) - keep :]
            return False
        self._say(buffer[:at], parts)
        self._buffer = buffer[at + len(mark) :]
        self._raw = mark
        self._state = "opened" if mark == _OPEN else "name"
        return True

    def _say(self, text: str, parts: list[Part]) -> None:
        text = self._space + text
        shown = text.rstrip()
        self._space = text[len(shown) :]
        if shown:
            parts.append(Text(shown))

    def _no_call(self, parts: list[Part]) -> bool:
        """What looked like a call is text; what follows its mark is read anew."""
        self._say(self._raw, parts)
        self._state = "text"
        return True

    def _in_opened(self, buffer: str, parts: list[Part]) -> bool:
        text = buffer.lstrip()
        if text.startswith(_FUNCTION):
            gone = len(buffer) - len(text) + len(_FUNCTION)
            self._raw += buffer[:gone]
            self._buffer, self._state = buffer[gone:], "name"
            return True
        if text.startswith(("{", "[")):
            self._state = "json"
            return True
        if _FUNCTION.startswith(text):
            return False
        return self._no_call(parts)

    def _in_name(self, buffer: str, parts: list[Part]) -> bool:
        end = buffer.find(">")
        if end < 0 and len(buffer) < _LONGEST_NAME and not set(buffer) & {"\n", "<"}:
            return False
        name = buffer[:end].strip("\"'") if 0 <= end < _LONGEST_NAME else ""
        bare = self._raw == _FUNCTION
        if not _NAME.match(name) or (bare and name not in self._schemas):
            return self._no_call(parts)
        self._begin(name, parts)
        self._argue("{", parts)
        self._schema = self._schemas.get(name) or {}
        self._names = []
        self._buffer, self._state = buffer[end + 1 :], "body"
        return True

    def _begin(self, name: str, parts: list[Part]) -> None:
        self._space = ""
        parts.append(Call(self.calls, name))
        self.calls += 1

    def _argue(self, text: str, parts: list[Part]) -> None:
        if text:
            parts.append(Arguments(self.calls - 1, text))

    # The form with tags

    def _in_body(self, buffer: str, parts: list[Part]) -> bool:
        at, mark = _first(buffer, _PARAMETER, _FUNCTION_END, _CLOSE)
        if mark is None:
            keep = held(buffer, _PARAMETER, _FUNCTION_END, _CLOSE)
            self._buffer = buffer[len(buffer) - keep :]
            return False
        self._buffer = buffer[at + len(mark) :]
        if mark == _PARAMETER:
            self._state = "parameter"
        else:
            self._argue("}", parts)
            self._state = "after" if mark == _FUNCTION_END else "text"
        return True

    def _in_parameter(self, buffer: str, parts: list[Part]) -> bool:
        end = buffer.find(">")
        if end < 0:
            return False
        self._name = buffer[:end].strip().strip("\"'")
        self._skip = self._name in self._names
        if not self._skip:
            comma = ", " if self._names else ""
            self._argue(f"{comma}{json.dumps(self._name, ensure_ascii=False)}: ", parts)
            self._names.append(self._name)
        self._streams = is_text(self._schema, self._name)
        self._value = []
        self._buffer, self._state = buffer[end + 1 :], "first"
        return True

    def _in_first(self, buffer: str, parts: list[Part]) -> bool:
        if not buffer:
            return False
        self._buffer = buffer.removeprefix("\n")
        self._state = "value"
        if self._streams and not self._skip:
            self._argue('"', parts)
        return True

    def _in_value(self, buffer: str, parts: list[Part]) -> bool:
        end = buffer.find(_PARAMETER_END)
        if end < 0:
            keep = held(buffer, "\n" + _PARAMETER_END, _PARAMETER_END)
            self._more(buffer[: len(buffer) - keep], parts)
            self._buffer = buffer[len(buffer) - keep :]
            return False
        self._more(buffer[:end].removesuffix("\n"), parts)
        self._end_value(parts)
        self._buffer, self._state = buffer[end + len(_PARAMETER_END) :], "body"
        return True

    def _more(self, text: str, parts: list[Part]) -> None:
        if self._skip or not text:
            return
        if self._streams:
            self._argue(json.dumps(text, ensure_ascii=False)[1:-1], parts)
        else:
            self._value.append(text)

    def _end_value(self, parts: list[Part]) -> None:
        if self._skip:
            return
        if self._streams:
            self._argue('"', parts)
        else:
            value = convert(self._schema, self._name, "".join(self._value))
            self._argue(json.dumps(value, ensure_ascii=False), parts)

    def _in_after(self, buffer: str, parts: list[Part]) -> bool:
        text = buffer.lstrip()
        if text.startswith(_CLOSE):
            self._buffer, self._state = text[len(_CLOSE) :], "text"
            return True
        if _CLOSE.startswith(text):
            return False
        self._state = "text"  # the closing tag was forgotten
        return True

    # The form with JSON

    def _in_json(self, buffer: str, parts: list[Part]) -> bool:
        at = buffer.find(_CLOSE)
        while at >= 0:  # a string of the arguments may hold the tag too
            if self._json(buffer[:at].strip(), parts):
                self._buffer, self._state = buffer[at + len(_CLOSE) :], "text"
                return True
            at = buffer.find(_CLOSE, at + 1)
        return False

    def _json(self, text: str, parts: list[Part]) -> bool:
        """The calls that a text of JSON states; whether it does."""
        try:
            value = json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return False
        calls = value if isinstance(value, list) else [value]
        if not calls or not all(isinstance(c, dict) and _named(c) for c in calls):
            return False
        for call in calls:
            arguments = call.get("arguments", call.get("parameters", {}))
            self._begin(call["name"], parts)
            if not isinstance(arguments, str):
                arguments = json.dumps(arguments or {}, ensure_ascii=False)
            self._argue(arguments, parts)
        return True


def _first(text: str, *marks: str) -> tuple[int, str | None]:
    places = [(at, mark) for mark in marks if (at := text.find(mark)) >= 0]
    return min(places) if places else (-1, None)


def _named(call: dict[str, Any]) -> bool:
    name = call.get("name")
    return isinstance(name, str) and bool(_NAME.match(name))


def _joined(parts: list[Part]) -> list[Part]:
    """Neighbouring pieces of one kind as one."""
    out: list[Part] = []
    for part in parts:
        last = out[-1] if out else None
        if isinstance(part, Text) and isinstance(last, Text):
            out[-1] = Text(last.text + part.text)
        elif (
            isinstance(part, Arguments)
            and isinstance(last, Arguments)
            and last.index == part.index
        ):  # fmt: skip
            out[-1] = Arguments(part.index, last.text + part.text)
        else:
            out.append(part)
    return out


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
