"""`qwen3.8-27b` against transformers, on small random checkpoints read through its own bindings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from oracle import QWEN_SIZES, qwen_config, share_of_scale
from oracle.checkpoint import randomize

import linnet

TOLERANCE = 1e-4
INNER = 56


def config() -> dict[str, Any]:
    return {**qwen_config(QWEN_SIZES), "intermediate_size": INNER}


def generics() -> dict[str, int | str]:
    sizes = {
        name: value
        for name, value in QWEN_SIZES.items()
        if name not in ("Experts", "TopK", "ExpertInner", "SharedInner")
    }
    conv = 2 * sizes["KeyHeads"] * sizes["KeyDim"] + sizes["ValueHeads"] * sizes["ValueDim"]
    return {**sizes, "Conv": conv, "Inner": INNER, "Batch": 2, "MaxSeq": 32, "T": "f32"}


def text_model() -> Any:
    from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
    from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5ForCausalLM

    return Qwen3_5ForCausalLM(Qwen3_5TextConfig(**config()))


def vision_model() -> Any:
    from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5Config
    from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5ForConditionalGeneration

    vocab = QWEN_SIZES["Vocab"]
    return Qwen3_5ForConditionalGeneration(
        Qwen3_5Config(
            text_config=config(),
            vision_config={
                "depth": 1, "hidden_size": 32, "intermediate_size": 48, "num_heads": 2,
                "out_hidden_size": QWEN_SIZES["H"], "num_position_embeddings": 16, "patch_size": 4,
            },
            image_token_id=vocab, video_token_id=vocab + 1,
            vision_start_token_id=vocab + 2, vision_end_token_id=vocab + 3,
            tie_word_embeddings=False,
        )
    )  # fmt: skip


@pytest.mark.parametrize("make", [text_model, vision_model])
def test_dense_equals_transformers(models: Path, tmp_path: Path, make: Any) -> None:
    """Every position at once, and the same text in a prefill, single steps and slots."""
    reference = make().float().eval()
    randomize(reference, 4)
    reference.save_pretrained(tmp_path)
    model: Any = linnet.load(models / "qwen3.8-27b", weights=tmp_path, generics=generics())
    tokens = torch.randint(
        0, QWEN_SIZES["Vocab"], (2, 13), generator=torch.Generator().manual_seed(1)
    )
    with torch.no_grad():
        want = reference(input_ids=tokens, use_cache=False).logits
    assert share_of_scale(model.forward(tokens), want) < TOLERANCE
    assert share_of_scale(model.next_token(tokens), want[:, -1]) < TOLERANCE
    assert share_of_scale(model.prefill(tokens[:, :9], pos=0), want[:, 8]) < TOLERANCE
    for at in range(9, 13):
        assert share_of_scale(model.decode(tokens[:, at : at + 1], pos=at), want[:, at]) < TOLERANCE
    model.reset_state()
    lengths = torch.tensor([9, 5])
    got = model.prefill_slots(tokens[:, :9], torch.tensor([1, 0]), lengths)
    assert share_of_scale(got, torch.stack([want[0, 8], want[1, 4]])) < TOLERANCE
    got = model.decode_rows(
        torch.stack([tokens[1, 5:6], tokens[0, 9:10]]), torch.tensor([5, 9], dtype=torch.int32)
    )
    assert share_of_scale(got, torch.stack([want[1, 5], want[0, 9]])) < TOLERANCE


def test_the_card_binds_a_meta_checkpoint(models: Path) -> None:
    """At the card's sizes every bound tensor is one of transformers' model, of the same shape."""
    from transformers.models.qwen3_5.configuration_qwen3_5 import Qwen3_5TextConfig
    from transformers.models.qwen3_5.modeling_qwen3_5 import Qwen3_5ForCausalLM

    from linnet.check.path import check_path
    from linnet.ir.manifest import manifest, root_block
    from linnet.nest.card import read_card
    from linnet.weights.bindings import read_bindings

    card = read_card(models / "qwen3.8-27b")
    sizes = {**config(), **_card_sizes(card.generics)}
    with torch.device("meta"):
        reference = Qwen3_5ForCausalLM(Qwen3_5TextConfig(**sizes))
    theirs = {
        name.replace("model.", "model.language_model.", 1): tuple(tensor.shape)
        for name, tensor in reference.state_dict().items()
    }
    program = check_path(card.folder)
    listed = manifest(program, root_block(program, "Model"), card.generics)
    bound = read_bindings(card.weights.bindings)
    wanted = {bound[p.path]: tuple(p.shape) for p in listed if p.kind != "state" and not p.optional}
    assert wanted == theirs and len(bound) == len(wanted) == 851


def _card_sizes(generics: dict[str, int | str]) -> dict[str, Any]:
    ours = qwen_config({**QWEN_SIZES, **{k: v for k, v in generics.items() if type(v) is int}})
    return {**ours, "intermediate_size": generics["Inner"]}
