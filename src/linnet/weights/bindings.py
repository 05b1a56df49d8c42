"""Bindings: which tensor of a checkpoint each parameter is.

A binding file is a JSON object of parameter path to tensor name. It is data: no patterns, no
code, no transformation. Several paths may name one tensor.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from linnet.errors import WeightsError
from linnet.weights.json_text import JsonError, check_text, read_json

LONGEST = 1000  # characters of a name; a page shows them
_SPACE = " \t\r\n"


def read_bindings(source: str | Path | Mapping[str, str] | None) -> dict[str, str]:
    """Bindings from a file or a mapping; none means that every path is its own name.

    Raises `WeightsError`, with the line where the text is at fault.
    """
    if source is None:
        return {}
    if isinstance(source, Mapping):
        for bound, name in source.items():
            if not isinstance(bound, str) or not isinstance(name, str) or not name:
                raise WeightsError(
                    f"bindings: `{bound}` is bound to {name!r}, expected the name of a tensor"
                )
        return dict(source)
    path = Path(source)
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise WeightsError(f"{path}: not UTF-8 (byte {error.start})") from error
    return _parse(text, path)


def _parse(text: str, path: Path) -> dict[str, str]:
    """Read by hand at the top, because `json` reports neither lines nor doubled keys."""
    start = len(text) - len(text.lstrip(_SPACE))
    try:
        if text[start : start + 1] != "{":
            read_json(text)
            raise JsonError("expected an object of parameter path to tensor name")
        return _pairs(text, start + 1, path)
    except JsonError as error:
        raise WeightsError(f"{path}: {error}") from error


def _pairs(text: str, at: int, path: Path) -> dict[str, str]:
    decoder = json.JSONDecoder()
    result: dict[str, str] = {}
    places: dict[str, int] = {}

    def skip(at: int) -> int:
        while text[at : at + 1] and text[at] in _SPACE:
            at += 1
        return at

    def line(at: int) -> int:
        return text.count("\n", 0, at) + 1

    def expect(at: int, wanted: str) -> str:
        found = text[at : at + 1]
        if not found or found not in wanted:
            shown = repr(found) if found else "the end of the file"
            raise JsonError(f"line {line(at)}: expected {' or '.join(wanted)}, found {shown}")
        return found

    def value(at: int) -> tuple[object, int]:
        try:
            return decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise JsonError(f"line {error.lineno}: {error.msg}") from error
        except (RecursionError, ValueError) as error:
            raise JsonError(f"line {line(at)}: not a tensor's name") from error

    at = skip(at)
    end = text[at : at + 1] == "}"
    while not end:
        expect(at, '"')
        here = at
        key, at = value(at)
        assert isinstance(key, str)
        at = skip(at)
        expect(at, ":")
        at = skip(at + 1)
        name, after = value(at)
        if key in places:
            first = line(places[key])
            raise JsonError(f"line {line(here)}: `{key}` is bound twice, first in line {first}")
        if not isinstance(name, str) or not name:
            raise JsonError(
                f"line {line(at)}: `{key}` is bound to {text[at:after][:40]}, expected the name "
                "of a tensor in quotes"
            )
        check_text(key)
        check_text(name)
        for found in (key, name):
            if len(found) > LONGEST:
                raise JsonError(
                    f"line {line(here)}: a name of {len(found):,} characters, expected at most "
                    f"{LONGEST:,}"
                )
        result[key], places[key] = name, here
        at = skip(after)
        end = expect(at, ",}") == "}"
        if not end:
            at = skip(at + 1)
    at = skip(at + 1)
    if at < len(text):
        raise JsonError(f"line {line(at)}: text after the end of the object")
    return result
