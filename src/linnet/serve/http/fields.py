"""Reading a JSON object field by field, so that nothing in it goes unseen."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from linnet.serve.http.errors import ApiError, bad

_MISSING = object()


class Fields:
    """The fields of an object. Each is taken once, by its type; `done` refuses what is left.

    A field that is null counts as not given. Every error is an ApiError 400 that names the
    field by its path from the body, such as `messages[2].content`.
    """

    def __init__(self, value: object, where: str = ""):
        if not isinstance(value, Mapping):
            raise bad(f"{where or 'the body'} is {shown(value)}; expected an object", where or None)
        self._left = dict(value)
        self._where = where

    def path(self, name: str) -> str:
        return f"{self._where}.{name}" if self._where else name

    def has(self, name: str) -> bool:
        """Whether a field is still there and not null."""
        return self._left.get(name) is not None

    def take(self, name: str) -> Any:
        """Any value, or None."""
        return self._left.pop(name, None)

    def wrong(self, name: str, value: Any, expected: str) -> ApiError:
        path = self.path(name)
        return bad(f"{path} is {shown(value)}; expected {expected}", path, "invalid_value")

    def missing(self, name: str, expected: str) -> ApiError:
        path = self.path(name)
        return bad(f"{path} is missing; expected {expected}", path, "missing_required_parameter")

    # One method a type

    def text(self, name: str) -> str | None:
        value = self.take(name)
        if value is not None and not isinstance(value, str):
            raise self.wrong(name, value, "a string")
        return value

    def need_text(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise self.missing(name, "a string")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.take(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, value, "true or false")
        return value

    def whole(self, name: str, low: int | None = None, high: int | None = None) -> int | None:
        value = self.take(name)
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        ok = isinstance(value, int) and not isinstance(value, bool)
        if not ok or (low is not None and value < low) or (high is not None and value > high):
            raise self.wrong(name, value, f"an integer{_range(low, high)}")
        return int(value)

    def number(
        self, name: str, low: float | None = None, high: float | None = None
    ) -> float | None:
        value = self.take(name)
        if value is None:
            return None
        ok = isinstance(value, (int, float)) and not isinstance(value, bool)
        if ok:
            try:
                value = float(value)
            except OverflowError:
                ok = False
        ok = ok and math.isfinite(value)
        if not ok or (low is not None and value < low) or (high is not None and value > high):
            raise self.wrong(name, value, f"a number{_range(low, high)}")
        return float(value)

    def one_of(self, name: str, known: Iterable[str]) -> str | None:
        value = self.take(name)
        options = list(known)
        if value is not None and not (isinstance(value, str) and value in options):
            raise self.wrong(name, value, f"one of {', '.join(options)}")
        return value

    def items(self, name: str) -> list[Any] | None:
        value = self.take(name)
        if value is not None and not isinstance(value, list):
            raise self.wrong(name, value, "a list")
        return value

    def object(self, name: str) -> Fields | None:
        value = self.take(name)
        return None if value is None else Fields(value, self.path(name))

    def mapping(self, name: str) -> dict[str, Any] | None:
        """An object whose fields are the client's own."""
        value = self.take(name)
        if value is not None and not isinstance(value, dict):
            raise self.wrong(name, value, "an object")
        return value

    # The end

    def accept(self, *names: str) -> None:
        """Fields that change nothing by their nature."""
        for name in names:
            self._left.pop(name, None)

    def only(self, name: str, *values: Any) -> None:
        """A field of which only these values do what a client may expect."""
        value = self._left.pop(name, None)
        if value is not None and not any(type(value) is type(v) and value == v for v in values):
            known = " or ".join(json.dumps(v) for v in values)
            raise self.wrong(name, value, f"{known}: nothing else is supported")

    def refuse(self, *names: str) -> None:
        """Fields of OpenAI's API that this server has not."""
        for name in names:
            if self._left.pop(name, None) is not None:
                path = self.path(name)
                raise bad(
                    f"{path} is not supported by this server", path, "unsupported_parameter"
                )  # fmt: skip

    def done(self) -> None:
        """Raises for the first field that nobody took."""
        for name in self._left:
            path = self.path(name if len(name) <= 80 else f"{name[:77]}…")
            raise bad(f"{path} is not a known field", path, "unknown_parameter")


def shown(value: object) -> str:
    """A value in an error message: short."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= 80 else f"{text[:77]}…"


def _range(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f" from {low} to {high}"
    if low is not None:
        return f" ≥ {low}"
    return f" ≤ {high}" if high is not None else ""
