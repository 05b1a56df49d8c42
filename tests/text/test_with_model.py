"""Generation and conversations with real models, small and random."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from text_fakes import smollm2_tokenizer

from linnet.text.conversation import Conversation
from linnet.text.generation import Delta, Finished, generate
from linnet.text.open import TextModel
from linnet.text.settings import Settings
from linnet.text.template import ChatTemplate

MODEL = Path(__file__).parents[2] / "models" / "qwen3.6-35b-a3b"
SMALL: dict[str, int | str] = {
    "Vocab": 49152, "H": 32, "Groups": 1, "HeadDim": 16, "Heads": 2, "KvHeads": 1, "KeyHeads": 2,
    "KeyDim": 8, "ValueHeads": 4, "ValueDim": 8, "Conv": 64, "TopK": 2, "Experts": 4,
    "ExpertInner": 16, "SharedInner": 16, "Batch": 1, "MaxSeq": 512, "T": "f32",
}  # fmt: skip
# Drops all but the last four characters of what was said before.
FORGETS = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content if m.role == 'user' else m.content[-4:] }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


@pytest.fixture(scope="module")
def model() -> Any:
    pytest.importorskip("torch")
    import linnet

    return linnet.load(str(MODEL), weights="random", generics=SMALL, seed=3)


def recurrent(model: Any) -> set[str]:
    found = {p for p in model.state if p.endswith((".history", ".recurrent"))}
    assert found
    return found


def answer(model: Any, ids: list[int], settings: Settings) -> tuple[str, Finished]:
    events = list(generate(model, smollm2_tokenizer(), ids, settings))
    assert isinstance(events[-1], Finished)
    return "".join(e.text for e in events if isinstance(e, Delta)), events[-1]


def test_chunks_change_nothing(model: Any) -> None:
    ids = smollm2_tokenizer().encode("The quick brown fox jumps over the lazy dog. " * 4)
    greedy = Settings(max_new_tokens=8).change(temperature=0.0)
    want = answer(model, ids, greedy)
    for chunk in (1, 7, 16):
        assert answer(model, ids, greedy.change(chunk=chunk))[1].tokens == want[1].tokens


def test_turns_equal_turns_from_the_start(model: Any) -> None:
    settings = Settings(max_new_tokens=12).change(temperature=0.0)
    text = TextModel(smollm2_tokenizer(), ChatTemplate(FORGETS), settings, "test")
    c = Conversation(model, text, settings, recurrent=recurrent(model))
    reused = []
    for message in ("Hello there, how are you?", "What next?", "And then?"):
        events = list(c.ask(message))
        done = events[-1]
        assert isinstance(done, Finished)
        reused.append(done.reused_tokens)
        said = "".join(e.text for e in events if isinstance(e, Delta))
        held = c._held
        ids = smollm2_tokenizer().encode(text.chat(c.messages[:-1]))
        assert ids == held[: len(ids)]
        assert answer(model, ids, settings)[0] == said
        # The comparison moved the model's state to the same tokens.
    assert reused[0] == 0 and reused[2] > reused[1] > 5
