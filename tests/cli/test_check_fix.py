"""`linnet check --fix`: what is fixed, what is left, and that nothing else changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from linnet.cli.main import main


def fix(tmp_path: Path, text: str, *options: str) -> tuple[int, str]:
    file = tmp_path / "a.linnet"
    file.write_text(text, encoding="utf-8")
    status = main(["check", "--fix", *options, str(file)])
    return status, file.read_text(encoding="utf-8")


HEAD = "module a\n\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("fn f() -> i64 {\n    return 1;\n}\n", "fn f() -> i64 {\n    return 1\n}\n"),
        ("# note\nconst A = 1\n", "// note\nconst A = 1\n"),
        ("use std.nn.linear::{linear}\n\nconst A = 1\n", "\nconst A = 1\n"),
        (
            "use std.nn.linear::{linear, Linear, linear as other}\n\nfn f(a: Tensor[1; f32], b: Tensor[1, 1; f32])"
            " -> Tensor[1; f32] {\n    return linear(a, b)\n}\n",
            "use std.nn.linear::{linear}\n\nfn f(a: Tensor[1; f32], b: Tensor[1, 1; f32])"
            " -> Tensor[1; f32] {\n    return linear(a, b)\n}\n",
        ),
        (
            "fn f(é: i64) -> i64 {\n    return 1\n}\n",  # nothing to fix
            "fn f(é: i64) -> i64 {\n    return 1\n}\n",
        ),
        (
            "fn f(x: f32?) -> f32? {\n    return x\n}\n\nfn g(y: f32) -> f32? {\n    return f(y)\n}\n",
            "fn f(x: f32?) -> f32? {\n    return x\n}\n\nfn g(y: f32) -> f32? {\n    return f(some(y))\n}\n",
        ),
        (
            "fn f() -> i64 {\n    let left = 1\n    return 1\n}\n",
            "fn f() -> i64 {\n    let _ = 1\n    return 1\n}\n",
        ),
    ],
)
def test_safe(tmp_path: Path, before: str, after: str) -> None:
    assert fix(tmp_path, HEAD + before)[1] == HEAD + after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "fn f(value: i64) -> i64 {\n    return valeu\n}\n",
            "fn f(value: i64) -> i64 {\n    return value\n}\n",
        ),
        (
            "fn f(x: f32, y: f16) -> f32 {\n    return x + y\n}\n",
            "fn f(x: f32, y: f16) -> f32 {\n    return x + cast<f32>(y)\n}\n",
        ),
        (
            "fn f<N: Dim>(x: Tensor[N; f32]) -> Tensor[2, N / 2; f32] {\n    return reshape(x, [2, N / 2])\n}\n",
            "fn f<N: Dim>(x: Tensor[N; f32]) -> Tensor[2, N / 2; f32] where N % 2 == 0 {\n    return reshape(x, [2, N / 2])\n}\n",
        ),
    ],
)
def test_unsafe(tmp_path: Path, before: str, after: str) -> None:
    status, kept = fix(tmp_path, HEAD + before)
    assert (status, kept) == (1, HEAD + before)
    status, changed = fix(tmp_path, HEAD + before, "--unsafe-fixes")
    assert (status, changed) == (0, HEAD + after)


def test_unsafe_alone_is_refused(tmp_path: Path) -> None:
    assert main(["check", "--unsafe-fixes", str(tmp_path)]) == 2


def test_other_packages_are_not_touched(tmp_path: Path) -> None:
    for name, text in (
        ("one", "module one\n\nfn hidden() -> i64 {\n    return 1;\n}\n"),
        ("two", "module two\n\nuse one::{hidden}\n\nfn f() -> i64 {\n    return hidden()\n}\n"),
    ):
        (tmp_path / name / "src").mkdir(parents=True)
        depends = '\n[dependencies]\none = { path = "../one" }\n' if name == "two" else ""
        (tmp_path / name / "linnet.toml").write_text(
            f'[package]\nname = "{name}"\nversion = "1.0.0"\nlanguage = "0.1"\n{depends}'
        )
        (tmp_path / name / "src" / "lib.linnet").write_text(text)
    before = (tmp_path / "one/src/lib.linnet").read_text()
    assert main(["check", "--fix", "--unsafe-fixes", str(tmp_path / "two")]) == 1
    assert (tmp_path / "one/src/lib.linnet").read_text() == before
