"""Which commit a branch was when it was pulled: cards without a pinned revision stay with it.

The note lies beside the repository's files in the cache of the Hugging Face tools, so that it goes
when they go.
"""

from __future__ import annotations

import re
from pathlib import Path

from linnet.nest.card import Card

_COMMIT = re.compile(r"[0-9a-f]{40}")
_FOLDER = ".linnet"


def pinned_in_card(card: Card) -> bool:
    return _COMMIT.fullmatch(card.weights.revision or "") is not None


def recorded(card: Card, cache: Path) -> str | None:
    """The commit noted for the card's branch, or None."""
    note = _note(card, cache)
    if note is None or not note.is_file():
        return None
    text = note.read_text(encoding="utf-8", errors="replace").strip()
    return text if _COMMIT.fullmatch(text) else None


def record(card: Card, cache: Path, commit: str) -> None:
    note = _note(card, cache)
    if note is not None and _COMMIT.fullmatch(commit):
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(commit + "\n", encoding="utf-8")


def _note(card: Card, cache: Path) -> Path | None:
    repo, revision = card.weights.repo, card.weights.revision or "main"
    if repo is None or pinned_in_card(card) or re.fullmatch(r"[\w.-]+", revision) is None:
        return None
    if revision in (".", ".."):
        return None
    return cache / f"models--{repo.replace('/', '--')}" / _FOLDER / revision
