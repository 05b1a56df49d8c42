"""Integers of GPTQ and AWQ, packed here from what their layouts say."""

from __future__ import annotations

from pathlib import Path

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
