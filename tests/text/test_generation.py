"""Generation with a scripted model: what is asked of it, what is shown, why it ends."""

from __future__ import annotations

from typing import Any

import pytest
from text_fakes import ScriptedModel, answers, smollm2_tokenizer

from linnet.errors import BackendError, InputError
from linnet.text.generation import Delta, Finished, generate
from linnet.text.settings import Settings

GREEDY = Settings(stop_tokens=frozenset({2})).change(temperature=0.0)


def run(
    answer: str | list[int], settings: Settings = GREEDY, prompt: str = "a prompt", **more: Any
) -> tuple[str, Finished, ScriptedModel]:
    t = smollm2_tokenizer()
    said = [*t.encode(answer), 2] if isinstance(answer, str) else answer
    ids = t.encode(prompt)
    model = ScriptedModel(answers([*said, *[5] * 3000], len(ids)))
    if "context" in more:
        model.generics["MaxSeq"] = more["context"]
    shown, tokens, done = [], [], None
    for event in generate(model, t, ids, settings, **more):
        if isinstance(event, Delta):
            assert done is None
            shown.append(event.text)
            tokens.extend(event.tokens)
        else:
            done = event
    assert done is not None and tuple(tokens) == done.tokens
    assert done.position == len(model.held)
    assert done.prompt_tokens == len(ids)
    return "".join(shown), done, model


def test_an_answer_ends_with_a_stop_token() -> None:
    text, done, model = run("Paris, 🙂 naïve 你好.")
    assert text == "Paris, 🙂 naïve 你好."
    assert (done.reason, done.stopped_by) == ("stop", 2)
    assert done.tokens[-1] == 2
    assert model.calls[0] == ("prefill", 0, done.prompt_tokens)
    assert [c[0] for c in model.calls[1:]] == ["decode"] * (len(done.tokens) - 1)


def test_without_settings_the_end_token_ends_a_greedy_answer() -> None:
    t = smollm2_tokenizer()
    model = ScriptedModel(answers([*t.encode("yes"), 2], 1))
    events = list(generate(model, t, t.encode("a")))
    assert "".join(e.text for e in events if isinstance(e, Delta)) == "yes"


@pytest.mark.parametrize(
    ("stop", "shown"),
    [
        (("World",), "Hello "),
        (("lo W",), "Hel"),
        ((" W", "Hello World, and"), ""),
        (("!!", "nothing"), "Hello World, and so on"),
        (("so on",), "Hello World, and "),
    ],
)
def test_stop_strings(stop: tuple[str, ...], shown: str) -> None:
    text, done, _ = run("Hello World, and so on", GREEDY.change(stop=stop))
    assert text == shown
    assert done.reason == "stop"
    assert done.stopped_by == (2 if "and so on" in shown else done.stopped_by)


def test_lengths() -> None:
    for n in (0, 1, 3):
        text, done, model = run("one two three four five", GREEDY.change(max_new_tokens=n))
        assert (done.reason, len(done.tokens)) == ("length", n)
        # The last token is shown, and not computed on.
        assert len(model.held) == done.prompt_tokens + max(0, n - 1)
        assert "one two three four five".startswith(text)


def test_the_context_ends_an_answer() -> None:
    _text, done, model = run([7] * 50, context=12)
    assert done.reason == "context"
    assert len(model.held) == 12
    # The token after the last position is drawn and shown.
    assert done.prompt_tokens + len(done.tokens) == 13


def test_a_prompt_that_fills_the_context_gives_one_token() -> None:
    n = len(smollm2_tokenizer().encode("a prompt"))
    _, done, _ = run([7] * 50, context=n)
    assert (done.reason, len(done.tokens)) == ("context", 1)


def test_long_prompts_come_in_chunks() -> None:
    text, _done, model = run("ok", GREEDY.change(chunk=4), prompt="a b c d e f g h i")
    assert text == "ok"
    sizes = [(pos, n) for name, pos, n in model.calls if name == "prefill"]
    assert sizes == [(0, 4), (4, 4), (8, 1)]


