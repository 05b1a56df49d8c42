"""`linnet init` writes a package that checks, is in style, and runs; every help has an example."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from linnet.cli.init import module_name
from linnet.cli.main import COMMANDS, main
from linnet.lint import lint_package
from linnet.package import open_package
from linnet.syntax.format import format_text


def test_a_new_package(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "My-digits"
    assert main(["init", str(folder)]) == 0
    assert "linnet check" in capsys.readouterr().out
    assert main(["check", "--strict", str(folder)]) == 0
    assert lint_package(open_package(folder)) == []
    library = (folder / "src" / "lib.linnet").read_text()
    assert format_text(library) == library and "module my_digits\n" in library
    assert main(["inspect", "--parameters", str(folder)]) == 0
    assert "hidden.weight" in capsys.readouterr().out


def test_it_runs(tmp_path: Path) -> None:
    import torch

    import linnet

    folder = tmp_path / "digits"
    assert main(["init", str(folder)]) == 0
    model = linnet.load(str(folder), weights="random")
    assert model.forward(torch.rand(3, 784)).shape == (3, 10)


def test_nothing_is_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes").write_text("mine")
    assert main(["init", str(tmp_path / "taken")]) == 1
    assert "exists already" in capsys.readouterr().err
    assert main(["init", str(tmp_path / "1st")]) == 2
    assert not (tmp_path / "1st").exists()
    (tmp_path / "empty").mkdir()
    assert main(["init", str(tmp_path / "empty")]) == 0


def test_module_names() -> None:
    found = [module_name(name) for name in ("GPT-2", "block", "std", "_", "_2x")]
    assert found == ["gpt_2", "block_model", "std_model", "model", "model_2x"]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_has_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert f"\n  linnet {name}" in capsys.readouterr().out
    for sub in getattr(import_module(f"linnet.cli.{name}"), "SUBCOMMANDS", ()):
        assert main([name, sub, "--help"]) == 0
        assert f"\n  linnet {name} {sub}" in capsys.readouterr().out
