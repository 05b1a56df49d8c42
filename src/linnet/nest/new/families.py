"""The families that the zoo has: which package stands for each, and what a config changes in it.

A family's function reads the sizes, names what the zoo's package cannot compute, and lists the
edits that bring its constants to the checkpoint's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from linnet.nest.new.config import Config

Generics = dict[str, int | str]


@dataclass(frozen=True, slots=True)
class Edit:
    """In `file` (a path in the new package) the text `old`, a regular expression, becomes `new`
    wherever it stands; that it stands nowhere is a fault of ours."""

    file: str
    old: str
    new: str


@dataclass
class Recipe:
    """`base` is the zoo's package. `tied` are paths bound to another's tensor where the config
    ties them, with their own tensor where it doesn't. `extra` are bindings of paths that the
    base doesn't have, with `*` for a layer. `copies` are files of other packages."""

    base: str
    family: str
    generics: Generics
    edits: list[Edit] = field(default_factory=list)
    tied: dict[str, str] = field(default_factory=dict)
    extra: dict[str, str] = field(default_factory=dict)
    copies: dict[str, str] = field(default_factory=dict)
    prefixes: tuple[str, ...] = ("",)
    tags: tuple[str, ...] = ("text-generation", "decoder-only")
    check: Generics = field(default_factory=lambda: {"B": 1, "S": 8})


HEAD = {"lm_head.weight": "lm_head.weight"}


def llama(config: Config) -> Recipe:
    """Llama, Mistral and Qwen2: grouped attention, a SwiGLU, RMS norms, biases where there are."""
    config.must("hidden_act", "silu", default="silu")
    generics = _decoder(config)
    rope = config.rope
    if rope["rope_type"] == "llama3":
        numbers = {
            "LOG_BASE": config.log_base(1e4),
            "OLD_CONTEXT": float(rope.get("original_max_position_embeddings", 8192)),
            "SLOWED": float(rope.get("factor", 32.0)),
            "LOW": float(rope.get("low_freq_factor", 1.0)),
            "HIGH": float(rope.get("high_freq_factor", 4.0)),
        }
        recipe = Recipe("llama-3.2-1b-instruct", "llama3", generics, tied=HEAD)
        recipe.edits += [_constant("src/positions.linnet", n, v) for n, v in numbers.items()]
        where = ["src/lib.linnet", "deps/llama/src/layer.linnet"]
    else:
        _plain_rope(config)
        recipe = Recipe("smollm2-135m-instruct", "llama", generics, tied=HEAD)
        recipe.edits.append(_constant("src/positions.linnet", "LOG_BASE", config.log_base(1e4)))
        where = ["src/lib.linnet", "src/layer.linnet"]
    recipe.family = str(config.get("model_type"))
    eps = config.number("rms_norm_eps", 1e-6)
    if eps != 1e-5:  # the library's own
        recipe.edits += [Edit(file, r"use std\.nn\.norm::", "use crate.norm::") for file in where]
        for home in dict.fromkeys(file.rpartition("/")[0] for file in where):
            module = "llama3" if home == "src" and recipe.base.startswith("llama-3") else "llama"
            recipe.copies[f"{home}/norm.linnet"] = "qwen3-0.6b/src/norm.linnet"
            recipe.edits.append(Edit(f"{home}/norm.linnet", r"module qwen3", f"module {module}"))
            recipe.edits.append(_epsilon(f"{home}/norm.linnet", eps))
    return recipe


def qwen3(config: Config) -> Recipe:
    config.must("hidden_act", "silu", default="silu")
    config.must("attention_bias", False, default=False)
    _plain_rope(config)
    recipe = Recipe("qwen3-0.6b", "qwen3", _decoder(config), tied=HEAD)
    recipe.edits = [
        _constant("src/positions.linnet", "LOG_BASE", config.log_base(1e4)),
        _epsilon("src/norm.linnet", config.number("rms_norm_eps", 1e-6)),
    ]
    return recipe


