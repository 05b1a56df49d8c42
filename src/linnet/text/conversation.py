"""A conversation: messages, and which of their tokens the model's state holds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from linnet.text.errors import TextError
from linnet.text.generation import Delta, Finished, generate
from linnet.text.open import TextModel
from linnet.text.settings import Settings


@dataclass(frozen=True)
class _Snapshot:
    """Copies of the states that cannot go back, when they held `position` tokens."""

    position: int
    states: dict[str, Any]


@dataclass
class Conversation:
    """Turns of a chat with a model that is loaded for one row.

    The model's state is kept from turn to turn, and as little as possible is computed anew.
    Where the next rendered prompt begins with the text that the state stands for, only what
    follows is computed. Templates of models that think drop the thoughts of earlier turns: then
    the state goes back to where the two part. Caches of positions can (what lies past a position
    is never read); `recurrent` names the states that cannot, and these are copied before each
    answer. Where `recurrent` is None (not known), everything is computed from position 0.
    """

    model: Any  # a `Decoder`; with `recurrent`, also `.state`, a mapping of paths to tensors
    text: TextModel
    settings: Settings
    context: int | None = None
    recurrent: Collection[str] | None = None
    variables: dict[str, Any] = field(default_factory=dict)
    messages: list[dict[str, Any]] = field(default_factory=list)
    _held: list[int] = field(default_factory=list)  # tokens at positions 0 … of the state
    _snapshot: _Snapshot | None = None

    def ask(
        self, message: str, interrupted: Callable[[], bool] = lambda: False
    ) -> Iterator[Delta | Finished]:
        """The answer to a user's message, as the events of `generate`.

        The message and the answer, as far as it came, join the conversation. Where an error is
        raised, the conversation is as it was before the message.
        """
        self.messages.append({"role": "user", "content": message})
        answer: list[str] = []
        turn = len(self.messages)
        try:
            rendered = self.text.chat(self.messages, **self.variables)
            ids, start = self._go_on(rendered)
            mark = self._mark(ids, start)
            events = generate(
                self.model, self.text.tokenizer, ids, self.settings,
                start=start, context=self.context, interrupted=interrupted, mark=mark,
            )  # fmt: skip
            self._held = []  # nothing is known to be held if the model fails
            for event in events:
                if isinstance(event, Delta):
                    answer.append(event.text)
                else:
                    self._held = [*ids, *event.tokens][: event.position]
                    if event.tokens:
                        self.messages.append({"role": "assistant", "content": "".join(answer)})
                    else:  # interrupted within the prompt: nothing was said
                        self.messages.pop()
                yield event
        except BaseException:
            if len(self.messages) == turn:  # no answer has joined
                self.messages.pop()
            raise

    def reset(self) -> None:
        """Forgets all turns but a system message."""
        self.messages = [m for m in self.messages if m["role"] == "system"][:1]

    def _go_on(self, rendered: str) -> tuple[list[int], int]:
        """The tokens of the rendered prompt, and how many of them the state holds."""
        t = self.text.tokenizer
        text = t.decode(self._held, special=True)
        if self._held and rendered.startswith(text) and len(text) < len(rendered):
            # The answer's own tokens are kept: encoding its text anew could cut it otherwise.
            return self._held + t.encode(rendered[len(text) :]), len(self._held)
        ids = t.encode(rendered)
        common = min(_common(ids, self._held), len(ids) - 1)
        start = 0
        if self.recurrent is not None:
            if not self.recurrent:
                start = common
            elif self._snapshot is not None and self._snapshot.position <= common:
                start = self._snapshot.position
                for path, value in self._snapshot.states.items():
                    self.model.state[path] = value  # copies into the model's own tensor
        if self._snapshot is not None and self._snapshot.position > start:
            self._snapshot = None
        # What lies past `start` is about to be overwritten, or lost with what was put back.
        self._held = ids[:start]
        return ids, start

    def _mark(self, ids: list[int], start: int) -> tuple[int, Callable[[], None]] | None:
        """Where to copy the recurrent states: the end of what later turns will repeat."""
        if not self.recurrent:
            return None
        try:
            said = self.text.chat(self.messages, add_generation_prompt=False, **self.variables)
        except TextError:  # a template that wants an answer after each question
            return None
        t = self.text.tokenizer
        at = len(self._held)
        kept = t.decode(self._held, special=True)
        if said.startswith(kept):
            at += _common(ids[at:], t.encode(said[len(kept) :]))
        if at <= start:
            return None
        return at, lambda: self._keep(at)

    def _keep(self, position: int) -> None:
        state = self.model.state
        kept = {p: state[p].clone() for p in self.recurrent or () if p in state}
        self._snapshot = _Snapshot(position, kept)


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens both begin with."""
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
