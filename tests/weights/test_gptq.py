"""Integers of GPTQ and AWQ, packed here from what their layouts say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from linnet.errors import WeightsError
from linnet.weights.checkpoint import open_checkpoint

save_file = pytest.importorskip("safetensors.numpy").save_file

OUT, IN, GROUP = 48, 128, 32


def words(q: np.ndarray, bits: int, order: tuple[int, ...] | None = None) -> np.ndarray:
    """Integers along the last axis, 32 / bits to an i32."""
    per = 32 // bits
    split = q.reshape(*q.shape[:-1], -1, per).astype(np.uint64)
    places = order or tuple(range(per))  # what stands in place i
    total = sum(split[..., j] << np.uint64(bits * i) for i, j in enumerate(places))
    return total.astype(np.uint32).view(np.int32)


def made(bits: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(bits)
    q = random.integers(0, 1 << bits, (OUT, IN))
    zeros = random.integers(1, 1 << bits, (IN // GROUP, OUT))
    scales = random.uniform(0.01, 0.1, (IN // GROUP, OUT)).astype(np.float16)
    return q, zeros, scales


def read(folder: Path) -> np.ndarray:
    with open_checkpoint(folder) as checkpoint:
        assert list(checkpoint.tensors) == ["a.weight"]
        assert checkpoint.tensors["a.weight"].shape == (OUT, IN)
        return np.frombuffer(checkpoint.read("a.weight", "f32"), np.float32).reshape(OUT, IN)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("shuffled", [False, True])
def test_gptq(tmp_path: Path, bits: int, shuffled: bool) -> None:
    q, zeros, scales = made(bits)
    index = np.arange(IN, dtype=np.int32) // GROUP
    if shuffled:
        index = np.random.default_rng(0).permutation(index).astype(np.int32)
    tensors = {
        "a.qweight": np.ascontiguousarray(words(q, bits).T),
        "a.qzeros": words(zeros - 1, bits),
        "a.scales": scales,
        "a.g_idx": index,
    }
    save_file(tensors, tmp_path / "model.safetensors")
    wide = scales.astype(np.float32)
    assert np.array_equal(read(tmp_path), (q - zeros.T[:, index]) * wide.T[:, index])


@pytest.mark.parametrize("name", ["config.json", "quantize_config.json"])
def test_the_second_format_has_zeros_as_meant(tmp_path: Path, name: str) -> None:
    q, zeros, scales = made(4)
    tensors = {
        "a.qweight": np.ascontiguousarray(words(q, 4).T),
        "a.qzeros": words(zeros, 4),
        "a.scales": scales,
    }
    save_file(tensors, tmp_path / "model.safetensors")
    said = {"quant_method": "gptq", "checkpoint_format": "gptq_v2", "bits": 4}
    whole = {"quantization_config": said} if name == "config.json" else said
    (tmp_path / name).write_text(json.dumps(whole))
    index = np.arange(IN) // GROUP
    wide = scales.astype(np.float32)
    assert np.array_equal(read(tmp_path), (q - zeros.T[:, index]) * wide.T[:, index])
    (tmp_path / name).write_text("{")
    with pytest.raises(WeightsError, match=f"{name}: line 1"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("awq", [False, True])
def test_experts_one_by_one(tmp_path: Path, awq: bool) -> None:
    """Stacked from their integers, gate above up."""
    random = np.random.default_rng(7)
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    tensors, wanted = {}, []
    for e in range(3):
        for part in ("gate_proj", "up_proj"):
            q = random.integers(0, 16, (OUT, IN))
            zeros = random.integers(1, 16, (IN // GROUP, OUT))
            scales = random.uniform(0.01, 0.1, (IN // GROUP, OUT)).astype(np.float16)
            stem = f"m.experts.{e}.{part}"
            if awq:
                tensors[f"{stem}.qweight"] = words(np.ascontiguousarray(q.T), 4, order)
                tensors[f"{stem}.qzeros"] = words(zeros, 4, order)
            else:
                tensors[f"{stem}.qweight"] = np.ascontiguousarray(words(q, 4).T)
                tensors[f"{stem}.qzeros"] = words(zeros - 1, 4)
            tensors[f"{stem}.scales"] = scales
            index = np.arange(IN) // GROUP
            wanted.append((q - zeros.T[:, index]) * scales.astype(np.float32).T[:, index])
    save_file(tensors, tmp_path / "model.safetensors")
    with open_checkpoint(tmp_path) as checkpoint:
        checkpoint.adapt(["m.experts.gate_up_proj"])
        assert checkpoint.tensors["m.experts.gate_up_proj"].shape == (3, 2 * OUT, IN)
        found = np.frombuffer(checkpoint.read("m.experts.gate_up_proj", "f32"), np.float32)
    assert np.array_equal(found, np.concatenate(wanted).ravel())


def test_awq(tmp_path: Path) -> None:
    q, zeros, scales = made(4)
    order = (0, 2, 4, 6, 1, 3, 5, 7)
    tensors = {
        "a.qweight": words(np.ascontiguousarray(q.T), 4, order),
        "a.qzeros": words(zeros, 4, order),
        "a.scales": scales,
    }
    save_file(tensors, tmp_path / "model.safetensors")
    index = np.arange(IN) // GROUP
    wide = scales.astype(np.float32)
    assert np.array_equal(read(tmp_path), (q - zeros.T[:, index]) * wide.T[:, index])


def test_a_layout_that_is_neither(tmp_path: Path) -> None:
    q, zeros, scales = made(4)
    tensors = {"a.qweight": words(q, 4), "a.qzeros": words(zeros, 4), "a.scales": scales}
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match="neither GPTQ's layout nor AWQ's"):
        open_checkpoint(tmp_path)


def gptq() -> dict[str, np.ndarray]:
    q, zeros, scales = made(4)
    return {
        "a.qweight": np.ascontiguousarray(words(q, 4).T),
        "a.qzeros": words(zeros - 1, 4),
        "a.scales": scales,
        "a.g_idx": (np.arange(IN) // GROUP).astype(np.int32),
    }


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("scales", lambda x: None, "`a.scales` is missing"),
        ("qzeros", lambda x: None, "`a.qzeros` is missing"),
        ("scales", lambda x: x.astype(np.int32), "expected floats of 2 dimensions, found i32"),
        ("scales", lambda x: x[0], "expected floats of 2 dimensions"),
        ("scales", lambda x: x[:0], "neither"),
        ("qzeros", lambda x: x.view(np.float16), "expected i32 of 2 dimensions, found f16"),
        ("qzeros", lambda x: x.astype(np.int64), "expected i32"),
        ("qzeros", lambda x: x.ravel(), "expected i32 of 2 dimensions"),
        ("qzeros", lambda x: np.repeat(x, 2, 1)[:, : x.shape[1] * 3 // 4], "of 4 or 8 bits"),
        ("g_idx", lambda x: x.astype(np.int64), "expected i32 of 1 dimension, found i64"),
        ("g_idx", lambda x: x[0], "expected i32 of 1 dimension"),
        ("g_idx", lambda x: x[:-1], "neither"),
        ("g_idx", lambda x: x[:0], "neither"),
        ("g_idx", lambda x: x - 1, "names a group that is not there"),
        ("g_idx", lambda x: x + 1, "names a group that is not there"),
        ("qweight", lambda x: x[:0], "neither"),
    ],
)
def test_parts_that_do_not_fit(tmp_path: Path, name: str, change: Any, says: str) -> None:
    tensors = gptq()
    changed = change(tensors.pop(f"a.{name}"))
    if changed is not None:
        tensors[f"a.{name}"] = np.array(changed)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match=says), open_checkpoint(tmp_path) as checkpoint:
        checkpoint.read("a.weight", "f32")


def test_packed_and_dense_at_once(tmp_path: Path) -> None:
    save_file({**gptq(), "a.weight": np.zeros((2, 2), np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(WeightsError, match=r"packed as `a\.qweight` too"):
        open_checkpoint(tmp_path)


def test_a_format_that_is_not_known(tmp_path: Path) -> None:
    save_file(gptq(), tmp_path / "model.safetensors")
    config = {"quantization_config": {"checkpoint_format": "marlin"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(WeightsError, match=r"config.json: `checkpoint_format` is 'marlin'"):
        open_checkpoint(tmp_path)
