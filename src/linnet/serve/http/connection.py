"""One client's connection: how long it may take over a head or an answer, and how many there are.

Uvicorn waits for ever for a head that does not come and for a reader that does not read; here both
have a deadline, so that a few hundred clients who send a byte a second hold nothing for long.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from linnet.serve.http.errors import ApiError

HEAD = 15.0  # seconds from a connection, or a head's first byte, to the head's end
STUCK = 60.0  # seconds in which a reader takes nothing of an answer that waits for it
BUFFERED = 1 << 16  # bytes of later requests that are kept while one is answered
SPARE = 256  # files that the process may want to open besides, or has before they are counted
MOST = 4096  # connections
AT_ONCE = 64  # that are accepted in one turn of the loop


def most_connections() -> int:
    """As many as leave some of the process's files for itself."""
    try:
        import resource
    except ImportError:  # not on every system
        return MOST
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    known = MOST if files == resource.RLIM_INFINITY else files - SPARE
    return max(16, min(MOST, known))


def more_files() -> None:
    """Lets the process open as many files as the most connections take, where it may: the usual
    limit is for programs that wait in another way."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = MOST + 2 * SPARE
        if hard != resource.RLIM_INFINITY:
            wanted = min(wanted, hard)
        if soft != resource.RLIM_INFINITY and soft < wanted:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Connection(H11Protocol):
    """HTTP/1.1 to one client. What is no HTTP gets an error in the API's own form."""

    def __init__(self, *args: Any, **keywords: Any):
        super().__init__(*args, **keywords)
        self._coming: asyncio.TimerHandle | None = None  # a head is to be there by then
        self._taking: asyncio.TimerHandle | None = None  # something is to be read by then
        self._said = False  # whether any byte came

    # --- What uvicorn and asyncio call --------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > most_connections():
            self._refuse(503, "there are too many connections", "too_many_connections")
            return
        self._coming = self.loop.call_later(HEAD, self._late)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._coming, self._taking):
            if timer is not None:
                timer.cancel()
        self._coming = self._taking = None
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._said = True
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._answering:
            if self._coming is not None:
                self._coming.cancel()
                self._coming = None
            self._keep_reading()
        elif self._coming is None and not self.transport.is_closing():
            # Of the next head, or of a body that nobody waits for any more.
            self._coming = self.loop.call_later(HEAD, self._late)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._taking is None:
            self._taking = self.loop.call_later(STUCK, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():  # when all was taken, which may be never
            self._end_soon()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._end_soon()

    def send_400_response(self, msg: str) -> None:
        """What came is no HTTP."""
        if self._answering and self.cycle.response_started:
            self.transport.abort()  # within an answer nothing can be said
        else:
            self._refuse(400, "the request is not HTTP/1.1 as it should be", "invalid_http")

    # --- Ours -----------------------------------------------------------------------

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _keep_reading(self) -> None:
        """While an answer is made reading stops where the next request begins, and with it the
        news that the client has gone: so some of what follows is read ahead."""
        if self.flow.read_paused and not self.cycle.more_body:
            if len(self.conn.trailing_data[0]) < BUFFERED:
                self.flow.resume_reading()

    def _late(self) -> None:
        self._coming = None
        if self.transport.is_closing() or self._answering:
            return
        if self.cycle is None and self._said:
            self._refuse(408, f"the head did not come within {HEAD:.0f} seconds", None)
        else:
            self._end_soon()

    def _end_soon(self) -> None:
        """Closes when what was written has been taken, or was not taken for long."""
        self.transport.close()
        self.loop.call_later(STUCK, self.transport.abort)

    def _refuse(self, status: int, message: str, code: str | None) -> None:
        body = json.dumps(ApiError(status, message, code=code).body).encode()
        again = b"retry-after: 5\r\n" if status == 503 else b""
        head = b"HTTP/1.1 %d %s\r\n" % (status, _PHRASES[status])
        self.transport.write(
            head + b"content-type: application/json\r\nconnection: close\r\n" + again
            + b"content-length: %d\r\n\r\n" % len(body) + body
        )  # fmt: skip
        self._end_soon()


_PHRASES = {400: b"Bad Request", 408: b"Request Timeout", 503: b"Service Unavailable"}
