"""What a load takes at most: 1.1 times the weights, and 400 MB for the process itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import linnet
from linnet.errors import BackendError

SOURCE = """
module big

use std.nn.linear::{Linear}

pub block Model<H: Dim, N: Dim, T: Float = f32> {
    sub layers: [Linear<H, H, T>; N]

    pub entry forward<B: Dim>(x: Tensor[B, H; T]) -> Tensor[B, H; T] {
        var y = x
        static for layer in layers {
            y = layer.forward(y)
        }
        return y
    }
}
"""
LOAD = """
import sys, torch, linnet
model = linnet.load(
    sys.argv[1], weights=sys.argv[2], generics={"H": 2048, "N": 30, "T": sys.argv[3]}, cast=True
)
# Every page of the weights is in use.
total = sum(float(t.float().sum()) for t in model.state_dict().values())
bytes = sum(t.nbytes for t in model.state_dict().values())
# Not getrusage: its peak is inherited from the process that started this one.
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(bytes, int(peak.split()[1]) * 1024)
"""


@pytest.mark.parametrize("dtype", ["f16", "f32", "bf16"])
def test_peak_of_a_load(tmp_path: Path, dtype: str) -> None:
    """Stored in f16: as it is (mapped), widened to f32, and cast to bf16."""
    (tmp_path / "big.linnet").write_text(SOURCE)
    generator = np.random.default_rng(0)
    weight = (generator.standard_normal((2048, 2048)) * 0.02).astype(np.float16)
    save_file({f"layers.{i}.weight": weight for i in range(30)}, tmp_path / "model.safetensors")
    done = subprocess.run(
        [sys.executable, "-c", LOAD, "big.linnet", "model.safetensors", dtype],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    weights, peak = map(int, done.stdout.split())
    assert weights == 30 * 2048 * 2048 * (4 if dtype == "f32" else 2)
    assert peak <= 1.1 * weights + 400e6, (weights, peak)


@pytest.mark.parametrize("cache", [None, "int8"])
def test_states_that_memory_has_no_room_for(
    cache: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system that promises more memory than it has would end the process."""
    for most in (1 << 22, 1 << 62, 1 << 80):
        model = linnet.load("qwen3.5-moe-tiny", generics={"MaxSeq": most}, cache=cache)
        if most == 1 << 22:
            monkeypatch.setattr("linnet.torch.pages.available_memory", lambda: 10_000_000)
        with pytest.raises(BackendError, match="does not fit the memory of cpu: bind a smaller"):
            model.prefill([[1, 2]], pos=0)
        monkeypatch.undo()
