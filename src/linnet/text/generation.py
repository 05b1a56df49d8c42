"""From a prompt's tokens to an answer's, one event at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from linnet.errors import BackendError, InputError
from linnet.text.sampling import SamplingState, sample
from linnet.text.settings import Settings
from linnet.text.stop import StopStrings
from linnet.text.tokenizer import StreamDecoder, Tokenizer


class Decoder(Protocol):
    """A loaded model with the entries of a decoder, one row a batch.

    `prefill(tokens [1, S] i32, pos)` writes positions `pos …` and returns the logits after the
    last token; `decode(token [1, 1] i32, pos)` is one step. Logits are `[1, Vocab]`.
    """

    def prefill(self, tokens: Any, *, pos: int) -> Any: ...

    def decode(self, token: Any, *, pos: int) -> Any: ...


@dataclass(frozen=True)
class Delta:
    """A piece of the answer: text that will not change any more, and the tokens drawn since the
    last piece. The text may be empty while a character or a stop string is not yet decided."""

    text: str
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Finished:
    """The end of an answer.

    `reason`: `stop` (a stop token or string, given in `stopped_by`), `length` (max_new_tokens),
    `context` (the context is full) or `interrupted`. `tokens` are all that were drawn, a stop
    token included. `position` is how many tokens of prompt and answer the model's state holds:
    the token drawn last is not in it. Seconds are wall clock; `new_seconds` starts when the first
    new token is there, so `decode_rate` counts steps.
    """

    reason: str
    stopped_by: int | str | None
    tokens: tuple[int, ...]
    prompt_tokens: int
    reused_tokens: int
    prompt_seconds: float
    new_seconds: float
    position: int

    @property
    def prompt_rate(self) -> float | None:
        """Prompt tokens a second, without those reused."""
        done = self.prompt_tokens - self.reused_tokens
        return done / self.prompt_seconds if self.prompt_seconds > 0 and done else None

    @property
    def decode_rate(self) -> float | None:
        """New tokens a second after the first."""
        steps = len(self.tokens) - 1
        return steps / self.new_seconds if self.new_seconds > 0 and steps > 0 else None


def generate(
    model: Decoder,
    tokenizer: Tokenizer,
    ids: Sequence[int],
    settings: Settings | None = None,
    *,
    start: int = 0,
    context: int | None = None,
    interrupted: Callable[[], bool] = lambda: False,
    mark: tuple[int, Callable[[], None]] | None = None,
) -> Iterator[Delta | Finished]:
    """Continues the tokens `ids`; yields `Delta`s as they come and one `Finished` at the end.

    The first `start` tokens of `ids` are in the model's state already, at positions `0 …`.
    `context` is the number of positions there are, by default the model's generic `MaxSeq`.
    `interrupted` is asked between chunks of the prompt and between tokens; the state is then as
    if the answer had ended there. `mark` is a number of tokens and what to call when the state
    holds just that many, in time to keep a copy of it. Without `settings` the answer is greedy
    and ends with the tokenizer's end token.

    Raises `InputError` for an empty prompt and for one longer than the context, before anything
    is written.
    """
    if settings is None:
        ends = () if tokenizer.eos is None else (tokenizer.eos,)
        settings = Settings(stop_tokens=frozenset(ends)).change(temperature=0.0)
    ids = [int(i) for i in ids]
    limit = _limit(model) if context is None else context
    _check_prompt(model, ids, start, limit)
    return _run(model, tokenizer, ids, settings, start, limit, interrupted, mark)


def _run(
    model: Decoder,
    tokenizer: Tokenizer,
    ids: list[int],
    settings: Settings,
    start: int,
    limit: int | None,
    interrupted: Callable[[], bool],
    mark: tuple[int, Callable[[], None]] | None,
) -> Iterator[Delta | Finished]:
    state = SamplingState.start(settings.sampling, ids)
    text = _Text(tokenizer, settings)
    clock = time.perf_counter
    began = clock()
    first = None
    position = start
    reason: str | None = None
    logits: np.ndarray | None = None

    while position < len(ids):
        if interrupted():
            reason = "interrupted"
            break
        end = position + settings.chunk
        if mark is not None and position < mark[0] < end:
            end = mark[0]
        part = ids[position:end]
        logits = _row(model.prefill(np.array([part], dtype=np.int32), pos=position))
        position += len(part)
        if mark is not None and position == mark[0]:
            mark[1]()
    prompt_seconds = clock() - began

    while reason is None and logits is not None:
        if settings.max_new_tokens is not None and len(text.tokens) >= settings.max_new_tokens:
            reason = "length"
            break
        token = sample(logits, state)
        delta = text.add(token)
        if first is None:
            first = clock()
            prompt_seconds = first - began
        if delta is not None:
            yield delta
        if text.stopped_by is not None:
            reason = "stop"
        elif limit is not None and position >= limit:
            reason = "context"
        elif settings.max_new_tokens is not None and len(text.tokens) >= settings.max_new_tokens:
            reason = "length"
        elif interrupted():
            reason = "interrupted"
        else:
            logits = _row(model.decode(np.array([[token]], dtype=np.int32), pos=position))
            position += 1

    last = text.finish()
    if last is not None:
        yield last
    if text.stopped_by is not None:
        reason = "stop"
    yield Finished(
        reason=reason or "length",
        stopped_by=text.stopped_by,
        tokens=tuple(text.tokens),
        prompt_tokens=len(ids),
        reused_tokens=start,
        prompt_seconds=prompt_seconds,
        new_seconds=clock() - first if first is not None else 0.0,
        position=position,
    )


class _Text:
    """The answer's text: whole characters, stop strings held back, stop tokens left out."""

    def __init__(self, tokenizer: Tokenizer, settings: Settings):
        self.tokens: list[int] = []
        self.stopped_by: int | str | None = None
        self._told = 0
        self._ends = settings.stop_tokens
        self._stream = StreamDecoder(tokenizer, settings.special)
        self._stops = StopStrings(settings.stop)

    def add(self, token: int) -> Delta | None:
        self.tokens.append(token)
        if token in self._ends:
            self.stopped_by = token
            return None  # `finish` gives what is held back
        shown, self.stopped_by = self._stops.feed(self._stream.feed(token))
        return self._delta(shown)

    def finish(self) -> Delta | None:
        if isinstance(self.stopped_by, str):
            return None
        shown, found = self._stops.feed(self._stream.finish())
        if found is None:
            rest, found = self._stops.finish()
            shown += rest
        if self.stopped_by is None:
            self.stopped_by = found
        return self._delta(shown) if shown or self._told < len(self.tokens) else None

    def _delta(self, text: str) -> Delta:
        new = tuple(self.tokens[self._told :])
        self._told = len(self.tokens)
        return Delta(text, new)