def test_interrupts() -> None:
    t = smollm2_tokenizer()
    calls = 0

    def after(n: int) -> Any:
        nonlocal calls
        calls = 0

        def asked() -> bool:
            nonlocal calls
            calls += 1
            return calls > n

        return asked

    text, done, _model = run("x", GREEDY.change(chunk=1), prompt="a b c", interrupted=after(1))
    assert (done.reason, text, done.position) == ("interrupted", "", 1)
    text, done, _model = run("one two three four", interrupted=after(3))
    assert (done.reason, text) == ("interrupted", "one two three")
    assert done.position == done.prompt_tokens + 2
    assert t.decode(done.tokens) == text


def test_an_unfinished_character_is_shown_as_replaced_at_the_end() -> None:
    t = smollm2_tokenizer()
    smile = t.encode("🙂")
    text, _done, _ = run(smile[:1], GREEDY.change(max_new_tokens=1))
    assert text == "\ufffd"


def test_special_tokens_are_shown_on_request() -> None:
    assert run([1, 2])[0] == ""
    assert run([1, 500, 2], GREEDY.change(special=True))[0].startswith("<|im_start|>")


def test_sampling_is_used() -> None:
    t = smollm2_tokenizer()

    def tokens(seed: int) -> tuple[int, ...]:
        model = ScriptedModel(lambda held: 3)
        s = Settings(max_new_tokens=5).change(temperature=50.0, seed=seed)
        done = list(generate(model, t, [1], s))[-1]
        assert isinstance(done, Finished)
        return done.tokens

    assert tokens(1) == tokens(1) != tokens(2)


def test_going_on_from_what_the_state_holds() -> None:
    t = smollm2_tokenizer()
    model = ScriptedModel(answers([2], 5))
    model.held = [10, 11, 12]
    done = list(generate(model, t, [10, 11, 12, 13, 14], GREEDY, start=3))[-1]
    assert isinstance(done, Finished)
    assert model.calls == [("prefill", 3, 2)]
    assert (done.reused_tokens, done.position) == (3, 5)


def test_rates_count_what_was_computed() -> None:
    done = Finished("stop", 2, (1,) * 11, 100, 60, 2.0, 5.0, 110)
    assert (done.prompt_rate, done.decode_rate) == (20.0, 2.0)
    assert Finished("length", None, (), 5, 0, 0.0, 0.0, 5).decode_rate is None


@pytest.mark.parametrize(
    ("ids", "more", "message"),
    [
        ([], {}, "the prompt is empty"),
        ([1] * 30, {"context": 29}, "the prompt has 30 tokens; the context holds 29"),
        ([1] * 3000, {}, "the context holds 2048"),
        ([1, 2], {"start": 2}, "start is 2; expected 0 to 1"),
    ],
)
def test_wrong_prompts(ids: list[int], more: dict[str, Any], message: str) -> None:
    model = ScriptedModel(lambda held: 2)
    with pytest.raises(InputError, match=message):
        generate(model, smollm2_tokenizer(), ids, GREEDY, **more)
    assert model.calls == []


def test_models_that_cannot_generate() -> None:
    with pytest.raises(InputError, match="no entry `prefill`"):
        generate(object(), smollm2_tokenizer(), [1])  # type: ignore[arg-type]

    class Rows(ScriptedModel):
        def prefill(self, tokens: Any, *, pos: int) -> Any:
            return super().prefill(tokens, pos=pos).repeat(2, axis=0)

    with pytest.raises(BackendError, match="Batch = 1"):
        list(generate(Rows(lambda held: 2), smollm2_tokenizer(), [1]))


def test_torch_logits_are_read() -> None:
    torch = pytest.importorskip("torch")

    class Torch(ScriptedModel):
        def _step(self, name: str, tokens: Any, pos: int) -> Any:
            row = super()._step(name, tokens, pos)
            return torch.tensor(row, requires_grad=True).bfloat16()

    t = smollm2_tokenizer()
    model = Torch(answers([*t.encode("yes"), 2], 1))
    events = list(generate(model, t, t.encode("a")))
    assert "".join(e.text for e in events if isinstance(e, Delta)) == "yes"
