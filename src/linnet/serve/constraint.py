"""Answers held to a grammar, through llguidance (an optional package).

The library sees the model's tokens as the bytes that our tokenizer gives them, so that what it
allows is what our text will be.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

import numpy as np

from linnet.errors import BackendError, InputError, how_to_install
from linnet.serve.errors import ConstraintsUnavailable
from linnet.serve.request import Constraint
from linnet.serve.schemas import Unheld, explained, prepared
from linnet.text.tokenizer import Tokenizer

_OBJECT = {"type": "object"}


class _Vocabulary:
    """What llguidance asks of a tokenizer."""

    def __init__(self, tokenizer: Tokenizer, size: int, ends: frozenset[int]):
        special = tokenizer.special
        self.eos_token_id = min(ends)
        self.bos_token_id = None
        self.tokens = [b"" if i in special else tokenizer.piece(i) for i in range(size)]
        # Special tokens have no text; their spelling can be asked for in a Lark grammar.
        for i in special:
            if i < size:
                self.tokens[i] = (tokenizer.spelling(i) or "").encode()
        self.special_token_ids = sorted(i for i in special if i < size)
        self._tokenizer = tokenizer

    def __call__(self, text: Any) -> list[int]:
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        return self._tokenizer.encode(text, special=False)


class Grammars:
    """Makes the matchers of one model. Compiled grammars are kept, the last few of them."""

    KEPT = 64

    def __init__(self, tokenizer: Tokenizer, vocabulary: int, ends: frozenset[int]):
        self._tokenizer, self._vocabulary, self._ends = tokenizer, vocabulary, ends
        self._native: Any = None
        self._known: dict[str, Any] = {}
        self._lock = threading.Lock()

    def matcher(self, constraint: Constraint) -> Matcher:
        """Raises InputError for a schema, pattern or grammar that cannot be used."""
        with self._lock:
            grammar = _grammar(constraint)
            compiled = self._known.pop(grammar, None)
            if compiled is None:
                compiled = self._compile(grammar, constraint)
            self._known[grammar] = compiled
            while len(self._known) > self.KEPT:
                del self._known[next(iter(self._known))]
            return Matcher(compiled.deep_copy(), constraint.after, self._ends)

    def _compile(self, grammar: str, constraint: Constraint) -> Any:
        llguidance = library()
        if self._native is None:
            if not self._ends:
                reason = "the model names no token that ends an answer"
                raise InputError(f"{constraint.name} cannot be used: {reason}")
            wrapper = llguidance.TokenizerWrapper(
                _Vocabulary(self._tokenizer, self._vocabulary, self._ends)
            )
            self._native = llguidance.LLTokenizer(
                wrapper, n_vocab=self._vocabulary, eos_token=sorted(self._ends)
            )
        compiled = llguidance.LLMatcher(self._native, grammar, log_level=0)
        if not compiled.is_error():
            _try(compiled.deep_copy(), constraint.name)
            return compiled
        error = _first_line(compiled.get_error())
        if constraint.kind == "schema":
            said = explained(_schema(constraint.value), error)
            raise InputError(f"{constraint.name}{_joined(said)}")
        for name, schema in constraint.schemas:
            text = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema))
            alone = llguidance.LLMatcher(self._native, str(text), log_level=0)
            if alone.is_error():
                said = explained(schema, _first_line(alone.get_error()))
                raise InputError(f"{name}{_joined(said)}")
        raise InputError(f"{constraint.name} cannot be used: {error}")


def _try(matcher: Any, name: str) -> None:
    """Goes a step of a grammar: many that are too large say so only then. Raises InputError."""
    bits = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
    first = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
    if len(first):
        matcher.consume_token(int(first[0]))
    if matcher.is_error():
        raise InputError(f"{name} cannot be used: {_first_line(matcher.get_error())}")


class Matcher:
    """Follows one answer. Asleep until the tokens of `after` were drawn one after another."""

    def __init__(self, native: Any, after: tuple[int, ...], ends: frozenset[int]):
        self._native, self._after, self._ends = native, after, ends
        self._seen: list[int] = []
        self.awake = not after

    def copy(self) -> Matcher:
        """A matcher in the same place, for another choice."""
        made = Matcher.__new__(Matcher)
        made.__dict__.update(self.__dict__)
        made._native, made._seen = self._native.deep_copy(), list(self._seen)
        return made

    def mask(self) -> np.ndarray | None:
        """A bit for each token that may come next; None while asleep."""
        if not self.awake:
            return None
        bits = np.frombuffer(self._native.compute_bitmask(), dtype=np.uint8)
        self._check()
        return bits

    def add(self, token: int) -> bool:
        """Takes a token of the answer; returns whether the text is now complete, so that
        nothing but an end could follow."""
        if not self.awake:
            self._seen = [*self._seen, token][-len(self._after) :]
            self.awake = tuple(self._seen) == self._after
            return False
        if token in self._ends:
            return True
        self._native.consume_token(token)
        self._check()
        return bool(self._native.is_stopped())

    def _check(self) -> None:
        if self._native.is_error():
            raise BackendError(f"the grammar failed: {_first_line(self._native.get_error())}")


def _grammar(constraint: Constraint) -> str:
    llguidance = library()
    matcher, value = llguidance.LLMatcher, constraint.value
    try:
        match constraint.kind:
            case "json":
                return str(matcher.grammar_from_json_schema(prepared(_OBJECT)))
            case "schema":
                schema = json.dumps(prepared(_schema(value)))
                return str(matcher.grammar_from_json_schema(schema))
            case "regex":
                return str(matcher.grammar_from_regex(value))
            case "choice":
                options = [json.dumps(s, ensure_ascii=False) for s in value]
                # One terminal: a rule with an alternative each holds a few thousand at most.
                return str(matcher.grammar_from_lark(f"start: ONE\nONE: {' | '.join(options)}"))
            case _:
                return str(matcher.grammar_from_lark(value))
    except Unheld as e:
        raise InputError(f"{constraint.name}{e}") from None
    except (ValueError, RecursionError) as e:
        raise InputError(f"{constraint.name} cannot be used: {e}") from None


def _schema(value: Any) -> Mapping[str, Any]:
    if isinstance(value, str):
        value = json.loads(value)
    if isinstance(value, bool):
        value = {} if value else {"not": {}}
    if not isinstance(value, Mapping):
        raise InputError("schema is no object; expected a JSON schema")
    return value


def _first_line(error: str) -> str:
    """The library's errors may go on with the whole grammar."""
    return error.strip().partition("\n")[0][:300]


def _joined(said: str) -> str:
    return said if said.startswith(".") else f" {said}"


def library() -> Any:
    """The package llguidance. Raises ConstraintsUnavailable."""
    try:
        import llguidance
    except ImportError:
        raise ConstraintsUnavailable(
            "answers held to a form need the package llguidance, which this server has not: "
            f"{how_to_install('serve')}"
        ) from None
    return llguidance
