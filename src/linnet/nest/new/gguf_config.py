"""The config of a GGUF file, from its metadata, under the keys of a `config.json`.

Keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from linnet.errors import CardError
from linnet.weights.gguf import GgufFile

# `general.architecture` → `model_type`.
FAMILIES = {
    "llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "qwen35": "qwen3_5_text",
    "qwen35moe": "qwen3_5_moe_text",
}  # fmt: skip
_SIZES = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "max_position_embeddings": "context_length",
    "head_dim": "attention.key_length",
    "sliding_window": "attention.sliding_window",
}
_HYBRID = {
    "full_attention_interval": "full_attention_interval",
    "linear_num_key_heads": "ssm.group_count",
    "linear_key_head_dim": "ssm.state_size",
    "linear_num_value_heads": "ssm.time_step_rank",
    "linear_conv_kernel_dim": "ssm.conv_kernel",
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
}
_SLOW = "rope_freqs.weight"  # Llama 3's scaling: what each frequency is divided by


def config_of(file: GgufFile) -> dict[str, Any]:
    """Raises CardError for an architecture that is not known here."""
    kind = file.architecture
    if kind not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise CardError(f"{file.path}: architecture `{kind}`: there are {known}")

    def get(key: str) -> Any:
        value = file.metadata(f"{kind}.{key}")
        return _short(value) if isinstance(value, float) else value

    found: dict[str, Any] = {"model_type": FAMILIES[kind]}
    keys = _SIZES | (_HYBRID if kind.startswith("qwen35") else {})
    found |= {name: get(key) for name, key in keys.items() if get(key) is not None}
    # The default of the format where no width of a head is given.
    if kind == "llama" and "head_dim" not in found and get("rope.dimension_count") is not None:
        found["head_dim"] = get("rope.dimension_count")
    table = file.tensors.get(_embedding(file))
    if table is None or len(table.shape) != 2:
        raise CardError(f"{file.path}: no table of embeddings (token_embd.weight)")
    found["vocab_size"] = table.shape[0]
    found["rms_norm_eps"] = get("attention.layer_norm_rms_epsilon")
    found["rope_parameters"] = _rope(file, get, found)
    if kind.startswith("qwen35"):
        inner, heads = get("ssm.inner_size"), found.get("linear_num_value_heads")
        if isinstance(inner, int) and isinstance(heads, int) and heads:
            found["linear_value_head_dim"] = inner // heads
    return found


def _embedding(file: GgufFile) -> str:
    names = ("model.embed_tokens.weight", "model.language_model.embed_tokens.weight")
    return next((name for name in names if name in file.tensors), names[0])


def _rope(file: GgufFile, get: Any, found: dict[str, Any]) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_theta": get("rope.freq_base") or 1e4, "rope_type": "default"}
    kind = get("rope.scaling.type")
    if kind not in (None, "none"):
        rope["rope_type"] = kind
        rope["factor"] = get("rope.scaling.factor")
        old = get("rope.scaling.original_context_length")
        if old is not None:
            rope["original_max_position_embeddings"] = old
    if _SLOW in file.tensors:
        rope |= _llama3(file, rope["rope_theta"])
    turning, width = get("rope.dimension_count"), found.get("head_dim")
    if isinstance(turning, int) and isinstance(width, int) and width and turning != width:
        rope["partial_rotary_factor"] = turning / width
    return rope


def _llama3(file: GgufFile, base: float) -> dict[str, Any]:
    """The file holds the divisors, not what they were made from. The scaling that every release of
    Llama 3 has is tried; another one is not known here."""
    stored = list(file.read(_SLOW, "f32").cast("f"))
    factor = stored[-1] if stored and stored[-1] > 0 else 1.0
    for old in (8192, 4096, 16384, 32768):
        made = []
        for at in range(len(stored)):
            waves = old * base ** (-at / len(stored)) / (2 * math.pi)
            share = min(max((waves - 1.0) / 3.0, 0.0), 1.0)
            made.append(1.0 / ((1 - share) / factor + share))
        if all(math.isclose(a, b, rel_tol=1e-3) for a, b in zip(made, stored)):
            return {
                "rope_type": "llama3", "factor": _short(factor), "low_freq_factor": 1.0,
                "high_freq_factor": 4.0, "original_max_position_embeddings": old,
            }  # fmt: skip
    return {"rope_type": f"divisors of its own ({_SLOW})"}


def _short(value: float) -> float:
    """The number that was meant: files hold f32."""
    return float(f"{value:.7g}")


def is_gguf(path: Path) -> bool:
    return path.is_file() and path.suffix == ".gguf"
