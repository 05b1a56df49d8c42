"""A conversation: messages, and which of their tokens the model's state holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from linnet.text.generation import Decoder, Delta, Finished, generate
from linnet.text.open import TextModel
from linnet.text.settings import Settings


@dataclass
class Conversation:
    """Turns of a chat with a model that is loaded for one row.

    The model's state is kept from turn to turn. Where the next rendered prompt begins with the
    text that the state stands for, only what follows is computed; otherwise (a template that
    drops or rewrites earlier turns) everything is, from position 0.
    """

    model: Decoder
    text: TextModel
    settings: Settings
    context: int | None = None
    variables: dict[str, Any] = field(default_factory=dict)
    messages: list[dict[str, Any]] = field(default_factory=list)
    _held: list[int] = field(default_factory=list)  # tokens at positions 0 … of the state

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
            ids, start = self.tokens()
            held, self._held = self._held[:start], []  # nothing is held if the model fails
            for event in generate(
                self.model, self.text.tokenizer, ids, self.settings,
                start=start, context=self.context, interrupted=interrupted,
            ):  # fmt: skip
                if isinstance(event, Delta):
                    answer.append(event.text)
                else:
                    held = [*ids, *event.tokens][: event.position]
                    self._held = held
                    if event.tokens:
                        self.messages.append({"role": "assistant", "content": "".join(answer)})
                    else:  # interrupted within the prompt: nothing was said
                        self.messages.pop()
                yield event
        except BaseException:
            if len(self.messages) == turn:  # no answer has joined
                self.messages.pop()
            raise

    def tokens(self) -> tuple[list[int], int]:
        """The tokens of the prompt for the messages so far, and how many the state holds."""
        rendered = self.text.chat(self.messages, **self.variables)
        t = self.text.tokenizer
        held = t.decode(self._held, special=True)
        if self._held and rendered.startswith(held) and len(held) < len(rendered):
            # The answer's own tokens are kept: encoding its text anew could cut it otherwise.
            return self._held + t.encode(rendered[len(held) :]), len(self._held)
        return t.encode(rendered), 0

    def reset(self) -> None:
        """Forgets all turns but a system message."""
        self.messages = [m for m in self.messages if m["role"] == "system"][:1]
        self._held = []
