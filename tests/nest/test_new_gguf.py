"""`linnet nest new` from a GGUF file: its metadata is the config, its tensors the checkpoint."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from oracle import share_of_scale
from oracle.checkpoint import randomize

import linnet
from linnet.cli.main import main
from linnet.nest.card import read_card
from linnet.nest.checks.run import check_folder

gguf = pytest.importorskip("gguf")

SHARED: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "rms_norm_eps": 2e-6,
    "max_position_embeddings": 64, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}  # fmt: skip
WHOLE = {
    "model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
}  # fmt: skip


def interleaved(x: Any, heads: int) -> Any:
    """The rows of each head as the format keeps llama's: halves side by side."""
    return x.reshape(heads, 2, x.shape[0] // heads // 2, *x.shape[1:]).swapaxes(1, 2)


def write(path: Path, kind: str, model: Any, leave: tuple[str, ...] = ()) -> None:
    config = model.config
    w = gguf.GGUFWriter(path, kind)
    w.add_name("A Model")
    w.add_license("mit")
    w.add_block_count(config.num_hidden_layers)
    w.add_context_length(config.max_position_embeddings)
    w.add_embedding_length(config.hidden_size)
    w.add_feed_forward_length(config.intermediate_size)
    w.add_head_count(config.num_attention_heads)
    w.add_head_count_kv(config.num_key_value_heads)
    w.add_layer_norm_rms_eps(config.rms_norm_eps)
    w.add_rope_freq_base(config.rope_parameters["rope_theta"])
    w.add_rope_dimension_count(8)
    w.add_key_length(8)
    rope = config.rope_parameters
    if rope["rope_type"] == "yarn":
        w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        w.add_rope_scaling_factor(rope["factor"])
        w.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if rope["rope_type"] == "llama3":
        frequency = 5e5 ** (-np.arange(4) / 4)
        share = np.clip((8192 * frequency / (2 * math.pi) - 1) / 3, 0, 1)
        w.add_tensor("rope_freqs.weight", (1 / ((1 - share) / 8 + share)).astype(np.float32))
    for name, tensor in model.state_dict().items():
        if name in leave:
            continue
        x = tensor.float().numpy()
        stored = WHOLE.get(name)
        if stored is None:
            _, _, layer, *middle, last = name.split(".")
            stored = f"blk.{layer}.{NAMES['.'.join(middle)]}.{last}"
            for part, heads in (("q_proj", 4), ("k_proj", 2)):
                if kind == "llama" and part in name:
                    x = interleaved(x, heads).reshape(x.shape)
        w.add_tensor(stored, np.ascontiguousarray(x, np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


@pytest.mark.parametrize(
    ("kind", "model", "config", "rope"),
    [
        ("llama", "LlamaForCausalLM", "LlamaConfig", {"rope_type": "default", "rope_theta": 1e4}),
        ("llama", "LlamaForCausalLM", "LlamaConfig", LLAMA3),
        ("qwen2", "Qwen2ForCausalLM", "Qwen2Config", {"rope_type": "default", "rope_theta": 1e6}),
        (
            "qwen3", "Qwen3ForCausalLM", "Qwen3Config",
            {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0,
             "original_max_position_embeddings": 16},
        ),
    ],
)  # fmt: skip
def test_logits_are_those_of_the_checkpoint(
    kind: str, model: str, config: str, rope: dict[str, Any], tmp_path: Path
) -> None:
    torch.manual_seed(1)
    made = getattr(transformers, config)(**SHARED, rope_parameters=rope)
    reference = getattr(transformers, model)(made).float().eval()
    randomize(reference, 2)
    file = tmp_path / "model.gguf"
    write(file, kind, reference)
    folder = tmp_path / "made"
    options = ["--from", str(file), "--repo", "owner/model"]
    assert main(["nest", "new", str(folder), *options]) == 0
    card = read_card(folder)
    assert card.title == "A Model" and card.license == "mit" and card.generics["T"] == "f32"
    report = check_folder(folder, weights=[file], run=False)
    assert report.ok, report.text()
    loaded: Any = linnet.load(folder, weights=file)
    tokens = torch.randint(0, 64, (2, 17), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        want = reference(input_ids=tokens).logits
    assert share_of_scale(loaded.forward(tokens), want) < 1e-4


def test_a_tied_head_is_bound_to_the_embedding(tmp_path: Path) -> None:
    config = transformers.LlamaConfig(
        **SHARED, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1e4},
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).float().eval()
    file = tmp_path / "model.gguf"
    write(file, "llama", model, leave=("lm_head.weight",))
    folder = tmp_path / "made"
    options = ["--from", str(file), "--repo", "owner/model"]
    assert main(["nest", "new", str(folder), *options]) == 0
    report = check_folder(folder, weights=[file], run=False)
    assert report.ok, report.text()
    # Each tensor once, as transformers counts too.
    sizes = next(step for step in report.steps if step.name == "sizes")
    assert f"{sum(p.numel() for p in model.parameters()):,} elements" in sizes.detail


def test_an_architecture_that_is_not_known(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "model.gguf"
    w = gguf.GGUFWriter(file, "mamba")
    w.add_tensor("x", np.zeros(4, np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    assert main(["nest", "new", str(tmp_path / "made"), "--from", str(file)]) == 1
    assert "architecture `mamba`: there are llama" in capsys.readouterr().err
