"""How an answer is generated: sampling, when to stop, and a model's own defaults."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from linnet.errors import InputError
from linnet.text.errors import TextError
from linnet.text.sampling import SAMPLING_NAMES, Sampling
from linnet.text.tokenizer import read_object, token_ids


@dataclass(frozen=True)
class Settings:
    """What `generate` needs to know beside the model and the prompt.

    - `max_new_tokens` ≥ 0, or None: as many as the context holds.
    - `stop`: strings that end the answer; they and what follows are not shown.
    - `stop_tokens`: token ids that end it; not shown either.
    - `chunk` > 0: tokens of a prompt handed to the model at once. Between chunks the answer can
      be interrupted.
    - `special`: whether special tokens are written out in the text.
    """

    sampling: Sampling = field(default_factory=Sampling)
    max_new_tokens: int | None = None
    stop: tuple[str, ...] = ()
    stop_tokens: frozenset[int] = frozenset()
    chunk: int = 512
    special: bool = False

    def __post_init__(self) -> None:
        m = self.max_new_tokens
        if m is not None and (not isinstance(m, int) or isinstance(m, bool) or m < 0):
            raise InputError(f"max_new_tokens is {m!r}; expected an integer ≥ 0")
        if not isinstance(self.chunk, int) or self.chunk <= 0:
            raise InputError(f"chunk is {self.chunk!r}; expected an integer above 0")
        for s in self.stop:
            if not isinstance(s, str) or not s:
                raise InputError(f"stop is {s!r}; expected a string with at least one character")

    def change(self, **values: Any) -> Settings:
        """A copy with some values changed; names of `Sampling` and of this class. None keeps."""
        values = {k: v for k, v in values.items() if v is not None}
        sampling = {k: values.pop(k) for k in SAMPLING_NAMES if k in values}
        known = {f.name for f in fields(Settings)}
        for name in values:
            if name not in known:
                raise InputError(f"{name} is not a generation setting")
        if sampling:
            values["sampling"] = replace(values.get("sampling", self.sampling), **sampling)
        return replace(self, **values)


def read_settings(folder: str | Path) -> Settings:
    """The defaults in `generation_config.json` of a model's folder, as transformers reads them.

    With `do_sample` false or absent, temperature is 0. `max_new_tokens` and `max_length` are
    left to the caller. Without the file: greedy. Raises `TextError` naming the file and key.
    """
    path = Path(folder) / "generation_config.json"
    return settings_of(read_object(path), str(path))


def settings_of(config: dict[str, Any], where: str) -> Settings:
    """The settings that the object of a `generation_config.json` states."""
    values: dict[str, Any] = {}
    for name in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty"):
        if config.get(name) is not None:
            values[name] = config[name]
    samples = config.get("do_sample", False)
    if not isinstance(samples, bool):
        raise TextError(f"{where}: do_sample is {samples!r}; expected true or false")
    if not samples:
        values["temperature"] = 0.0
    elif "top_k" not in values:
        values["top_k"] = 50  # what transformers takes where nothing is said
    try:
        sampling = Sampling(**values)
    except InputError as e:
        raise TextError(f"{where}: {e}") from None
    ends = config.get("eos_token_id")
    stop_tokens = () if ends is None else token_ids(ends, f"{where}: eos_token_id")
    stop = config.get("stop_strings") or ()
    if isinstance(stop, str):
        stop = (stop,)
    if not isinstance(stop, (list, tuple)) or not all(isinstance(s, str) and s for s in stop):
        raise TextError(f"{where}: stop_strings is {stop!r}; expected strings")
    return Settings(sampling=sampling, stop=tuple(stop), stop_tokens=frozenset(stop_tokens))
