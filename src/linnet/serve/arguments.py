"""Types of a tool's parameters: text as the value that the tool's schema means.

A model that writes `<parameter=code>02134</parameter>` wrote a string if the schema says so, and a
number if that. What does not fit its type stays text, for the tool to refuse.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_ALL = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})
_WORDS = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}
_DEEPEST = 16


def property_of(schema: Mapping[str, Any], name: str) -> Any:
    """The schema of a parameter; None where none is stated."""
    properties = schema.get("properties")
    if isinstance(properties, Mapping) and name in properties:
        return properties[name]
    extra = schema.get("additionalProperties")
    return extra if isinstance(extra, Mapping) else None


def is_text(schema: Mapping[str, Any], name: str) -> bool:
    """Whether every value of the parameter is a string. One that is not stated is, too."""
    stated = property_of(schema, name)
    return stated is None or types(stated, schema) == {"string"}


def types(schema: Any, root: Mapping[str, Any], depth: int = 0) -> frozenset[str]:
    """The JSON types that a schema admits, as far as its keywords say."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return _ALL
    found = _ALL
    if isinstance(reference := schema.get("$ref"), str):
        found &= types(_referred(reference, root), root, depth + 1)
    stated = schema.get("type")
    if isinstance(stated, str):
        found &= {stated}
    elif isinstance(stated, list):
        found &= {t for t in stated if isinstance(t, str)}
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(values, list):
        found &= {_type(value) for value in values} | (
            {"integer"} if any(_type(v) == "integer" for v in values) else set()
        )
    for key in ("anyOf", "oneOf"):
        if isinstance(options := schema.get(key), list) and options:
            admitted: frozenset[str] = frozenset()
            for option in options:
                admitted |= types(option, root, depth + 1)
            found &= admitted
    if isinstance(parts := schema.get("allOf"), list):
        for part in parts:
            found &= types(part, root, depth + 1)
    if "number" in found:
        found |= {"integer"}
    return found


def convert(schema: Mapping[str, Any], name: str, text: str) -> Any:
    """The value that a parameter's text stands for."""
    admitted = types(property_of(schema, name), schema)
    word = text.strip()
    if admitted == _ALL or not admitted:
        # Nothing is said: JSON where it cannot be prose, the text as it stands where it could.
        return _json(word) if word[:1] in ("{", "[") else text
    if word in _WORDS:
        value: Any = _WORDS[word]
        if _type(value) in admitted:
            return value
    if admitted & {"integer", "number"}:
        number = _number(word)
        if number is not None and _type(number) in admitted:
            return number
    if admitted & {"object", "array"}:
        value = _json(word)
        if _type(value) in admitted & {"object", "array"}:
            return value
    return text


def _json(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return text


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _number(word: str) -> int | float | None:
    """A number as JSON writes it. `02134` is none."""
    value = _json(word)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    return value if abs(value) != float("inf") else None


def _type(value: Any) -> str:
    match value:
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case None:
            return "null"
        case list():
            return "array"
        case _:
            return "object"


def _referred(reference: str, root: Mapping[str, Any]) -> Any:
    """The schema at a local reference, `#/$defs/Name`."""
    place: Any = root
    if not reference.startswith("#"):
        return None
    for step in reference[1:].split("/")[1:]:
        if not isinstance(place, Mapping):
            return None
        place = place.get(step.replace("~1", "/").replace("~0", "~"))
    return place
