"""A checkpoint's `config.json`, read with what a family asks of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from linnet.errors import CardError


@dataclass
class Config:
    """`missing` collects what the checkpoint has and no package of the zoo can compute; `notes`
    what the user should know."""

    source: str
    values: Mapping[str, Any]
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def get(self, key: str, default: Any = None) -> Any:
        value = self.values.get(key)
        return default if value is None else value

    def size(self, *keys: str, default: int | None = None) -> int:
        """The first of these keys that is there, a positive integer. Raises `CardError`."""
        for key in keys:
            value = self.get(key)
            if value is not None:
                if type(value) is not int or value < 1:
                    raise CardError(f"{self.source}: {key}: expected a size, found {value!r}")
                return value
        if default is None:
            raise CardError(f"{self.source}: {' or '.join(keys)}: missing")
        return default

    def number(self, key: str, default: float) -> float:
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e300:
            raise CardError(f"{self.source}: {key}: expected a positive number, found {value!r}")
        return float(value)

    def flag(self, key: str, default: bool = False) -> bool:
        return bool(self.get(key, default))

    def must(self, key: str, *allowed: Any, default: Any = None) -> None:
        """What the family computes in one way only; anything else is missing."""
        value = self.get(key, default)
        if value not in allowed:
            kinds = " or ".join(map(repr, allowed))
            self.missing.append(f"{key} = {value!r}: the package computes {kinds}")

    def within(self, key: str) -> Config:
        """A table inside, as a config of its own with the same findings."""
        inner = self.values.get(key)
        if not isinstance(inner, Mapping):
            raise CardError(f"{self.source}: {key}: expected an object")
        return Config(f"{self.source}: {key}", inner, self.missing, self.notes)

    @property
    def rope(self) -> Mapping[str, Any]:
        """Rotary settings in one form: `rope_parameters` of newer configs, else `rope_theta`
        beside `rope_scaling` of older ones."""
        found: dict[str, Any] = {}
        for key in ("rope_scaling", "rope_parameters"):
            value = self.values.get(key)
            if isinstance(value, Mapping):
                found.update(value)
        for key in ("rope_theta", "partial_rotary_factor"):
            if key not in found and self.get(key) is not None:
                found[key] = self.get(key)
        found.setdefault("rope_type", found.get("type", "default"))
        return found

    def log_base(self, default: float) -> float:
        """The natural logarithm of the rotary base."""
        base = self.rope.get("rope_theta", default)
        if isinstance(base, bool) or not isinstance(base, (int, float)) or base <= 1:
            raise CardError(f"{self.source}: rope_theta: expected a number above 1, found {base!r}")
        return math.log(base)
