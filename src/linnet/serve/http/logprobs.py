"""Log probabilities as OpenAI's API writes them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from linnet.serve.events import Delta, TokenLogprob
from linnet.text.tokenizer import Tokenizer

# JSON has no minus infinity; OpenAI writes this.
_LEAST = -9999.0


def finite(value: float) -> float:
    return max(value, _LEAST)


def spelled(tokenizer: Tokenizer, token: int) -> tuple[str, bytes]:
    """A token's text, and its bytes; a special token as it is spelled."""
    data = tokenizer.piece(token)
    if token in tokenizer.special:
        data = (tokenizer.spelling(token) or "").encode()
    return data.decode("utf-8", "replace"), data


def said(delta: Delta, ends: Collection[int]) -> list[TokenLogprob]:
    """The log probabilities of a delta's tokens, without one that ends the answer."""
    return [one for one in delta.logprobs if one.token not in ends]


def chat_logprobs(tokenizer: Tokenizer, tokens: list[TokenLogprob]) -> list[dict[str, Any]]:
    """Entries of `logprobs.content`."""

    def entry(token: int, logprob: float) -> dict[str, Any]:
        text, data = spelled(tokenizer, token)
        return {"token": text, "logprob": finite(logprob), "bytes": list(data)}

    return [
        {**entry(t.token, t.logprob), "top_logprobs": [entry(i, v) for i, v in t.top]}
        for t in tokens
    ]


def completion_logprobs(
    tokenizer: Tokenizer, tokens: list[TokenLogprob], offset: int
) -> tuple[dict[str, Any], int]:
    """The `logprobs` object of `/v1/completions`, and the offset after these tokens."""
    texts: list[str] = []
    offsets: list[int] = []
    for one in tokens:
        text, _ = spelled(tokenizer, one.token)
        texts.append(text)
        offsets.append(offset)
        offset += len(text)
    tops = [{spelled(tokenizer, i)[0]: finite(v) for i, v in t.top} for t in tokens]
    return {
        "tokens": texts,
        "token_logprobs": [finite(t.logprob) for t in tokens],
        "top_logprobs": tops,
        "text_offset": offsets,
    }, offset
