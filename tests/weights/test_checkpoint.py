"""Folders, indexes, lists of files, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from weight_files import gguf_file

from linnet.errors import WeightsError
from linnet.weights.checkpoint import open_checkpoint
from linnet.weights.safetensors import INDEX, save

np = pytest.importorskip("numpy")


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    items = [(f"t{i}", "f32", (4,), np.full(4, i, "f4").tobytes()) for i in range(4)]
    save(tmp_path, items, shard_bytes=32)
    return tmp_path


def refused(weights: object) -> list[str]:
    with pytest.raises(WeightsError) as caught:
        open_checkpoint(weights)  # type: ignore[arg-type]
    return caught.value.problems


def test_index_list_and_bare_folder_agree(sharded: Path) -> None:
    files = sorted(sharded.glob("*.safetensors"))
    indexed = open_checkpoint(sharded)
    assert indexed.files == files
    assert set(indexed.tensors) == {"t0", "t1", "t2", "t3"}
    assert open_checkpoint(files).tensors == indexed.tensors
    (sharded / INDEX).unlink()
    assert open_checkpoint(str(sharded)).tensors == indexed.tensors


def test_a_missing_shard_with_and_without_index(sharded: Path) -> None:
    (sharded / "model-00002-of-00002.safetensors").unlink()
    [problem] = refused(sharded)
    assert "model-00002-of-00002.safetensors: missing" in problem and "2 tensors" in problem
    (sharded / INDEX).unlink()
    [problem] = refused(sharded)
    assert "missing, one of 2 shards" in problem


def test_a_shard_cut_short(sharded: Path) -> None:
    shard = sharded / "model-00002-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-5])
    [problem] = refused(sharded)
    assert str(shard) in problem and "cut short" in problem


def test_an_index_that_disagrees(sharded: Path) -> None:
    index = json.loads((sharded / INDEX).read_text())
    index["weight_map"] |= {
        "t0": "model-00002-of-00002.safetensors",
        "ghost": "model-00001-of-00002.safetensors",
    }
    (sharded / INDEX).write_text(json.dumps(index))
    problems = refused(sharded)
    assert len(problems) == 2
    assert any("`ghost`" in p and "not there" in p for p in problems)
    assert any("`t0`" in p and "stands in model-00001" in p for p in problems)


@pytest.mark.parametrize("file", ["../x.safetensors", "/etc/passwd", "..", "", 3, "a/b"])
def test_an_index_stays_in_its_folder(sharded: Path, file: object) -> None:
    (sharded / INDEX).write_text(json.dumps({"weight_map": {"x": file}}))
    [problem] = refused(sharded)
    assert "not the name of a file beside the index" in problem


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": []}', '{"weight_map": {}}'])
def test_a_broken_index(sharded: Path, text: str) -> None:
    (sharded / INDEX).write_text(text)
    [problem] = refused(sharded)
    assert INDEX in problem


def test_one_tensor_in_two_files(sharded: Path) -> None:
    first = sharded / "model-00001-of-00002.safetensors"
    (sharded / "extra.safetensors").write_bytes(first.read_bytes())
    problems = refused([first, sharded / "extra.safetensors"])
    assert len(problems) == 2 and "`t0` stands twice" in problems[0]


def test_single_file_beside_an_index_is_ambiguous(sharded: Path) -> None:
    (sharded / "model-00001-of-00002.safetensors").rename(sharded / "model.safetensors")
    assert "both" in refused(sharded)[0]


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.pth"])
def test_pickles_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x80\x02}q\x00.")
    for weights in (tmp_path, tmp_path / name):
        [problem] = refused(weights)
        assert "pickled" in problem and "safetensors" in problem


def test_pickles_under_another_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"\x80\x02}q\x00." + bytes(32))
    assert "pickled" in refused(path)[0]


def test_nothing_there(tmp_path: Path) -> None:
    assert "no weights there" in refused(tmp_path)[0]
    assert "no such file" in refused(tmp_path / "none.safetensors")[0]
    assert "list is empty" in refused([])[0]
    assert "found a folder" in refused([tmp_path])[0]


def test_a_git_lfs_pointer(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid x")
    assert "git lfs pull" in refused(tmp_path)[0]


def test_gguf_in_a_folder(tmp_path: Path) -> None:
    metadata = {"general.architecture": "llama"}
    gguf_file(tmp_path / "a.gguf", metadata, [("output_norm.weight", [2], 0, bytes(8))])
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.is_gguf and list(checkpoint.tensors) == ["model.norm.weight"]
    assert checkpoint.metadata("general.architecture") == "llama"
    gguf_file(tmp_path / "b.gguf", metadata, [])
    assert "several GGUF files" in refused(tmp_path)[0]
    assert "stands alone" in refused([tmp_path / "a.gguf", tmp_path / "b.gguf"])[0]


def test_reading_in_another_dtype(tmp_path: Path) -> None:
    x = np.array([1, -0.5, 3.25], "f4")
    save(tmp_path, [("x", "f32", (3,), x.tobytes()), ("i", "i32", (1,), bytes(4))])
    checkpoint = open_checkpoint(tmp_path)
    assert np.frombuffer(checkpoint.read("x", "f64"), "f8").tolist() == x.tolist()
    out = memoryview(bytearray(6))
    assert checkpoint.read("x", "f16", out) is out
    assert np.frombuffer(out, "f2").tolist() == x.tolist()
    same = memoryview(bytearray(12))
    checkpoint.read("x", "f32", same)
    assert bytes(same) == x.tobytes()
    for dtype, short in (("f64", 12), ("i32", 12)):
        with pytest.raises(WeightsError, match="`x`"):
            checkpoint.read("x", dtype, memoryview(bytearray(short)))
    with pytest.raises(WeightsError, match="`i`"):
        checkpoint.read("i", "f32")
    with pytest.raises(WeightsError, match="no tensor `y`"):
        checkpoint.read("y")
