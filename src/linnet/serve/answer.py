"""One choice of a request while it grows: its tokens, its text, and when it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from linnet.serve.constraint import Matcher
from linnet.serve.events import Delta, Finished, TokenLogprob
from linnet.serve.sampling import Draw, Drawn
from linnet.text.sampling import Sampling, SamplingState
from linnet.text.stop import StopStrings

if TYPE_CHECKING:
    from linnet.serve.request import Request
    from linnet.text.tokenizer import Tokenizer


class Answer:
    """Choice `index` of a request. `add` takes a drawn token and gives the Delta to send;
    `reason` is set when the choice has ended."""

    def __init__(
        self,
        request: Request,
        index: int,
        tokenizer: Tokenizer | None,
        ends: frozenset[int],
        context: int,
        matcher: Matcher | None,
    ):
        self.index, self.context = index, context
        self.tokens: list[int] = []
        self.reason: str | None = None
        # Its end was sent. One of no tokens has its reason from the start, and is told later.
        self.told = False
        self.stopped_by: int | str | None = None
        self.error: str | None = None
        self._prompt = len(request.prompt)
        self._most = request.max_tokens
        self._ends = ends
        self._matcher = matcher
        self._stream = None
        if tokenizer is not None:
            from linnet.text.tokenizer import StreamDecoder

            self._stream = StreamDecoder(tokenizer, request.special)
        self._stops = StopStrings(request.stop)
        self._told = 0
        self._logprobs: list[TokenLogprob] = []
        self._wants = request.logprobs
        self._bias = request.bias
        self.state = _stream(request, index)
        if self._most == 0:
            self.reason = "length"

    def draw(self) -> Draw:
        """What the sampler is to know of this choice's next token."""
        mask = self._matcher.mask() if self._matcher is not None else None
        return Draw(self.state, self._bias, mask, self._wants)

    def add(self, drawn: Drawn) -> Delta | None:
        """The next token. Afterwards `reason` says whether it was the last."""
        token = drawn.token
        self.tokens.append(token)
        if drawn.logprob is not None:
            self._logprobs.append(drawn.logprob)
        complete = self._matcher.add(token) if self._matcher is not None else False
        delta = None
        if token in self._ends:
            self.reason, self.stopped_by = "stop", token
        else:
            text = self._stream.feed(token) if self._stream is not None else ""
            shown, found = self._stops.feed(text)
            if found is not None:
                self.reason, self.stopped_by = "stop", found
            elif complete:
                self.reason = "stop"
            delta = self._delta(shown)
        if self.reason is None:
            if self._most is not None and len(self.tokens) >= self._most:
                self.reason = "length"
            elif self._prompt + len(self.tokens) > self.context:
                self.reason = "context"  # the token has no position left to stand at
        return delta

    def end(self, reason: str, error: str | None = None) -> None:
        """Ends the choice from outside."""
        if self.reason is None:
            self.reason, self.error = reason, error

    def finish(self) -> tuple[Delta | None, Finished]:
        """What was held back, and the end."""
        shown = ""
        if not isinstance(self.stopped_by, str):
            rest = self._stream.finish() if self._stream is not None else ""
            shown, found = self._stops.feed(rest)
            if found is None:
                more, found = self._stops.finish()
                shown += more
            if found is not None and self.stopped_by is None:
                self.stopped_by = found
                if self.reason in ("length", "context"):
                    self.reason = "stop"
        delta = self._delta(shown) if shown or self._told < len(self.tokens) else None
        reason = self.reason or "cancelled"
        return delta, Finished(self.index, reason, self.stopped_by, len(self.tokens), self.error)

    def _delta(self, text: str) -> Delta:
        tokens = tuple(self.tokens[self._told :])
        logprobs = tuple(self._logprobs[self._told :])
        self._told = len(self.tokens)
        return Delta(self.index, text, tokens, logprobs)


def _stream(request: Request, index: int) -> SamplingState:
    """The random stream of a choice: the first is that of `linnet.text`; each further one
    follows from the seed and its number alone, whoever else is served."""
    sampling: Sampling = request.sampling
    state = SamplingState(sampling, request.known)
    if index and sampling.seed is not None:
        seeds = np.random.SeedSequence(sampling.seed, spawn_key=(index,))
        state.random = np.random.Generator(np.random.PCG64(seeds))
    return state
