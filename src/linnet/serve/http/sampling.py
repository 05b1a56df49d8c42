"""The fields that say how tokens are drawn and when to stop, which all endpoints share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from linnet.serve.http.errors import bad
from linnet.serve.http.fields import Fields, shown
from linnet.serve.http.service import Decoder
from linnet.text.open import TextModel
from linnet.text.sampling import Sampling

# Accepted, and without effect by their nature: they are for the operator of the API.
_NO_EFFECT = ("user", "safety_identifier", "prompt_cache_key")

_MOST_STOPS = 16


def read_no_effect(fields: Fields) -> dict[str, Any]:
    """The fields that change nothing by their nature, as given."""
    texts = {name: fields.text(name) for name in _NO_EFFECT}
    return {**texts, "metadata": fields.mapping("metadata"), "store": fields.flag("store")}


def read_sampling(fields: Fields, text: TextModel) -> Sampling:
    """The sampling asked for, over the model's own defaults. Raises ApiError or InputError."""
    given: dict[str, Any] = {
        "temperature": fields.number("temperature", 0, 2),
        "top_p": fields.number("top_p"),
        "min_p": fields.number("min_p"),
        "top_k": fields.whole("top_k", -1),
        "repetition_penalty": fields.number("repetition_penalty"),
        "presence_penalty": fields.number("presence_penalty"),
        "frequency_penalty": fields.number("frequency_penalty"),
        "seed": fields.whole("seed", -(2**63), 2**64 - 1),
    }
    given = {k: v for k, v in given.items() if v is not None}
    if given.get("top_k") == -1:  # how some clients say: all
        given["top_k"] = 0
    if "seed" in given:
        given["seed"] %= 2**64
    return replace(text.settings.sampling, **given)


def read_ends(fields: Fields, engine: Decoder, text: TextModel) -> dict[str, Any]:
    """`stop`, `stop_token_ids`, `ignore_eos`, `logit_bias`, as fields of a Request."""
    stop = fields.take("stop")
    if isinstance(stop, str):
        stop = [stop]
    if stop is None:
        stop = []
    if not isinstance(stop, list) or not all(isinstance(s, str) and s for s in stop):
        raise fields.wrong("stop", stop, "a string that is not empty, or a list of them")
    if len(stop) > _MOST_STOPS:
        raise bad(f"stop has {len(stop)} strings; expected at most {_MOST_STOPS}", "stop")
    ends = frozenset() if fields.flag("ignore_eos") else text.settings.stop_tokens
    ids = fields.items("stop_token_ids") or []
    for i, token in enumerate(ids):
        _known(token, engine, f"stop_token_ids[{i}]")
    bias = fields.mapping("logit_bias") or {}
    return {
        "stop": (*text.settings.stop, *stop),
        "stop_tokens": ends | frozenset(ids),
        "logit_bias": {_bias_id(k, engine): _bias(k, v) for k, v in bias.items()},
        "special": not fields.flag("skip_special_tokens", True),
    }


def _known(token: object, engine: Decoder, where: str) -> None:
    whole = isinstance(token, int) and not isinstance(token, bool)
    if not whole or not 0 <= token < engine.vocabulary:  # type: ignore[operator]
        raise bad(
            f"{where} is {shown(token)}; expected a token id below {engine.vocabulary}",
            where.partition("[")[0],
            "invalid_value",
        )


def _bias_id(key: str, engine: Decoder) -> int:
    token = int(key) if key.isascii() and key.isdecimal() and len(key) < 12 else key
    _known(token, engine, f"logit_bias[{shown(key)}]")
    return int(token)


def _bias(key: str, value: object) -> float:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not -100 <= value <= 100:  # type: ignore[operator]
        where = f"logit_bias[{shown(key)}]"
        raise bad(f"{where} is {shown(value)}; expected a number from -100 to 100", "logit_bias")
    return float(value)  # type: ignore[arg-type]


def read_stream(fields: Fields) -> tuple[bool, bool]:
    """`stream`, and whether the stream ends with the usage."""
    stream = fields.flag("stream")
    options = fields.object("stream_options")
    if options is None:
        return stream, False
    if not stream:
        raise bad("stream_options is given without stream", "stream_options")
    usage = options.flag("include_usage")
    options.only("include_obfuscation", False)
    options.done()
    return stream, usage
