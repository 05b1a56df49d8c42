"""`linnet lint`: what it names, and what it leaves alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from linnet.cli.main import main
from linnet.lint import lint_package
from linnet.package import open_package

ROOT = Path(__file__).parents[2]


def found(tmp_path: Path, text: str) -> list[tuple[str, int]]:
    file = tmp_path / "a.linnet"
    file.write_text(f"module a\n{text}", encoding="utf-8")
    return [
        (one.code, one.span.source.position(one.span.start)[0])
        for one in lint_package(open_package(file))
    ]


@pytest.mark.parametrize(
    "definition",
    [
        "let y[i] = sum[j] select(place[j] <= place[i], x[j], 0.0)",
        "let y[i] = min[j] abs(x[i] - x[j])",
        "let y[i] = sum[j, k] x[i] * x[j] * abs(x[j] - x[k])",
    ],
)
def test_slow(tmp_path: Path, definition: str) -> None:
    text = f"""fn f<N: Dim>(x: Tensor[N; f32]) -> Tensor[N; f32] {{
    let place = iota<i32>(N)
    let _ = place[0:0]
    {definition}
    return y
}}
"""
    assert found(tmp_path, text) == [("W2001", 5)]


@pytest.mark.parametrize(
    "definition",
    [
        # Rewritten: a matrix product, ranks by counting, a one-hot sum.
        "let y[i, j] = sum[k] a[i, k] * b[k, j]",
        "let y[i, j] = sum[k] a[i, k] * a[j, k]",
        "let y[i, e] = sum<i32>[j] cast<i32>(a[i, j] > a[i, e]"
        " || (a[i, j] == a[i, e] && place[j] < place[e]))",
        "let y[i, k] = sum[e] select(place[e] == at[k], a[i, e], 0.0)",
        # As much work as there is data.
        "let y[i, j] = a[i, j] + b[j, i]",
        "let y[i] = max[j] a[i, j]",
        "let y[i, j] = place[i] <= place[j]",
        "let y = sum[i, j] abs(a[i, j] - b[i, j])",
    ],
)
def test_not_slow(tmp_path: Path, definition: str) -> None:
    text = f"""fn f<N: Dim>(a: Tensor[N, N; f32], b: Tensor[N, N; f32], at: Tensor[N; i32]) -> f32 {{
    let place = iota<i32>(N)
    {definition}
    let _ = (y, at, b, place)
    return 0.0
}}
"""
    assert found(tmp_path, text) == []


def test_in_blocks_with_arrays_and_optional_parts(tmp_path: Path) -> None:
    text = """
pub block Layer<S: Dim> {
    param w: Tensor[S; f32]
    param b: Tensor[S; f32]? = none

    pub fn far(x: Tensor[S; f32]) -> Tensor[S; f32] {
        let y[i] = min[j] abs(w[i] - x[j])
        return match b {
            some(offset) => y + offset
            none => y
        }
    }
}

pub block Model<S: Dim, N: Dim> {
    sub layers: [Layer<S>; N]

    pub entry forward(x: Tensor[S; f32]) -> Tensor[S; f32] {
        var h = x
        static for layer in layers {
            h = layer.far(h)
        }
        return h
    }
}
"""
    assert found(tmp_path, text) == [("W2001", 8)]


def test_allowed(tmp_path: Path) -> None:
    text = """fn f<N: Dim>(x: Tensor[N; f32]) -> Tensor[N; f32] {
    // lint: allow, N is small
    let y[i] = min[j] abs(x[i] - x[j])
    let z[i] = min[j] abs(y[i] - y[j])  // lint: allow
    return z
}
"""
    assert found(tmp_path, text) == []


def test_style(tmp_path: Path) -> None:
    text = """type pair = (f32, f32)
const Size: i64 = 3
enum E { A, B }
fn Sum(p: pair) -> f32 {
    var (a) = 1.0
    return a
}
"""
    assert [code for code, _ in found(tmp_path, text)] == ["E1101"]  # errors alone
    text = text.replace("var (a) = 1.0", "var a = cast<f32>(cast<f32>(Size))")
    assert found(tmp_path, text) == [
        ("W2002", 2), ("W2002", 3), ("W2002", 5), ("W2003", 6), ("W2004", 6),
    ]  # fmt: skip


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.linnet"
    file.write_text("module a\n\nconst small = 1\n")
    assert main(["lint", "--output", "concise", str(file)]) == 1
    assert "warning[W2002]" in capsys.readouterr().out
    file.write_text("module a\n\nconst SMALL = 1\n")
    assert main(["lint", str(file)]) == 0


def test_fix(tmp_path: Path) -> None:
    file = tmp_path / "a.linnet"
    text = "module a\n\nfn f(x: f32) -> f32 {{\n    {} y = x + x\n    return y\n}}\n"
    file.write_text(text.format("var"))
    assert main(["lint", "--fix", str(file)]) == 0
    assert file.read_text() == text.format("let")


def test_the_repository_is_clean() -> None:
    assert lint_package(open_package(ROOT / "src" / "linnet" / "std")) == []
    for card in sorted(ROOT.glob("models/*/linnet.toml")):
        assert lint_package(open_package(card.parent)) == [], card