def _limit(model: Decoder) -> int | None:
    generics = getattr(model, "generics", None)
    value = generics.get("MaxSeq") if isinstance(generics, dict) else None
    return value if isinstance(value, int) else None


def _check_prompt(model: Decoder, ids: list[int], start: int, limit: int | None) -> None:
    for entry in ("prefill", "decode"):
        if not callable(getattr(model, entry, None)):
            raise InputError(
                f"the model has no entry `{entry}`; generating needs `prefill` and `decode`"
            )
    if not ids:
        raise InputError("the prompt is empty; expected at least one token")
    if not 0 <= start < len(ids):
        raise InputError(f"start is {start}; expected 0 to {len(ids) - 1}, so that a token is new")
    if limit is not None and len(ids) > limit:
        raise InputError(
            f"the prompt has {len(ids)} tokens; the context holds {limit}. Give a shorter prompt, "
            "or a longer context with --max-seq"
        )


def _row(logits: Any) -> np.ndarray:
    """The one row of `[1, Vocab]` logits as f32, whatever library they come from."""
    if hasattr(logits, "detach"):
        logits = logits.detach().float().cpu().numpy()
    rows = np.asarray(logits, dtype=np.float32)
    if rows.ndim == 2 and rows.shape[0] == 1:
        rows = rows[0]
    if rows.ndim != 1:
        raise BackendError(
            f"the entry returned logits of shape {list(rows.shape)}; expected [1, Vocab]: load "
            "the model with Batch = 1"
        )
    return rows
