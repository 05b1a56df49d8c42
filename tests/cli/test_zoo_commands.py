"""What `list`, `memory` and `generate` say where what was asked for is not there."""

from __future__ import annotations

from typing import Any

import pytest

from linnet.cli.main import main


def test_a_list_of_nothing_says_what_there_is(capsys: Any) -> None:
    assert main(["list", "--task", "text-generatio"]) == 0
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("no model of task `text-generatio`; there are tags: ")
    assert "text-generation" in shown.err


def test_a_context_beyond_the_models_own_is_said(capsys: Any) -> None:
    assert main(["memory", "--max-seq", "32768", "smollm2-135m-instruct"]) == 0
    assert "; the model was made for at most 8,192 tokens" in capsys.readouterr().out


def test_a_bounded_context_is_a_choice(capsys: Any) -> None:
    # GPT-2 has `where MaxSeq <= Positions`: its keys and values still grow with the context.
    assert main(["memory", "gpt2"]) == 0
    shown = capsys.readouterr().out
    assert "growing with the context" in shown and "recurrent" not in shown


def test_a_missing_generic_says_how_to_give_it(capsys: Any, tmp_path: Any) -> None:
    path = tmp_path / "wide.linnet"
    path.write_text(
        "module wide\n\npub block Wide<N: Dim> {\n    pub entry same(x: Tensor[N; f32]) -> "
        "Tensor[N; f32] {\n        return x\n    }\n}\n"
    )
    assert main(["inspect", "--parameters", str(path)]) == 1
    assert "needs a value for `N` (--bind N=…" in capsys.readouterr().err


def test_random_weights_without_a_tokenizer_name_the_option(capsys: Any) -> None:
    pytest.importorskip("tokenizers")
    assert main(["generate", "qwen3.6-35b-a3b", "--weights", "random", "x"]) == 1
    assert "--tokenizer" in capsys.readouterr().err


@pytest.mark.parametrize("command", [["generate", "bge-base-en-v1.5", "x"], ["chat", "gpt2-like"]])
def test_a_model_that_continues_no_text_says_so(
    command: list[str], capsys: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gpt2-like").mkdir()
    (tmp_path / "gpt2-like" / "linnet.toml").write_text(
        '[package]\nname = "like"\nversion = "0.1.0"\nlanguage = "0.1"\n'
    )
    (tmp_path / "gpt2-like" / "src").mkdir()
    (tmp_path / "gpt2-like" / "src" / "lib.linnet").write_text(
        "module like\n\npub block Same {\n    pub entry prefill(x: f32) -> f32 {\n"
        "        return x\n    }\n}\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(command) == 1
    said = capsys.readouterr().err
    assert f"{command[1]}: continues no text: expected the entries `prefill` and `decode`" in said
