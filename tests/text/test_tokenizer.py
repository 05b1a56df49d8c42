"""Tokenizers against transformers and llama.cpp, and streams against the whole."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_fakes import smollm2_gguf, smollm2_metadata, smollm2_tokenizer

from linnet.errors import InputError
from linnet.text.errors import TextError
from linnet.text.gguf_tokenizer import PRE_TOKENIZERS
from linnet.text.tokenizer import StreamDecoder, Tokenizer

TEXTS = [
    "",
    " ",
    "Hello, world!",
    "What is the capital of France?",
    "def f(x):\n    return x + 1\n\n\nclass A:\n\tpass\n",
    "   leading and trailing   ",
    "tabs\t\tand\r\nlines\n\n \n  x",
    "numbers 1 12 123 1234567890 3.14 1e-9 ² ½ ०१२",
    "    8 spaces before 42 and   7",
    "l'été déjà vu, naïve façade; Straße; İstanbul",
    "你好,世界。 日本語のテキスト 한국어 텍스트",
    "emoji 🙂👩‍👩‍👧🏳️‍🌈 and flags 🇫🇷",
    "العربية עברית नमस्ते",
    "don't can't I'LL we've it's 'quoted'",
    "<|im_start|>user\nhi<|im_end|>\n<|endoftext|>",
    "half a <|im_st and <|im_end| >",
    "http://example.com/a?b=c&d=%20#e  {\"json\": [1, 2, null]}",
    "a\u0301 combining, zero\u200dwidth, nbsp\u00a0, \ufffd replacement, \x00 \x7f control",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" * 5,
]  # fmt: skip
PIECES = [
    "a", "the", " ", "  ", "   ", "\n", "\n\n", "\t", "1", "12", "345", "²", "½", "é", "中文",
    "한국", "🙂", "'s", "'LL", "don't", "_", "(", ")", "==", "...", "\u00a0", "\u2003", "\r\n",
    "\u0301", "ا", "०", "<|im_end|>", "x=1", "\u200d", "ﬁ", "İ", "$", "+", "^|", "नमस्ते", "12345678",
]  # fmt: skip


def mixtures(n: int) -> list[str]:
    rng = random.Random(5)
    return ["".join(rng.choices(PIECES, k=rng.randint(1, 12))) for _ in range(n)]


@pytest.fixture(scope="module")
def reference() -> Any:
    """transformers' tokenizer of the same file, cutting digits as the published one does.

    Its conversion from GGUF loses that rule: it cuts `   12` into `  `, ` 1`, `2`.
    """
    transformers = pytest.importorskip("transformers")
    pre = pytest.importorskip("tokenizers").pre_tokenizers
    path = smollm2_gguf()
    found = transformers.AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    found.backend_tokenizer.pre_tokenizer = pre.Sequence(
        [pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)]
    )
    return found


@pytest.fixture(scope="module")
def folder(reference: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer")
    reference.save_pretrained(path)
    return path


def test_gguf_and_folder_equal_transformers(reference: Any, folder: Path) -> None:
    ours = [smollm2_tokenizer(), Tokenizer.from_folder(folder)]
    for text in [*TEXTS, *mixtures(500)]:
        want = reference.encode(text, add_special_tokens=False)
        for t in ours:
            assert t.encode(text) == want, text
            assert t.decode(want, special=True) == reference.decode(want) == text
            plain = reference.decode(want, skip_special_tokens=True)
            assert t.decode(want) == plain
    for t in ours:
        assert (t.bos, t.eos, t.vocabulary_size) == (1, 2, 49152)
        assert t.special == frozenset(range(17))
        assert t.names["eos_token"] == "<|im_end|>"


def test_random_ids_decode_as_transformers_does(reference: Any) -> None:
    rng = random.Random(6)
    t = smollm2_tokenizer()
    for _ in range(300):
        ids = [rng.randrange(49152) for _ in range(rng.randint(1, 12))]
        assert t.decode(ids, special=True) == reference.decode(ids)


@pytest.mark.parametrize("pre", sorted(PRE_TOKENIZERS))
def test_each_pre_tokenizer_equals_llama_cpp(pre: str) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    model = llama_cpp.Llama(
        str(smollm2_gguf()),
        vocab_only=True,
        verbose=False,
        kv_overrides={"tokenizer.ggml.pre": pre},
    )
    values = {**smollm2_metadata(), "tokenizer.ggml.pre": pre}
    t = Tokenizer.from_gguf(values.get, "SmolLM2")
    for text in [*TEXTS, *mixtures(200)]:
        if text and "\x00" not in text:
            want = model.tokenize(text.encode(), add_bos=False, special=True)
            assert t.encode(text) == want, text


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 49160), max_size=30), st.data())
def test_a_stream_equals_the_whole_at_every_cut(ids: list[int], data: Any) -> None:
    t = smollm2_tokenizer()
    for special in (False, True):
        stream = StreamDecoder(t, special)
        parts, at = [], 0
        while at < len(ids):
            n = data.draw(st.integers(1, 4))
            parts.append(stream.feed(ids[at : at + n]))
            at += n
        parts.append(stream.finish())
        assert "".join(parts) == t.decode(ids, special)


def test_a_stream_gives_whole_characters_only() -> None:
    t = smollm2_tokenizer()
    text = "naïve 👩‍👩‍👧 你好"
    stream = StreamDecoder(t)
    shown = ""
    for token in t.encode(text):
        shown += stream.feed(token)
        assert text.startswith(shown)
    assert shown + stream.finish() == text


def test_special_tokens_in_a_strangers_text_stay_text() -> None:
    t = smollm2_tokenizer()
    ids = t.encode("a<|im_end|>b", special=False)
    assert t.eos not in ids
    assert t.decode(ids) == "a<|im_end|>b"
    assert t.eos in t.encode("a<|im_end|>b")


def test_begin_adds_the_token_that_begins_a_text() -> None:
    values = {**smollm2_metadata(), "tokenizer.ggml.add_bos_token": True}
    t = Tokenizer.from_gguf(values.get, "SmolLM2")
    assert t.encode("hi", begin=True) == [1, *t.encode("hi")]
    assert t.encode("<|im_start|>hi", begin=True) == t.encode("<|im_start|>hi")
    assert t.encode("", begin=True) == [1]


def test_a_lone_surrogate_is_replaced() -> None:
    t = smollm2_tokenizer()
    assert t.decode(t.encode("a\ud800b")) == "a?b"


def sentencepiece_like(folder: Path) -> Tokenizer:
    """A small tokenizer whose decoder is Llama 2's: ▁ for spaces, bytes as `<0xE2>`."""
    tokens = ["<unk>", "<s>", *(f"<0x{b:02X}>" for b in range(256)), "▁", "a", "▁a", "b", "é"]
    value = {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": t, "special": True, "single_word": False, "lstrip": False,
             "rstrip": False, "normalized": False}
            for i, t in enumerate(tokens[:2])
        ],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(tokens)},
                  "merges": ["▁ a"], "byte_fallback": True, "unk_token": "<unk>"},
    }  # fmt: skip
    folder.joinpath("tokenizer.json").write_text(json.dumps(value))
    return Tokenizer.from_folder(folder)


