"""What the endpoints share: the model, its names, the limits, and the phase of the process."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from linnet.errors import Error
from linnet.serve.errors import QueueFull
from linnet.serve.http.errors import ApiError, api_error, bad
from linnet.serve.http.fields import shown
from linnet.serve.http.metrics import Metrics

if TYPE_CHECKING:
    from linnet.serve.handle import Handle, Listener
    from linnet.serve.request import Request
    from linnet.text.open import TextModel


T = TypeVar("T")


@runtime_checkable
class Decoder(Protocol):
    """What the API needs of an Engine."""

    @property
    def text(self) -> TextModel | None: ...
    @property
    def vocabulary(self) -> int: ...
    @property
    def context(self) -> int: ...
    @property
    def health(self) -> str: ...
    def submit(self, request: Request, listener: Listener | None = None) -> Handle: ...
    def stats(self) -> Any: ...
    def drain(self, timeout: float | None = None) -> bool: ...
    def close(self) -> None: ...


class Embedder(Protocol):
    """An encoder model: texts to vectors. Called in a thread, one call at a time."""

    text: TextModel
    context: int  # tokens of the longest input

    def embed(
        self, inputs: Sequence[Sequence[int]], gone: Callable[[], bool] = lambda: False
    ) -> list[list[float]]:
        """One vector an input, of token ids; in the order given. Where `gone` says that nobody
        waits for them any more, it may give fewer."""
        ...


@dataclass(frozen=True)
class Limits:
    """`body`: bytes of a request; `timeout`: seconds of one, from its arrival to its end;
    `prompts`: how many prompts or inputs one request may hold; `waiting`: how many requests for
    embeddings may wait (an engine has a queue of its own)."""

    body: int = 8 << 20
    timeout: float | None = 600.0
    prompts: int = 256
    waiting: int = 128


@dataclass
class Service:
    """One served model. `engine` or `embedder` is set when it has loaded; `phase` is `loading`,
    `ready`, `draining` or `failed`."""

    names: Sequence[str]
    limits: Limits = field(default_factory=Limits)
    metrics: Metrics = field(default_factory=Metrics)
    engine: Decoder | None = None
    embedder: Embedder | None = None
    phase: str = "loading"
    loading: str = ""  # what is being done, for /health
    created: int = field(default_factory=lambda: int(time.time()))
    encoding: threading.Lock = field(default_factory=threading.Lock)  # one batch at a time
    embedding: int = 0  # requests for embeddings that run or wait
    _posted: deque[tuple[asyncio.Queue[Any], Any]] = field(default_factory=deque)
    _called: bool = False
    _loop: asyncio.AbstractEventLoop | None = None
    _handed: bool = False  # whether the engine says when what is posted is to be handed on
    # Rendering a template and cutting a long text into tokens take a while: not in the loop.
    threads: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(2, thread_name_prefix="linnet-http")
    )

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def health(self) -> str:
        """`ok`, or why requests cannot be served."""
        if self.phase == "ready" and self.engine is not None:
            return self.engine.health
        return "ok" if self.phase == "ready" else self.phase

    def start(self, model: Decoder | Embedder) -> None:
        """The model has loaded. A process that drains already stays so."""
        if isinstance(model, Decoder):
            self.engine = model
            hand_on = getattr(model, "hand_on", None)
            if hand_on is not None:
                hand_on(self._wake)
                self._handed = True
            self.metrics.watch(model.stats)
        else:
            self.embedder = model
        if self.phase == "loading":
            self.phase = "ready"

    def decoder(self) -> tuple[Decoder, TextModel]:
        """The engine, and its text side. Raises ApiError while there is none."""
        self.check_ready()
        if self.engine is None:
            raise bad(f"the model {self.name!r} is an encoder; it has /v1/embeddings only", "model")
        if self.engine.text is None:
            raise ApiError(500, "the model has no tokenizer")
        return self.engine, self.engine.text

    def encoder(self) -> Embedder:
        self.check_ready()
        if self.embedder is None:
            raise bad(f"the model {self.name!r} is a decoder; it has no embeddings", "model")
        return self.embedder

    def tokenizer_side(self) -> tuple[TextModel, int]:
        """Text and context of either kind of model."""
        self.check_ready()
        if self.embedder is not None:
            return self.embedder.text, self.embedder.context
        engine, text = self.decoder()
        return text, engine.context

    def post(self, loop: asyncio.AbstractEventLoop, to: asyncio.Queue[Any], item: Any) -> None:
        """Puts something into a queue of the loop, from the engine's thread. The loop is woken once
        for all that a step has to tell, when the engine's thread has no more need of Python."""
        self._posted.append((to, item))
        self._loop = loop
        if not self._handed:
            self._wake()

    def _wake(self) -> None:
        if self._posted and self._loop is not None and not self._called:
            self._called = True
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:  # the loop has ended, and nobody listens
                self._called = False
                self._posted.clear()

    def _deliver(self) -> None:
        self._called = False  # before the first is taken: what comes from now on calls again
        while self._posted:
            to, item = self._posted.popleft()
            to.put_nowait(item)

    @contextlib.contextmanager
    def place(self) -> Iterator[None]:
        """A place among the requests for embeddings. Raises ApiError where there is none."""
        if self.embedding > self.limits.waiting:
            raise api_error(QueueFull(self.embedding - 1, 1.0))
        self.embedding += 1
        try:
            yield
        finally:
            self.embedding -= 1

    async def in_thread(self, work: Callable[[], T]) -> T:
        """The result of work that takes a while. Raises ApiError for what it raises."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self.threads, work)
        except Error as e:
            raise api_error(e) from e

    def check_loaded(self) -> None:
        """Raises ApiError while the model loads."""
        if self.phase == "loading":
            raise ApiError(
                503, "the model is loading", code="loading", headers={"Retry-After": "5"}
            )  # fmt: skip

    def check_ready(self) -> None:
        """Raises ApiError while requests cannot be served."""
        self.check_loaded()
        if self.phase != "ready":
            raise ApiError(
                503, f"the server is {self.phase}", code=self.phase, headers={"Retry-After": "5"}
            )  # fmt: skip

    def check_model(self, model: object, required: bool = True) -> None:
        """Raises ApiError unless the model asked for is the one served."""
        if model is None and not required:
            return
        if model is None:
            raise bad("model is missing; expected a string", "model", "missing_required_parameter")
        if not isinstance(model, str):
            raise bad(f"model is {shown(model)}; expected a string", "model")
        if model not in self.names:
            known = ", ".join(repr(name) for name in self.names)
            raise ApiError(
                404, f"the model {shown(model)} is not served here; there is {known}",
                param="model", code="model_not_found",
            )  # fmt: skip


def identity(prefix: str) -> str:
    """A fresh id, such as `chatcmpl-…`."""
    return f"{prefix}{uuid.uuid4().hex}"
