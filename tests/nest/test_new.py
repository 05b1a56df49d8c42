"""`linnet nest new`: packages made from checkpoints that transformers saved, in parity with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from oracle import QWEN_SIZES, qwen_config, share_of_scale
from oracle.checkpoint import randomize

import linnet
from linnet.cli.main import main
from linnet.nest.card import read_card
from linnet.nest.checks.run import check_folder

SHARED: dict[str, Any] = {
    "vocab_size": 61, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
    "max_position_embeddings": 64, "bos_token_id": None, "eos_token_id": None,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 16,
}  # fmt: skip
YARN = {
    "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "beta_fast": 4.0, "beta_slow": 0.5,
    "original_max_position_embeddings": 16,
}  # fmt: skip
MIXTURE = {
    "num_local_experts": 6, "num_experts": 6, "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
}  # fmt: skip


def rope(theta: float) -> dict[str, Any]:
    return {"rope_type": "default", "rope_theta": theta}


# name → (model class, config class, config, base)
DECODERS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "llama": (
        "LlamaForCausalLM", "LlamaConfig",
        {**SHARED, "rope_parameters": rope(5000.0), "rms_norm_eps": 1e-5}, "smollm2-135m-instruct",
    ),
    "llama-biased": (
        "LlamaForCausalLM", "LlamaConfig",
        {**SHARED, "rope_parameters": rope(1e4), "rms_norm_eps": 3e-6, "attention_bias": True,
         "mlp_bias": True, "tie_word_embeddings": True}, "smollm2-135m-instruct",
    ),
    "llama-3": (
        "LlamaForCausalLM", "LlamaConfig",
        {**SHARED, "rope_parameters": LLAMA3, "rms_norm_eps": 1e-6}, "llama-3.2-1b-instruct",
    ),
    "mistral": (
        "MistralForCausalLM", "MistralConfig",
        {**SHARED, "rope_parameters": rope(1e6), "sliding_window": 48, "rms_norm_eps": 1e-5},
        "smollm2-135m-instruct",
    ),
    "qwen-2": (
        "Qwen2ForCausalLM", "Qwen2Config",
        {**SHARED, "rope_parameters": rope(1e6), "rms_norm_eps": 1e-6}, "smollm2-135m-instruct",
    ),
    "qwen-3": (
        "Qwen3ForCausalLM", "Qwen3Config",
        {**SHARED, "head_dim": 12, "rope_parameters": rope(2e6)}, "qwen3-0.6b",
    ),
    "qwen-3-moe": (
        "Qwen3MoeForCausalLM", "Qwen3MoeConfig",
        {**SHARED, "rope_parameters": rope(1e6), "num_local_experts": 6, "num_experts": 6,
         "num_experts_per_tok": 2, "moe_intermediate_size": 24, "norm_topk_prob": True},
        "qwen3-0.6b",
    ),
    "qwen-3-moe-not-normed": (
        "Qwen3MoeForCausalLM", "Qwen3MoeConfig",
        {**SHARED, "rope_parameters": rope(1e6), **MIXTURE, "norm_topk_prob": False},
        "qwen3-0.6b",
    ),
    "qwen-2-moe": (
        "Qwen2MoeForCausalLM", "Qwen2MoeConfig",
        {**SHARED, "rope_parameters": rope(1e6), **MIXTURE, "norm_topk_prob": False,
         "shared_expert_intermediate_size": 28, "qkv_bias": True}, "smollm2-135m-instruct",
    ),
    "mixtral": (
        "MixtralForCausalLM", "MixtralConfig",
        {**SHARED, "rope_parameters": rope(1e6), "num_local_experts": 4,
         "num_experts_per_tok": 2, "sliding_window": None}, "smollm2-135m-instruct",
    ),
    "llama-yarn": (
        "LlamaForCausalLM", "LlamaConfig",
        {**SHARED, "head_dim": 16, "rope_parameters": YARN}, "smollm2-135m-instruct",
    ),
    "qwen-3-yarn-mscale": (
        "Qwen3ForCausalLM", "Qwen3Config",
        {**SHARED, "head_dim": 16, "rope_parameters": {
            **YARN, "mscale": 0.7, "mscale_all_dim": 1.2, "truncate": False}}, "qwen3-0.6b",
    ),
    "llama-linear": (
        "LlamaForCausalLM", "LlamaConfig",
        {**SHARED, "rope_parameters": {**rope(1e4), "rope_type": "linear", "factor": 3.0}},
        "smollm2-135m-instruct",
    ),
    "llama-dynamic": (
        "LlamaForCausalLM", "LlamaConfig",
        {**SHARED, "rope_parameters": {**rope(1e4), "rope_type": "dynamic", "factor": 3.0}},
        "smollm2-135m-instruct",
    ),
    "gpt-2": (
        "GPT2LMHeadModel", "GPT2Config",
        {"vocab_size": 61, "n_embd": 32, "n_head": 4, "n_layer": 3, "n_positions": 48}, "gpt2",
    ),
}  # fmt: skip


def save(model: Any, folder: Path, seed: int = 2) -> Any:
    model = model.float().eval()
    randomize(model, seed)
    model.save_pretrained(folder)
    return model


def make(tmp_path: Path, name: str, *options: str) -> Path:
    folder = tmp_path / "made" / name
    assert main(["nest", "new", str(folder), "--from", str(tmp_path / "from"), *options]) == 0
    return folder


def compare(folder: Path, tmp_path: Path, reference: Any, **generics: Any) -> None:
    model: Any = linnet.load(folder, weights=tmp_path / "from", generics=generics)
    vocab = int(read_card(folder).generics["Vocab"])
    tokens = torch.randint(0, vocab, (2, 17), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        want = reference(input_ids=tokens).logits
    assert share_of_scale(model.forward(tokens), want) < 1e-4


@pytest.mark.parametrize("name", DECODERS)
def test_a_decoder_of_each_family(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, config, values, base = DECODERS[name]
    torch.manual_seed(1)
    made = getattr(transformers, model)(getattr(transformers, config)(**values))
    reference = save(made, tmp_path / "from")
    folder = make(tmp_path, name, "--license", "MIT", "--repo", "owner/model")
    assert f"from `{base}`" in capsys.readouterr().out
    card = read_card(folder)
    assert card.license == "MIT" and card.weights.repo == "owner/model"
    assert card.generics["T"] == "f32" and card.weights.files == ("model.safetensors",)
    if name == "mistral":
        assert card.generics["MaxSeq"] == 48
    report = check_folder(folder, weights=[tmp_path / "from"], run=False)
    assert report.ok, report.text()
    compare(folder, tmp_path, reference)


@pytest.mark.parametrize(("mixture", "scaled"), [(True, {}), (False, {}), (False, YARN)])
def test_the_founding_architecture_dense_and_mixture(
    mixture: bool, scaled: dict[str, Any], tmp_path: Path
) -> None:
    """Experts one by one and the text model's own prefix come in through importers."""
    values = {**qwen_config(QWEN_SIZES), "rms_norm_eps": 3e-6, "max_position_embeddings": 64}
    values["rope_parameters"] = {**values["rope_parameters"], **scaled, "rope_theta": 3e6}
    if mixture:
        made = transformers.Qwen3_5MoeForCausalLM(transformers.Qwen3_5MoeTextConfig(**values))
    else:
        values = {k: v for k, v in values.items() if "expert" not in k}
        values["intermediate_size"] = 56
        made = transformers.Qwen3_5ForCausalLM(transformers.Qwen3_5TextConfig(**values))
    reference = save(made, tmp_path / "from")
    folder = make(tmp_path, "made")
    assert (folder / "deps" / "qwen3_5" / "src" / "attention.linnet").is_file()
    compare(folder, tmp_path, reference)


