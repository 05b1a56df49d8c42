"""What a finding says of two shapes that differ: both of them, the axes, where each was bound."""

from __future__ import annotations

from pathlib import Path

import pytest

from linnet.check import check_package
from linnet.diagnostics.diagnostic import Diagnostic
from linnet.package import open_package


def only(text: str, folder: Path) -> Diagnostic:
    path = folder / "program.linnet"
    path.write_text(f"module program\n{text}", encoding="utf-8")
    (found,) = check_package(open_package(path)).diagnostics
    return found


@pytest.mark.parametrize(
    ("text", "drawing"),
    [
        (
            "fn f<N: Dim>(x: Tensor[2, N; f32]) -> Tensor[2, N + 1; f32] { return x }",
            "expected  [2, N + 1]\nfound     [2, N]\n              ^^^^^",
        ),
        (
            "fn f<B: Dim, S: Dim, H: Dim>(x: Tensor[B, H; f32]) -> Tensor[B, S, H; f32] { return x }",
            "expected  [B, S, H]\nfound     [B,    H]\n              ^",
        ),
        (
            "fn f<S: Dim, H: Dim>(x: Tensor[1, S, H; f32]) -> Tensor[S, H; f32] { return x }",
            "expected     [S, H]\nfound     [1, S, H]\n           ^",
        ),
        (
            "fn f<B: Dim, S: Dim>(x: Tensor[B, S, 4; f32], y: Tensor[B, 4; f32]) -> i64 {\n"
            "    let _z = x + y\n    return 0\n}",
            "left   [B, S, 4]\nright     [B, 4]\n           ^",
        ),
    ],
)
def test_both_shapes_are_drawn(text: str, drawing: str, tmp_path: Path) -> None:
    found = only(text, tmp_path)
    assert found.notes[0].split("\n")[:2] == drawing.split("\n")[:2]
    assert found.notes[0].count("^") == drawing.count("^")


def test_where_each_was_bound(tmp_path: Path) -> None:
    found = only(
        "fn g<N: Dim>(x: Tensor[3, N; f32], y: Tensor[N; f32]) -> f32 { return 0 }\n"
        "fn f(x: Tensor[3, 4; f32], y: Tensor[5; f32]) -> f32 { return g(x, y) }",
        tmp_path,
    )
    labels = [(label.message, label.span.text) for label in found.related]
    assert ("`y` is declared `Tensor[N; f32]`, here with N = 4", "y: Tensor[N; f32]") in labels
    assert ("`N` is bound to `4` here", "x") in labels
    assert ("`Tensor[5; f32]` comes from here", "y: Tensor[5; f32]") in labels


def test_the_three_answers(tmp_path: Path) -> None:
    refuted = only(
        "fn f<N: Dim>(x: Tensor[N; f32]) -> Tensor[4, N / 4; f32] { return reshape(x, [4, N / 4]) }",
        tmp_path,
    )
    assert "for example at N = " in refuted.notes[0]
    assert refuted.help == "if it must hold, add `where N % 4 == 0`"
    unknown = only(
        "fn f<A: Dim, B: Dim>(x: Tensor[A; f32]) -> Tensor[B; f32]\n"
        "where A * A == B * B {\n    return x\n}",
        tmp_path,
    )
    assert "axis 0: `A` is not provably `B`" in unknown.notes
    assert unknown.help == "if it must hold, add `where A == B`"
    path = tmp_path / "program.linnet"
    path.write_text(
        "module program\nfn f<A: Dim, B: Dim>(x: Tensor[A; f32]) -> Tensor[B; f32]\n"
        "where A * A == B * B, A == B {\n    return x\n}"
    )
    assert not check_package(open_package(path)).diagnostics
