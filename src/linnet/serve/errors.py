"""What can go wrong with a request, beside a wrong argument (InputError)."""

from __future__ import annotations

from linnet.errors import Error


class ServeError(Error):
    """The root of the engine's own errors."""


class ContextExceeded(ServeError):
    """A prompt of `found` tokens is longer than the `limit` there is."""

    def __init__(self, found: int, limit: int, what: str = "the context holds"):
        super().__init__(f"the prompt has {found} tokens; {what} {limit}")
        self.found, self.limit = found, limit


class QueueFull(ServeError):
    """As many requests wait as may; `retry_after` is a guess in seconds."""

    def __init__(self, waiting: int, retry_after: float):
        super().__init__(f"{waiting} requests are waiting already; try again later")
        self.retry_after = retry_after


class Unavailable(ServeError):
    """The engine takes no requests: it drains, has ended or has failed."""


class RequestFailed(ServeError):
    """One request could not be finished; others go on."""


class ConstraintsUnavailable(ServeError):
    """Answers cannot be held to a form: a package is missing."""
