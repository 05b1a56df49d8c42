"""The command's entry point: what it prints, and its exit status."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import linnet
from linnet.cli import main as entry
from linnet.cli.main import COMMANDS, main
from linnet.diagnostics.diagnostic import Diagnostic, Label
from linnet.errors import how_to_install
from linnet.source import Source, Span


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"linnet {linnet.__version__}\n"


def test_no_command_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert not out and "commands:" in err


@pytest.mark.parametrize("argv", [["--help"], ["-h"], ["help"]])
def test_help_lists_every_command(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 0
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in COMMANDS)
    assert all(len(line) <= 100 for line in out.splitlines())


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([name, "--help"]) == 0
    assert f"usage: linnet {name}" in capsys.readouterr().out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_refuses_an_unknown_option(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, "--no-such-option"]) == 2
    out, err = capsys.readouterr()
    assert not out and err.startswith("error: ") and err.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("check", "the following arguments are required: PATH; `linnet check --help` tells more"),
        ("check a --jsn", "unknown option `--jsn`; did you mean `--json`?"),
        ("generate m --temp 1 hi", "unknown option `--temp`; did you mean `--temperature`?"),
        ("generate m --top=3 hi", "unknown option `--top`; did you mean `--top-k` or `--top-p`?"),
        ("fmt -x a", "unknown option `-x`; `linnet fmt --help` tells more"),
        ("generate m a b c", "unexpected arguments `b` `c`; `linnet generate --help` tells more"),
        ("serve m --batch x", "argument --batch: invalid int value: 'x'; `linnet serve --help`"),
        ("nest chek", "unknown subcommand `nest chek`; expected one of check, "),
    ],
)
def test_a_wrong_command_line_is_one_line(
    line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(line.split()) == 2
    out, err = capsys.readouterr()
    assert not out and err.startswith(f"error: {said}") and err.count("\n") == 1


def test_an_unknown_command_suggests_a_near_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chekc"]) == 2
    assert "unknown command `chekc`; did you mean `check`" in capsys.readouterr().err
    assert main(["src/lib.linnet"]) == 2
    assert "`linnet check src/lib.linnet`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("raised", "status", "said"),
    [
        (linnet.BindError("generic `S` is missing"), 1, "error: generic `S` is missing\n"),
        (FileNotFoundError(2, "No such file", "a.linnet"), 1, "error: a.linnet: No such file\n"),
        (
            ModuleNotFoundError("No module named 'torch'", name="torch"),
            1,
            f"error: this needs the package torch: {how_to_install('torch')}\n",
        ),
        (KeyboardInterrupt(), 130, "\n"),
        (RuntimeError("oops"), 1, "error: internal error: RuntimeError: oops\n"),
    ],
)
def test_errors_never_print_a_traceback(
    raised: BaseException,
    status: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(argv: list[str]) -> int:
        raise raised

    monkeypatch.setattr(entry, "_main", fail)
    monkeypatch.delenv("LINNET_TRACEBACK", raising=False)
    assert main([]) == status
    out, err = capsys.readouterr()
    assert not out and err.startswith(said) and "Traceback" not in err


def test_a_program_with_errors_shows_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source("a.linnet", "module a\n")
    finding = Diagnostic("E1201", "error", "unknown name", Label(Span(source, 0, 6), "here"))

    def fail(argv: list[str]) -> int:
        raise linnet.CheckError("unknown name", [finding])

    monkeypatch.setattr(entry, "_main", fail)
    assert main([]) == 1
    err = capsys.readouterr().err
    assert "1 | module a\n  | ^^^^^^ here" in err
    assert err.endswith("error: 1 error in the program\n")


def test_a_closed_pipe_is_quiet() -> None:
    code = (
        "import sys; from linnet.cli import main as m\n"
        "m._main = lambda argv: print('x' * 1000000)\n"
        "sys.exit(m.main([]))"
    )
    script = f'set -o pipefail; "{sys.executable}" -c "$CODE" | head -c 10'
    done = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "CODE": code},
    )
    assert (done.stdout, done.stderr, done.returncode) == ("x" * 10, "", 141)


def test_the_module_runs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "linnet", "--version"], capture_output=True, text=True
    )
    assert done.stdout == f"linnet {linnet.__version__}\n"


def test_what_stands_behind_bind_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """`--bind` takes all that follows up to the next option."""
    assert main(["memory", "smollm2-135m-instruct", "--bind", "MaxSeq=9", "hi"]) == 1
    said = "error: --bind takes NAME=VALUE, found `hi`; what is none stands before --bind\n"
    assert capsys.readouterr().err == said
