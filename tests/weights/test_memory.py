"""What a load costs in memory: nothing beyond the result, and no more than is there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from weight_files import entry

from linnet.weights.checkpoint import open_checkpoint

pytest.importorskip("numpy")
linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

PEAK = """
import sys
from pathlib import Path
from linnet.weights.checkpoint import open_checkpoint
import numpy

def peak():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) * 1024

checkpoint = open_checkpoint(sys.argv[1])
checkpoint.read("small", "f32")
before = peak()
kept = [checkpoint.read(f"t{i}", "f32") for i in range(4)]
print(peak() - before)
"""


@linux
def test_widening_holds_no_second_copy(tmp_path: Path) -> None:
    """Four tensors of 16 MiB in bf16 become 128 MiB of f32, and nothing is kept beside it."""
    from linnet.weights.safetensors import save

    size = 1 << 23
    items = [(f"t{i}", "bf16", (size,), bytes(2 * size)) for i in range(4)]
    save(tmp_path, [*items, ("small", "bf16", (8,), bytes(16))])
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(tmp_path)], capture_output=True, text=True, check=True
    )
    result = 4 * 4 * size
    assert int(done.stdout) < 1.1 * result + (20 << 20)


@linux
def test_a_file_larger_than_memory_is_mapped(tmp_path: Path) -> None:
    size = 1 << 38  # a sparse file: nothing of it is on the disk
    text = json.dumps({"x": entry("U8", [size], 0, size)}).encode()
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + size)
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.read("x")[size - 1] == 0
