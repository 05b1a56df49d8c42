"""Tokenizer: text to token ids and back."""

from __future__ import annotations

import codecs
import json
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.errors import InputError
from linnet.text.errors import TextError, require
from linnet.text.gguf_tokenizer import Metadata, build
from linnet.text.pieces import read_decoder

if TYPE_CHECKING:
    import tokenizers


class Tokenizer:
    """Text to token ids and back.

    Wraps a `tokenizers.Tokenizer`. `bos` and `eos` are the token ids that begin a text and end
    an answer, or None; `names` maps `bos_token`, `eos_token`, `unk_token`, `pad_token` to their
    spelling, for chat templates; `special` holds the ids of special tokens.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        names: dict[str, str],
        where: str,
        add_bos: bool | None = None,
    ):
        self._backend = backend
        self._lock = threading.Lock()
        self._where = where
        decoder = backend.decoder
        state = json.loads(decoder.__getstate__()) if decoder is not None else None
        self._pieces = read_decoder(state, where)
        self._bytes: dict[int, bytes] = {}
        self.names = names
        self.special = frozenset(
            i for i, t in backend.get_added_tokens_decoder().items() if t.special
        )
        self.bos = self._id_of("bos_token")
        self.eos = self._id_of("eos_token")
        self.vocabulary_size: int = backend.get_vocab_size(with_added_tokens=True)
        # None: whatever the tokenizer's own post-processor does.
        self._add_bos = add_bos

    # Where tokenizers come from

    @classmethod
    def from_folder(cls, folder: str | Path) -> Tokenizer:
        """From `tokenizer.json`, with `tokenizer_config.json` beside it where there is one.

        Raises `TextError` naming the file and what is wrong with it.
        """
        folder = Path(folder)
        path = folder / "tokenizer.json"
        backend = _read_backend(path)
        config = read_object(folder / "tokenizer_config.json")
        _add_tokens(backend, config, folder / "tokenizer_config.json")
        names = {
            name: spelling
            for name in ("bos_token", "eos_token", "unk_token", "pad_token")
            if (spelling := _spelling(config.get(name))) is not None
        }
        return cls(backend, names, str(path))

    @classmethod
    def from_gguf(cls, metadata: Metadata, where: str = "the GGUF file") -> Tokenizer:
        """From the `tokenizer.ggml.*` keys of a GGUF file, byte-level BPE only.

        `metadata(key)` gives a value of the file, or None. Raises `TextError`.
        """
        built = build(metadata, where)
        return cls(built.backend, built.names, where, built.add_bos)

    # Encoding

    def encode(self, text: str, special: bool = True, begin: bool = False) -> list[int]:
        """The token ids of a text.

        With `special` (the default) a special token spelled out in the text becomes its own id,
        as chat templates need; without, it is ordinary text, as text from strangers should be.
        With `begin` the tokens that the tokenizer puts round a whole text are added, such as the
        one that begins it; a rendered chat template holds them already.
        """
        if not isinstance(text, str):
            raise InputError(f"text is {type(text).__name__}; expected str")
        # A lone surrogate is not text and cannot be written as UTF-8.
        text = text.encode("utf-8", "replace").decode("utf-8")
        with self._lock:  # the flag belongs to the shared backend
            if self._backend.encode_special_tokens == special:
                self._backend.encode_special_tokens = not special
            ids = list(self._backend.encode(text, add_special_tokens=begin).ids)
        if begin and self.bos is not None and self._add_bos is not None:
            has = bool(ids) and ids[0] == self.bos
            if self._add_bos and not has:
                ids.insert(0, self.bos)
        return ids

    # Decoding

    def piece(self, token: int) -> bytes:
        """The bytes that a token stands for; none for an id past the vocabulary."""
        known = self._bytes.get(token)
        if known is None:
            if token < 0:
                raise InputError(f"token id is {token}; expected an integer ≥ 0")
            spelling = self._backend.id_to_token(token)
            known = b"" if spelling is None else self._pieces.piece(spelling)
            self._bytes[token] = known
        return known

    def decode(self, ids: Iterable[int], special: bool = False) -> str:
        """The text of token ids; special tokens are left out unless `special`.

        Bytes that are not UTF-8 become U+FFFD.
        """
        stream = StreamDecoder(self, special)
        return "".join([stream.feed(ids), stream.finish()])

    def spelling(self, token: int) -> str | None:
        """The token as the vocabulary spells it, such as `<|im_end|>` or `Ġthe`."""
        return self._backend.id_to_token(token) if token >= 0 else None

    def id(self, spelling: str) -> int | None:
        """The id of a token spelled as in the vocabulary, or None."""
        found: int | None = self._backend.token_to_id(spelling)
        return found

    @property
    def strip(self) -> int:
        """How many spaces decoding takes off the very start of a text."""
        return self._pieces.strip

    def save(self, path: str | Path) -> None:
        """Write the backend as `tokenizer.json`."""
        self._backend.save(str(path))

    def _id_of(self, name: str) -> int | None:
        spelling = self.names.get(name)
        return None if spelling is None else self.id(spelling)


class StreamDecoder:
    """Decodes a stream of tokens, giving whole characters only.

    Bytes of a character that is not yet complete are held back. The pieces, joined with what
    `finish` gives, equal `Tokenizer.decode` of all tokens however the stream is cut.
    """

    def __init__(self, tokenizer: Tokenizer, special: bool = False):
        self._tokenizer = tokenizer
        self._skip = frozenset() if special else tokenizer.special
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._strip = tokenizer.strip

    def feed(self, ids: int | Iterable[int]) -> str:
        """The characters that these tokens complete."""
        ids = (ids,) if isinstance(ids, int) else ids
        t = self._tokenizer
        data = b"".join([t.piece(int(i)) for i in ids if i not in self._skip])
        return self._start(self._decoder.decode(data))

    def finish(self) -> str:
        """What is left at the end: U+FFFD for a character that was never completed."""
        return self._start(self._decoder.decode(b"", final=True))

    def _start(self, text: str) -> str:
        while self._strip and text:
            if text[0] != " ":
                self._strip = 0
                break
            text = text[1:]
            self._strip -= 1
        return text


def read_object(path: Path) -> dict[str, Any]:
    """A JSON object from a file; empty where there is no file. Raises `TextError`."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as e:
        raise TextError(f"{path}: cannot be read as JSON: {e}") from None
    if not isinstance(value, dict):
        raise TextError(f"{path}: holds {type(value).__name__}; expected a JSON object")
    return value