def qwen3_moe(config: Config) -> Recipe:
    """Qwen3's attention with the mixture of Qwen3.5, without its shared expert."""
    recipe = qwen3(config)
    recipe.family = "qwen3_moe"
    config.must("norm_topk_prob", True, default=False)
    config.must("decoder_sparse_step", 1, default=1)
    config.must("mlp_only_layers", [], default=[])
    recipe.generics["Inner"] = config.size("moe_intermediate_size")
    recipe.generics["Experts"] = config.size("num_experts", "num_local_experts")
    recipe.generics["TopK"] = config.size("num_experts_per_tok")
    recipe.copies["src/experts.linnet"] = "qwen3.6-35b-a3b/src/experts.linnet"
    experts, layer, lib = "src/experts.linnet", "src/layer.linnet", "src/lib.linnet"
    recipe.edits += [
        Edit(experts, r"module qwen3_5_moe", "module qwen3"),
        Edit(experts, r"per token, and one more\n// that all tokens share\.", "per token."),
        Edit(experts, r"\{silu, sigmoid\}", "{silu}"),
        Edit(experts, r"use std\.nn\.mlp.*\n", ""),
        Edit(experts, r"    SharedInner: Dim,\n", ""),
        Edit(experts, r"    sub shared_expert.*\n", ""),
        Edit(experts, r"        let common = .*\n", ""),
        Edit(experts, r"chosen\(tokens\) \+ common", "chosen(tokens)"),
        Edit(layer, r"then a SwiGLU", "then a mixture of experts"),
        Edit(layer, r"use std\.nn\.mlp::\{SwiGlu\}\n", ""),
        Edit(layer, r"(use crate\.attention.*\n)", r"\1use crate.experts::{Mixture}\n"),
        Edit(layer, r"SwiGlu<H, Inner, T>", "Mixture<H, TopK, Experts, Inner, T>"),
        Edit(layer, r"    Inner: Dim,\n", "    Inner: Dim,\n    TopK: Dim,\n    Experts: Dim,\n"),
        Edit(lib, r"    Inner: Dim,\n", "    Inner: Dim,\n    TopK: Dim,\n    Experts: Dim,\n"),
        Edit(lib, r"Layer<H, Inner,", "Layer<H, Inner, TopK, Experts,"),
    ]
    recipe.extra = {
        f"layers.*.mlp.{ours}": f"model.layers.*.mlp.{theirs}"
        for ours, theirs in (
            ("gate.weight", "gate.weight"),
            ("gate_up_proj", "experts.gate_up_proj"),
            ("down_proj", "experts.down_proj"),
        )
    }
    recipe.tags += ("mixture-of-experts",)
    return recipe


