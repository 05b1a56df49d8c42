"""Rotary angles: what a config asks for, as edits of the zoo's file that makes them.

Linear scaling: Chen et al. 2023 (arXiv 2306.15595). YaRN: Peng et al. 2023 (arXiv 2309.00071).
"""

from __future__ import annotations

import math
from typing import Any

from linnet.errors import CardError
from linnet.nest.new.config import Config
from linnet.nest.new.recipe import Edit, constant, literal

_FREQUENCY = r"cast<f32>\(exp\(-exponent \* LOG_BASE\)\)"
_AFTER_BASE = r"(const LOG_BASE: f64 = \S+\n)"
_RESULT = r"\(cast<T>\(cos\(both\)\), cast<T>\(sin\(both\)\)\)"


def angles(config: Config, file: str, features: int, base: float = 1e4) -> list[Edit]:
    """Edits of `file` for `features` turning features of a head; what it cannot compute goes to
    `config.missing`. `base` is the rotary base of configs that give none."""
    rope = config.rope
    kind = rope["rope_type"]
    log_base = config.log_base(base)
    shown = f"{math.exp(log_base):,.0f}"
    edits = [
        constant(file, "LOG_BASE", log_base),
        Edit(file, r"\bat base(\n// | )[\d,]+", rf"at base\g<1>{shown}"),
    ]
    if kind in ("default", "mrope"):
        return edits
    if kind == "dynamic":
        config.notes.append(
            "rotary scaling `dynamic` begins beyond the context that the package has (MaxSeq); up "
            "to there the angles are the plain ones"
        )
        return edits
    if kind == "linear":
        return edits + _slowed(config, file, rope)
    if kind == "yarn":
        return edits + _yarn(config, file, rope, features, log_base)
    config.missing.append(
        f"rope_type = {kind!r}: a package can have plain angles, or `linear`, `dynamic`, `yarn` or "
        "(of the family llama) `llama3` scaling"
    )
    return edits


def _slowed(config: Config, file: str, rope: Any) -> list[Edit]:
    told = "// Every frequency is divided by it: linear scaling of positions.\n"
    factor = literal(_number(config, rope, "factor"))
    return [
        Edit(file, _AFTER_BASE, rf"\1{told}const SLOWED: f64 = {factor}\n"),
        Edit(file, _FREQUENCY, "cast<f32>(exp(-exponent * LOG_BASE) / SLOWED)"),
    ]


def _yarn(config: Config, file: str, rope: Any, features: int, log_base: float) -> list[Edit]:
    longest = config.size("max_position_embeddings", default=2048)
    old = _number(config, rope, "original_max_position_embeddings", longest)
    factor = _number(config, rope, "factor", longest / old)
    fast = _number(config, rope, "beta_fast", 32.0)
    slow = _number(config, rope, "beta_slow", 1.0)
    first, last = (
        features * math.log(old / (turns * 2 * math.pi)) / (2 * log_base) for turns in (fast, slow)
    )
    if rope.get("truncate", True):
        first, last = float(math.floor(first)), float(math.ceil(last))
    first, last = max(first, 0.0), min(last, features - 1.0)
    if first == last:
        last += 0.001
    sharp = rope.get("attention_factor")
    if sharp is None:
        one, all_dims = rope.get("mscale"), rope.get("mscale_all_dim")
        if one and all_dims:
            one = _number(config, rope, "mscale")
            all_dims = _number(config, rope, "mscale_all_dim")
            sharp = _sharpness(factor, one) / _sharpness(factor, all_dims)
        else:
            sharp = _sharpness(factor, 1.0)
    else:
        sharp = _number(config, rope, "attention_factor")
    constants = (
        "// YaRN (arXiv 2309.00071): features before FIRST turn as they did in training, those\n"
        "// after LAST are SLOWED times slower, those between are mixed in proportion. Queries\n"
        "// and keys are SHARPENED.\n"
        f"const SLOWED: f64 = {literal(factor)}\n"
        f"const FIRST: f64 = {literal(first)}\n"
        f"const LAST: f64 = {literal(last)}\n"
        f"const SHARPENED: f32 = {literal(sharp)}\n"
    )
    return [
        Edit(file, _AFTER_BASE, rf"\1{constants}"),
        Edit(
            file,
            rf"    let frequency = {_FREQUENCY}",
            "    let plain = exp(-exponent * LOG_BASE)\n"
            "    let place = (cast<f64>(iota<i64>(D / 2)) - FIRST) / (LAST - FIRST)\n"
            "    let share = min(max(place, 0.0), 1.0)\n"
            "    let frequency = cast<f32>(plain * (1.0 - share) + plain / SLOWED * share)",
        ),
        Edit(
            file,
            _RESULT,
            "(cast<T>(SHARPENED * cos(both)), cast<T>(SHARPENED * sin(both)))",
        ),
    ]  # fmt: skip


def _sharpness(factor: float, scale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


def _number(config: Config, rope: Any, key: str, default: float | None = None) -> float:
    value = rope.get(key)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e300:
        raise CardError(
            f"{config.source}: rope: {key}: expected a positive number, found {value!r}"
        )
    return float(value)
