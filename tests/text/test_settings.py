"""Generation defaults of a model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from linnet.errors import InputError
from linnet.text.errors import TextError
from linnet.text.settings import Settings, read_settings


def read(folder: Path, value: Any) -> Settings:
    (folder / "generation_config.json").write_text(json.dumps(value))
    return read_settings(folder)


def test_what_the_file_says(tmp_path: Path) -> None:
    assert read_settings(tmp_path).sampling.greedy
    sampled = {"do_sample": True, "temperature": 0.6, "top_p": 0.95, "top_k": 20}
    s = read(tmp_path, {**sampled, "eos_token_id": [3, 4], "transformers_version": "5"})
    assert (s.sampling.temperature, s.sampling.top_p, s.sampling.top_k) == (0.6, 0.95, 20)
    assert s.stop_tokens == {3, 4}
    s = read(tmp_path, {"temperature": 0.6, "eos_token_id": 7, "repetition_penalty": 1.1})
    assert s.sampling.greedy and s.sampling.repetition_penalty == 1.1
    assert s.stop_tokens == {7}
    assert read(tmp_path, {"do_sample": True}).sampling.top_k == 50
    assert read(tmp_path, {"do_sample": True, "top_k": 0}).sampling.top_k == 0
    assert read(tmp_path, {"stop_strings": "END"}).stop == ("END",)


@pytest.mark.parametrize(
    "value",
    [
        [],
        {"do_sample": "yes"},
        {"do_sample": True, "temperature": -1},
        {"do_sample": True, "top_p": "a"},
        {"eos_token_id": "a"},
        {"eos_token_id": [1, -1]},
        {"stop_strings": [1]},
    ],
)
def test_what_it_may_not_say(tmp_path: Path, value: Any) -> None:
    with pytest.raises(TextError, match=r"generation_config\.json"):
        read(tmp_path, value)


def test_changes() -> None:
    s = Settings().change(temperature=0.5, max_new_tokens=4, stop=("x",), top_k=None)
    assert (s.sampling.temperature, s.max_new_tokens, s.stop) == (0.5, 4, ("x",))
    for wrong in (
        {"max_new_tokens": -1}, {"chunk": 0}, {"stop": ("",)}, {"top_p": 2}, {"temprature": 1},
    ):  # fmt: skip
        with pytest.raises(InputError, match=next(iter(wrong))):
            Settings().change(**wrong)  # type: ignore[arg-type]
