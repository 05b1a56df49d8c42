"""`linnet explain`."""

from __future__ import annotations

import pytest

from linnet.cli.main import main
from linnet.diagnostics.codes import TITLES


@pytest.mark.parametrize("asked", ["E2203", "e2203", "2203", "error[E2203]:"])
def test_a_code(asked: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", asked]) == 0
    out = capsys.readouterr().out
    assert out.startswith("E2203: `reshape` count unproven\n\n")
    assert (
        "    where N % 4 == 0 {\n" in out.replace("\n    \n", "\n\n") or "where N % 4 == 0" in out
    )
    assert "```" not in out and "\x1b" not in out


def test_several(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "E1001", "W1001"]) == 0
    out = capsys.readouterr().out
    assert "E1001: bad character" in out and "\n\nW1001: unused import" in out


def test_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines == [f"{code}  {title}" for code, title in TITLES.items()]


def test_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "reshape"]) == 0
    assert capsys.readouterr().out == "E2203  `reshape` count unproven\n"


def test_a_family(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "e22", "W10"]) == 0
    lines = capsys.readouterr().out.splitlines()
    family = [one for one in TITLES if one.startswith(("E22", "W10"))]
    assert [line.split()[0] for line in lines if line] == family


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("E2299", "did you mean `E2210` (bad axis or permutation)"),
        ("E9999", "did you mean `E5001`"),
        ("W1009", "did you mean `W1003`"),
        ("nonsense", "`linnet explain` lists all codes"),
    ],
)
def test_unknown(asked: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", asked]) == 2
    err = capsys.readouterr().err
    assert f"unknown code `{asked}`" in err and said in err


def test_help_shows_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "--help"]) == 0
    assert "linnet explain E2203" in capsys.readouterr().out
