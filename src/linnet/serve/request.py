"""What a client asks for: tokens to continue, how, and within which bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from linnet.errors import InputError
from linnet.text.sampling import Sampling

MOST_LOGPROBS = 20
CONSTRAINTS = ("json", "schema", "regex", "lark", "choice")


@dataclass(frozen=True)
class Constraint:
    """What an answer's text must be.

    - `json`: any JSON object (no value).
    - `schema`: JSON that this JSON schema admits (a mapping or its text).
    - `regex`: text that this regular expression matches as a whole.
    - `lark`: text of this grammar, in llguidance's dialect of Lark.
    - `choice`: one of these strings.

    `after` are token ids, such as that of `</think>`: until they were drawn one after another
    the answer is free. For errors: `called` is what the value is called where it comes from, and
    `schemas` are (name, schema) of the JSON schemas inside a grammar. Raises InputError for an
    unknown kind or a value of the wrong type.
    """

    kind: str
    value: Any = None
    after: tuple[int, ...] = ()
    called: str = ""
    schemas: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        return self.called or self.kind

    def __post_init__(self) -> None:
        if self.kind not in CONSTRAINTS:
            known = ", ".join(CONSTRAINTS)
            raise InputError(f"constraint is {self.kind!r}; expected one of {known}")
        v = self.value
        if self.kind == "schema" and not isinstance(v, (Mapping, str, bool)):
            raise InputError(f"schema is {type(v).__name__}; expected a JSON schema")
        if self.kind in ("regex", "lark") and not (isinstance(v, str) and v):
            raise InputError(f"{self.kind} is {v!r}; expected a text")
        if self.kind == "choice":
            if isinstance(v, str) or not isinstance(v, Sequence) or not v:
                raise InputError(f"choice is {v!r}; expected a list of strings")
            if not all(isinstance(s, str) and s for s in v):
                raise InputError(f"choice is {v!r}; expected strings that are not empty")


@dataclass(frozen=True)
class Request:
    """One prompt to continue.

    - `prompt`: token ids, at least one.
    - `n`: how many answers; the prompt is computed once, each answer has its own random stream.
    - `max_tokens`: at most so many new tokens an answer; None: as many as the context holds.
    - `stop`: strings that end an answer; `stop_tokens`: token ids that do, None for the model's.
    - `logit_bias`: added to the logits of token ids, -100 to 100.
    - `logprobs`: None, or with each token its log probability and those of so many alternatives,
      in the model's own distribution (before bias, penalties and temperature).
    - `constraint`: what the text must be.
    - `special`: whether special tokens are written out in the text.
    - `timeout`: seconds from submission to the end.
    - `stable`: how many tokens of the prompt later turns of this conversation repeat, which is
      where a snapshot is kept; None: up to the generation prompt, where the engine knows it.
    - `label`: for logs.

    Raises InputError naming the field, what was found and what was expected.
    """

    prompt: Sequence[int]
    sampling: Sampling = field(default_factory=Sampling)
    n: int = 1
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stop_tokens: frozenset[int] | None = None
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    logprobs: int | None = None
    constraint: Constraint | None = None
    special: bool = False
    timeout: float | None = None
    stable: int | None = None
    label: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "prompt", tuple(self.prompt))
        if not self.prompt:
            raise InputError("prompt is empty; expected at least one token")
        for at, token in enumerate(self.prompt):
            if not _whole(token) or token < 0:
                raise InputError(f"prompt[{at}] is {token!r}; expected a token id")
        if not _whole(self.n) or not 1 <= self.n <= 128:
            raise InputError(f"n is {self.n!r}; expected an integer from 1 to 128")
        _optional_count("max_tokens", self.max_tokens)
        _optional_count("stable", self.stable)
        _optional_count("logprobs", self.logprobs)
        if self.logprobs is not None and self.logprobs > MOST_LOGPROBS:
            raise InputError(f"logprobs is {self.logprobs}; expected at most {MOST_LOGPROBS}")
        for s in self.stop:
            if not isinstance(s, str) or not s:
                raise InputError(f"stop is {s!r}; expected a string with at least one character")
        for token, bias in self.logit_bias.items():
            if not _whole(token) or token < 0:
                raise InputError(f"logit_bias has the key {token!r}; expected a token id")
            if not _number(bias) or not -100 <= bias <= 100:
                raise InputError(
                    f"logit_bias[{token}] is {bias!r}; expected a number from -100 to 100"
                )
        if self.timeout is not None and not (_number(self.timeout) and self.timeout > 0):
            raise InputError(f"timeout is {self.timeout!r}; expected seconds above 0")

    # What all answers of a request share: one of many answers must not take the memory of many.

    @cached_property
    def known(self) -> frozenset[int]:
        """The tokens of the prompt that a penalty for repeating knows of."""
        return frozenset(self.prompt if self.sampling.repetition_penalty != 1 else ())

    @cached_property
    def bias(self) -> tuple[np.ndarray, np.ndarray] | None:
        """`logit_bias` as ids `[n] i64` and what is added `[n] f32`."""
        if not self.logit_bias:
            return None
        ids = np.fromiter(self.logit_bias.keys(), dtype=np.int64)
        return ids, np.fromiter(self.logit_bias.values(), dtype=np.float32)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _optional_count(name: str, value: object) -> None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise InputError(f"{name} is {value!r}; expected an integer ≥ 0")
