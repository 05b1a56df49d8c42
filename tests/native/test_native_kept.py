"""What is kept of compiled entries: equal to a fresh build, dropped when stale or damaged."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import torch

import linnet
from linnet.dims import Dim
from linnet.errors import BackendError
from linnet.native import compiler, kept
from linnet.native.code import Code
from linnet.native.frame import Function
from linnet.native.node import Buffer

if compiler.why_not() is not None:
    pytest.skip(compiler.why_not() or "", allow_module_level=True)

SIZES = {
    "Vocab": 64, "H": 32, "Inner": 64, "Heads": 4, "KvHeads": 2, "HeadDim": 8, "Layers": 1,
    "Batch": 2, "MaxSeq": 64, "T": "f32",
}  # fmt: skip
TOKENS = torch.arange(16).view(2, 8)
ONE = """module one

pub block One<N: Dim> {
    param w: Tensor[N; f32]

    pub entry apply(x: Tensor[N; f32]) -> Tensor[N; f32] {
        return x * w + {V}
    }
}
"""
X = torch.arange(4.0)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache of the test's own, with the kernels that no model changes."""
    place = tmp_path / "linnet" / "native"
    place.mkdir(parents=True)
    for known in compiler.cache_folder().glob("*.o"):
        (place / known.name).symlink_to(known)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("LINNET_NO_CACHE", raising=False)
    monkeypatch.setattr(kept, "_began", lambda: float("inf"))
    kept.signature.cache_clear()
    yield place
    kept.signature.cache_clear()


def small(generics: dict[str, Any] = SIZES, **options: Any) -> Any:
    return linnet.load(
        "smollm2-135m-instruct", weights="random", generics=generics, backend="native", **options
    )


def tiny(folder: Path, value: str = "1.0") -> Any:
    """One entry, `apply`: x · w + value."""
    source = folder / "one.linnet"
    source.write_text(ONE.replace("{V}", value))
    return linnet.load(source, weights="random", generics={"N": 4}, seed=1, backend="native")


def compiled(model: Any) -> Any:
    assert model.native.entry(next(iter(model.entries))) is not None
    return model.native


def was_kept(model: Any) -> bool:
    """Whether nothing was written or optimized in this process."""
    return not compiled(model).module.code.parts and not model.compiler._optimized


def test_kept_code_equals_fresh_code() -> None:
    first, second = small(), small()
    fresh, again = compiled(first), compiled(second)
    assert fresh.module.code.parts and was_kept(second)
    assert fresh.module.path == again.module.path
    for part in fields(Code):
        if part.name not in ("parts", "functions"):
            assert getattr(fresh.module.code, part.name) == getattr(again.module.code, part.name)
    assert list(fresh.module.entries) == list(again.module.entries)
    for name, function in fresh.module.code.functions.items():
        other = again.module.code.functions[name]
        # A field added to these must be kept too.
        assert {f.name for f in fields(Function)} == {"name", "text", "arena", "choices"}
        assert (function.name, function.choices) == (other.name, other.choices)
        for one, two in zip(function.arena, other.arena, strict=True):
            for part in fields(Buffer):
                if part.name in ("dtype", "size", "number", "first", "last", "output"):
                    assert getattr(one, part.name) == getattr(two, part.name)
        for part_name in ("conditions", "distinct", "extents"):
            a, b = (getattr(n.ranges[name], part_name) for n in (fresh, again))
            assert a == b
    assert fresh.refused == again.refused
    assert torch.equal(first.prefill(TOKENS, 0), second.prefill(TOKENS, 0))
    step = torch.tensor([[3], [4]])
    assert torch.equal(first.decode(step, 8), second.decode(step, 8))
    for model in (first, second):
        with pytest.raises(linnet.errors.InputError, match="`pos`: 64 is out of range"):
            model.decode(step, 64)


def test_open_dimensions_are_kept() -> None:
    def rebound() -> list[Any]:
        model = small()
        return [model.rebind({"Batch": n}, free=("Batch",)) for n in (1, 3)]

    first, second = rebound(), rebound()
    assert compiled(first[0]).module.code.parts
    assert second[0].native.open and not compiled(second[0]).module.code.parts
    for one, two in zip(first, second, strict=True):
        tokens = torch.arange(8).view(1, 8).repeat(int(one.generics["Batch"]), 1)
        assert torch.equal(one.prefill(tokens, 0), two.prefill(tokens, 0))
    assert compiled(second[0]).module is compiled(second[1]).module
    # Code of fixed dimensions is other code.
    assert not was_kept(small())


def test_each_binding_has_code_of_its_own() -> None:
    compiled(small())
    assert not was_kept(small({**SIZES, "MaxSeq": 65}))
    assert not was_kept(small(cache="int8"))
    assert was_kept(small())
    assert was_kept(small(cache="int8"))


def test_sources_flags_and_compiler_are_in_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def result(value: str) -> tuple[float, bool]:
        model = tiny(tmp_path, value)
        return float(model.apply(torch.zeros(4))[0]), was_kept(model)

    assert result("1.0") == (1.0, False)
    assert result("1.0") == (1.0, True)
    assert result("2.0") == (2.0, False)
    assert result("2.0") == (2.0, True)
    bound = tiny(tmp_path).bound
    key = kept.key(bound, frozenset())
    assert key == kept.key(tiny(tmp_path).bound, frozenset())
    assert key != kept.key(bound, frozenset(), ("Batch_open",))
    monkeypatch.setenv("LINNET_NATIVE_CFLAGS", "-DOTHER")
    assert key != kept.key(bound, frozenset())
    monkeypatch.setenv("LINNET_NO_CACHE", "1")
    assert kept.key(bound, frozenset()) is None


