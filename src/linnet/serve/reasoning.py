"""Thoughts in a model's answer, told from what it says.

Models of the Qwen3 family think between `<think>` and `</think>`, and their template may leave
a thought open at the end of the prompt. The text comes in pieces; how it is cut changes
nothing: all parts of a kind, joined, are the same for every cut.
"""

from __future__ import annotations

from dataclasses import dataclass

OPEN, CLOSE = "<think>", "</think>"
_CALL, _CALL_END = "<tool_call>", "</tool_call>"


@dataclass(frozen=True)
class Thought:
    """A piece of reasoning."""

    text: str


@dataclass(frozen=True)
class Said:
    """A piece of what is not reasoning; it may hold tool calls."""

    text: str


def held(text: str, *marks: str) -> int:
    """The length of the longest end of `text` that one of the marks begins with."""
    most = min(len(text), max(map(len, marks)) - 1)
    for size in range(most, 0, -1):
        end = text[-size:]
        if any(mark.startswith(end) for mark in marks):
            return size
    return 0


class Thoughts:
    """Splits an answer into thoughts and speech.

    `open`: the prompt ends within a thought. `tools`: the names of the tools there are. This family
    sometimes makes a call before it ends its thought. So calls at the very end of a thought, ended
    or not, are left out of it and put into `kept`: they are calls if the speech makes none, else a
    draft, and `unkept` is then what the thought ends with. A call that the thought goes on after
    was only thought of. Line breaks round a thought belong to the form and are left out.
    """

    def __init__(self, open: bool = False, tools: frozenset[str] = frozenset()):
        self._state = "opened" if open else "start"
        self._tools = tools
        self._buffer = ""
        self._breaks = ""  # line breaks that stand for nothing if the thought ends here
        self.kept = self.unkept = ""

    @property
    def thinking(self) -> bool:
        """Whether what was read so far ends within a thought."""
        return self._state in ("opened", "begun", "thought", "call")

    def feed(self, text: str) -> list[Thought | Said]:
        self._buffer += text
        parts: list[Thought | Said] = []
        while self._step(parts):
            pass
        return parts

    def finish(self) -> list[Thought | Said]:
        """What was held back."""
        rest, self._buffer = self._buffer, ""
        parts: list[Thought | Said] = []
        match self._state:
            case "call":
                if self._is_call(rest):
                    self._keep(rest)
                else:
                    self._think(rest, parts)
            case "thought":
                self._think(rest, parts)
            case "opened":
                if rest.strip():  # the beginning of a tag
                    parts.append(Thought(rest))
            case "start" | "speech":
                if rest:
                    parts.append(Said(rest))
        return parts

    def _step(self, parts: list[Thought | Said]) -> bool:
        """One move; whether another may follow."""
        buffer = self._buffer
        match self._state:
            case "start" | "opened":
                text = buffer.lstrip()
                if text.startswith(OPEN):
                    self._state, self._buffer = "begun", text[len(OPEN) :]
                    return True
                if OPEN.startswith(text):
                    return False
                self._state = "speech" if self._state == "start" else "begun"
                return True
            case "begun":
                self._buffer = buffer.lstrip("\n")
                if not self._buffer:
                    return False
                self._state = "thought"
                return True
            case "thought":
                return self._thought(parts)
            case "call":
                return self._call(parts)
            case "closed":
                self._buffer = buffer.lstrip("\n")
                if not self._buffer:
                    return False
                self._state = "speech"
                return True
            case _:
                if buffer:
                    parts.append(Said(buffer))
                    self._buffer = ""
                return False

    def _thought(self, parts: list[Thought | Said]) -> bool:
        buffer = self._buffer
        marks = (CLOSE, _CALL) if self._tools else (CLOSE,)
        places = [(at, mark) for mark in marks if (at := buffer.find(mark)) >= 0]
        if not places:
            keep = held(buffer, *marks)
            self._think(buffer[: len(buffer) - keep], parts)
            self._buffer = buffer[len(buffer) - keep :]
            return False
        at, mark = min(places)
        self._think(buffer[:at], parts)
        if mark == CLOSE:
            self._state, self._buffer, self._breaks = "closed", buffer[at + len(CLOSE) :], ""
        else:
            self._state, self._buffer = "call", buffer[at:]
        return True

    def _think(self, text: str, parts: list[Thought | Said]) -> None:
        text = self._breaks + text
        shown = text.rstrip("\n")
        self._breaks = text[len(shown) :]
        if shown:
            parts.append(Thought(shown))

    def _call(self, parts: list[Thought | Said]) -> bool:
        """A call begins within the thought: hold it until it is clear what follows."""
        buffer, at = self._buffer, 0
        while True:
            done, end = buffer.find(_CALL_END, at), buffer.find(CLOSE, at)
            if end >= 0 and not 0 <= done < end:
                whole = at > 0 and not buffer[at:end].strip()
                return self._go_on(end, parts, keep=whole and self._is_call(buffer[:end]))
            if done < 0:
                return False
            at = done + len(_CALL_END)
            rest = buffer[at:].lstrip()
            if rest.startswith((_CALL, CLOSE)):
                continue
            if _CALL.startswith(rest) or CLOSE.startswith(rest):  # or nothing came yet
                return False
            return self._go_on(at, parts)

    def _go_on(self, at: int, parts: list[Thought | Said], keep: bool = False) -> bool:
        """The thought goes on, or ends, at a place of the buffer."""
        self._state = "thought"
        if keep:
            self._keep(self._buffer[:at])
        else:
            self._think(self._buffer[:at], parts)
        self._buffer = self._buffer[at:]
        return True

    def _keep(self, text: str) -> None:
        self.kept, self.unkept = text, (self._breaks + text).rstrip("\n")
        self._breaks = ""

    def _is_call(self, text: str) -> bool:
        from linnet.serve.tools import Call, Tools

        tools = Tools({name: {} for name in self._tools})
        found = [p for p in [*tools.feed(text), *tools.finish()] if isinstance(p, Call)]
        return text.rstrip().endswith(_CALL_END) and any(c.name in self._tools for c in found)
