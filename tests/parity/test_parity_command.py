"""`linnet parity`: in parity where we are, and with one planted mistake it names the block."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from oracle import QWEN_SIZES, qwen_config
from oracle.checkpoint import randomize

from linnet.cli.main import main

COMMON = "deps/qwen3_5/src/"
ALL = ("src/lib.linnet", "src/stack.linnet", f"{COMMON}attention.linnet")


def save(model: Any, folder: Path) -> None:
    model = model.float().eval()
    randomize(model, 7)
    model.save_pretrained(folder)


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The founding architecture, small: its checkpoint, and a package made for it."""
    room = tmp_path_factory.mktemp("parity")
    config = transformers.Qwen3_5MoeTextConfig(**qwen_config(QWEN_SIZES))
    save(transformers.Qwen3_5MoeForCausalLM(config), room / "weights")
    assert main(["nest", "new", str(room / "model"), "--from", str(room / "weights")]) == 0
    return room / "model", room / "weights"


def parity(package: Path, weights: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    status = main(
        ["parity", str(package), "--reference", "transformers", "--weights", str(weights), "--json"]
    )
    found = json.loads(capsys.readouterr().out)
    assert status == (0 if found["parity"] else 1)
    return found


def test_a_right_package_is_in_parity(
    mixture: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    found = parity(*mixture, capsys)
    assert found["parity"] and found["first"] is None and found["result"] < 1e-4
    paths = {block["path"]: block["module"] for block in found["blocks"]}
    assert paths["groups.0.full.self_attn"] == "model.layers.3.self_attn"
    assert paths["groups.1.linear.2.linear_attn.in_proj_qkv"] == (
        "model.layers.6.linear_attn.in_proj_qkv"
    )
    assert paths["groups.1.linear.0.mlp"] == "model.layers.4.mlp"
    assert paths["norm"] == "model.norm" and paths["lm_head"] == "lm_head"
    assert main(["parity", str(mixture[0]), "--reference", "transformers",
                 "--weights", str(mixture[1])]) == 0  # fmt: skip
    assert capsys.readouterr().out.startswith("in parity: `forward` within")


MISTAKES = {
    "a missed `1 +`": (
        (f"{COMMON}norms.linnet",), "(cast<f32>(weight) + 1.0)", "cast<f32>(weight)",
        "groups.0.linear.0.input_layernorm", "OffsetNorm", f"{COMMON}norms.linnet",
    ),
    "gate and up swapped": (
        ("src/experts.linnet",),
        "silu(pair[..., 0:ExpertInner]) * pair[..., ExpertInner:2 * ExpertInner]",
        "silu(pair[..., ExpertInner:2 * ExpertInner]) * pair[..., 0:ExpertInner]",
        "groups.0.linear.0.mlp", "Mixture", "src/experts.linnet",
    ),
    "heads interleaved": (
        (f"{COMMON}attention.linnet",),
        "let heads = reshape(k_proj.forward(x), [B, S, KvHeads, HeadDim])",
        "let heads = permute(reshape(k_proj.forward(x), [B, S, HeadDim, KvHeads]), [0, 1, 3, 2])",
        "groups.0.full.self_attn", "FullAttention", f"{COMMON}attention.linnet",
    ),
    "a wrong share of rotary features": (
        ALL, "HeadDim / 4", "HeadDim / 2",
        "groups.0.full.self_attn", "FullAttention", f"{COMMON}attention.linnet",
    ),
    "decay without its bias": (
        (f"{COMMON}delta_net.linnet",), " + cast<f32>(dt_bias)", "",
        "groups.0.linear.0.linear_attn", "DeltaNet", f"{COMMON}delta_net.linnet",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_named(
    mistake: str, mixture: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files, right, wrong, path, block, place = MISTAKES[mistake]
    package = tmp_path / "model"
    shutil.copytree(mixture[0], package)
    for file in files:
        text = (package / file).read_text()
        assert right in text
        (package / file).write_text(text.replace(right, wrong))
    found = parity(package, mixture[1], capsys)
    first = found["first"]
    assert not found["parity"] and first is not None
    assert (first["path"], first["block"]) == (path, block), first
    assert f"/{place}:" in first["where"]
    assert first["gap"] > 1e-3
    # What comes before it agrees, and from there the gap is followed to the end.
    before = found["blocks"][: found["blocks"].index(first)]
    layers = [b for b in before if b["path"].count(".") == 3]
    assert all(b["gap"] < 1e-4 for b in layers if b["block"] == "LinearLayer")
    assert found["growth"][0] == first and found["growth"][-1]["path"] == "lm_head"


def test_bindings_that_are_swapped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A tied head; the gate of every layer bound to the tensor of `up`, and the other way round."""
    config = transformers.LlamaConfig(
        vocab_size=61, hidden_size=32, intermediate_size=40, num_hidden_layers=3,
        num_attention_heads=4, num_key_value_heads=2, head_dim=8, tie_word_embeddings=True,
        rms_norm_eps=1e-5, max_position_embeddings=64, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    save(transformers.LlamaForCausalLM(config), tmp_path / "weights")
    package = tmp_path / "model"
    assert main(["nest", "new", str(package), "--from", str(tmp_path / "weights")]) == 0
    assert parity(package, tmp_path / "weights", capsys)["parity"]
    file = package / "bindings.json"
    names = json.loads(file.read_text())
    for path in list(names):
        if path.endswith("mlp.gate.weight"):
            other = path.replace("gate", "up")
            names[path], names[other] = names[other], names[path]
    file.write_text(json.dumps(names))
    status = main(
        ["parity", str(package), "--reference", "transformers", "--weights", str(tmp_path / "weights")]
    )  # fmt: skip
    out = capsys.readouterr().out
    assert status == 1
    assert "the first block that parts: `layers.0.mlp` (SwiGlu)" in out
    assert "model.layers.0.mlp" in out and "how it grows:" in out and "layers.2" in out


def test_an_encoder_and_a_classifier_of_images(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bert = transformers.BertConfig(
        vocab_size=61, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=40, max_position_embeddings=32,
    )  # fmt: skip
    vit = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40,
        image_size=12, patch_size=4, num_labels=5,
    )  # fmt: skip
    gpt2 = transformers.GPT2Config(vocab_size=61, n_embd=32, n_head=4, n_layer=2, n_positions=32)
    for name, model in {
        "bert": transformers.BertModel(bert),
        "vit": transformers.ViTForImageClassification(vit),
        "gpt2": transformers.GPT2LMHeadModel(gpt2),
    }.items():
        save(model, tmp_path / name)
        package = tmp_path / f"of-{name}"
        assert main(["nest", "new", str(package), "--from", str(tmp_path / name)]) == 0
        found = parity(package, tmp_path / name, capsys)
        assert found["parity"] and len(found["blocks"]) > 10, found


def test_what_cannot_be_compared(
    mixture: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package, weights = map(str, mixture)
    command = ["parity", package, "--reference", "transformers"]
    assert main([*command, "--weights", weights, "--entry", "decode"]) == 1
    assert "takes the scalar `pos`" in capsys.readouterr().err
    assert main([*command, "--weights", weights, "--entry", "nothing"]) == 1
    assert "there is no entry `nothing`" in capsys.readouterr().err
    shutil.copy(mixture[1] / "model.safetensors", tmp_path / "model.safetensors")
    assert main([*command, "--weights", str(tmp_path)]) == 1
    assert "no config.json" in capsys.readouterr().err
    (tmp_path / "config.json").write_text('{"model_type": "llama", "architectures": ["Other"]}')
    assert main([*command, "--weights", str(tmp_path)]) == 1
    assert "no architecture Other" in capsys.readouterr().err
