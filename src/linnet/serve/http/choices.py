"""One choice of an answer, from the engine's events to pieces and a finish reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from linnet.serve.events import Delta, Finished
from linnet.serve.parsing import AnswerParser, Piece


class ChoiceReader:
    """Reads the events of one choice."""

    def __init__(
        self, thinks: bool, open: bool, tools: Mapping[str, Mapping[str, Any]] | None
    ):  # fmt: skip
        self._parser = AnswerParser(thinks, open, tools)
        self.reasoning_tokens = 0

    def feed(self, delta: Delta) -> list[Piece]:
        pieces = self._parser.feed(delta.text)
        if self._parser.thinking:
            self.reasoning_tokens += len(delta.tokens)
        return pieces

    def finish(self, event: Finished) -> tuple[list[Piece], str]:
        """What was held back, and OpenAI's `finish_reason`."""
        cut = event.reason in ("length", "context")
        pieces = self._parser.finish(complete=not cut)
        if cut:
            return pieces, "length"
        return pieces, "tool_calls" if self._parser.calls else "stop"
