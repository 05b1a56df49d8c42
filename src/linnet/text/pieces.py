"""From tokens to bytes.

A token stands for bytes, and a character may be spread over several tokens. This module turns
the `decoder` of a `tokenizer.json` into a function from one token to its bytes, so that decoding
is joining bytes, and a stream of tokens can be cut anywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from linnet.text.errors import TextError


def byte_alphabet() -> dict[str, int]:
    """The characters that byte-level BPE writes for the 256 bytes (GPT-2's `bytes_to_unicode`).

    Printable Latin-1 characters stand for themselves; the other bytes, in order, for the
    characters from U+0100.
    """
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(b): b for b in plain}
    others = (b for b in range(256) if b not in set(plain))
    return alphabet | {chr(0x100 + i): b for i, b in enumerate(others)}


@dataclass(frozen=True)
class Pieces:
    """How tokens become bytes: `piece(token)`, then `strip` spaces taken off the very start."""

    piece: Callable[[str], bytes]
    strip: int = 0


def read_decoder(decoder: dict[str, Any] | None, where: str) -> Pieces:
    """The pieces of a decoder as `tokenizer.json` states it.

    Knows ByteLevel, WordPiece, Metaspace, ByteFallback, Replace of a string, Fuse, Strip, and
    sequences of them: what language models use. Raises `TextError` for any other.
    """
    steps: list[Callable[[str | bytes], str | bytes]] = []
    strip = 0
    for d in _flat(decoder):
        kind = d.get("type")
        if kind == "ByteLevel":
            steps.append(_byte_level())
        elif kind == "ByteFallback":
            steps.append(_byte_fallback)
        elif kind == "WordPiece":
            steps.append(_word_piece(d.get("prefix", "##"), bool(d.get("cleanup", True))))
            strip += 1
        elif kind == "Metaspace":
            steps.append(_replace(d.get("replacement", "▁"), " "))
            strip += d.get("prepend_scheme", "always") != "never"
        elif kind == "Replace" and "String" in d.get("pattern", {}):
            steps.append(_replace(d["pattern"]["String"], d.get("content", "")))
        elif kind == "Strip" and d.get("content") == " " and not d.get("stop"):
            strip += int(d.get("start", 0))
        elif kind != "Fuse":  # fusing is what joining bytes does
            raise TextError(
                f"{where}: the tokenizer's decoder is {kind!r}; expected ByteLevel, WordPiece, "
                "Metaspace, ByteFallback, Replace, Fuse, Strip or a sequence of them"
            )

    def piece(token: str) -> bytes:
        value: str | bytes = token
        for step in steps:
            value = step(value)
        return value if isinstance(value, bytes) else value.encode("utf-8", "replace")

    return Pieces(piece, strip)


def _flat(decoder: dict[str, Any] | None) -> list[dict[str, Any]]:
    if decoder is None:
        return []
    if decoder.get("type") == "Sequence":
        return [e for d in decoder.get("decoders", []) for e in _flat(d)]
    return [decoder]


def _byte_level() -> Callable[[str | bytes], str | bytes]:
    alphabet = byte_alphabet()

    def step(token: str | bytes) -> str | bytes:
        # An added token may hold characters outside the alphabet: it stands for itself.
        if isinstance(token, bytes) or not all(c in alphabet for c in token):
            return token
        return bytes(alphabet[c] for c in token)

    return step


def _byte_fallback(token: str | bytes) -> str | bytes:
    """`<0xE2>` is the byte E2 (SentencePiece's byte fallback)."""
    if isinstance(token, str) and len(token) == 6 and token.startswith("<0x") and token[5] == ">":
        try:
            return bytes((int(token[3:5], 16),))
        except ValueError:
            return token
    return token


# What `tokenizers` does to each word of a WordPiece text where it cleans up, in this order.
_CLEANED = (
    (" .", "."), (" ?", "?"), (" !", "!"), (" ,", ","), (" ' ", "'"), (" n't", "n't"),
    (" 'm", "'m"), (" do not", " don't"), (" 's", "'s"), (" 've", "'ve"), (" 're", "'re"),
)  # fmt: skip


def _word_piece(prefix: str, cleanup: bool) -> Callable[[str | bytes], str | bytes]:
    """`##ing` goes on with a word; other tokens begin one, after a space (BERT)."""

    def step(token: str | bytes) -> str | bytes:
        if isinstance(token, bytes):
            return token
        text = token[len(prefix) :] if token.startswith(prefix) else f" {token}"
        for old, new in _CLEANED if cleanup else ():
            text = text.replace(old, new)
        return text

    return step


def _replace(old: str, new: str) -> Callable[[str | bytes], str | bytes]:
    return lambda token: token if isinstance(token, bytes) else token.replace(old, new)
