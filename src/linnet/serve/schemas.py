"""JSON schemas as the grammar library can hold answers to them, and where in one a keyword stands,
so that an error can name the place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

# Keywords by what they hold: a schema, a list of schemas, or schemas by names of the client's own.
_ONE = (
    "items", "additionalItems", "additionalProperties", "contains", "propertyNames", "not", "if",
    "then", "else", "unevaluatedItems", "unevaluatedProperties",
)  # fmt: skip
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
# Keywords of numbers' bounds: 1 where a larger bound admits more, -1 where a smaller one does.
_BOUNDS = {"maximum": 1, "exclusiveMaximum": 1, "minimum": -1, "exclusiveMinimum": -1}
_DEEPEST = 200
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")

# Between the tokens of JSON: one space, or a line with its indent. Grammars that allow any white
# space let a model go on with it for ever.
LAYOUT = {"whitespace_flexible": True, "whitespace_pattern": r"[ ]?|\n[ ]{0,16}"}
_LAYOUT_KEY = "x-guidance"  # what the library reads of a schema beside its keywords
# Numbers beyond are rounded on their way into the grammar.
_EXACT = 2**53 - 1


class Unheld(ValueError):
    """A schema that answers cannot be held to; the text begins with the place: `.items.const`."""


def prepared(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The schema for the grammar library: what fits it fits `schema`.

    Bounds beyond the integers that a double tells apart are drawn in to those. Options of the
    library itself, of which some make it lenient, are ours alone. Raises Unheld for numbers that
    the library would round."""
    return {**_prepared(schema, "", 0), _LAYOUT_KEY: LAYOUT}


def _prepared(schema: Any, path: str, depth: int) -> Any:
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return schema
    made = {key: value for key, value in schema.items() if key != _LAYOUT_KEY}
    for keyword, sign in _BOUNDS.items():
        bound = made.get(keyword)
        if isinstance(bound, (int, float)) and not isinstance(bound, bool):
            if sign * bound < -_EXACT:
                found = str(bound)[:40]
                raise Unheld(f"{path}.{keyword} is {found}; expected a number up to 2**53 - 1")
            if sign * bound > _EXACT:
                made[keyword] = sign * _EXACT
    for keyword in ("const", "enum"):
        if _large(made.get(keyword)):
            raise Unheld(f"{path}.{keyword} holds an integer beyond 2**53 - 1, which is not exact")
    for name in _ONE:
        if isinstance(made.get(name), Mapping):
            made[name] = _prepared(made[name], f"{path}.{name}", depth + 1)
    for name in _LISTS:
        if isinstance(items := made.get(name), list):
            made[name] = [
                _prepared(item, f"{path}.{name}[{i}]", depth + 1) for i, item in enumerate(items)
            ]
    for name in _NAMED:
        if isinstance(named := made.get(name), Mapping):
            made[name] = {
                key: _prepared(item, f"{path}.{name}.{key}", depth + 1)
                for key, item in named.items()
            }
    return made


def _large(value: Any, depth: int = 0) -> bool:
    """Whether a value holds an integer that is not exact as a double."""
    if isinstance(value, int):
        return abs(value) > _EXACT
    if depth > _DEEPEST or not isinstance(value, (list, dict)):
        return False
    parts = value.values() if isinstance(value, dict) else value
    return any(_large(part, depth + 1) for part in parts)


def explained(schema: Any, error: str) -> str:
    """The grammar library's error about a schema, with the path of the keyword it means."""
    if "oneOf constraints are not supported" in error:
        # The library proves of some that two cannot hold at once; those it takes.
        place = _place(schema, ("oneOf",))
        reason = "is supported only where no two of its schemas can hold at once; use anyOf"
        return f"{place} {reason}"
    found = re.search(r"Unimplemented keys: \[(.*?)\]", error)
    if found is None:
        return f"cannot be used: {error}"
    names = tuple(re.findall(r'"([^"]*)"', found[1]))
    return f"{_place(schema, names)} is not supported"


def _place(schema: Any, keywords: tuple[str, ...]) -> str:
    for path, node in _walk(schema, ""):
        for keyword in keywords:
            if keyword in node:
                return f"{path}.{keyword}"
    return f".{keywords[0]}" if keywords else ""


def _walk(schema: Any, path: str, depth: int = 0) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every schema inside a schema, by its path."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return
    yield path, schema
    for name in _ONE:
        yield from _walk(schema.get(name), f"{path}.{name}", depth + 1)
    for name in _LISTS:
        items = schema.get(name)
        for i, item in enumerate(items if isinstance(items, list) else ()):
            yield from _walk(item, f"{path}.{name}[{i}]", depth + 1)
    for name in _NAMED:
        named = schema.get(name)
        for key, item in named.items() if isinstance(named, Mapping) else ():
            yield from _walk(item, f"{path}.{name}.{key}", depth + 1)
