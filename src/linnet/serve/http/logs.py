"""The log: one JSON object a line, without prompts or answers."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any, TextIO

from linnet.errors import Error
from linnet.serve.http.errors import ApiError

_AGAIN = 1.0  # seconds until a library's warning is told again


class Log:
    """Writes to a stream, or nowhere. Lines are written whole, from any thread."""

    def __init__(self, stream: TextIO | None = sys.stderr, plain: bool = False):
        self._stream, self._plain = stream, plain
        self._lock = threading.Lock()

    def event(self, event: str, **values: Any) -> None:
        """One line: `time`, `event` and the values that are not None."""
        if self._stream is None:
            return
        now = time.time()
        stamp = (
            time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now * 1000) % 1000:03d}Z"
        )
        values = {k: v for k, v in values.items() if v is not None}
        if self._plain:
            said = " ".join(f"{k}={v}" for k, v in values.items() if k != "text")
            line = _printable(f"{stamp[11:19]} {event} {values.get('text', '')}{said}".rstrip())
        else:
            line = json.dumps({"time": stamp, "event": event, **values})
        try:
            with self._lock:
                self._stream.write(line + "\n")
                self._stream.flush()
        except (OSError, ValueError):
            pass  # nobody reads it

    def request(self, scope: Any, name: str, status: int, seconds: float, gone: bool) -> None:
        """A request that was answered. Messages of errors may quote a prompt: not logged."""
        error = scope.get("state", {}).get("error")
        shown: dict[str, Any] = {}
        if isinstance(error, ApiError):
            shown = {"code": error.code, "param": error.param and _cut(error.param)}
        elif error is not None:
            shown = {"fault": type(error).__name__}
            if not isinstance(error, Error):
                shown["where"] = _where(error)
        run = scope.get("state", {}).get("run")
        if run is not None:
            shown |= {
                "prompt_tokens": run.prompt_tokens,
                "cached_tokens": run.cached_tokens,
                "new_tokens": run.new_tokens,
                "reasons": run.reasons or None,
            }
        client = scope.get("client") or ("", 0)
        self.event(
            "request", id=name, client=client[0], method=scope["method"], path=_cut(scope["path"]),
            status=status, seconds=round(seconds, 4), gone=gone or None, **shown,
        )  # fmt: skip


class _Foreign(logging.Handler):
    """What the libraries below say, as lines of our log."""

    def __init__(self, log: Log):
        super().__init__(logging.WARNING)
        self._log = log
        self._said: dict[str, float] = {}  # when a text was last told

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        shown: dict[str, Any] = {}
        if error is not None:
            shown = {"fault": type(error).__name__, "where": _where(error)}
        text = _cut(record.getMessage().partition("\n")[0])  # what follows may quote anything
        now = time.monotonic()
        if now - self._said.get(text, -math.inf) < _AGAIN:
            return
        if len(self._said) > 100:
            self._said.clear()
        self._said[text] = now
        self._log.event("warning", text=text, **shown)


@contextlib.contextmanager
def taken(log: Log) -> Iterator[None]:
    """While it lasts uvicorn and asyncio write to the log, not beside it."""
    handler = _Foreign(log)
    loggers = [logging.getLogger(name) for name in ("uvicorn.error", "asyncio")]
    before = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, propagate in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.propagate = propagate


def _where(error: BaseException) -> list[str]:
    frames = traceback.extract_tb(error.__traceback__)
    return [f"{f.filename}:{f.lineno}" for f in frames[-4:]]


def _cut(text: str, most: int = 200) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _printable(line: str) -> str:
    """A client's words must not make lines or colours of their own."""
    if line.isprintable():
        return line
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)


def note(scope: Any, error: BaseException) -> None:
    """Remembers what went wrong with a request, for its line; of a fault of ours the cause."""
    if isinstance(error, ApiError) and error.status >= 500:
        error = error.__cause__ or error
    scope.setdefault("state", {})["error"] = error
