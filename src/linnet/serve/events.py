"""What the engine tells of a request, in order: Prefilled, then Deltas and one Finished for each
choice, then Done; or Failed in the place of what would have come."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TokenLogprob:
    """A token's natural log probability, and the likeliest ones beside it, likeliest first."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class Prefilled:
    """The prompt is computed; `cached_tokens` of it were not computed anew."""

    prompt_tokens: int
    cached_tokens: int


@dataclass(frozen=True)
class Delta:
    """The tokens that a choice drew since its last Delta, and the text that they decide: whole
    characters, without stop strings. With logprobs, one for each token."""

    choice: int
    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True)
class Finished:
    """A choice ended: `stop`, `length` (max_tokens), `context` (it is full), `timeout`,
    `cancelled`, or `error` with its text. `stopped_by` is the token or string that stopped it;
    `tokens` counts what was drawn, a token that ends included."""

    choice: int
    reason: str
    stopped_by: int | str | None
    tokens: int
    error: str | None = None


@dataclass(frozen=True)
class Usage:
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


@dataclass(frozen=True)
class Done:
    """Every choice has ended."""

    usage: Usage


@dataclass(frozen=True)
class Failed:
    """The request ended with an error; nothing more comes."""

    error: Exception


Event = Prefilled | Delta | Finished | Done | Failed


@dataclass(frozen=True)
class Choice:
    """One whole answer."""

    text: str
    tokens: tuple[int, ...]
    reason: str
    stopped_by: int | str | None
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True)
class Completion:
    choices: tuple[Choice, ...]
    usage: Usage