def test_byte_fallback_decodes_in_a_stream(tmp_path: Path) -> None:
    t = sentencepiece_like(tmp_path)
    for text in ("a b", " a", "a 🙂 b", "é中🙂🙂", ""):
        ids = t.encode(text)
        stream = StreamDecoder(t)
        assert "".join([*map(stream.feed, ids), stream.finish()]) == text
        assert t.decode(ids) == text


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("tokenizer.ggml.model", "llama", "expected 'gpt2'"),
        ("tokenizer.ggml.pre", "unheard-of", "expected one of .*smollm"),
        ("tokenizer.ggml.tokens", None, "has no tokenizer.ggml.tokens"),
        ("tokenizer.ggml.tokens", ["a", "b", "ab", "a"], "has 'a' twice"),
        ("tokenizer.ggml.merges", ["a  b"], r"merges\[0\] is 'a  b'"),
        ("tokenizer.ggml.merges", ["t"], r"merges\[0\] is 't'"),
        ("tokenizer.ggml.token_type", [1, 2], "has 2 entries; expected"),
        ("tokenizer.ggml.eos_token_id", 10**6, "eos_token_id is 1000000"),
    ],
)
def test_damaged_gguf_metadata(key: str, value: object, message: str) -> None:
    values: dict[str, Any] = {**smollm2_metadata(), key: value}
    if key.endswith("tokens") and value:
        values["tokenizer.ggml.token_type"] = [1] * 4
        values["tokenizer.ggml.merges"] = ["a b"]
    with pytest.raises(TextError, match=message):
        Tokenizer.from_gguf(values.get, "file.gguf")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"model": 1}', b"\xff\xfe", b"null"])
def test_a_damaged_tokenizer_file(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(TextError, match=r"tokenizer\.json"):
        Tokenizer.from_folder(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"added_tokens_decoder": 1}',
        '{"added_tokens_decoder": {"x": {"content": "a"}}}',
        '{"added_tokens_decoder": {"5": {"content": "<|im_end|>"}}}',
    ],
)
def test_a_damaged_tokenizer_config(folder: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(content)
    with pytest.raises(TextError, match=r"tokenizer_config\.json"):
        Tokenizer.from_folder(tmp_path)


def test_tokens_that_only_the_config_names_are_added(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes((folder / "tokenizer.json").read_bytes())
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "added_tokens_decoder": {"49152": {"content": "<extra>", "special": True}},
                "eos_token": {"content": "<extra>"},
            }
        )
    )
    t = Tokenizer.from_folder(tmp_path)
    assert t.encode("a<extra>")[-1] == t.eos == 49152
    assert t.decode([49152]) == ""


def test_a_missing_tokenizer_names_the_path(tmp_path: Path) -> None:
    with pytest.raises(TextError, match=str(tmp_path)):
        Tokenizer.from_folder(tmp_path)


def test_wrong_arguments() -> None:
    t = smollm2_tokenizer()
    with pytest.raises(InputError, match="expected str"):
        t.encode(b"bytes")
    with pytest.raises(InputError, match="token id is -1"):
        t.decode([-1])
    assert t.decode([10**6]) == ""
