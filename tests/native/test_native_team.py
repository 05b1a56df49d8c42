"""The thread team and calls in slices, in C alone: plainly, and under sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from linnet.native import compiler

if compiler.why_not() is not None:
    pytest.skip(compiler.why_not() or "", allow_module_level=True)

HERE = Path(__file__).parent
SANITIZERS = {
    "none": ["-O2"],
    "address": ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "address quick": ["-O2", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "thread": ["-O1", "-fsanitize=thread"],
    "thread quick": ["-O2", "-fsanitize=thread"],
}


def built(kind: str, folder: Path) -> list[str]:
    """The program compiled so; skips the test where it cannot be."""
    cc = compiler.find_cc()
    assert cc is not None
    made = folder / "team_soak"
    sources = [compiler.SOURCES / "team.c", compiler.SOURCES / "slice.c", HERE / "team_soak.c"]
    command = [
        cc, "-std=gnu11", "-g", "-pthread", "-w", *SANITIZERS[kind], "-I", str(compiler.SOURCES),
        *map(str, sources), "-o", str(made), "-lm",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and kind != "none":
        pytest.skip(f"the compiler has no such sanitizer: {done.stderr[:200]}")
    assert done.returncode == 0, done.stderr
    # The thread sanitizer wants memory at addresses that a kernel may not choose.
    fixed = shutil.which("setarch")
    return [fixed, "-R", str(made)] if kind.startswith("thread") and fixed else [str(made)]


def run(command: list[str], times: int) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    done = subprocess.run(
        [*command, str(times)], capture_output=True, text=True, check=False, timeout=170,
        env=environment,
    )  # fmt: skip
    if "unexpected memory mapping" in done.stderr:
        pytest.skip("the thread sanitizer does not run here")
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


def test_team(tmp_path: Path) -> None:
    run(built("none", tmp_path), 20)


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", SANITIZERS)
def test_team_under_sanitizers(kind: str, tmp_path: Path) -> None:
    run(built(kind, tmp_path), 1000 if kind == "none" else 60)
