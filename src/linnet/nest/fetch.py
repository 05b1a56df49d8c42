"""A card's weights: those on this machine, else fetched from where the card says they are."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path

from linnet.errors import WeightsError
from linnet.nest.card import Card
from linnet.nest.zoo import find_weights

_YES = ("1", "ON", "YES", "TRUE")


def get_weights(card: Card, say: Callable[[str], None] | None = None) -> Path | list[Path]:
    """As `find_weights`, and where there are none, the card's repository is pulled. The size is
    said before anything is fetched. Raises `WeightsError`."""
    try:
        return find_weights(card)
    except WeightsError as missing:
        repo = card.weights.repo
        if repo is None or offline():
            raise
        if importlib.util.find_spec("huggingface_hub") is None:
            raise WeightsError(f"{missing}\n  or fetch them: pip install linnet[hub]") from None
        try:
            pull_card(card, say or _to_stderr)
        except WeightsError as error:
            raise WeightsError(f"{missing}\n  nor could they be fetched: {error}") from error
    return find_weights(card)


def pull_card(card: Card, say: Callable[[str], None]) -> list[Path]:
    """Fetch what the card names, and the text side beside it: weights, tokenizer, template,
    generation defaults. Raises `WeightsError`."""
    from linnet.weights.hub import fetch, plan_pull

    if card.weights.repo is None:
        raise WeightsError(f"{card.name}: the card names no repository ([weights] repo)")
    pull = plan_pull(card.weights.repo, card.weights.revision, card.weights.files)
    say(pull.summary())
    return fetch(pull, say)


def offline() -> bool:
    """Whether the variables of the hub's tools forbid the network."""
    return any(
        os.environ.get(name, "").upper() in _YES
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    )


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
