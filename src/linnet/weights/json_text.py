"""JSON read strictly: duplicate keys, NaN and excessive nesting are errors."""

from __future__ import annotations

import json
from typing import Any


class JsonError(ValueError):
    """The text is not acceptable JSON; `str()` says why, with a line where one is known."""


def read_json(text: str | bytes) -> Any:
    """Parse one JSON document. `bytes` must be UTF-8. Raises `JsonError`."""
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_constant)
    except JsonError:
        raise
    except UnicodeDecodeError as error:
        raise JsonError(f"not UTF-8 (byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise JsonError(f"line {error.lineno}, column {error.colno}: {error.msg}") from error
    except RecursionError as error:
        raise JsonError("nested too deeply") from error
    except ValueError as error:  # an integer of thousands of digits
        raise JsonError(str(error)) from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise JsonError(f"key `{key}` stands twice")
            seen.add(key)
    for key in result:
        check_text(key)
    return result


def check_text(text: str) -> None:
    """Refuse half a surrogate pair, which JSON can spell but nothing can print."""
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        raise JsonError(f"{text!a} is not Unicode text")


def _constant(text: str) -> Any:
    raise JsonError(f"`{text}` is not JSON")
