"""Where in a JSON schema a keyword stands, so that an error can name the place."""

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
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


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
    if not isinstance(schema, Mapping) or depth > 200:
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
