"""`linnet fmt`: files, folders, standard input; what it writes and what it never touches."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from linnet.cli.main import main

UGLY = "module m\nconst A=1 // one\n"
NEAT = "module m\n\nconst A = 1  // one\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "src" / "inner").mkdir(parents=True)
    (tmp_path / ".hidden").mkdir()
    for path in ("src/a.linnet", "src/inner/b.linnet", ".hidden/c.linnet"):
        (tmp_path / path).write_text(UGLY)
    (tmp_path / "src" / "neat.linnet").write_text(NEAT)
    return tmp_path


def test_a_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fmt", str(folder)]) == 0
    assert capsys.readouterr().err == "2 files changed, 1 left unchanged\n"
    assert (folder / "src/inner/b.linnet").read_text() == NEAT
    assert (folder / ".hidden/c.linnet").read_text() == UGLY
    assert main(["fmt", str(folder)]) == 0
    assert not list(folder.rglob("*.tmp"))


def test_check_and_diff_write_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder / "src/a.linnet"
    assert main(["fmt", "--check", str(file)]) == 1
    assert "would change" in capsys.readouterr().out
    assert main(["fmt", "--diff", str(file)]) == 1
    assert "-const A=1 // one\n+\n+const A = 1  // one" in capsys.readouterr().out
    assert file.read_text() == UGLY
    assert main(["fmt", "--check", "--diff", str(folder / "src/neat.linnet")]) == 0


def test_what_does_not_parse_is_left(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder / "src/a.linnet"
    file.write_text("module m\nconst A= \n")
    before = os.stat(file)
    assert main(["fmt", str(folder)]) == 1
    assert "error[E1101]" in capsys.readouterr().err
    assert os.stat(file).st_mtime_ns == before.st_mtime_ns
    assert (folder / "src/inner/b.linnet").read_text() == NEAT  # the others are formatted
    file.write_bytes(b"module m\n// \xff\n")
    assert main(["fmt", str(file)]) == 1
    assert "not UTF-8" in capsys.readouterr().err


def test_modes_and_links_stay(folder: Path) -> None:
    file = folder / "src/a.linnet"
    file.chmod(0o640)
    link = folder / "link.linnet"
    link.symlink_to(file)
    assert main(["fmt", str(link)]) == 0
    assert link.is_symlink() and file.read_text() == NEAT
    assert file.stat().st_mode & 0o777 == 0o640


def test_standard_input(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(UGLY.encode())))
    assert main(["fmt", "-"]) == 0
    assert capfdbinary.readouterr().out == NEAT.encode()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(UGLY.encode())))
    assert main(["fmt", "--check", "-"]) == 1


@pytest.mark.parametrize("command", ["fmt", "check", "lint"])
def test_wrong_paths(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Errors of the input, as every command has them; what else was given is looked at."""
    (tmp_path / "a.txt").write_text("")
    (tmp_path / "b.linnet").write_text(NEAT)
    none, other, file = (str(tmp_path / name) for name in ("none", "a.txt", "b.linnet"))
    assert main([command, none, other, file]) == 1
    error = capsys.readouterr().err
    assert f"error: {none}: no such file or folder" in error
    assert f"error: {other}: expected a .linnet file or a folder" in error
    if command == "fmt":
        assert "1 left unchanged" in error


def test_a_fault_leaves_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("linnet.syntax.format.same", lambda a, b: False)
    assert main(["fmt", str(folder / "src/a.linnet")]) == 1
    assert "internal error" in capsys.readouterr().err
    assert (folder / "src/a.linnet").read_text() == UGLY


def test_a_folder_without_files_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fmt", str(tmp_path)]) == 0
    assert "no .linnet files below it" in capsys.readouterr().err
