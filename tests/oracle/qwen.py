"""The founding architecture, small: `Qwen3_5MoeForCausalLM` and, with a vision tower beside the
text model, `Qwen3_5MoeForConditionalGeneration`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oracle.checkpoint import Oracle, randomize, save

# Key heads differ from value heads, query heads from key/value heads, no two widths are equal.
QWEN_SIZES: dict[str, int] = {
    "Vocab": 97,
    "H": 64,
    "Groups": 2,
    "Heads": 4,
    "KvHeads": 2,
    "HeadDim": 32,
    "KeyHeads": 2,
    "ValueHeads": 6,
    "KeyDim": 16,
    "ValueDim": 12,
    "Width": 4,
    "Experts": 8,
    "TopK": 2,
    "ExpertInner": 24,
    "SharedInner": 40,
}


def qwen_config(sizes: dict[str, int]) -> dict[str, Any]:
    """Arguments of the text config for sizes under our names."""
    return {
        "vocab_size": sizes["Vocab"],
        "hidden_size": sizes["H"],
        "num_hidden_layers": 4 * sizes["Groups"],
        "num_attention_heads": sizes["Heads"],
        "num_key_value_heads": sizes["KvHeads"],
        "head_dim": sizes["HeadDim"],
        "linear_num_key_heads": sizes["KeyHeads"],
        "linear_num_value_heads": sizes["ValueHeads"],
        "linear_key_head_dim": sizes["KeyDim"],
        "linear_value_head_dim": sizes["ValueDim"],
        "linear_conv_kernel_dim": sizes["Width"],
        "num_experts": sizes["Experts"],
        "num_experts_per_tok": sizes["TopK"],
        "moe_intermediate_size": sizes["ExpertInner"],
        "shared_expert_intermediate_size": sizes["SharedInner"],
        "rope_parameters": {
            "rope_theta": 1e7,
            "partial_rotary_factor": 0.25,
            "rope_type": "default",
        },
        "tie_word_embeddings": False,
    }


def qwen_text(
    folder: Path,
    *,
    dtype: str = "f32",
    shard: str | None = None,
    seed: int = 0,
    f32_decay: bool = False,
    **sizes: int,
) -> Oracle:
    """The text model alone; its tensors are named `model.layers.…`.

    `f32_decay` stores `A_log` in f32 whatever `dtype` is, as some checkpoints do.
    """
    from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as modeling
    from transformers.models.qwen3_5_moe.configuration_qwen3_5_moe import Qwen3_5MoeTextConfig

    chosen = QWEN_SIZES | sizes
    model = modeling.Qwen3_5MoeForCausalLM(Qwen3_5MoeTextConfig(**qwen_config(chosen)))
    return _finish(model, folder, chosen, "model.", dtype, shard, seed, f32_decay)


def qwen_vision(
    folder: Path,
    *,
    dtype: str = "f32",
    shard: str | None = None,
    seed: int = 0,
    f32_decay: bool = False,
    **sizes: int,
) -> Oracle:
    """Text model and vision tower in one checkpoint; names as in the card's `bindings.json`."""
    from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as modeling
    from transformers.models.qwen3_5_moe.configuration_qwen3_5_moe import Qwen3_5MoeConfig

    chosen = QWEN_SIZES | sizes
    config = Qwen3_5MoeConfig(
        text_config=qwen_config(chosen),
        vision_config={
            "depth": 2,
            "hidden_size": 32,
            "intermediate_size": 48,
            "num_heads": 2,
            "out_hidden_size": chosen["H"],
            "num_position_embeddings": 16,
            "patch_size": 4,
        },
        # Ids that no prompt has.
        image_token_id=chosen["Vocab"],
        video_token_id=chosen["Vocab"] + 1,
        vision_start_token_id=chosen["Vocab"] + 2,
        vision_end_token_id=chosen["Vocab"] + 3,
        tie_word_embeddings=False,
    )
    model = modeling.Qwen3_5MoeForConditionalGeneration(config)
    return _finish(model, folder, chosen, "model.language_model.", dtype, shard, seed, f32_decay)


def _finish(
    model: Any,
    folder: Path,
    sizes: dict[str, int],
    prefix: str,
    dtype: str,
    shard: str | None,
    seed: int,
    f32_decay: bool,
) -> Oracle:
    model = model.float().eval()
    randomize(model, seed)
    save(model, folder, dtype, shard, lambda name: f32_decay and name.endswith("A_log"))
    conv = 2 * sizes["KeyHeads"] * sizes["KeyDim"] + sizes["ValueHeads"] * sizes["ValueDim"]
    generics: dict[str, int | str] = {**sizes, "Conv": conv, "T": dtype}
    return Oracle(folder, model, generics, bindings(sizes["Groups"], prefix))


def bindings(groups: int, prefix: str) -> dict[str, str]:
    """Our parameter paths to transformers' tensor names under `prefix`."""
    found = {
        "embed_tokens.weight": f"{prefix}embed_tokens.weight",
        "norm.weight": f"{prefix}norm.weight",
        "lm_head.weight": "lm_head.weight",
    }
    shared = {
        "input_layernorm.weight": "input_layernorm.weight",
        "post_attention_layernorm.weight": "post_attention_layernorm.weight",
        "mlp.gate.weight": "mlp.gate.weight",
        "mlp.gate_up_proj": "mlp.experts.gate_up_proj",
        "mlp.down_proj": "mlp.experts.down_proj",
        "mlp.shared_expert.gate.weight": "mlp.shared_expert.gate_proj.weight",
        "mlp.shared_expert.up.weight": "mlp.shared_expert.up_proj.weight",
        "mlp.shared_expert.down.weight": "mlp.shared_expert.down_proj.weight",
        "mlp.shared_expert_gate.weight": "mlp.shared_expert_gate.weight",
    }
    linear = {
        f"linear_attn.{name}.weight": f"linear_attn.{name}.weight"
        for name in ("in_proj_qkv", "in_proj_z", "in_proj_a", "in_proj_b", "norm", "out_proj")
    } | {
        "linear_attn.conv_weight": "linear_attn.conv1d.weight",
        "linear_attn.A_log": "linear_attn.A_log",
        "linear_attn.dt_bias": "linear_attn.dt_bias",
    }
    full = {
        f"self_attn.{name}.weight": f"self_attn.{name}.weight"
        for name in ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")
    }
    for group in range(groups):
        for place in range(4):
            path = f"groups.{group}.linear.{place}" if place < 3 else f"groups.{group}.full"
            for ours, theirs in (shared | (linear if place < 3 else full)).items():
                found[f"{path}.{ours}"] = f"{prefix}layers.{4 * group + place}.{theirs}"
    return found