def test_damaged_files_are_made_anew(folder: Path, tmp_path: Path) -> None:
    model = tiny(tmp_path)
    compiled(model)
    want = model.apply(X)
    (path,) = folder.glob("*.json")
    whole = path.read_bytes()
    head, _, body = whole.partition(b"\n")
    broken = [
        b"", whole[:-1], whole[: len(whole) // 2], b"\0" * 100, head, head + b"\n{}",
        whole.replace(b'"entry_0"', b'"entry_1"', 1), body,
    ]  # fmt: skip
    for data in broken:
        path.write_bytes(data)
        again = tiny(tmp_path)
        assert not was_kept(again), data[:80]
        assert torch.equal(again.apply(X), want)
        assert path.read_bytes() == whole
    # What is whole but another's, or of another shape, is no help either.
    other = "0" * 32
    path.with_name(other + ".json").write_bytes(whole)
    assert kept.read(other) is None
    forms: list[Any] = [[], {}, {**json.loads(body), "functions": {"apply": {}}}]
    for form in forms:
        text = json.dumps(form).encode()
        path.write_bytes(kept._head(path.stem, text) + b"\n" + text)
        assert kept.read(path.stem) is None
    path.unlink()
    path.mkdir()
    again = tiny(tmp_path)
    assert not was_kept(again)
    assert torch.equal(again.apply(X), want)


def test_a_library_that_is_gone_or_cut_is_made_anew(folder: Path, tmp_path: Path) -> None:
    model = tiny(tmp_path)
    path = compiled(model).module.path
    want = model.apply(X)
    path.unlink()
    again = tiny(tmp_path)
    assert not was_kept(again) and path.exists()
    assert torch.equal(again.apply(X), want)


@pytest.mark.parametrize("kind", ["so", "o"])
def test_what_is_damaged_is_compiled_anew(
    folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To load a damaged library would end the process, and a damaged kernel never links."""
    monkeypatch.setattr(compiler, "KERNELS", ("team.c", "slice.c"))
    for known in folder.glob("*.o"):
        known.unlink()
    parts = ["int damaged(void) { return 7; }"]
    library = compiler.build(parts)
    path = library if kind == "so" else next(folder.glob("*.o"))
    good = path.read_bytes()
    zeros = bytes(len(good) // 3)
    for bad in (b"", b"x", good[:1000], good[:-1], zeros + good[len(zeros) :], good + b"\0"):
        path.unlink()
        path.write_bytes(bad)
        if path != library:
            library.unlink()
        assert not compiler.whole(path)
        assert compiler.build(parts) == library
        assert compiler.whole(path) and compiler.whole(library)
        assert ctypes.CDLL(str(library)).damaged() == 7
    path.unlink()
    path.mkdir()
    if path != library:
        library.unlink()
    with pytest.raises(BackendError, match="cannot be kept"):
        compiler.build(parts)


def test_what_is_no_file_counts_as_absent(folder: Path) -> None:
    os.mkfifo(folder / "k.json")  # to open it would wait for a writer
    os.mkfifo(folder / "k.so")
    assert kept.read("k") is None and not compiler.whole(folder / "k.so")


def test_a_tool_changed_under_a_process_keeps_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "_began", lambda: 0.0)
    kept.signature.cache_clear()
    model = tiny(tmp_path)
    assert kept.signature() is None and not was_kept(model)
    assert not list(folder.glob("*.json"))


def test_processes_keep_at_once(folder: Path) -> None:
    """Several write and read at the same time; each computes the same."""
    code = Code({"f": Function("entry_0", "", [], [])})
    library = folder / "some.so"
    library.write_bytes(b"x")
    compiler.seal(library)
    wrong: list[object] = []

    def work(number: int) -> None:
        for _ in range(50):
            kept.write("k", code, library, {"number": number}, kept.DimsOut())
            found = kept.read("k")
            if found is None or list(found.code.functions) != ["f"]:
                wrong.append(found)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert not [path for path in folder.iterdir() if path.name.startswith("build-")]


def test_another_process_runs_what_was_kept(tmp_path: Path) -> None:
    model = tiny(tmp_path)
    want = model.apply(X).tolist()
    script = f"""
import torch, linnet
from linnet.native import kept, module
kept._began = lambda: float("inf")
def refuse(*_): raise AssertionError("emitted")
module.emit = refuse
model = linnet.load({str(tmp_path / "one.linnet")!r}, weights="random", generics={{"N": 4}},
                    seed=1, backend="native")
print(model.apply(torch.arange(4.0)).tolist())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=dict(os.environ),
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == want


def test_dimensions_are_read_back() -> None:
    s, t = Dim.name("S"), Dim.name("*T")
    dims = [
        Dim.const(0), Dim.const(-7), s, s * t * 3 - s + 5, (s + 3) // 4, (s * s + 1) // (t + 1),
        Dim.min(s, t + 2), Dim.max((s + 1) // 2, Dim.const(9)) * 2,
    ]  # fmt: skip
    out = kept.DimsOut()
    numbers = [out.put(dim) for dim in (*dims, *dims)]
    back = kept.DimsIn(json.loads(json.dumps(out.listed)))
    assert [back.get(n) for n in numbers] == [*dims, *dims]
    for dim, number in zip(dims, numbers, strict=False):
        at = {"S": 12, "*T": 5}
        assert back.get(number).evaluate(at) == dim.evaluate(at)
        assert back.get(number) is back.get(number)