def qwen3_5(config: Config) -> Recipe:
    """Qwen3.5 and its successors of the same architecture: the text model, dense or a mixture."""
    if isinstance(config.values.get("text_config"), dict):
        config = config.within("text_config")
    mixture = config.get("num_experts") is not None
    config.must("hidden_act", "silu", default="silu")
    config.must("attention_bias", False, default=False)
    layers = config.size("num_hidden_layers")
    kinds = config.get("layer_types")
    pattern = ["linear_attention"] * 3 + ["full_attention"]
    if layers % 4 or (kinds is not None and kinds != pattern * (layers // 4)):
        config.missing.append(
            "layer_types: the package repeats three layers of linear and one of full attention"
        )
    elif kinds is None:
        config.must("full_attention_interval", 4, default=4)
    rope = config.rope
    if rope.get("partial_rotary_factor", 0.25) != 0.25:
        config.missing.append(
            f"partial_rotary_factor = {rope['partial_rotary_factor']!r}: the package turns the "
            "first quarter of a head"
        )
    _plain_rope(config)
    key, value = config.size("linear_num_key_heads"), config.size("linear_num_value_heads")
    key_dim, value_dim = config.size("linear_key_head_dim"), config.size("linear_value_head_dim")
    generics: Generics = {
        "Vocab": config.size("vocab_size"),
        "H": config.size("hidden_size"),
        "Groups": max(1, layers // 4),
        "HeadDim": config.size("head_dim"),
        "Heads": config.size("num_attention_heads"),
        "KvHeads": config.size("num_key_value_heads"),
        "KeyHeads": key,
        "KeyDim": key_dim,
        "ValueHeads": value,
        "ValueDim": value_dim,
        "Width": config.size("linear_conv_kernel_dim"),
        "Conv": 2 * key * key_dim + value * value_dim,
    }
    if mixture:
        generics["TopK"] = config.size("num_experts_per_tok")
        generics["Experts"] = config.size("num_experts")
        generics["ExpertInner"] = config.size("moe_intermediate_size")
        generics["SharedInner"] = config.size("shared_expert_intermediate_size")
    else:
        generics["Inner"] = config.size("intermediate_size")
    generics["Batch"] = 1
    generics["MaxSeq"] = config.size("max_position_embeddings", default=32768)
    recipe = Recipe(
        "qwen3.6-35b-a3b" if mixture else "qwen3.8-27b",
        "qwen3_5_moe" if mixture else "qwen3_5",
        generics,
        tied={"lm_head.weight": "lm_head.weight"},
    )
    common = "deps/qwen3_5/src/"
    eps = config.number("rms_norm_eps", 1e-6)
    recipe.edits = [
        _constant(f"{common}positions.linnet", "LOG_BASE", config.log_base(1e4)),
        _constant(f"{common}norms.linnet", "EPSILON", eps),
    ]
    recipe.tags += ("linear-attention", "gated-deltanet", "hybrid")
    if mixture:
        recipe.tags += ("mixture-of-experts",)
    return recipe


def gpt2(config: Config) -> Recipe:
    config.must("activation_function", "gelu_new", "gelu_pytorch_tanh", default="gelu_new")
    config.must("layer_norm_epsilon", 1e-5, default=1e-5)
    config.must("scale_attn_weights", True, default=True)
    config.must("scale_attn_by_inverse_layer_idx", False, default=False)
    width, heads = config.size("n_embd"), config.size("n_head")
    positions = config.size("n_positions", "n_ctx", default=1024)
    generics: Generics = {
        "Vocab": config.size("vocab_size"),
        "Positions": positions,
        "Heads": heads,
        "D": _whole(config, "n_embd", width, heads),
        "Inner": config.size("n_inner", default=4 * width),
        "Layers": config.size("n_layer"),
        "Batch": 1,
        "MaxSeq": positions,
    }
    tied = {"lm_head.weight": "lm_head.weight"}
    return Recipe("gpt2", "gpt2", generics, tied=tied, prefixes=("", "transformer."))


def bert(config: Config) -> Recipe:
    config.must("hidden_act", "gelu", default="gelu")
    config.must("position_embedding_type", "absolute", default="absolute")
    config.must("is_decoder", False, default=False)
    width, heads = config.size("hidden_size"), config.size("num_attention_heads")
    generics: Generics = {
        "Vocab": config.size("vocab_size"),
        "Positions": config.size("max_position_embeddings"),
        "Types": config.size("type_vocab_size", default=2),
        "Heads": heads,
        "D": _whole(config, "hidden_size", width, heads),
        "Inner": config.size("intermediate_size"),
        "Layers": config.size("num_hidden_layers"),
    }
    mean = config.flag("pooling_mean")
    base = "all-minilm-l6-v2" if mean else "bge-base-en-v1.5"
    file = "deps/bert/src/encoder.linnet" if mean else "src/encoder.linnet"
    recipe = Recipe(base, "bert", generics, prefixes=("", "bert."))
    eps = _float(config.number("layer_norm_eps", 1e-12))
    recipe.edits.append(Edit(file, r"some\(bias\), 1e-12", f"some(bias), {eps}"))
    recipe.tags = ("sentence-embedding", "encoder", "bert")
    return recipe


def vit(config: Config) -> Recipe:
    config.must("hidden_act", "gelu", default="gelu")
    config.must("num_channels", 3, default=3)
    config.must("qkv_bias", True, default=True)
    width, heads = config.size("hidden_size"), config.size("num_attention_heads")
    labels = config.get("id2label")
    classes = len(labels) if isinstance(labels, dict) else config.size("num_labels", default=2)
    generics: Generics = {
        "Classes": classes,
        "Side": config.size("image_size"),
        "Patch": config.size("patch_size"),
        "Heads": heads,
        "D": _whole(config, "hidden_size", width, heads),
        "Inner": config.size("intermediate_size"),
        "Layers": config.size("num_hidden_layers"),
    }
    recipe = Recipe("vit-base-patch16-224", "vit", generics, check={"B": 1})
    eps = _float(config.number("layer_norm_eps", 1e-12))
    recipe.edits.append(Edit("src/layer.linnet", r"some\(bias\), 1e-12", f"some(bias), {eps}"))
    recipe.tags = ("image-classification", "vision", "encoder")
    return recipe


# By `model_type` of the config.
FAMILIES: dict[str, Callable[[Config], Recipe]] = {
    "llama": llama,
    "mistral": llama,
    "qwen2": llama,
    "qwen3": qwen3,
    "qwen3_moe": qwen3_moe,
    "qwen3_5": qwen3_5,
    "qwen3_5_text": qwen3_5,
    "qwen3_5_moe": qwen3_5,
    "qwen3_5_moe_text": qwen3_5,
    "gpt2": gpt2,
    "bert": bert,
    "vit": vit,
}


def _decoder(config: Config) -> Generics:
    width, heads = config.size("hidden_size"), config.size("num_attention_heads")
    longest = config.size("max_position_embeddings", default=2048)
    window = config.get("sliding_window")
    if config.flag("use_sliding_window", True) and isinstance(window, int) and window < longest:
        config.notes.append(
            f"attention reaches {window} positions back; the package sees all, so MaxSeq is "
            f"{window}, up to which both are the same"
        )
        longest = window
    return {
        "Vocab": config.size("vocab_size"),
        "H": width,
        "Inner": config.size("intermediate_size"),
        "Heads": heads,
        "KvHeads": config.size("num_key_value_heads", default=heads),
        "HeadDim": config.size("head_dim", default=width // heads),
        "Layers": config.size("num_hidden_layers"),
        "Batch": 1,
        "MaxSeq": longest,
    }


def _plain_rope(config: Config) -> None:
    kind = config.rope["rope_type"]
    if kind not in ("default", "mrope"):
        config.missing.append(f"rope_type = {kind!r}: the package has the plain rotary angles")


def _whole(config: Config, key: str, width: int, heads: int) -> int:
    if width % heads:
        config.missing.append(f"{key} = {width}: not a multiple of {heads} heads")
    return max(1, width // heads)


def _float(value: float) -> str:
    """As a literal of the language."""
    text = repr(value)
    return text.replace("e-0", "e-").replace("e+", "e")


def _constant(file: str, name: str, value: float) -> Edit:
    return Edit(file, rf"(const {name}: f\d\d = )\S+", rf"\g<1>{_float(value)}")


def _epsilon(file: str, value: float) -> Edit:
    return Edit(file, r"eps = 1e-6", f"eps = {_float(value)}")
