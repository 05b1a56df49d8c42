"""Reading and writing safetensors: against the reference library, and files that are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest
from weight_files import entry, raw_safetensors

from linnet.errors import WeightsError
from linnet.weights.checkpoint import open_checkpoint
from linnet.weights.safetensors import SafetensorsFile, save

np = pytest.importorskip("numpy")
reference = pytest.importorskip("safetensors.numpy")


def refused(path: Path, *words: str) -> str:
    with pytest.raises(WeightsError) as caught:
        SafetensorsFile(path)
    message = str(caught.value)
    for word in (str(path), *words):
        assert word in message, message
    return message


def test_reads_what_the_reference_writes(tmp_path: Path) -> None:
    arrays = {
        "f64": np.arange(6, dtype="f8").reshape(2, 3),
        "f32": np.linspace(-1, 1, 5, dtype="f4"),
        "f16": np.ones((2, 2, 2), "f2"),
        "i64": np.array([-1, 2**62]),
        "u8": np.arange(3, dtype="u1"),
        "bool": np.array([True, False, True]),
        "scalar": np.array(7, dtype="i4"),
        "empty": np.zeros((0, 4), "f4"),
    }
    reference.save_file(arrays, tmp_path / "model.safetensors", {"format": "np"})
    with open_checkpoint(tmp_path) as checkpoint:
        assert set(checkpoint.tensors) == set(arrays)
        assert checkpoint.metadata("format") == "np"
        for name, array in arrays.items():
            info = checkpoint.tensors[name]
            assert info.shape == array.shape
            assert info.nbytes == array.nbytes
            view = checkpoint.read(name)
            assert not view.readonly
            assert bytes(view) == array.tobytes()


def test_views_are_private_and_outlive_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    reference.save_file({"x": np.zeros(4, "f4")}, path)
    before = path.read_bytes()
    checkpoint = open_checkpoint(path)
    view = checkpoint.read("x")
    view[:] = b"\x01" * 16
    checkpoint.close()
    assert bytes(view) == b"\x01" * 16
    assert path.read_bytes() == before


def test_a_misaligned_tensor_is_copied(tmp_path: Path) -> None:
    path = raw_safetensors(
        tmp_path / "a.safetensors",
        {"byte": entry("U8", [1], 0, 1), "wide": entry("F32", [2], 1, 9)},
        b"\x05" + np.array([1.5, -2], "f4").tobytes(),
    )
    view = open_checkpoint(path).read("wide")
    array = np.frombuffer(view, "f4")
    assert array.flags.aligned
    assert array.tolist() == [1.5, -2]


@pytest.mark.parametrize("kept", [0, 7, 8, 40])
def test_a_file_cut_in_its_header(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "a.safetensors"
    reference.save_file({"x": np.zeros(4, "f4")}, path)
    path.write_bytes(path.read_bytes()[:kept])
    refused(path, "safetensors" if kept < 8 else "cut short")


def test_a_file_cut_in_its_data_names_the_tensor(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    reference.save_file({"x": np.zeros(4, "f4")}, path)
    path.write_bytes(path.read_bytes()[:-1])
    refused(path, "`x`", "cut short")


@pytest.mark.parametrize(
    ("header", "data", "words"),
    [
        ({"x": entry("F32", [2], 0, 8), "y": entry("F32", [2], 4, 12)}, 12, ["`y`", "`x`"]),
        ({"x": entry("F32", [2], 0, 8), "y": entry("F32", [1], 12, 16)}, 16, ["`y`", "no tensor"]),
        ({"x": entry("F32", [2], 0, 8)}, 10, ["2 bytes at the end"]),
        ({"x": entry("F32", [3], 0, 8)}, 8, ["`x`", "8 bytes stored", "takes 12"]),
        ({"x": entry("F32", [2], 8, 0)}, 8, ["`x`", "data_offsets"]),
        ({"x": entry("F32", [-2], 0, 8)}, 8, ["`x`", "shape"]),
        ({"x": entry("F32", [True], 0, 4)}, 4, ["`x`", "shape"]),
        ({"x": entry("F33", [2], 0, 8)}, 8, ["`x`", "unknown dtype 'F33'"]),
        ({"x": {"dtype": "F32"}}, 8, ["`x`"]),
        ({"x": 3}, 8, ["`x`", "object"]),
        ({"__metadata__": {"a": 1}}, 0, ["__metadata__"]),
        ('{"x": 1, "x": 2}', 0, ["`x` stands twice"]),
        ("[]", 0, ["object"]),
        ("{", 0, ["line 1"]),
        (b"\xff\xfe", 0, ["UTF-8"]),
        ("[" * 5000, 0, ["header"]),
        ('{"x": NaN}', 0, ["NaN"]),
        ('{"\\udc00": 1}', 0, ["Unicode"]),
    ],
)
def test_wrong_headers(tmp_path: Path, header: object, data: int, words: list[str]) -> None:
    path = raw_safetensors(tmp_path / "a.safetensors", header, bytes(data))  # type: ignore[arg-type]
    refused(path, *words)


def test_changed_bytes_never_escape_as_another_error(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    reference.save_file({"x": np.zeros((2, 3), "f4"), "b": np.ones(4, bool)}, path)
    whole = path.read_bytes()
    for at in range(len(whole)):
        for value in (0, 0x22, 0x39, 0x7B, 0xFF):
            path.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
            try:
                checkpoint = open_checkpoint(path)
                for name in checkpoint.tensors:
                    checkpoint.read(name)
            except WeightsError as error:
                assert str(path) in str(error)


def test_a_header_of_absurd_length(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(b"\xff" * 64)
    refused(path, "allows")


def test_formats_no_program_declares_are_listed_but_not_read(tmp_path: Path) -> None:
    path = raw_safetensors(tmp_path / "a.safetensors", {"x": entry("F8_E4M3", [4], 0, 4)}, bytes(4))
    checkpoint = open_checkpoint(path)
    assert checkpoint.tensors["x"].dtype == "f8_e4m3"
    with pytest.raises(WeightsError, match="`x` is stored as f8_e4m3"):
        checkpoint.read("x")


def test_a_bool_holds_only_0_and_1(tmp_path: Path) -> None:
    path = raw_safetensors(tmp_path / "a.safetensors", {"x": entry("BOOL", [2], 0, 2)}, b"\x01\x02")
    with pytest.raises(WeightsError, match="`x` is bool"):
        open_checkpoint(path).read("x")


def test_save_is_read_by_the_reference(tmp_path: Path) -> None:
    x, y = np.arange(6, dtype="f4").reshape(2, 3), np.arange(3, dtype="u1")
    items = [
        ("y", "u8", (3,), y.tobytes()),
        ("x", "f32", (2, 3), lambda: x.tobytes()),
        ("y", "u8", (3,), y.tobytes()),
    ]
    assert save(tmp_path, items) == [tmp_path / "model.safetensors"]
    loaded = reference.load_file(tmp_path / "model.safetensors")
    assert np.array_equal(loaded["x"], x) and np.array_equal(loaded["y"], y)
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_save_in_shards_and_again_over_them(tmp_path: Path) -> None:
    items = [(f"t{i}", "f32", (4,), np.full(4, i, "f4").tobytes()) for i in range(5)]
    files = save(tmp_path, items, shard_bytes=32)
    assert [file.name for file in files] == [
        f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)
    ]
    with open_checkpoint(tmp_path) as checkpoint:
        assert np.frombuffer(checkpoint.read("t4"), "f4").tolist() == [4] * 4
    save(tmp_path, items[:1])
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_a_failed_save_leaves_the_old_files(tmp_path: Path) -> None:
    save(tmp_path, [("x", "f32", (1,), bytes(4))])
    before = (tmp_path / "model.safetensors").read_bytes()
    with pytest.raises(WeightsError, match="`x`: 3 bytes given"):
        save(tmp_path, [("x", "f32", (1,), bytes(3))])
    with pytest.raises(WeightsError, match="given twice"):
        save(tmp_path, [("x", "f32", (1,), bytes(4)), ("x", "f32", (2,), bytes(8))])
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]
    assert (tmp_path / "model.safetensors").read_bytes() == before
