"""`linnet bench`: figures that add up, peers side by side, peers that are not there."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import linnet
from linnet.bench.machine import Machine, rates
from linnet.bench.measure import token_ids
from linnet.bench.peer import Peer, peer_weights, run_peer
from linnet.bench.result import Job, Run
from linnet.bench.work import token_bytes
from linnet.cli.main import main
from linnet.errors import BackendError, InputError
from linnet.native import compiler

SMALL = [
    "Groups=1", "Vocab=512", "H=256", "Experts=8", "TopK=2", "ExpertInner=128", "SharedInner=128",
    "Heads=4", "KvHeads=2", "HeadDim=64", "KeyHeads=2", "KeyDim=64", "ValueHeads=4", "ValueDim=64",
    "Conv=512",
]  # fmt: skip
MODEL = ["qwen3.6-35b-a3b", "--weights", "random", "--bind", *SMALL]
JOB = Job(prompt=4, tokens=3, batch=1, repeat=2, threads=1, dtype="bf16", vocabulary=512)
# A peer's interpreter that measures nothing: it prints what the script would.
FAKE = """#!/bin/sh
if [ "$1" = -c ]; then exit 0; fi
echo chatter
echo 'RESULT {"version": "9", "dtype": "Q4_0", "prompt": [2.0, 4.0], "token": [0.5], \
"load": 1.0, "first": 3.0}'
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's rates as constants, and what the command sets put back."""
    monkeypatch.setenv("LINNET_THREADS", "1")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")

    def measure(self: Machine) -> None:
        self.by = "a test"
        self.read.append(1e10)
        self.products.append(1e11)

    monkeypatch.setattr(Machine, "measure", measure)


