"""A card's weights: those on this machine, else fetched from where the card says they are."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from linnet.errors import WeightsError, how_to_install
from linnet.nest.card import Card
from linnet.nest.pinned import pinned_in_card, record, recorded
from linnet.nest.zoo import cache_folder, find_weights

if TYPE_CHECKING:
    from linnet.weights.hub import Pull

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
            raise WeightsError(f"{missing}\n  or fetch them: {how_to_install('hub')}") from None
        try:
            pull_card(card, say or _to_stderr)
        except WeightsError as error:
            raise WeightsError(f"{missing}\n  nor could they be fetched: {error}") from error
    return find_weights(card)


def pull_card(card: Card, say: Callable[[str], None], *, update: bool = False) -> list[Path]:
    """Fetch what the card names, and the text side beside it: weights, tokenizer, template,
    generation defaults. A branch is the commit that it was when it was pulled first, unless
    `update`. Raises `WeightsError`."""
    from linnet.weights.hub import fetch

    pull = plan_card(card, update=update)
    say(pull.summary())
    paths = fetch(pull, say)
    if not pinned_in_card(card):
        known = recorded(card, cache_folder())
        if known != pull.commit:
            record(card, cache_folder(), pull.commit)
            say(
                f"`{card.weights.revision or 'main'}` is {pull.commit} now; noted, so that it "
                "stays so here (linnet pull --update asks again)"
            )
    return paths


def plan_card(card: Card, *, update: bool = False) -> Pull:
    """What a pull would fetch. Raises `WeightsError`, also where the hub's package is missing."""
    if card.weights.repo is None:
        raise WeightsError(f"{card.name}: the card names no repository ([weights] repo)")
    if importlib.util.find_spec("huggingface_hub") is None:
        needed = how_to_install("hub")
        raise WeightsError(f"{card.name}: fetching its weights needs: {needed}")
    from linnet.weights.hub import plan_pull

    revision = card.weights.revision
    if not update:
        revision = recorded(card, cache_folder()) or revision
    return plan_pull(card.weights.repo, revision, card.weights.files)


def offline() -> bool:
    """Whether the variables of the hub's tools forbid the network."""
    return any(
        os.environ.get(name, "").upper() in _YES
        for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    )


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
