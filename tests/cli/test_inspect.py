"""`linnet inspect` on a model of a few lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from linnet.cli.main import main

MODEL = """\
module tiny

use std.nn.linear::{Linear}

pub block Tiny<H: Dim, N: Dim, T: Float = f32> {
    param scale: Tensor[H; f32]
    param extra: Tensor[H; T]? = none
    buffer table: Tensor[4, H; i8]
    state last: Tensor[2, H; T]
    sub layers: [Linear<H, H, T>; N]

    pub entry forward<B: Dim>(x: Tensor[B, H; T]) -> Tensor[B, H; T] {
        var y = x
        static for layer in layers {
            y = layer.forward(y)
        }
        return y
    }
}
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "tiny.linnet"
    path.write_text(MODEL)
    return str(path)


def test_parameters_as_a_table(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--parameters", "--bind", "H=8", "N=2", "T=bf16", model]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["path", "kind", "shape", "dtype", "bytes"]
    assert lines[1].split() == ["scale", "param", "[8]", "f32", "32"]
    assert lines[2].split() == ["extra", "param", "[8]", "bf16", "16", "optional"]
    assert any(line.split()[0] == "layers.1.weight" for line in lines)
    width = lines[0].index("bytes") + len("bytes")
    assert all(line[width - 1].isdigit() for line in lines[1 : lines.index("")])
    assert "1 state: 16 elements, 32 B (bf16 32 B)" in lines


def test_parameters_as_json(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--json", model, "--bind", "H=8", "--bind", "N=1"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["version"], found["root"], found["generics"]) == (1, "Tiny", {"H": 8, "N": 1})
    assert found["parameters"][0] == {
        "path": "scale",
        "kind": "param",
        "shape": [8],
        "dtype": "f32",
        "optional": False,
        "bytes": 32,
        "tied_to": None,
    }
    assert list(found["totals"]) == ["param", "buffer", "optional", "state"]
    assert found["totals"]["buffer"] == {
        "tensors": 1,
        "elements": 32,
        "bytes": 32,
        "bytes_by_dtype": {"i8": 32},
    }


def test_a_tied_tensor_counts_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "smollm2-135m-instruct", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    tied = [p["path"] for p in found["parameters"] if p["tied_to"] == "embed_tokens.weight"]
    assert tied == ["lm_head.weight"]
    # What the model's repository states, to the last one.
    assert found["totals"]["param"]["elements"] == 134_515_008


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--bind", "H=8"], "`N`"),
        (["--bind", "H=8", "N=1", "Q=2"], "`Q`"),
        (["--bind", "H=8", "N=-1"], "`N`"),
        (["--bind", "H=8", "H=9"], "`H` twice"),
        (["--bind", "H=8", "=9"], "NAME=VALUE"),
        (["--bind", "H=8", "N=1", "--root", "Nothing"], "`Nothing`"),
    ],
)
def test_wrong_generics(
    model: str, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", model, *arguments]) == 1
    out, err = capsys.readouterr()
    assert not out and err.startswith("error: ") and said in err and "internal" not in err


def test_an_unknown_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "smollm2-135m-instrct"]) == 1
    assert "smollm2-135m-instruct" in capsys.readouterr().err


def test_no_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--bind", "H=1"]) == 2
    assert "MODEL" in capsys.readouterr().err


def test_the_tree(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--tree", model]) == 0
    out = capsys.readouterr().out
    assert "Block" in out and "name=Tiny" in out and "MemberDecl" in out


def test_the_ir(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--ir", model]) == 0
    assert "Tiny" in capsys.readouterr().out
    bound = ["--ir", "--entry", "forward", "--bind", "H=8", "N=2"]
    assert main(["inspect", model, *bound]) == 0
    assert "forward" in capsys.readouterr().out
    assert main(["inspect", model, *[a.replace("forward", "backward") for a in bound]]) == 1
    assert "`forward`" in capsys.readouterr().err


def test_code_and_kernels(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    sizes = ["--bind", "H=8", "N=2"]
    assert main(["inspect", "--code", model, *sizes]) == 0
    compile(capsys.readouterr().out, "generated", "exec")
    assert main(["inspect", "--kernels", "--entry", "forward", model, *sizes]) == 0
    assert "std.nn.linear::linear -> linear" in capsys.readouterr().out


def test_a_program_with_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.linnet"
    path.write_text("module a\n\npub fn f(x: i32) -> i32 {\n    return y\n}\n")
    assert main(["inspect", "--ir", str(path)]) == 1
    assert "error[E1201]" in capsys.readouterr().err
