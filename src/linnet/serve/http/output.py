"""The output items of a response, built from an answer's pieces, with the events that tell it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from linnet.serve.events import Delta
from linnet.serve.http.logprobs import chat_logprobs, said
from linnet.serve.http.service import identity
from linnet.serve.parsing import Piece
from linnet.serve.reasoning import Thought
from linnet.serve.tools import Call, Text
from linnet.text.tokenizer import Tokenizer

Event = dict[str, Any]


class Output:
    """`items` grows: reasoning, a message, function calls, each open until the next begins.

    `tokenizer` is given where log probabilities are asked for."""

    def __init__(self, tokenizer: Tokenizer | None, ends: Collection[int]):
        self.items: list[dict[str, Any]] = []
        self._tokenizer, self._ends = tokenizer, ends
        self._open: dict[str, Any] | None = None
        self._logprobs: list[Any] = []

    def add(self, pieces: list[Piece], delta: Delta | None = None) -> list[Event]:
        """Takes pieces; the events to send."""
        if self._tokenizer is not None and delta is not None:
            self._logprobs += chat_logprobs(self._tokenizer, said(delta, self._ends))
        events: list[Event] = []
        for piece in pieces:
            match piece:
                case Thought(text):
                    part = self._part("reasoning", events)
                    part["text"] += text
                    events.append(self._event("reasoning_text.delta", delta=text))
                    self._logprobs = []
                case Text(text):
                    part = self._part("message", events)
                    part["text"] += text
                    told, self._logprobs = self._logprobs, []
                    if self._tokenizer is not None:
                        part["logprobs"] += told
                    events.append(self._event("output_text.delta", delta=text, logprobs=told))
                case Call(_, name):
                    call = identity("call_")
                    item = {"type": "function_call", "call_id": call, "name": name, "arguments": ""}
                    self._begin(identity("fc_"), item, events)
                case _:
                    assert self._open is not None
                    self._open["arguments"] += piece.text
                    events.append(self._event("function_call_arguments.delta", delta=piece.text))
        return events

    def end(self, cut: bool = False) -> list[Event]:
        """Closes the item that is open; without any there is an empty message."""
        events: list[Event] = []
        if not self.items:
            self._part("message", events)
        self._close("incomplete" if cut else "completed", events)
        return events

    def _part(self, kind: str, events: list[Event]) -> dict[str, Any]:
        """The text part of the open item of a kind; one is begun where another is open."""
        if self._open is None or self._open["type"] != kind:
            if kind == "message":
                content = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
                item = {"type": kind, "role": "assistant", "content": [content]}
                self._begin(identity("msg_"), item, events)
            else:
                content = {"type": "reasoning_text", "text": ""}
                self._begin(
                    identity("rs_"), {"type": kind, "summary": [], "content": [content]}, events
                )
            events.append(self._event("content_part.added", part=dict(content)))
        assert self._open is not None
        part: dict[str, Any] = self._open["content"][0]
        return part

    def _begin(self, name: str, item: dict[str, Any], events: list[Event]) -> None:
        self._close("completed", events)
        self._open = {"id": name, "status": "in_progress", **item}
        self.items.append(self._open)
        shown = {**self._open, **({"content": []} if "content" in item else {})}
        events.append(
            {
                "type": "response.output_item.added",
                "output_index": len(self.items) - 1,
                "item": shown,
            }
        )

    def _close(self, status: str, events: list[Event]) -> None:
        item = self._open
        if item is None:
            return
        item["status"] = status
        if item["type"] == "function_call":
            events.append(
                self._event(
                    "function_call_arguments.done", arguments=item["arguments"], name=item["name"]
                )
            )
        else:
            part = item["content"][0]
            if item["type"] == "message":
                events.append(
                    self._event("output_text.done", text=part["text"], logprobs=part["logprobs"])
                )
            else:
                events.append(self._event("reasoning_text.done", text=part["text"]))
            events.append(self._event("content_part.done", part=dict(part)))
        events.append(
            {
                "type": "response.output_item.done",
                "output_index": len(self.items) - 1,
                "item": dict(item),
            }
        )
        self._open = None

    def _event(self, kind: str, **values: Any) -> Event:
        assert self._open is not None
        event: Event = {
            "type": f"response.{kind}",
            "item_id": self._open["id"],
            "output_index": len(self.items) - 1,
        }
        if self._open["type"] != "function_call":
            event["content_index"] = 0
        return {**event, **values}
