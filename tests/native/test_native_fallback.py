"""The native backend is the default where there is a C compiler; elsewhere torch runs, said once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import linnet
from linnet.bench.machine import rates
from linnet.errors import BackendError
from linnet.native import compiler

if compiler.why_not() is not None:
    pytest.skip(compiler.why_not() or "", allow_module_level=True)

SIZES = {
    "Vocab": 64, "H": 32, "Inner": 64, "Heads": 4, "KvHeads": 2, "HeadDim": 8, "Layers": 2,
    "Batch": 1, "MaxSeq": 256, "T": "f32",
}  # fmt: skip
RUN = f"""
import sys, torch, linnet
for number in range(3):
    model = linnet.load("smollm2-135m-instruct", weights="random",
                        generics={{**{SIZES!r}, "MaxSeq": 256 + number}}, **eval(sys.argv[1]))
    for name in ("forward", "prefill"):
        more = (0,) if name == "prefill" else ()
        getattr(model, name)(torch.arange(8).view(1, 8), *more)
print(model.native.module is not None, float(model.forward(torch.arange(8).view(1, 8)).sum()))
"""


def run(options: str = "{}", **more: str) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if k not in ("CC", "LINNET_BACKEND")}
    return subprocess.run(
        [sys.executable, "-c", RUN, options], env={**environment, **more}, text=True,
        capture_output=True, timeout=150, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def native() -> float:
    done = run()
    compiled, total = done.stdout.split()
    assert compiled == "True" and not done.stderr, done.stderr
    return float(total)


def test_without_a_compiler(native: float, tmp_path: Path) -> None:
    done = run(PATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    compiled, total = done.stdout.split()
    assert compiled == "False" and float(total) == pytest.approx(native, abs=1e-3)
    note = "note: running on the torch backend: there is no C compiler (cc) on the path"
    assert done.stderr.splitlines() == [note]


def test_a_compiler_that_fails(native: float, tmp_path: Path) -> None:
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho 'cc: no licence' >&2\nexit 1\n")
    broken.chmod(0o755)
    done = run(CC=str(broken), XDG_CACHE_HOME=str(tmp_path))
    assert done.returncode == 0, done.stderr
    compiled, total = done.stdout.split()
    assert compiled == "False" and float(total) == pytest.approx(native, abs=1e-3)
    assert done.stderr.count("note: ") == 1 and "no licence" in done.stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("#!/bin/sh\nexit 0\n", "made no file"),
        ("#!/bin/sh\nkill -9 $$\n", "the C compiler failed"),
        ("no script", "cannot be run"),
        ("#!/nowhere/sh\n", "cannot be run"),
        ("#!/bin/sh\nprintf '\\377\\376'\nprintf '\\377\\376' >&2\nexit 1\n", "compiler failed"),
        ("#!/bin/sh\nwhile [ $# != 0 ]; do [ $1 = -o ] && echo x >$2; shift; done\n", "loaded"),
        ("#!/bin/sh\n[ $1 = --version ] || exec sleep 60\n", "did not end within"),
    ],
)
def test_compilers_that_are_none(
    text: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "cc"
    broken.write_text(text)
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(compiler, "PATIENCE", 0.3)
    compiler.find_cc.cache_clear()
    try:
        with pytest.raises(BackendError, match=says):
            linnet.load(
                "smollm2-135m-instruct", weights="random", generics=SIZES, backend="native"
            ).decode([[1]], pos=0)
        assert float(rates(1, "f32")["read"]) > 0  # torch measures instead
    finally:
        compiler.find_cc.cache_clear()


def test_a_compiler_of_white_space_is_none_named(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler.find_cc.cache_clear()
    known = compiler.find_cc()
    monkeypatch.setenv("CC", "  ")
    compiler.find_cc.cache_clear()
    assert compiler.find_cc() == known is not None


def test_asked_for_by_name(tmp_path: Path) -> None:
    done = run("{'backend': 'native'}", PATH=str(tmp_path))
    assert done.returncode != 0
    last = done.stderr.strip().splitlines()[-1]
    assert "BackendError: the native backend cannot run this model: there is no C compiler" in last
    assert run("{'backend': 'torch'}", PATH=str(tmp_path)).stderr == ""
