"""The ASGI application: routes, keys, limits, CORS, logs."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from linnet.serve.http import chat, completions, embeddings, metrics, page, responses, tokens
from linnet.serve.http.errors import ApiError, api_error
from linnet.serve.http.exchange import LARGE_AT_ONCE
from linnet.serve.http.logs import Log, note
from linnet.serve.http.service import Service, identity

Endpoint = Callable[[Service, HttpRequest], Awaitable[Response]]

# What anybody may ask: whether the server is up, and the page, which holds no secrets.
_OPEN = frozenset({"/", "/page.css", "/page.js", "/favicon.ico", "/health"})
_POLLED = frozenset({"/health", "/metrics"})


def application(
    service: Service,
    *,
    keys: Sequence[str] = (),
    origins: Sequence[str] = (),
    log: Log | None = None,
    with_page: bool = True,
) -> ASGIApp:
    """The API of a service. `keys`: without any, everybody may ask; `origins`: of web pages
    elsewhere that may ask (CORS), none by default, `*` for all."""

    def endpoint(work: Endpoint) -> Callable[[HttpRequest], Awaitable[Response]]:
        async def answer(http: HttpRequest) -> Response:
            try:
                return await work(service, http)
            except (ClientDisconnect, HTTPException):
                raise
            except Exception as error:
                return await _on_error(http, error)

        return answer

    async def health(http: HttpRequest) -> Response:
        return _health(service)

    async def measured(http: HttpRequest) -> Response:
        return Response(service.metrics.text(), media_type=metrics.TYPE)

    async def listed(service: Service, http: HttpRequest) -> Response:
        return tokens.models(service)

    async def one(service: Service, http: HttpRequest) -> Response:
        return tokens.model(service, http.path_params["name"])

    routes = [
        Route("/v1/chat/completions", endpoint(chat.chat_completions), methods=["POST"]),
        Route("/v1/completions", endpoint(completions.completions), methods=["POST"]),
        Route("/v1/responses", endpoint(responses.responses), methods=["POST"]),
        Route("/v1/embeddings", endpoint(embeddings.embeddings), methods=["POST"]),
        Route("/v1/models", endpoint(listed)),
        Route("/v1/models/{name:path}", endpoint(one)),
        Route("/tokenize", endpoint(tokens.tokenize), methods=["POST"]),
        Route("/detokenize", endpoint(tokens.detokenize), methods=["POST"]),
        Route("/health", health),
        Route("/metrics", measured),
    ]
    if with_page:
        routes += [Route(path, page.serve) for path in page.FILES]
        routes.append(Route("/favicon.ico", page.icon))
    middleware = [Middleware(Gate, service=service, keys=keys, log=log or Log(None))]
    if origins:
        allowed = Middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type"],
            expose_headers=["x-request-id", "retry-after"],
        )
        middleware.insert(0, allowed)
    handlers: Any = {
        ApiError: _on_error,
        HTTPException: _on_http,
        ClientDisconnect: _on_gone,
        Exception: _on_error,
    }
    app = Starlette(routes=routes, middleware=middleware, exception_handlers=handlers)
    app.state.large = asyncio.Semaphore(LARGE_AT_ONCE)
    return app


def _health(service: Service) -> Response:
    state = service.health
    body: dict[str, Any] = {"status": state, "model": service.name}
    if state == "loading" and service.loading:
        body["doing"] = service.loading
    headers = {"cache-control": "no-store"}
    if state == "ok":
        return JSONResponse(body, headers=headers)
    return JSONResponse(body, 503, headers={**headers, "retry-after": "5"})


def respond(error: ApiError) -> Response:
    return JSONResponse(error.body, error.status, headers=error.headers)


async def _on_error(http: HttpRequest, error: Exception) -> Response:
    shown = api_error(error)
    note(http.scope, error)
    return respond(shown)


async def _on_http(http: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    match error.status_code:
        case 404:
            message = f"there is no {http.method} {http.url.path}"
        case 405:
            message = f"{http.url.path} does not take {http.method}"
        case _:
            message = str(error.detail)
    shown = ApiError(error.status_code, message, headers=dict(error.headers or {}))
    note(http.scope, shown)
    return respond(shown)


async def _on_gone(http: HttpRequest, error: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it; the log does


class Gate:
    """Round everything: a request's id, its key, its line in the log and in the metrics."""

    def __init__(self, app: ASGIApp, service: Service, keys: Sequence[str], log: Log):
        self._app, self._service, self._log = app, service, log
        self._polled: dict[str, int] = {}  # a path's last status
        self._keys = [hashlib.sha256(key.encode()).digest() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = identity("req_")
        scope.setdefault("state", {})["request_id"] = name
        began = time.monotonic()
        status = 499
        gone = ended = False

        async def listen() -> Message:
            nonlocal gone
            message = await receive()
            gone = gone or (message["type"] == "http.disconnect" and not ended)
            return message

        async def tell(message: Message) -> None:
            nonlocal status, ended
            if message["type"] == "http.response.body":
                ended = not message.get("more_body", False)
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", []), (b"x-request-id", name.encode())]
            with contextlib.suppress(OSError):  # the client is gone; `listen` says so
                await send(message)

        try:
            if self._may(scope):
                await self._app(scope, listen, tell)
            else:
                refusal = ApiError(
                    401, "the API key is missing or wrong: send Authorization: Bearer KEY",
                    code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"},
                )  # fmt: skip
                scope["state"]["error"] = refusal
                await respond(refusal)(scope, listen, tell)
        finally:
            route = scope.get("route")
            path = getattr(route, "path", None) or "other"
            self._service.metrics.answered(path, status)
            if self._tells(scope["path"], status):
                self._log.request(scope, name, status, time.monotonic() - began, gone)

    def _tells(self, path: str, status: int) -> bool:
        """Whether the log is to have a line: of what is asked every few seconds, what is new."""
        if path not in _POLLED:
            return True
        before, self._polled[path] = self._polled.get(path, 200), status
        return status != before

    def _may(self, scope: Scope) -> bool:
        if not self._keys or scope["path"] in _OPEN or scope["method"] == "OPTIONS":
            return True
        given = b""
        for header, value in scope["headers"]:
            if header == b"authorization":
                scheme, _, rest = value.partition(b" ")
                given = rest.strip() if scheme.lower() == b"bearer" else b""
        digest = hashlib.sha256(given).digest()
        # Every key is compared, each in constant time, so that time tells nothing.
        found = False
        for key in self._keys:
            found |= hmac.compare_digest(digest, key)
        return found