def bench(capsys: Any, *more: str) -> dict[str, Any]:
    asked = ["bench", *MODEL, "--prompt", "16", "--tokens", "4", "--repeat", "2", "--threads", "1"]
    assert main([*asked, "--json", *more]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_figures_add_up(capsys: Any) -> None:
    found = bench(capsys)
    (ours,) = found["runs"]
    assert found["version"] == 1 and found["model"]["generics"]["MaxSeq"] == 64
    assert len(ours["prompt"]["all_seconds"]) == 2 and len(ours["token"]["all_seconds"]) == 8
    prompt, token = ours["prompt"], ours["token"]
    assert prompt["tokens_per_second"] == pytest.approx(16 / prompt["seconds"])
    assert prompt["matrix_share"] == pytest.approx(prompt["operations"] / prompt["seconds"] / 1e11)
    assert token["read_share"] == pytest.approx(token["bytes"] / token["seconds"] / 1e10)
    assert ours["peak_memory_bytes"] > 50e6 and ours["load_seconds"] > 0


def test_the_table_has_every_part(capsys: Any) -> None:
    assert main(["bench", *MODEL, "--prompt", "8", "--tokens", "2", "--repeat", "1"]) == 0
    text = capsys.readouterr().out
    for part in ("prompt of 8", "token", "of the read rate", "of the matrix rate", "loading",
                 "peak memory", "reads 10.0 GB/s"):  # fmt: skip
        assert part in text, part
    assert max(map(len, text.splitlines())) <= 100


def test_weights_that_are_in_few_bits_already_are_said(tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "out"
    assert main(["quantize", *MODEL[:3], "-o", str(out), "-q", "--bind", *SMALL]) == 0
    capsys.readouterr()
    asked = ["bench", str(out), "--prompt", "4", "--tokens", "2", "--threads", "1", "--json", "-q"]
    assert main(asked) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["model"]["weights"] == "int4"
    assert found["runs"][0]["dtype"].startswith("int4")


def test_rows_of_a_batch_are_counted(capsys: Any) -> None:
    found = bench(capsys, "--batch", "3")
    token = found["runs"][0]["token"]
    assert found["model"]["generics"]["Batch"] == 3
    assert token["tokens_per_second"] == pytest.approx(3 / token["seconds"])


def test_a_model_that_is_no_decoder_is_measured_by_calls(tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "map.linnet"
    file.write_text(
        "module map\n\nuse std.nn.linear::{Linear}\n\n"
        "pub block Map {\n    sub map: Linear<256, 64, f32>\n\n"
        "    pub entry forward<S: Dim>(x: Tensor[S, 256; f32]) -> Tensor[S, 64; f32] {\n"
        "        return map.forward(x)\n    }\n}\n"
    )
    assert main(["bench", str(file), "--prompt", "8", "--json", "--repeat", "2"]) == 0
    (ours,) = json.loads(capsys.readouterr().out)["runs"]
    assert ours["prompt"]["operations"] == 2 * 8 * 256 * 64
    assert "token" not in ours


def test_bytes_of_a_token() -> None:
    generics: dict[str, Any] = {k: int(v) for k, v in (item.split("=") for item in SMALL)}
    model = linnet.load(
        "qwen3.6-35b-a3b", weights="random", generics={**generics, "MaxSeq": 32, "Batch": 1}
    )
    total = sum(t.numel() * t.element_size() for t in model.state_dict().values())
    experts = 4 * 8 * (2 * 128 * 256 + 256 * 128) * 2  # four layers of eight, in bf16
    embedding = 512 * 256 * 2
    caches = [p for p in model.state if "cache" in p or p.endswith(("keys", "values"))]
    states = {p: model.state[p].numel() * model.state[p].element_size() for p in model.state}
    assert caches
    kept = sum(size for path, size in states.items() if path not in caches)
    grown = sum(states[path] for path in caches)
    # Two of eight experts, one row of the embedding, the states both ways, half of the caches.
    read = total - experts * 3 // 4 - embedding + 256 * 2 + 2 * kept + grown // 2
    assert token_bytes(model, 16) == pytest.approx(read, rel=1e-6)
    assert token_bytes(model, 16, batch=1000) > read + experts // 2


def test_a_peer_beside_ours(tmp_path: Path, capsys: Any) -> None:
    fake, file = tmp_path / "python", tmp_path / "m.gguf"
    fake.write_text(FAKE)
    fake.chmod(0o755)
    file.touch()
    peer = ["--peer", f"llama.cpp={fake}", "--peer-weights", f"llama.cpp={file}"]
    found = bench(capsys, *peer)
    _, other = found["runs"]
    assert other["engine"] == "llama.cpp" and other["version"] == "9" and other["dtype"] == "Q4_0"
    assert other["prompt"]["seconds"] == 3.0 and other["token"]["tokens_per_second"] == 2.0
    assert main(["bench", *MODEL, "--prompt", "8", "--tokens", "2", "--repeat", "1", *peer]) == 0
    assert "linnet faster, prompt" in capsys.readouterr().out


def test_peers_that_are_not_there_are_said_and_left_out(tmp_path: Path, capsys: Any) -> None:
    found = bench(
        capsys, "--peer", "vllm=/nowhere/python", "--peer", "llama.cpp", "--peer", "transformers"
    )  # fmt: skip
    assert len(found["runs"]) == 1
    reasons = {one["engine"]: one["reason"] for one in found["missing"]}
    assert "no program /nowhere/python" in reasons["vllm"]
    assert "llama.cpp" in reasons and "transformers" in reasons
    assert "config.json" in reasons["transformers"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--prompt", "-1"], "--prompt takes a number of tokens, found -1"),
        (["--prompt", "0", "--tokens", "0"], "nothing to measure"),
        (["--batch", "0"], "--batch takes a number above 0"),
        (["--max-seq", "8"], "positions are needed"),
        (["--threads", "100000"], "--threads takes at most"),
        (["--peer-weights", "x.gguf"], "--peer-weights is for a --peer"),
    ],
)
def test_wrong_options(more: list[str], said: str, capsys: Any) -> None:
    assert main(["bench", *MODEL, *more]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    "more", [["--prompt", "9" * 11], ["--tokens", "9" * 11], ["--batch", "99999999"],
             ["--max-seq", "9" * 11], ["--prompt", "9" * 9, "--entry", "forward"]],
)  # fmt: skip
def test_more_than_memory_holds(more: list[str], capsys: Any) -> None:
    """Before anything is loaded, or a list of so many tokens is made."""
    assert main(["bench", *MODEL, *more]) == 1
    error = capsys.readouterr().err
    assert "GB beside the weights, and this machine has" in error
    assert error.count("\n") == 1


def test_wrong_names(capsys: Any) -> None:
    assert main(["bench", *MODEL, "--peer", "onnx"]) == 1
    assert "expected one of transformers, llama.cpp, vllm, found 'onnx'" in capsys.readouterr().err
    assert main(["bench", *MODEL, "--entry", "nothing", "--prompt", "4", "--tokens", "1"]) == 1
    assert "there is no entry `nothing`" in capsys.readouterr().err


def test_a_peer_that_fails_says_why(tmp_path: Path) -> None:
    fake, file = tmp_path / "python", tmp_path / "m.gguf"
    file.touch()
    fake.write_text('#!/bin/sh\n[ "$1" = -c ] && exit 0\necho "it is broken" >&2\nexit 3\n')
    fake.chmod(0o755)
    with pytest.raises(BackendError, match="it is broken"):
        run_peer(Peer("llama.cpp", str(fake)), JOB, file)
    fake.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(BackendError, match="has no package llama-cpp-python"):
        Peer("llama.cpp", str(fake)).interpreter()
    with pytest.raises(BackendError, match="one sequence only"):
        run_peer(Peer("llama.cpp"), Job(4, 1, 2, 1, 1, "bf16", 512), file)
    with pytest.raises(InputError, match="found 'gpt'"):
        Peer.parse("gpt=python")


def test_what_a_peer_reads(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").touch()
    gguf = tmp_path / "m.gguf"
    gguf.touch()
    assert peer_weights("transformers", {}, tmp_path, tmp_path) == tmp_path
    assert peer_weights("vllm", {}, tmp_path / "model.safetensors", tmp_path) == tmp_path
    assert peer_weights("llama.cpp", {}, gguf, tmp_path) == gguf
    assert peer_weights("llama.cpp", {"llama.cpp": str(tmp_path)}, None, tmp_path) == gguf
    with pytest.raises(BackendError, match="there is no /nowhere"):
        peer_weights("vllm", {"": "/nowhere"}, tmp_path, tmp_path)
    with pytest.raises(BackendError, match=r"--peer-weights llama.cpp=FILE.gguf"):
        peer_weights("llama.cpp", {}, tmp_path, tmp_path)


def test_a_real_peer_on_the_same_ids(tmp_path: Path) -> None:
    """transformers with a config alone makes random weights."""
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=512, hidden_size=32, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1,
    )  # fmt: skip
    config.save_pretrained(tmp_path)
    run = run_peer(Peer("transformers", sys.executable), JOB, tmp_path)
    assert len(run.prompt) == 2 and len(run.token) == 6
    assert run.version == transformers.__version__
    assert run.peak is not None and run.peak > 50e6


def test_token_ids_are_the_same_everywhere() -> None:
    ids = token_ids(JOB, 5)
    assert ids == token_ids(JOB, 5) != token_ids(JOB, 5, seed=1)
    assert all(100 <= i < 512 for i in ids[0])


def test_medians_count() -> None:
    run = Run("linnet", "1", "bf16", prompt=[3.0, 1.0, 2.0], token=[])
    assert run.document(JOB)["prompt"]["seconds"] == 2.0
    assert "token" not in run.document(JOB)


@pytest.mark.skipif(compiler.why_not() is not None, reason="no C compiler")
@pytest.mark.parametrize("level", ["plain", None])
def test_the_machines_rates(level: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    from linnet.native.rates import Rates

    if level is not None:
        monkeypatch.setenv("LINNET_NATIVE_LEVEL", level)
    team = Rates(1)
    try:
        assert 1e8 < team.read(1 << 22, times=2) < 1e13
        for dtype in ("bf16", "f32"):
            assert 1e7 < team.products(dtype, times=2) < 1e14
    finally:
        team.close()


def test_the_rates_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    import linnet.torch.rates as by_torch

    monkeypatch.setattr(compiler, "why_not", lambda: "there is none")
    monkeypatch.setattr(by_torch, "READ", 1 << 16)
    monkeypatch.setattr(by_torch, "SIDE", 64)
    found = rates(1, "f32")
    assert found["by"] == "torch" and float(found["read"]) > 0 and float(found["products"]) > 0


def test_shares_are_of_the_rates_around_our_run() -> None:
    machine = Machine(1, "bf16", read=[1.0, 2.0, 9.0], products=[3.0, 1.0, 9.0])
    assert machine.read_rate == 2.0 and machine.product_rate == 3.0


def test_bytes_of_a_cache_in_8_bits() -> None:
    generics: dict[str, Any] = {k: int(v) for k, v in (item.split("=") for item in SMALL)}
    generics |= {"MaxSeq": 32, "Batch": 1}
    asked: dict[str, Any] = {"weights": "random", "generics": generics}
    wide = linnet.load("qwen3.6-35b-a3b", **asked)
    small = linnet.load("qwen3.6-35b-a3b", cache="int8", **asked)
    assert token_bytes(small, 32) < token_bytes(wide, 32)
