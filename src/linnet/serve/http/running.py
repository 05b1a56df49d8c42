"""Requests of one client on their way through the engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from types import TracebackType

from starlette.requests import Request as HttpRequest

from linnet.serve.events import Delta, Done, Event, Failed, Finished, Prefilled
from linnet.serve.handle import Handle
from linnet.serve.http.errors import ApiError, api_error
from linnet.serve.http.service import Decoder, Service
from linnet.serve.request import Request


class Run:
    """Submits requests and gives their events, each with the number of its request:

        async with Run(service, engine, requests, http) as run:
            async for number, event in run: ...

    Leaving the block, for whatever reason, cancels what still runs. Raises ApiError where a
    request is refused or fails as a whole. `prompt`: the field that the prompts came from."""

    def __init__(
        self,
        service: Service,
        engine: Decoder,
        requests: Sequence[Request],
        http: HttpRequest,
        prompt: str = "messages",
    ):
        http.state.run = self  # for the log
        self.prompt_tokens = self.cached_tokens = self.new_tokens = 0
        self.reasons: list[str] = []
        self._service, self._engine, self._requests = service, engine, requests
        self._prompt = prompt
        self._events: asyncio.Queue[tuple[int, Event]] = asyncio.Queue()
        self._handles: list[Handle] = []
        self._open = len(requests)
        self._left = False

    async def __aenter__(self) -> Run:
        loop = asyncio.get_running_loop()
        # A grammar may take a while to compile: not in the loop.
        work = loop.run_in_executor(self._service.threads, self._submit, loop)
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            self._left = True
            work.add_done_callback(lambda w: self.cancel() if not w.cancelled() else None)
            raise
        except Exception as e:
            self.cancel()
            raise api_error(e, self._prompt) from e
        return self

    def _submit(self, loop: asyncio.AbstractEventLoop) -> None:
        for number, request in enumerate(self._requests):
            if self._left:
                return

            def tell(event: Event, number: int = number) -> None:
                self._service.post(loop, self._events, (number, event))

            self._handles.append(self._engine.submit(request, tell))

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._open:
            self.cancel()

    def cancel(self) -> None:
        for handle in self._handles:
            handle.cancel()

    async def __aiter__(self) -> AsyncIterator[tuple[int, Event]]:
        while self._open:
            number, event = await self._events.get()
            match event:
                case Failed(error):
                    raise api_error(error) from error
                case Finished(reason="timeout"):
                    raise ApiError(504, "the request took longer than it may", code="timeout")
                case Finished(reason="error", error=text):
                    raise ApiError(500, f"the request failed: {text}")
                case Finished(reason="cancelled"):
                    raise ApiError(
                        503, "the request was cancelled", code="cancelled",
                        headers={"Retry-After": "5"},
                    )  # fmt: skip
                case Delta(tokens=tokens):
                    self.new_tokens += len(tokens)
                case Prefilled(prompt, cached):
                    self.prompt_tokens += prompt
                    self.cached_tokens += cached
                case Finished(reason=reason):
                    self.reasons.append(reason)
                case Done():
                    self._open -= 1
            yield number, event