def test_an_encoder_with_its_pooling(tmp_path: Path) -> None:
    config = transformers.BertConfig(
        vocab_size=61, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=40, max_position_embeddings=32, layer_norm_eps=1e-7,
    )  # fmt: skip
    reference = save(transformers.BertModel(config), tmp_path / "from")
    pooling = tmp_path / "from" / "1_Pooling"
    pooling.mkdir()
    (pooling / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    folder = make(tmp_path, "encoder")
    model: Any = linnet.load(folder, weights=tmp_path / "from")
    tokens = torch.randint(0, 61, (2, 9))
    lengths = torch.tensor([9, 9])
    with torch.no_grad():
        want = reference(tokens).last_hidden_state
    assert share_of_scale(model.forward(tokens, torch.zeros_like(tokens), lengths), want) < 1e-4
    mean = torch.nn.functional.normalize(want.mean(1), dim=-1)
    assert share_of_scale(model.embed(tokens, lengths), mean) < 1e-4


def test_a_classifier_of_images(tmp_path: Path) -> None:
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=40,
        image_size=12, patch_size=4, num_labels=5, layer_norm_eps=1e-6,
    )  # fmt: skip
    reference = save(transformers.ViTForImageClassification(config), tmp_path / "from")
    model: Any = linnet.load(make(tmp_path, "classifier"), weights=tmp_path / "from")
    images = torch.randn(2, 3, 12, 12)
    with torch.no_grad():
        want = reference(images).logits
    assert share_of_scale(model.forward(images), want) < 1e-4


