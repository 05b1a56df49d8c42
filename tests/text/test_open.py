"""Where the text side of a model is found."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from text_fakes import smollm2_gguf, smollm2_tokenizer

from linnet.errors import Error
from linnet.text.errors import TextError
from linnet.text.open import open_text

MESSAGES = [{"role": "user", "content": "Hi"}]


def folder_with_tokenizer(path: Path) -> Path:
    path.mkdir(exist_ok=True)
    smollm2_tokenizer()._backend.save(str(path / "tokenizer.json"))
    return path


def test_from_a_gguf_file() -> None:
    text = open_text(smollm2_gguf())
    assert text.tokenizer.eos == 2
    assert text.settings.stop_tokens == {2} and text.settings.sampling.greedy
    assert text.chat(MESSAGES).endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert open_text(None, smollm2_gguf().parent).source == str(smollm2_gguf())


def test_files_beside_the_weights_come_first(tmp_path: Path) -> None:
    here = folder_with_tokenizer(tmp_path / "weights")
    (here / "tokenizer_config.json").write_text(
        json.dumps({"eos_token": "<|endoftext|>", "chat_template": "T {{ eos_token }}"})
    )
    (here / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 6]}))
    card = folder_with_tokenizer(tmp_path / "card")
    shard = here / "model-00001-of-00002.safetensors"
    other = here / "model-00002-of-00002.safetensors"
    shard.touch()
    other.touch()
    for place in (here, shard, [shard, other]):
        text = open_text(place, card, smollm2_gguf())
        assert text.source == str(here)
        assert text.settings.stop_tokens == {0, 5, 6}
        assert text.chat(MESSAGES) == "T <|endoftext|>"


def test_the_card_gives_what_the_weights_lack(tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "generation_config.json").write_text(json.dumps({"eos_token_id": 9}))
    card = folder_with_tokenizer(tmp_path / "card")
    (card / "chat_template.jinja").write_text("from the card")
    text = open_text(weights, card)
    assert text.source == str(card)
    assert text.settings.stop_tokens == {9}
    assert text.chat(MESSAGES) == "from the card"


def test_nothing_found(tmp_path: Path) -> None:
    with pytest.raises(TextError, match=str(tmp_path)):
        open_text(tmp_path)
    with pytest.raises(TextError, match="nowhere"):
        open_text(None)
    with pytest.raises(TextError, match=r"missing: no such file or folder"):
        open_text(tmp_path / "missing")
    text = open_text(folder_with_tokenizer(tmp_path))
    with pytest.raises(TextError, match="no chat template"):
        text.chat(MESSAGES)


def test_a_gguf_file_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "short.gguf"
    with smollm2_gguf().open("rb") as source, path.open("wb") as target:
        shutil.copyfileobj(source, target)
        target.truncate(100_000)
    with pytest.raises(Error, match=r"short\.gguf"):
        open_text(path)
