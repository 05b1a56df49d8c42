"""A submitted request, seen from the client's side."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator

from linnet.serve.errors import RequestFailed
from linnet.serve.events import (
    Choice,
    Completion,
    Delta,
    Done,
    Event,
    Failed,
    Finished,
    TokenLogprob,
    Usage,
)

Listener = Callable[[Event], None]


class Handle:
    """Events of one request, by iterating; or `result()`. `cancel()` from any thread."""

    def __init__(self, wake: Callable[[], None], listener: Listener | None):
        self._wake = wake
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._listener = listener or self._events.put
        self._listens = listener is not None
        self.cancelled = False
        self.gone = False  # the listener raised: nobody is told any more

    def tell(self, event: Event) -> None:
        """Called by the engine."""
        if self.gone:
            return
        try:
            self._listener(event)
        except Exception:  # a client's fault ends its own request alone
            self.gone = self.cancelled = True

    def cancel(self) -> None:
        """Ends the request within a step."""
        self.cancelled = True
        self._wake()

    def __iter__(self) -> Iterator[Event]:
        if self._listens:
            raise TypeError("the events of this request go to its listener")
        while True:
            event = self._events.get()
            yield event
            if isinstance(event, (Done, Failed)):
                return

    def result(self) -> Completion:
        """Waits for the end. Raises RequestFailed."""
        texts: dict[int, list[str]] = {}
        tokens: dict[int, list[int]] = {}
        logprobs: dict[int, list[TokenLogprob]] = {}
        ends: dict[int, Finished] = {}
        usage = Usage(0, 0, 0)
        for event in self:
            match event:
                case Delta(choice, text, drawn, beside):
                    texts.setdefault(choice, []).append(text)
                    tokens.setdefault(choice, []).extend(drawn)
                    logprobs.setdefault(choice, []).extend(beside)
                case Finished(reason="error", error=text):
                    raise RequestFailed(text or "the answer failed")
                case Finished(choice):
                    ends[choice] = event
                case Failed(error):
                    raise RequestFailed(str(error)) from error
                case Done(usage):
                    pass
        choices = [
            Choice(
                "".join(texts.get(i, ())),
                tuple(tokens.get(i, ())),
                ends[i].reason,
                ends[i].stopped_by,
                tuple(logprobs.get(i, ())),
            )
            for i in sorted(ends)
        ]
        return Completion(tuple(choices), usage)
