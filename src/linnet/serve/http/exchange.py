"""One HTTP exchange: the body read within its limit, the answer sent while somebody listens."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from linnet.serve.http.errors import ApiError, api_error, bad
from linnet.serve.http.logs import note

T = TypeVar("T")
# A stream that says nothing for so long sends a comment, so that no proxy thinks it dead.
_QUIET = 15.0
_SLOW = 30.0  # seconds in which a body is to come
_LARGE = 1 << 16  # bytes of a body that is one of the large ones …
LARGE_AT_ONCE = 32  # … of which so many come in side by side: others wait until one is in


async def read_json(request: Request, most: int) -> Any:
    """The body as JSON. Raises ApiError 413, 415 or 400."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    # Other types can be sent across origins by any web page, without asking.
    if kind != "application/json":
        raise ApiError(
            415, f"the content type is {kind or 'missing'!r}; expected application/json"
        )  # fmt: skip
    data = await read_body(request, most)
    try:
        text = data.decode("utf-8")
        value = json.loads(text, parse_constant=_refuse)
        if "\\u" in text:  # half of a surrogate pair is no character
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        return value
    except UnicodeError:
        raise bad("the body is not UTF-8") from None
    except (ValueError, RecursionError) as e:
        raise bad(f"the body is not JSON: {e}") from None


async def read_body(request: Request, most: int) -> bytes:
    """Raises ApiError 413 for a body that is too large, 408 for one that does not come."""
    try:
        return await asyncio.wait_for(_read_body(request, most), _SLOW)
    except asyncio.TimeoutError:
        text = f"the body did not come within {_SLOW:.0f} seconds"
        raise ApiError(408, text, headers={"Connection": "close"}) from None


async def _read_body(request: Request, most: int) -> bytes:
    stated = request.headers.get("content-length", "")
    size = 0
    parts: list[bytes] = []
    async with contextlib.AsyncExitStack() as held:
        places = getattr(request.app.state, "large", None)
        if not (stated.isdecimal() and len(stated) < 20 and int(stated) > most):
            async for part in request.stream():
                size += len(part)
                parts.append(part)
                if size > most:
                    break
                if size > _LARGE and places is not None:
                    await held.enter_async_context(places)
                    places = None
            else:
                return b"".join(parts)
    raise ApiError(413, f"the body is larger than {most} bytes", code="body_too_large")


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


async def while_listening(request: Request, work: Awaitable[T]) -> T:
    """The result of some work, which is cancelled when the client goes away.

    The body has been read. Raises ClientDisconnect."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request.receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        for one in (task, gone):
            one.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def json_response(value: Any, status: int = 200) -> Response:
    return JSONResponse(value, status)


class EventStream(Response):
    """Server-sent events, one for each text that `events` gives. `events` is closed as soon as
    the client goes away, and `on_end` called in any case. An error on the way is sent as an event
    and ends the stream."""

    def __init__(
        self,
        events: AsyncIterator[str],
        on_error: Callable[[ApiError], str] | None = None,
        on_end: Callable[[], None] = lambda: None,
    ):
        super().__init__(media_type="text/event-stream")
        del self.headers["content-length"]
        self.headers["cache-control"] = "no-store"
        self.headers["x-accel-buffering"] = "no"
        self._events = events
        self._on_error = on_error or (lambda error: data(error.body))
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        work = asyncio.ensure_future(self._send(scope, send))
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait((work, gone), return_when=asyncio.FIRST_COMPLETED)
            if work.done() and not work.cancelled():
                work.result()
        finally:
            for one in (work, gone):
                one.cancel()
            await asyncio.gather(work, gone, return_exceptions=True)
            close = getattr(self._events, "aclose", None)
            if close is not None:
                await close()
            self._on_end()

    async def _send(self, scope: Scope, send: Send) -> None:
        await send(
            {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
        )

        loop = asyncio.get_running_loop()
        last = loop.time()

        async def write(text: str, more: bool = True) -> None:
            nonlocal last
            last = loop.time()
            body = text.encode("utf-8")
            await send({"type": "http.response.body", "body": body, "more_body": more})

        async def tick() -> None:
            while True:
                await asyncio.sleep(max(0.0, last + _QUIET - loop.time()))
                if loop.time() >= last + _QUIET:
                    await write(": still here\n\n")

        error: BaseException | None = None
        ticking = asyncio.ensure_future(tick())
        try:
            async for text in self._events:
                await write(text)
        except OSError as e:
            error = e  # nobody listens
        except Exception as e:
            error = e
            note(scope, e)
            await write(self._on_error(api_error(e)))
        finally:
            ticking.cancel()
            await asyncio.gather(ticking, return_exceptions=True)
        if not isinstance(error, OSError):
            await write("", more=False)


def data(value: Any, event: str | None = None) -> str:
    """One server-sent event with a JSON value (or a text as it stands)."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {text}\n\n"


DONE = data("[DONE]")
