"""A tokenizer from the metadata of a GGUF file.

The keys are those of the GGUF specification: `tokenizer.ggml.model`, `.pre`, `.tokens`,
`.merges`, `.token_type`, `.bos_token_id`, `.eos_token_id`, `.add_bos_token`. GGUF does not hold
the rule that cuts a text into words, only its name (`.pre`); the rules stand here as regular
expressions, and tests compare them with llama.cpp.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from linnet.text.errors import TextError, require
from linnet.text.pieces import byte_alphabet

if TYPE_CHECKING:
    import tokenizers

Metadata = Callable[[str], Any]

# Token types of GGUF.
_NORMAL, _UNKNOWN, _CONTROL, _USER, _UNUSED, _BYTE = 1, 2, 3, 4, 5, 6

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_DIGITS = r"\p{N}"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"


def _words(letters: str, numbers: str, not_word: str) -> str:
    """The shape that cl100k introduced and that Llama 3 and Qwen vary."""
    return (
        rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?{letters}|{numbers}| ?{not_word}+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


# Each row: the regular expressions applied one after another, each cutting the pieces that the
# one before left; every match is a piece, and so is what lies between matches.
_LLAMA3 = (_words(r"\p{L}+", r"\p{N}{1,3}", r"[^\s\p{L}\p{N}]"),)
_QWEN2 = (_words(r"\p{L}+", r"\p{N}", r"[^\s\p{L}\p{N}]"),)
_QWEN35 = (_words(r"[\p{L}\p{M}]+", r"\p{N}", r"[^\s\p{L}\p{M}\p{N}]"),)
_DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")
_BY_DIGIT = (_DIGITS, _GPT2)

PRE_TOKENIZERS: dict[str, tuple[str, ...]] = {
    "default": _DEFAULT,
    "gpt-2": (_GPT2,),
    "phi-2": (_GPT2,),
    "mpt": (_GPT2,),
    "olmo": (_GPT2,),
    "smollm": _BY_DIGIT,
    "starcoder": _BY_DIGIT,
    "refact": _BY_DIGIT,
    "command-r": _BY_DIGIT,
    "codeshell": _BY_DIGIT,
    "exaone": _BY_DIGIT,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
    "qwen35": _QWEN35,
}
# Llama 3's vocabulary has whole words that no chain of merges reaches.
_IGNORE_MERGES = frozenset({"llama-bpe", "llama3", "llama-v3"})


@dataclass(frozen=True)
class Built:
    backend: tokenizers.Tokenizer
    names: dict[str, str]
    add_bos: bool


def build(metadata: Metadata, where: str) -> Built:
    """Raises `TextError` naming the file, the key, what was found and what was expected."""
    require("tokenizers")
    from tokenizers import AddedToken, Tokenizer, decoders, models

    model = metadata("tokenizer.ggml.model")
    if model != "gpt2":
        raise TextError(
            f"{where}: tokenizer.ggml.model is {model!r}; expected 'gpt2' (byte-level BPE). Put "
            "the model's tokenizer.json beside the weights to use another kind"
        )
    tokens = _strings(metadata, "tokenizer.ggml.tokens", where)
    merges = _merges(_strings(metadata, "tokenizer.ggml.merges", where), set(tokens), where)
    types = metadata("tokenizer.ggml.token_type") or [_NORMAL] * len(tokens)
    if len(types) != len(tokens):
        raise TextError(
            f"{where}: tokenizer.ggml.token_type has {len(types)} entries; expected "
            f"{len(tokens)}, one for each of tokenizer.ggml.tokens"
        )
    pre = metadata("tokenizer.ggml.pre") or "default"
    if pre not in PRE_TOKENIZERS:
        raise TextError(
            f"{where}: tokenizer.ggml.pre is {pre!r}; expected one of "
            f"{', '.join(sorted(PRE_TOKENIZERS))}. Put the model's tokenizer.json beside the "
            "weights to use another"
        )
    vocabulary = {t: i for i, t in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        twice = next(t for i, t in enumerate(tokens) if vocabulary[t] != i)
        raise TextError(f"{where}: tokenizer.ggml.tokens has {twice!r} twice")
    backend = Tokenizer(
        models.BPE(vocab=vocabulary, merges=merges, ignore_merges=pre in _IGNORE_MERGES)
    )
    backend.pre_tokenizer = _pre_tokenizer(PRE_TOKENIZERS[pre])
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(
        [
            AddedToken(t, special=True, normalized=False)
            for t, kind in zip(tokens, types, strict=True)
            if kind in (_CONTROL, _UNKNOWN)
        ]
    )
    backend.add_tokens(
        [
            AddedToken(t, special=False, normalized=False)
            for t, kind in zip(tokens, types, strict=True)
            if kind == _USER
        ]
    )
    names: dict[str, str] = {}
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        number = metadata(f"tokenizer.ggml.{key}_token_id")
        if number is None:
            continue
        if not isinstance(number, int) or not 0 <= number < len(tokens):
            raise TextError(
                f"{where}: tokenizer.ggml.{key}_token_id is {number!r}; expected an integer "
                f"from 0 to {len(tokens) - 1}"
            )
        names[f"{name}_token"] = tokens[number]
    add = metadata("tokenizer.ggml.add_bos_token")
    # llama.cpp's default: Llama 3 begins a text with its token, the others do not.
    return Built(backend, names, pre in _IGNORE_MERGES if add is None else bool(add))


def _pre_tokenizer(rules: tuple[str, ...]) -> Any:
    from tokenizers import Regex, pre_tokenizers

    return pre_tokenizers.Sequence(
        [
            *(pre_tokenizers.Split(Regex(rule), "isolated") for rule in rules),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _strings(metadata: Metadata, key: str, where: str) -> list[str]:
    value = metadata(key)
    if value is None:
        raise TextError(f"{where}: has no {key}; expected a list of strings")
    items = list(value)
    if not items or not all(isinstance(v, str) for v in items):
        raise TextError(f"{where}: {key} is not a list of strings")
    return items


def _merges(lines: list[str], tokens: set[str], where: str) -> list[tuple[str, str]]:
    """Pairs of tokens. The two are parted by a space, which byte-level tokens never hold."""
    space = next(c for c, b in byte_alphabet().items() if b == 0x20)
    merges = []
    for n, line in enumerate(lines):
        left, _, right = line.partition(" ")
        if not left or not right or left + right not in tokens:
            raise TextError(
                f"{where}: tokenizer.ggml.merges[{n}] is {line!r}; expected two tokens parted by "
                f"a space whose join is a token (a space within a token is written {space!r})"
            )
        merges.append((left, right))
    return merges
