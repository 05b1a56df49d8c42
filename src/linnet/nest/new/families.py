"""The families that the zoo has: which package stands for each, and what a config changes in it.

A family's function reads the sizes, names what the zoo's package cannot compute, and lists the
edits that bring its constants to the checkpoint's.
"""

from __future__ import annotations

from collections.abc import Callable

from linnet.nest.new.config import Config
from linnet.nest.new.mixtures import mixtral_importer, mixture
from linnet.nest.new.recipe import HEAD, Edit, Generics, Recipe, constant, epsilon, literal
from linnet.nest.new.rotary import angles


def llama(config: Config) -> Recipe:
    """Llama, Mistral and Qwen2: grouped attention, a SwiGLU, RMS norms, biases where there are."""
    config.must("hidden_act", "silu", default="silu")
    generics = decoder(config)
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
        recipe.edits += [constant("src/positions.linnet", n, v) for n, v in numbers.items()]
        where = ["src/lib.linnet", "deps/llama/src/layer.linnet"]
    else:
        recipe = Recipe("smollm2-135m-instruct", "llama", generics, tied=HEAD)
        recipe.edits += angles(config, "src/positions.linnet", int(generics["HeadDim"]))
        where = ["src/lib.linnet", "src/layer.linnet"]
    recipe.family = str(config.get("model_type"))
    eps = config.number("rms_norm_eps", 1e-6)
    if eps != 1e-5:  # the library's own
        recipe.edits += [Edit(file, r"use std\.nn\.norm::", "use crate.norm::") for file in where]
        for home in dict.fromkeys(file.rpartition("/")[0] for file in where):
            module = "llama3" if home == "src" and recipe.base.startswith("llama-3") else "llama"
            recipe.copies[f"{home}/norm.linnet"] = "qwen3-0.6b/src/norm.linnet"
            recipe.edits.append(Edit(f"{home}/norm.linnet", r"module qwen3", f"module {module}"))
            recipe.edits.append(epsilon(f"{home}/norm.linnet", eps))
    return recipe


def qwen3(config: Config) -> Recipe:
    config.must("hidden_act", "silu", default="silu")
    config.must("attention_bias", False, default=False)
    recipe = Recipe("qwen3-0.6b", "qwen3", decoder(config), tied=HEAD)
    recipe.edits = [
        *angles(config, "src/positions.linnet", int(recipe.generics["HeadDim"])),
        epsilon("src/norm.linnet", config.number("rms_norm_eps", 1e-6)),
    ]
    return recipe


def qwen3_moe(config: Config) -> Recipe:
    """Qwen3's attention with the mixture of Qwen3.5, without its shared expert."""
    recipe = qwen3(config)
    recipe.family = "qwen3_moe"
    mixture(recipe, config, module="qwen3", normed=config.flag("norm_topk_prob"))
    return recipe


def qwen2_moe(config: Config) -> Recipe:
    """Qwen2's attention with the mixture of Qwen3.5."""
    recipe = llama(config)
    normed = config.flag("norm_topk_prob")
    mixture(recipe, config, module="llama", shared=True, normed=normed)
    return recipe


def mixtral(config: Config) -> Recipe:
    """Mistral's attention with a mixture, whose experts lie one by one as w1, w2 and w3."""
    recipe = llama(config)
    mixture(recipe, config, module="llama", normed=True)
    recipe.importer = mixtral_importer()
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
        tied=HEAD,
    )
    common = "deps/qwen3_5/src/"
    eps = config.number("rms_norm_eps", 1e-6)
    recipe.edits = [
        *angles(config, f"{common}positions.linnet", int(generics["HeadDim"]) // 4),
        constant(f"{common}norms.linnet", "EPSILON", eps),
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
    return Recipe("gpt2", "gpt2", generics, tied=HEAD, prefixes=("", "transformer."))


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
    eps = literal(config.number("layer_norm_eps", 1e-12))
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
    eps = literal(config.number("layer_norm_eps", 1e-12))
    recipe.edits.append(Edit("src/layer.linnet", r"some\(bias\), 1e-12", f"some(bias), {eps}"))
    recipe.tags = ("image-classification", "vision", "encoder")
    return recipe


def clip(config: Config) -> Recipe:
    """Two towers, each with sizes of its own."""
    text, image = config.within("text_config"), config.within("vision_config")
    act = config.within("text_config").get("hidden_act", "quick_gelu")
    for tower in (text, image):
        tower.must("layer_norm_eps", 1e-5, default=1e-5)
        tower.must("hidden_act", act, default="quick_gelu")
    if act not in ("quick_gelu", "gelu"):
        text.must("hidden_act", "quick_gelu", "gelu")
    image.must("num_channels", 3, default=3)
    generics: Generics = {
        "Vocab": text.size("vocab_size", default=49408),
        "Positions": text.size("max_position_embeddings", default=77),
    }
    # The defaults are those of the library's config, which files leave out.
    for name, tower, width, inner, heads in (
        ("Text", text, 512, 2048, 8),
        ("Image", image, 768, 3072, 12),
    ):
        width = tower.size("hidden_size", default=width)
        heads = tower.size("num_attention_heads", default=heads)
        generics[f"{name}Heads"] = heads
        generics[f"{name}D"] = _whole(tower, "hidden_size", width, heads)
        generics[f"{name}Inner"] = tower.size("intermediate_size", default=inner)
        generics[f"{name}Layers"] = tower.size("num_hidden_layers", default=12)
    generics["Side"] = image.size("image_size", default=224)
    generics["Patch"] = image.size("patch_size", default=32)
    generics["Joint"] = config.size("projection_dim", default=512)
    recipe = Recipe("clip-vit-base-patch32", "clip", generics, check={"I": 1, "B": 1, "S": 8})
    if act == "gelu":
        recipe.edits = [
            Edit("src/layer.linnet", r"use std\.nn\.activations::\{sigmoid\}",
                 "use std.nn.activations::{gelu_erf}"),
            Edit("src/layer.linnet", r"quick_gelu\(fc1", "gelu_erf(fc1"),
            Edit("src/layer.linnet", r"\n// GELU by a logistic(.*\n)+", ""),
        ]  # fmt: skip
    recipe.tags = ("image-text", "vision", "encoder", "zero-shot-classification")
    return recipe


# By `model_type` of the config.
FAMILIES: dict[str, Callable[[Config], Recipe]] = {
    "llama": llama,
    "mistral": llama,
    "qwen2": llama,
    "qwen2_moe": qwen2_moe,
    "mixtral": mixtral,
    "qwen3": qwen3,
    "qwen3_moe": qwen3_moe,
    "qwen3_5": qwen3_5,
    "qwen3_5_text": qwen3_5,
    "qwen3_5_moe": qwen3_5,
    "qwen3_5_moe_text": qwen3_5,
    "gpt2": gpt2,
    "bert": bert,
    "vit": vit,
    "clip": clip,
}


def decoder(config: Config) -> Generics:
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


def _whole(config: Config, key: str, width: int, heads: int) -> int:
    if width % heads:
        config.missing.append(f"{key} = {width}: not a multiple of {heads} heads")
    return max(1, width // heads)
