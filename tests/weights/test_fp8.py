"""8-bit floats with scales for blocks: every byte's value, blocks cut short, experts one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from linnet.errors import WeightsError
from linnet.weights.checkpoint import open_checkpoint
from linnet.weights.plan import plan

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")


class Wanted:
    kind, optional, within, alone = "param", False, (), False

    def __init__(self, path: str, shape: tuple[int, ...], dtype: str):
        self.path, self.shape, self.dtype = path, shape, dtype


def floats(checkpoint: object, name: str) -> np.ndarray:
    return np.frombuffer(checkpoint.read(name, "f32"), np.float32)  # type: ignore[attr-defined]


def test_every_byte(tmp_path: Path) -> None:
    every = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).view(2, 128)
    file = tmp_path / "model.safetensors"
    safetensors.save_file({"a.weight": every, "a.weight_scale": torch.tensor([0.5])}, file)
    with open_checkpoint(tmp_path) as checkpoint:
        assert list(checkpoint.tensors) == ["a.weight"]
        found = floats(checkpoint, "a.weight")
    assert np.array_equal(found, (every.float() * 0.5).numpy().ravel(), equal_nan=True)


def test_blocks(tmp_path: Path) -> None:
    draw = torch.Generator().manual_seed(0)
    weight = torch.randn(200, 300, generator=draw).to(torch.float8_e4m3fn)
    scale = torch.rand(2, 3, generator=draw)
    file = tmp_path / "model.safetensors"
    safetensors.save_file({"a.weight": weight, "a.weight_scale_inv": scale}, file)
    each = scale.repeat_interleave(128, 0)[:200].repeat_interleave(128, 1)[:, :300]
    wanted = weight.float() * each
    with open_checkpoint(tmp_path) as checkpoint:
        planned = plan([Wanted("a.weight", (200, 300), "bf16")], checkpoint)
        assert not planned.unused
        assert np.array_equal(floats(checkpoint, "a.weight"), wanted.numpy().ravel())
        narrow = torch.frombuffer(checkpoint.read("a.weight", "bf16"), dtype=torch.bfloat16)
        assert torch.equal(narrow.view(200, 300), wanted.bfloat16())


def test_experts_one_by_one(tmp_path: Path) -> None:
    draw = torch.Generator().manual_seed(0)
    tensors = {}
    for e in range(2):
        for part in ("gate_proj", "up_proj"):
            name = f"m.experts.{e}.{part}.weight"
            tensors[name] = torch.randn(128, 256, generator=draw).to(torch.float8_e4m3fn)
            tensors[f"{name}_scale_inv"] = torch.rand(1, 2, generator=draw)
    safetensors.save_file(tensors, tmp_path / "model.safetensors")
    wanted = [
        tensors[n].float() * tensors[f"{n}_scale_inv"].repeat_interleave(128, 1)
        for n in tensors
        if n.endswith("weight")
    ]
    with open_checkpoint(tmp_path) as checkpoint:
        checkpoint.adapt(["m.experts.gate_up_proj"])
        planned = plan([Wanted("m.experts.gate_up_proj", (2, 256, 256), "f32")], checkpoint)
        assert not planned.unused
        found = floats(checkpoint, "m.experts.gate_up_proj")
    assert np.array_equal(found, torch.cat(wanted).numpy().ravel())


@pytest.mark.parametrize("blocks", [5, 0])
def test_scales_that_do_not_fit(tmp_path: Path, blocks: int) -> None:
    weight = torch.zeros(200, 300).to(torch.float8_e4m3fn)
    file = tmp_path / "model.safetensors"
    safetensors.save_file({"a.weight": weight, "a.weight_scale_inv": torch.rand(blocks, 3)}, file)
    with open_checkpoint(tmp_path) as checkpoint, pytest.raises(WeightsError, match="do not go"):
        checkpoint.read("a.weight", "f32")


@pytest.mark.parametrize(("shape", "scales"), [((0, 300), (0, 3)), ((200, 0), (2, 0)), ((0,), ())])
def test_no_elements(tmp_path: Path, shape: tuple[int, ...], scales: tuple[int, ...]) -> None:
    weight = torch.zeros(shape).to(torch.float8_e4m3fn)
    file = tmp_path / "model.safetensors"
    safetensors.save_file({"a.weight": weight, "a.weight_scale_inv": torch.rand(scales)}, file)
    with open_checkpoint(tmp_path) as checkpoint:
        assert floats(checkpoint, "a.weight").size == 0
