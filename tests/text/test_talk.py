"""`linnet generate` and `linnet chat`, with a scripted model in place of the weights."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest
from text_fakes import ScriptedModel, smollm2_gguf, smollm2_tokenizer

import linnet
from linnet.cli.main import main

MODEL = "smollm2-135m-instruct"


class Answering(ScriptedModel):
    """Answers every prompt with the same text; does `during(step)` at each step."""

    def __init__(self, text: str, during: Callable[[int], None] = lambda step: None):
        super().__init__(self._next)
        self.answer = [*smollm2_tokenizer().encode(text), 2]
        self.during = during
        self.said = 0

    def prefill(self, tokens: Any, *, pos: int) -> Any:
        self.said = 0
        return super().prefill(tokens, pos=pos)

    def _next(self, held: list[int]) -> int:
        self.during(self.said)
        self.said += 1
        return self.answer[self.said - 1]


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], dict[str, Any]]:
    smollm2_gguf()

    def give(model: Any) -> dict[str, Any]:
        asked: dict[str, Any] = {}

        def fake(name: str, **options: Any) -> Any:
            asked.update(options, model=name)
            model.generics = options["generics"]
            return model

        monkeypatch.setitem(vars(linnet), "load", fake)
        return asked

    return give


def type_in(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def test_a_question_answered(load: Any, capsys: pytest.CaptureFixture[str]) -> None:
    model = Answering("The capital of France is Paris. 🙂")
    asked = load(model)
    assert main(["generate", MODEL, "--chat", "What is the capital of France?"]) == 0
    out, err = capsys.readouterr()
    assert out == "The capital of France is Paris. 🙂\n"
    assert "tokens/s" in err and "context 8192 tokens: state takes" in err
    assert asked["generics"]["Batch"] == 1 and asked["generics"]["MaxSeq"] == 8192
    prompt = smollm2_tokenizer().decode(model.held, special=True)
    assert "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n" in prompt
    assert prompt.startswith("<|im_start|>system\nYou are a helpful")


def test_options(load: Any, capsys: pytest.CaptureFixture[str]) -> None:
    model = Answering("one two three four")
    asked = load(model)
    command = ["generate", MODEL, "count", "--max-new", "2", "--max-seq", "64", "--quiet",
               "--bind", "T=f32", "--numerics", "exact", "--temperature", "0"]  # fmt: skip
    assert main(command) == 0
    assert capsys.readouterr() == ("one two\n", "")
    assert asked["generics"]["MaxSeq"] == 64 and asked["generics"]["T"] == "f32"
    assert asked["numerics"] == "exact" and asked["device"] == "cpu"
    assert model.held[:1] == smollm2_tokenizer().encode("count")
    assert main(["generate", MODEL, "--stop", "three", "-q", "count"]) == 0
    assert capsys.readouterr().out == "one two \n"
    assert main(["generate", MODEL, "--chat", "--system", "Be brief.", "-q", "Hi"]) == 0
    assert "system\nBe brief.<|im_end|>" in smollm2_tokenizer().decode(model.held, special=True)
    assert main(["generate", MODEL, "--raw", "-q", "<|im_start|>"]) == 0
    assert model.held[0] == 1


@pytest.mark.parametrize(
    "words",
    [
        ["--bind", "T=f32", "MaxSeq=128", MODEL, "a prompt"],
        [MODEL, "--bind", "T=f32", "MaxSeq=128", "a prompt"],
        [MODEL, "a prompt", "--bind", "T=f32", "MaxSeq=128"],
    ],
)
def test_bindings_among_the_words(
    load: Any, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    asked = load(Answering("yes"))
    assert main(["generate", "-q", *words]) == 0
    assert capsys.readouterr().out == "yes\n"
    assert asked["generics"]["MaxSeq"] == 128 and asked["generics"]["T"] == "f32"


def test_the_prompt_from_standard_input(
    load: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Answering("yes")
    load(model)
    for words in ([MODEL], [MODEL, "-"]):
        type_in(monkeypatch, "some text é\n")
        assert main(["generate", *words, "-q"]) == 0
        assert smollm2_tokenizer().decode(model.held[:-1]).startswith("some text é")
        assert capsys.readouterr().out == "yes\n"


def test_random_weights_take_the_text_of_the_cards(load: Any, capsys: Any) -> None:
    asked = load(Answering("yes"))
    assert main(["generate", MODEL, "--weights", "random", "-q", "x"]) == 0
    assert asked["weights"] == "random"


def press_ctrl_c(step: int) -> None:
    if step == 2:
        os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_ends_the_answer(load: Any, capsys: pytest.CaptureFixture[str]) -> None:
    load(Answering("one two three four", press_ctrl_c))
    before = signal.getsignal(signal.SIGINT)
    assert main(["generate", MODEL, "--chat", "count"]) == 130
    out, err = capsys.readouterr()
    assert out == "one two three\n"
    assert "interrupted" in err and "Traceback" not in err
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--temperature", "-1", "x"], 1, "temperature is -1.0; expected a number ≥ 0"),
        (["--top-p", "2", "x"], 1, "top_p is 2.0"),
        (["--max-seq", "9000", "x"], 1, "max-seq is 9000; the model was made for at most 8192"),
        (["--max-seq", "4", "a b c d e f g h"], 1, "the prompt has 8 tokens; the context holds 4"),
        (["x", "--bind", "MaxSeq=many"], 1, "MaxSeq is 'many'; expected an integer"),
        (["--bind", "T=f32", "x", "y"], 2, "one word too many: 'y'"),
        (["--weights", "nowhere", "x"], 1, "nowhere"),
        (["--tokenizer", "nowhere", "x"], 1, "nowhere"),
        (["--system", "x", "x"], 2, "--system needs --chat"),
        (["--raw", "--chat", "x"], 2, "exclude each other"),
        (["--numerics", "quick", "x"], 2, "invalid choice"),
    ],
)
def test_wrong_command_lines(
    load: Any, capsys: pytest.CaptureFixture[str], words: list[str], status: int, message: str
) -> None:
    load(Answering("never"))
    assert main(["generate", MODEL, *words]) == status
    out, err = capsys.readouterr()
    assert out == "" and message in err and "Traceback" not in err


def test_an_empty_prompt(load: Any, monkeypatch: Any, capsys: Any) -> None:
    load(Answering("never"))
    type_in(monkeypatch, "")
    assert main(["generate", MODEL]) == 1
    assert "the prompt is empty" in capsys.readouterr().err


def test_a_chat(
    load: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Answering("Hello!")
    load(model)
    lines = "Hi\n\n/help\n/unknown\nAnd?\n/system Be rude.\nHi\n/reset\nHi\n/exit\nnever\n"
    type_in(monkeypatch, lines)
    assert main(["chat", MODEL]) == 0
    out, err = capsys.readouterr()
    assert out == "Hello!\n" * 4
    assert "/reset" in err and "unknown command /unknown" in err and " kept)" in err
    starts = [pos for name, pos, _ in model.calls if name == "prefill"]
    # The second turn goes on; another system message parts early; the last prompt is the same.
    assert starts[0] == 0 and starts[1] > 20 > starts[2] and starts[3] > 10
    assert "system\nBe rude.<|im_end|>" in smollm2_tokenizer().decode(model.held, special=True)


def test_a_chat_goes_on_after_ctrl_c_and_errors(
    load: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Answering("one two three four", press_ctrl_c)
    load(model)
    type_in(monkeypatch, f"count\n{'long ' * 200}\n")
    assert main(["chat", MODEL, "--max-seq", "128"]) == 0
    out, err = capsys.readouterr()
    assert out == "one two three\n"
    assert "interrupted" in err and "the context holds 128" in err
