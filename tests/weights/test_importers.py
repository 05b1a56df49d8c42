"""Tensors that lie otherwise than the bindings name them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from linnet.errors import WeightsError
from linnet.weights.checkpoint import open_checkpoint

EXPERTS = {
    f"model.layers.0.mlp.experts.{e}.{p}_proj.weight": np.random.default_rng(e * 3 + i)
    .normal(size=(4, 6) if p == "down" else (6, 4))
    .astype(np.float32)
    for e in range(3)
    for i, p in enumerate(("gate", "up", "down"))
}
NORM = {"model.norm.weight": np.ones(4, np.float32)}
LONG = "model.language_model."


def test_experts_are_stacked_under_the_other_prefix(tmp_path: Path) -> None:
    save_file({**EXPERTS, **NORM}, tmp_path / "model.safetensors")
    with open_checkpoint(tmp_path) as checkpoint:
        fused = LONG + "layers.0.mlp.experts.gate_up_proj"
        down = LONG + "layers.0.mlp.experts.down_proj"
        checkpoint.adapt([fused, down, LONG + "norm.weight"])
        assert set(checkpoint.tensors) == {fused, down, LONG + "norm.weight"}
        assert checkpoint.tensors[fused].shape == (3, 12, 4)
        got = np.frombuffer(checkpoint.read(fused), np.float32).reshape(3, 12, 4)
        stem = "model.layers.0.mlp.experts."
        for e in range(3):
            np.testing.assert_array_equal(got[e, :6], EXPERTS[f"{stem}{e}.gate_proj.weight"])
            np.testing.assert_array_equal(got[e, 6:], EXPERTS[f"{stem}{e}.up_proj.weight"])
        half = np.frombuffer(checkpoint.read(down, "f16"), np.float16).reshape(3, 4, 6)
        np.testing.assert_array_equal(
            half[2], EXPERTS[f"{stem}2.down_proj.weight"].astype(np.float16)
        )


def test_what_is_there_by_its_own_name_stays(tmp_path: Path) -> None:
    names = {LONG + "norm.weight": np.ones(4, np.float32), **NORM}
    save_file(names, tmp_path / "model.safetensors")
    with open_checkpoint(tmp_path) as checkpoint:
        checkpoint.adapt([LONG + "norm.weight", LONG + "other"])
        assert not checkpoint.adapted
        assert set(checkpoint.tensors) == set(names)


@pytest.mark.parametrize("change", ["missing", "shape", "dtype"])
def test_parts_that_do_not_fit_are_no_tensor(tmp_path: Path, change: str) -> None:
    parts = dict(EXPERTS)
    name = "model.layers.0.mlp.experts.1.up_proj.weight"
    if change == "missing":
        del parts[name]
    elif change == "shape":
        parts[name] = parts[name][:-1].copy()
    else:
        parts[name] = parts[name].astype(np.float16)
    save_file(parts, tmp_path / "model.safetensors")
    with open_checkpoint(tmp_path) as checkpoint:
        fused = "model.layers.0.mlp.experts.gate_up_proj"
        checkpoint.adapt([fused])
        assert fused not in checkpoint.tensors
        with pytest.raises(WeightsError):
            checkpoint.read(fused)