def _read_backend(path: Path) -> tokenizers.Tokenizer:
    require("tokenizers")
    import tokenizers

    if not path.is_file():
        raise TextError(f"{path}: no such file; expected the model's tokenizer.json")
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
        # Some files ask for batches of one length; a text is never cut or filled up in silence.
        backend.no_truncation()
        backend.no_padding()
        return backend
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as e:  # a panic of the Rust library is no Exception
        raise TextError(f"{path}: is not a tokenizer that can be used: {e}") from None


def _spelling(value: object) -> str | None:
    """A special token in `tokenizer_config.json`: a string, or an object with `content`."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _add_tokens(backend: tokenizers.Tokenizer, config: dict[str, Any], path: Path) -> None:
    """Adds the tokens that only `tokenizer_config.json` names, at the ids it names."""
    import tokenizers

    added = config.get("added_tokens_decoder", {})
    if not isinstance(added, dict):
        raise TextError(f"{path}: added_tokens_decoder is not an object")
    tokens: list[tuple[int, dict[str, Any], str]] = []
    for key, value in added.items():
        spelling = _spelling(value)
        if not key.isdecimal() or spelling is None or not isinstance(value, dict):
            raise TextError(
                f"{path}: added_tokens_decoder.{key} is {value!r}; expected an id with an "
                "object that has `content`"
            )
        tokens.append((int(key), value, spelling))
    for number, value, spelling in sorted(tokens, key=lambda t: t[0]):
        if backend.token_to_id(spelling) is None:
            flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
            token = tokenizers.AddedToken(
                spelling, **{f: bool(value[f]) for f in flags if f in value}
            )
            backend.add_tokens([token])
        found = backend.token_to_id(spelling)
        if found != number:
            raise TextError(
                f"{path}: token {spelling!r} has id {number} here and {found} in tokenizer.json"
            )


def token_ids(value: object, where: str) -> tuple[int, ...]:
    """One id or a list of ids from a JSON file. Raises `TextError`."""
    items: Sequence[object] = value if isinstance(value, list) else [value]
    ids: list[int] = []
    for item in items:
        if not isinstance(item, int) or isinstance(item, bool) or item < 0:
            raise TextError(f"{where} is {value!r}; expected a token id or a list of them")
        ids.append(item)
    return tuple(ids)
