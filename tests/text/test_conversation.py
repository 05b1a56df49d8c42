"""Conversations: the state is kept from turn to turn where the prompt allows it."""

from __future__ import annotations

from typing import Any

import pytest
from text_fakes import ScriptedModel, smollm2_metadata, smollm2_tokenizer

from linnet.errors import BackendError, InputError
from linnet.text.conversation import Conversation
from linnet.text.generation import Delta, Finished
from linnet.text.open import TextModel
from linnet.text.settings import Settings
from linnet.text.template import ChatTemplate

SETTINGS = Settings(stop_tokens=frozenset({2})).change(temperature=0.0)
# A template that leaves out what the model thought in earlier turns.
FORGETS = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content.split('|')[-1] }}<|im_end|>
{% endfor %}<|im_start|>assistant
"""


class Parrot(ScriptedModel):
    """Answers with the texts given, one a turn, whatever it is asked."""

    def __init__(self, *texts: str):
        super().__init__(self._next)
        t = smollm2_tokenizer()
        self.turns = [[*t.encode(x), 2] for x in texts]
        self.said = 0
        self.fresh = True

    def prefill(self, tokens: Any, *, pos: int) -> Any:
        self.said = 0
        return super().prefill(tokens, pos=pos)

    def _next(self, held: list[int]) -> int:
        turn = self.turns[0]
        token = turn[self.said]
        self.said += 1
        if self.said == len(turn):
            self.turns.pop(0)
        return token


class Cell:
    """A tensor, as far as a conversation knows tensors."""

    def __init__(self, value: list[int]):
        self.value = value

    def clone(self) -> Cell:
        return Cell(list(self.value))


class Cells(dict[str, Cell]):
    def __setitem__(self, path: str, value: Cell) -> None:
        self[path].value = list(value.value)


class Recurrent(Parrot):
    """Has caches that may be written again from any position, and a state that only goes on."""

    def __init__(self, *texts: str):
        super().__init__(*texts)
        self.state = Cells({"layers.0.recurrent": Cell([]), "layers.0.cache": Cell([])})
        self.computed = 0

    def _step(self, name: str, tokens: Any, pos: int) -> Any:
        row = tokens[0].tolist()
        self.computed += len(row)
        cell = self.state["layers.0.recurrent"]
        if pos == 0:
            cell.value = []
        self.held = self.held[:pos]  # what lies past it is never read
        assert cell.value == self.held, "the recurrent state stands for other tokens"
        cell.value = cell.value + row
        return super()._step(name, tokens, pos)


def talk(model: Any, template: str | None = None, **more: Any) -> Conversation:
    source = template or smollm2_metadata()["tokenizer.chat_template"]
    text = TextModel(smollm2_tokenizer(), ChatTemplate(source), SETTINGS, "SmolLM2")
    return Conversation(model, text, SETTINGS, **more)


def ask(c: Conversation, message: str, **more: Any) -> tuple[str, Finished]:
    events = list(c.ask(message, **more))
    done = events[-1]
    assert isinstance(done, Finished)
    return "".join(e.text for e in events if isinstance(e, Delta)), done


def test_later_turns_compute_only_what_is_new() -> None:
    model = Parrot("Hello there!", "Paris.", "Bye 🙂")
    c = talk(model)
    assert ask(c, "Hi")[0] == "Hello there!"
    first = len(model.held)
    text, done = ask(c, "What is the capital of France?")
    assert text == "Paris."
    assert done.reused_tokens == first
    assert model.calls[-(len(done.tokens))] == ("prefill", first, done.prompt_tokens - first)
    assert ask(c, "Bye")[0] == "Bye 🙂"
    # What the state stands for is the conversation as the template writes it.
    t = smollm2_tokenizer()
    rendered = c.text.chat(c.messages, add_generation_prompt=False)
    assert rendered.startswith(t.decode(model.held, special=True))
    assert [m["role"] for m in c.messages] == ["user", "assistant"] * 3


def test_a_template_that_rewrites_turns_is_computed_anew() -> None:
    model = Parrot("thoughts|Hello", "thoughts|Paris")
    c = talk(model, FORGETS)
    ask(c, "Hi")
    _, done = ask(c, "And?")
    assert done.reused_tokens == 0
    assert smollm2_tokenizer().decode(model.held, special=True).count("thoughts") == 1


@pytest.mark.parametrize("recurrent", [("layers.0.recurrent",), ()])
def test_dropped_thoughts_cost_no_more_than_the_answer(recurrent: tuple[str, ...]) -> None:
    thoughts = "thinking about it " * 20
    model: Any = Recurrent(f"{thoughts}|Hello", f"{thoughts}|Paris", f"{thoughts}|Bye")
    if not recurrent:
        model._step = lambda *step: ScriptedModel._step(model, *step)
    c = talk(model, FORGETS, recurrent=recurrent)
    t = smollm2_tokenizer()
    for message in ("Hi " * 100, "And?", "Bye"):
        before = len(c.messages)
        _, done = ask(c, message)
        assert t.decode(model.held[: done.prompt_tokens], special=True) == c.text.chat(
            c.messages[:-1]
        )
        if before:
            assert done.reused_tokens > 100
            assert done.prompt_tokens - done.reused_tokens < 30
    assert [m["content"] for m in c.messages if m["role"] == "user"][1:] == ["And?", "Bye"]


def test_an_error_after_going_back_leaves_a_state_that_is_known() -> None:
    model = Recurrent("a thought|Hello", "a thought|Paris", "x|y")
    c = talk(model, FORGETS, recurrent=("layers.0.recurrent",), context=80)
    ask(c, "Hi")
    with pytest.raises(InputError, match="the context holds 80"):
        ask(c, "long " * 200)
    assert ask(c, "And?")[0] == "a thought|Paris"
    calls = iter(range(100))
    ask(c, "Stop", interrupted=lambda: next(calls) > 0)
    model.turns[0] = [2]
    ask(c, "Go on")


def test_an_answer_cut_short_stays_in_the_conversation() -> None:
    model = Parrot("one two three four five", "ok")
    c = talk(model)
    calls = iter(range(100))
    text, done = ask(c, "count", interrupted=lambda: next(calls) > 3)
    assert done.reason == "interrupted" and text == c.messages[-1]["content"] != ""
    model.turns.pop(0)
    held = len(model.held)
    assert ask(c, "go on")[1].reused_tokens == held


def test_an_interrupt_before_the_first_word_takes_the_message_back() -> None:
    c = talk(Parrot("x"))
    assert ask(c, "Hi", interrupted=lambda: True)[1].tokens == ()
    assert c.messages == []


def test_an_error_leaves_the_conversation_as_it_was() -> None:
    c = talk(Parrot("Hello", "again"), context=60)
    ask(c, "Hi")
    before = list(c.messages)
    with pytest.raises(InputError, match="the context holds 60"):
        ask(c, "long " * 200)
    assert c.messages == before
    assert ask(c, "Hi")[0] == "again"

    class Broken(Parrot):
        def decode(self, token: Any, *, pos: int) -> Any:
            raise BackendError("out of memory")

    c = talk(Broken("Hello"))
    with pytest.raises(BackendError):
        ask(c, "Hi")
    assert c.messages == [] and c._held == []


def test_reset_keeps_the_system_message() -> None:
    model = Parrot("a", "b")
    c = talk(model)
    c.messages.append({"role": "system", "content": "Be brief."})
    ask(c, "Hi")
    c.reset()
    assert c.messages == [{"role": "system", "content": "Be brief."}]
    assert ask(c, "Hi")[1].reused_tokens == 0
