"""Quantizing holds one tensor at a time, however many there are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

np = pytest.importorskip("numpy")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
WIDTH, ROWS = 2048, 4096

PEAK = """
import sys
from pathlib import Path
from linnet.weights.checkpoint import open_checkpoint
from linnet.weights.folder import Output, write_folder
from linnet.weights.quantize import quantize_tensor

def peak():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024

checkpoint = open_checkpoint(sys.argv[1])
last = []

def output(name):
    def make():
        checkpoint.forget(last[0]) if last else None
        last[:] = [name]
        return quantize_tensor(checkpoint, name, checkpoint.tensors[name].shape, "int4")
    return Output(name, "bf16", checkpoint.tensors[name].shape, "int4", make)

names = sorted(checkpoint.tensors)
write_folder(Path(sys.argv[2]) / "small", [output("a_small")], {})
before = peak()
write_folder(Path(sys.argv[2]) / "all", [output(name) for name in names[1:]], {})
print(peak() - before)
"""


def test_one_tensor_at_a_time(tmp_path: Path) -> None:
    """Ten tensors of 16 MB: at most one as it is stored and packed, and a part of it in f32."""
    from linnet.weights.safetensors import save

    size = WIDTH * ROWS * 2
    pool = np.random.default_rng(0).standard_normal(WIDTH * ROWS).astype(np.float32)
    raw = (pool.view(np.uint32) >> 16).astype(np.uint16).tobytes()
    items = [(f"t{i}", "bf16", (ROWS, WIDTH), raw) for i in range(10)]
    save(tmp_path / "from", [("a_small", "bf16", (64, WIDTH), raw[: 128 * WIDTH]), *items])
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(tmp_path / "from"), str(tmp_path)],
        capture_output=True, text=True, env={"LINNET_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # Its bytes, a third of them packed, and a step's worth of work (1 << 20 elements in f32).
    assert int(done.stdout) < 1.5 * size + 6 * (4 << 20), int(done.stdout)
