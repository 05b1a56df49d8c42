"""An answer's text as its client sees it: reasoning, content and tool calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from linnet.serve.reasoning import Said, Thought, Thoughts
from linnet.serve.tools import Arguments, Call, Text, Tools

Piece = Thought | Text | Call | Arguments


class AnswerParser:
    """Reads one choice. `thinks`: whether the model's answers may hold thoughts; `open`: the
    prompt ends within one. `tools`: the schema of each tool's parameters, or None where calls
    are not looked for."""

    def __init__(
        self,
        thinks: bool = False,
        open: bool = False,
        tools: Mapping[str, Mapping[str, Any]] | None = None,
    ):
        names = frozenset(tools or ())
        self._thoughts = Thoughts(open, names) if thinks or open else None
        self._tools = Tools(tools) if tools is not None else None

    @property
    def calls(self) -> int:
        """How many calls there were."""
        return self._tools.calls if self._tools is not None else 0

    @property
    def thinking(self) -> bool:
        """Whether what was read so far ends within a thought."""
        return self._thoughts is not None and self._thoughts.thinking

    def feed(self, text: str) -> list[Piece]:
        """The pieces that a text decides."""
        if self._thoughts is None:
            return self._speech(text)
        return self._pieces(self._thoughts.feed(text))

    def finish(self, complete: bool = True) -> list[Piece]:
        """What was held back; `complete`: the answer was not cut by a limit."""
        thoughts, tools = self._thoughts, self._tools
        pieces = [] if thoughts is None else self._pieces(thoughts.finish())
        if tools is not None:
            pieces += tools.finish(complete)
        if thoughts is not None and thoughts.kept:
            if tools is not None and not tools.calls:
                pieces += [*tools.feed(thoughts.kept), *tools.finish(complete)]
            else:
                pieces.append(Thought(thoughts.unkept))
        return pieces

    def _pieces(self, parts: list[Thought | Said]) -> list[Piece]:
        pieces: list[Piece] = []
        for part in parts:
            if isinstance(part, Thought):
                pieces.append(part)
            else:
                pieces += self._speech(part.text)
        return pieces

    def _speech(self, text: str) -> list[Piece]:
        if self._tools is None:
            return [Text(text)] if text else []
        return list(self._tools.feed(text))
