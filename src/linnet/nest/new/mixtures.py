"""Mixtures of experts in place of a decoder's SwiGLU: the zoo's, as a family asks for it."""

from __future__ import annotations

from linnet.nest.new.config import Config
from linnet.nest.new.recipe import Edit, Recipe

_EXPERTS, _LAYER, _LIB = "src/experts.linnet", "src/layer.linnet", "src/lib.linnet"


def mixture(
    recipe: Recipe, config: Config, *, module: str, normed: bool, shared: bool = False
) -> None:
    """Change a decoder's recipe. `shared`: there is an expert that all tokens share, behind a
    gate of its own. `normed`: the weights of the chosen experts add up to 1; else they are the
    softmax over all experts."""
    if recipe.base.startswith("llama-3"):
        config.missing.append("rope_type = 'llama3': the package with a mixture has other angles")
        return
    config.must("decoder_sparse_step", 1, default=1)
    config.must("mlp_only_layers", [], default=[])
    generics = recipe.generics
    generics["Inner"] = config.size("moe_intermediate_size", "intermediate_size")
    generics["Experts"] = config.size("num_experts", "num_local_experts")
    generics["TopK"] = config.size("num_experts_per_tok")
    recipe.copies[_EXPERTS] = "qwen3.6-35b-a3b/src/experts.linnet"
    sizes, given = ["TopK", "Experts"], "TopK, Experts, Inner"
    recipe.edits.append(Edit(_EXPERTS, r"module qwen3_5_moe", f"module {module}"))
    if shared:
        generics["SharedInner"] = config.size("shared_expert_intermediate_size")
        sizes.append("SharedInner")
        given = "TopK, Experts, SharedInner, Inner"
    else:
        recipe.edits += _ALONE
    if not normed:
        recipe.edits += _OF_ALL
    declared = "    Inner: Dim,\n" + "".join(f"    {name}: Dim,\n" for name in sizes)
    recipe.edits += [
        Edit(_LAYER, r"then a SwiGLU", "then a mixture of experts"),
        Edit(_LAYER, r"use std\.nn\.mlp::\{SwiGlu\}\n", ""),
        Edit(_LAYER, r"(use crate\.attention.*\n)", r"\1use crate.experts::{Mixture}\n"),
        Edit(_LAYER, r"SwiGlu<H, Inner, T>", f"Mixture<H, {given}, T>"),
        Edit(_LAYER, r"    Inner: Dim,\n", declared),
        Edit(_LIB, r"    Inner: Dim,\n", declared),
        Edit(_LIB, r"Layer<H, Inner,", f"Layer<H, Inner, {', '.join(sizes)},"),
    ]
    theirs = {
        "gate.weight": "gate.weight",
        "gate_up_proj": "experts.gate_up_proj",
        "down_proj": "experts.down_proj",
    }
    if shared:
        theirs["shared_expert_gate.weight"] = "shared_expert_gate.weight"
        for part in ("gate", "up", "down"):
            theirs[f"shared_expert.{part}.weight"] = f"shared_expert.{part}_proj.weight"
    recipe.extra = {
        f"layers.*.mlp.{ours}": f"model.layers.*.mlp.{name}" for ours, name in theirs.items()
    }
    recipe.tags += ("mixture-of-experts",)


# Without the expert that all tokens share.
_ALONE = [
    Edit(_EXPERTS, r"per token, and one more\n// that all tokens share\.", "per token."),
    Edit(_EXPERTS, r"\{silu, sigmoid\}", "{silu}"),
    Edit(_EXPERTS, r"use std\.nn\.mlp.*\n", ""),
    Edit(_EXPERTS, r"    SharedInner: Dim,\n", ""),
    Edit(_EXPERTS, r"    sub shared_expert.*\n", ""),
    Edit(_EXPERTS, r"        let common = .*\n", ""),
    Edit(_EXPERTS, r"chosen\(tokens\) \+ common", "chosen(tokens)"),
]
# Weights that are shares of all experts.
_OF_ALL = [
    Edit(
        _EXPERTS,
        r"their router logits\n    // alone\. That is .*",
        "the router logits\n    // of all experts.",
    ),
    Edit(
        _EXPERTS,
        r"        let logit\[r, k\] = .*",
        "        let share = softmax(cast<f32>(score))\n"
        "        let weight[r, k] = sum<f32>[e] select(rank[r, e] == place[k], share[r, e], 0.0)",
    ),
    Edit(_EXPERTS, r"softmax\(logit\)", "weight"),
]


def mixtral_importer() -> str:
    """For checkpoints as they are published: gate, down and up of an expert are w1, w2 and w3."""
    return """\
# Experts lie one by one, gate, down and up as w1, w2 and w3, and under another name.
[[tensor]]
from = "model.layers.*.block_sparse_moe.gate.weight"
to = "model.layers.*.mlp.gate.weight"

[[tensor]]
from = [
  "model.layers.*.block_sparse_moe.experts.#.w1.weight",
  "model.layers.*.block_sparse_moe.experts.#.w3.weight",
]
to = "model.layers.*.mlp.experts.gate_up_proj"
join = 0

[[tensor]]
from = "model.layers.*.block_sparse_moe.experts.#.w2.weight"
to = "model.layers.*.mlp.experts.down_proj"
"""