@pytest.mark.parametrize("act", ["quick_gelu", "gelu"])
def test_two_towers(act: str, tmp_path: Path) -> None:
    """Towers of different depth and heads of different width."""
    shared = {"hidden_act": act, "projection_dim": 20}
    config = transformers.CLIPConfig(
        text_config={
            "vocab_size": 50, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
            "num_attention_heads": 2, "max_position_embeddings": 16, "eos_token_id": 49, **shared,
        },
        vision_config={
            "hidden_size": 48, "intermediate_size": 44, "num_attention_heads": 3,
            "num_hidden_layers": 3, "image_size": 24, "patch_size": 8, **shared,
        },
        projection_dim=20,
    )  # fmt: skip
    reference = save(transformers.CLIPModel(config), tmp_path / "from")
    folder = make(tmp_path, "towers", "--license", "MIT", "--repo", "owner/model")
    report = check_folder(folder, weights=[tmp_path / "from"], run=False)
    assert report.ok, report.text()
    model: Any = linnet.load(folder, weights=tmp_path / "from")
    tokens = torch.randint(0, 48, (3, 11), generator=torch.Generator().manual_seed(3))
    lengths = torch.tensor([5, 11, 3])
    for row, length in enumerate(lengths.tolist()):
        tokens[row, length - 1 :] = 49
    images = torch.randn(2, 3, 24, 24)
    with torch.no_grad():
        want = reference(input_ids=tokens, pixel_values=images).logits_per_image
    assert share_of_scale(model.forward(images, tokens, lengths), want) < 1e-4


@pytest.fixture
def small(tmp_path: Path) -> Callable[..., Path]:
    """A checkpoint whose config has these values, no matter whether they are its own."""

    def get(**changes: Any) -> Path:
        config = transformers.LlamaConfig(**SHARED)
        folder = tmp_path / "from"
        transformers.LlamaForCausalLM(config).save_pretrained(folder)
        path = folder / "config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
        return folder

    return get


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"model_type": "mamba"}, "model_type = 'mamba': no package of the zoo"),
        ({"hidden_act": "gelu"}, "hidden_act = 'gelu': the package computes 'silu'"),
        (
            {"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4}},
            "rope_type = 'longrope'",
        ),
        (
            {"rope_parameters": {"rope_type": "yarn", "factor": "two"}},
            "factor: expected a positive",
        ),
        ({"hidden_size": "32"}, "hidden_size: expected a size, found '32'"),
        ({"rms_norm_eps": -1}, "rms_norm_eps: expected a positive number"),
        ({"intermediate_size": 44}, "expected [44, 32]"),
        ({"num_hidden_layers": 4}, "layers.3."),
        ({"rope_parameters": {"rope_theta": 0.5}}, "rope_theta: expected a number above 1"),
    ],
)
def test_what_is_missing_is_said_and_nothing_is_left(
    small: Callable[..., Path], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    changes: dict[str, Any], said: str,
) -> None:  # fmt: skip
    place = small(**changes)
    folder = tmp_path / "made" / "model"
    assert main(["nest", "new", str(folder), "--from", str(place)]) == 1
    assert said in capsys.readouterr().err
    assert not folder.exists() and list(folder.parent.glob("*")) == []


def test_places_that_are_no_checkpoint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "there").mkdir()
    assert main(["nest", "new", str(tmp_path / "new"), "--from", str(tmp_path / "there")]) == 1
    assert "no config.json" in capsys.readouterr().err
    assert main(["nest", "new", str(tmp_path / "new"), "--from", "no/such/place"]) == 1
    assert "expected a folder with config.json" in capsys.readouterr().err
    (tmp_path / "there" / "x").write_text("")
    assert main(["nest", "new", str(tmp_path / "there"), "--from", "x"]) == 1
    assert "is there already" in capsys.readouterr().err
