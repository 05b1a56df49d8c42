"""Where measurements go."""

from __future__ import annotations


class Observer:
    """Told of what happens; does nothing. Override what is wanted. The methods are called in the
    engine's thread (`queued` in the submitter's) and must be quick. Times are in seconds."""

    def queued(self) -> None:
        """A request was accepted."""

    def first_token(self, seconds: float) -> None:
        """The first token of a request, since it was submitted."""

    def between_tokens(self, seconds: float) -> None:
        """Each further token of each choice, since the one before."""

    def finished(
        self, reason: str, seconds: float, prompt_tokens: int, cached_tokens: int, new_tokens: int
    ) -> None:
        """A request ended; `reason` as in Finished (of its last choice), or `error`."""

    def step(self, rows: int, seconds: float) -> None:
        """One step of `rows` sequences."""

    def chunk(self, tokens: int, seconds: float) -> None:
        """One chunk of a prompt."""
