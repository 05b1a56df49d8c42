"""The process: it listens at once, loads the model beside, and drains before it ends."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from linnet.errors import InputError
from linnet.serve.http.connection import AT_ONCE, Connection, more_files
from linnet.serve.http.logs import Log, taken
from linnet.serve.http.service import Decoder, Embedder, Service

Loader = Callable[[Callable[[str], None]], "Decoder | Embedder"]

_SWITCH = 0.0005  # seconds
_WAITING = 2048  # connections that wait to be accepted
_AFTER = 10  # seconds that open connections have once nothing runs any more


class Server:
    """Serves an application until a signal ends it.

    `load` opens the model, in a thread, and is given a function that says what it does; until it
    is done `/health` answers 503. SIGTERM or SIGINT drains: requests that run and wait are
    finished, for at most `drain` seconds; new ones get 503. A second signal ends at once."""

    def __init__(
        self,
        service: Service,
        application: ASGIApp,
        load: Loader,
        *,
        host: str = "127.0.0.1",
        port: int = 8000,
        drain: float = 30.0,
        log: Log | None = None,
    ):
        self._service, self._load, self._drain = service, load, drain
        self._log = log or Log(None)
        self.error: BaseException | None = None
        self._socket = _bound(host, port)
        self.port: int = self._socket.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.port}"
        config = uvicorn.Config(
            application,
            http=Connection,
            backlog=AT_ONCE,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="none",
            timeout_graceful_shutdown=_AFTER,
        )
        self._server = _Uvicorn(config, self._stop)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._begun: asyncio.Task[None] | None = None
        self._loading: threading.Thread | None = None

    def run(self) -> None:
        """Serves until a signal ends it. Raises what made loading fail."""
        # A step's thread gets back to work within half a millisecond while the loop is busy.
        before = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH)
        more_files()
        try:
            with taken(self._log):
                asyncio.run(self._serve())
        finally:
            sys.setswitchinterval(before)
        if self.error is not None:
            raise self.error

    @property
    def loading(self) -> bool:
        """Whether the thread that loads the model is at it still, though the server may have
        ended: it cannot be stopped."""
        return self._loading is not None and self._loading.is_alive()

    def stop(self) -> None:
        """As a signal does. From any thread."""
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._stop)

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._loading = threading.Thread(target=self._open, name="linnet loading", daemon=True)
        self._loading.start()
        self._log.event("listening", url=self.url)
        with contextlib.suppress(asyncio.CancelledError):
            await self._server.serve([self._socket])
        engine = self._service.engine
        if engine is not None:
            await self._loop.run_in_executor(None, engine.close)
        self._service.threads.shutdown(wait=False, cancel_futures=True)
        self._log.event("ended")

    def _open(self) -> None:
        """Loads the model. In a thread of its own."""

        def progress(text: str) -> None:
            self._service.loading = text
            self._log.event("loading", text=text)

        try:
            opened = self._load(progress)
        except BaseException as error:
            self.error = error
            self._service.phase = "failed"
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._server.end)
            return
        self._service.start(opened)
        self._log.event("ready", model=self._service.name, url=self.url)

    def _stop(self) -> None:
        """The first time: drain; the second: end."""
        if self._begun is not None or self._loop is None:
            self._server.force_exit = True
            self._server.end()
            return
        self._begun = self._loop.create_task(self._end())

    async def _end(self) -> None:
        loading = self._service.phase == "loading"
        self._service.phase = "draining"
        engine = self._service.engine
        self._log.event("draining", seconds=self._drain)
        if engine is not None and not loading:
            loop = asyncio.get_running_loop()
            done = await loop.run_in_executor(None, engine.drain, self._drain)
            self._log.event("drained", complete=done)
        elif not loading:
            end = time.monotonic() + self._drain
            while self._service.embedding and time.monotonic() < end:
                await asyncio.sleep(0.02)
            self._log.event("drained", complete=not self._service.embedding)
        self._server.end()


class _Uvicorn(uvicorn.Server):
    """Hands signals on instead of ending at once."""

    def __init__(self, config: uvicorn.Config, stop: Callable[[], None]):
        super().__init__(config)
        self._stop = stop

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # asyncio takes one number for both: as many wait as ever, and few are taken in one turn,
        # since they are counted after it.
        for bound in sockets or []:
            bound.listen(_WAITING)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._stop()

    def end(self) -> None:
        self.should_exit = True


def _bound(host: str, port: int) -> socket.socket:
    """A socket that is bound: a port in use is said before anything is loaded."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        bound = socket.socket(family, kind, protocol)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as e:
        raise InputError(f"{host}:{port}: cannot be listened at: {e.strerror or e}") from None
    return bound
