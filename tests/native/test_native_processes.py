"""Compiled entries and processes: forks, several that compile at once, a cache that cannot be
written, and what new lengths cost."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import linnet
from linnet.native import compiler

if compiler.why_not() is not None:
    pytest.skip(compiler.why_not() or "", allow_module_level=True)

SIZES = {
    "Vocab": 64, "H": 32, "Inner": 64, "Heads": 4, "KvHeads": 2, "HeadDim": 8, "Layers": 2,
    "Batch": 1, "MaxSeq": 256, "T": "f32",
}  # fmt: skip
RUN = f"""
import torch, linnet
model = linnet.load("smollm2-135m-instruct", weights="random", generics={SIZES!r}, backend="native")
print(float(model.forward(torch.arange(8).view(1, 8)).sum()))
"""


def small(**options: Any) -> Any:
    return linnet.load("smollm2-135m-instruct", weights="random", generics=SIZES, **options)


def run(**more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", RUN], env={**os.environ, **more}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def test_a_forked_child_uses_the_model() -> None:
    model = small(backend="native")
    tokens = torch.arange(200).view(1, 200) % 64
    before = model.prefill(tokens, 0)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            again = model.prefill(tokens, 0)
            os.write(write, b"same" if torch.equal(again, before) else b"other")
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        assert pipe.read() == "same"
    assert os.waitpid(child, 0)[1] == 0
    assert torch.equal(model.prefill(tokens, 0), before)


def test_processes_that_compile_at_once(tmp_path: Path) -> None:
    small(backend="native").native.entry("forward")
    folder = tmp_path / "linnet" / "native"
    folder.mkdir(parents=True)
    for kept in compiler.cache_folder().glob("*.o"):  # the kernels, which no model changes
        (folder / kept.name).symlink_to(kept)
    running = [run(XDG_CACHE_HOME=str(tmp_path)) for _ in range(2)]
    done = [process.communicate(timeout=150) for process in running]
    assert [process.returncode for process in running] == [0, 0], done
    assert len({out for out, _ in done}) == 1
    left = [path.name for path in folder.iterdir()]
    assert len([name for name in left if name.endswith(".so")]) == 1
    assert not [name for name in left if name.startswith("build-")]


def test_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    process = run(XDG_CACHE_HOME=str(tmp_path / "file"), TMPDIR=str(temporary))
    out, error = process.communicate(timeout=150)
    assert process.returncode == 0, error
    assert float(out) == pytest.approx(float(small().forward(torch.arange(8).view(1, 8)).sum()))
    assert "cannot be used (Not a directory): what is compiled is not kept" in error
    assert not list(temporary.iterdir())


def test_a_cache_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    usage = compiler.shutil.disk_usage(tmp_path)
    monkeypatch.setattr(compiler.shutil, "disk_usage", lambda _: usage._replace(free=1000))
    monkeypatch.setattr(compiler, "_own", {})
    other = compiler.writable(tmp_path / "cache")
    assert other != tmp_path / "cache"
    assert compiler.writable(tmp_path / "cache") == other
    assert capsys.readouterr().err.count("its disk is full") == 1
    other.rmdir()


@pytest.fixture
def few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the C sources, of which the team alone is compiled, and a cache of its own."""
    sources = tmp_path / "c"
    shutil.copytree(compiler.SOURCES, sources)
    monkeypatch.setattr(compiler, "SOURCES", sources)
    monkeypatch.setattr(compiler, "KERNELS", ("team.c", "slice.c"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return sources


TEXT = '#include "kernels.h"\nint seven(void) { return 7; }\n'


def test_sources_that_change_while_they_are_compiled(
    few: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is kept is what its name says."""
    whole = compiler.run

    def change(command: list[str]) -> None:
        for path in few.iterdir():
            path.write_text("#error changed\n")
        whole(command)

    monkeypatch.setattr(compiler, "run", change)
    library = ctypes.CDLL(str(compiler.build([TEXT])))
    assert library.seven() == 7 and library.team_create


def test_what_a_killed_process_left_is_removed(few: Path) -> None:
    folder = compiler.build([TEXT]).parent
    old, new = folder / "build-old", folder / "build-new"
    for made in (old, new):
        made.mkdir()
        (made / "part0.c").write_text("")
    os.utime(old, (1e9, 1e9))
    compiler.prune(folder)
    assert not old.exists() and new.exists()


def test_a_library_that_cannot_be_loaded_is_made_anew(few: Path) -> None:
    first = compiler.build([TEXT])
    for kept in first.parent.iterdir():
        kept.unlink()
        kept.write_bytes(b"no library")
    assert compiler.build([TEXT]) == first, "by its name"
    assert ctypes.CDLL(str(first)).seven() == 7
    for kept in first.parent.iterdir():  # whole, but nothing that can be loaded
        kept.unlink()
        kept.write_bytes(b"no library")
        compiler.seal(kept)
    assert compiler.build([TEXT]) == first, "by its name"
    assert ctypes.CDLL(str(compiler.build([TEXT], anew=True))).seven() == 7


def test_new_lengths_compile_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small(backend="native")
    model.prefill(torch.zeros(1, 3, dtype=torch.long), 0)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("something was compiled")

    monkeypatch.setattr(compiler, "run", refuse)
    monkeypatch.setattr(compiler, "build", refuse)
    monkeypatch.setattr(model.compiler, "compile", refuse)
    for length in range(1, 201):
        model.reset_state()
        model.prefill(torch.zeros(1, length, dtype=torch.long), 0)
        model.forward(torch.zeros(1, length, dtype=torch.long))
    bound = model.rebind({"MaxSeq": 256})
    assert bound.native.reason is None
