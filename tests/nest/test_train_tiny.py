"""The script that trained the zoo's tiny model still makes one, and the one that ships is of its form."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
ROOT = Path(__file__).parents[2]
SHIPPED = ROOT / "models" / "qwen3.5-moe-tiny"


def train(*more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "tools" / "train_tiny.py"), *more], text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True, timeout=150, check=False,
    )  # fmt: skip


def test_a_model_is_made(tmp_path: Path) -> None:
    import linnet

    out = tmp_path / "out"
    done = train("--text", str(SHIPPED / "held_out.txt"), "--minutes", "0.02", "--output", str(out))
    assert done.returncode == 0, done.stderr
    assert "held out:" in done.stdout
    assert (out / "tokenizer.json").read_bytes() == (SHIPPED / "tokenizer.json").read_bytes()
    made = linnet.load("qwen3.5-moe-tiny", weights=out)
    shipped = linnet.load("qwen3.5-moe-tiny")
    assert not made.unused_tensors
    shapes = [
        {path: (tensor.dtype, tensor.shape) for path, tensor in model.state_dict().items()}
        for model in (made, shipped)
    ]
    assert shapes[0] == shapes[1]
    assert bool(made.forward([list(b"The Rays")]).isfinite().all())


def test_too_little_text(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("Light")
    done = train("--text", str(tmp_path / "text"), "--output", str(tmp_path / "out"))
    assert done.returncode == 1
    assert done.stderr.strip() == f"{tmp_path / 'text'}: 5 bytes, expected at least 970"
    assert not (tmp_path / "out").exists()
