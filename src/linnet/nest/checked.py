"""What a model was checked against, kept beside its card: `checked.json`.

`linnet nest check --record` and `linnet parity --record` write it, and the pages read it. It tells
of the files that it was made for: a digest shows where they have changed since. The file may
come from anywhere, and is data.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from linnet.errors import PackageError
from linnet.nest.card import Card

FILE = "checked.json"
VERSION = 1
LIMIT = 1 << 20  # bytes
_ITEMS = 200
_TEXT = 500  # characters of one


@dataclass
class Checked:
    """`sizes` are bytes of weight files on their hub. `check` has `linnet`, `digest`, `steps`;
    each of `parity` has `reference`, `weights`, `entry`, `dtype`, `result`, `tolerance`,
    `blocks`, `digest`."""

    sizes: dict[str, int] = field(default_factory=dict)
    check: dict[str, Any] = field(default_factory=dict)
    parity: list[dict[str, Any]] = field(default_factory=list)


def read_checked(folder: Path) -> Checked:
    """Empty where there is no such file. Raises PackageError for one that is not as expected."""
    path = folder / FILE
    if not path.is_file():
        return Checked()
    if not path.resolve().is_relative_to(folder.resolve()):
        raise PackageError(f"{path}: leads out of the card's folder")
    if path.stat().st_size > LIMIT:
        raise PackageError(f"{path}: {path.stat().st_size:,} bytes are too many ({LIMIT:,})")
    try:
        document = json.loads(path.read_bytes().decode("utf-8"))
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise PackageError(f"{path}: not JSON: {str(error)[:200]}") from error
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise PackageError(f"{path}: expected an object of version {VERSION}")
    sizes, check, parity = (document.get(key) for key in ("sizes", "check", "parity"))
    if not (isinstance(sizes, dict) and all(type(n) is int and n >= 0 for n in sizes.values())):
        raise PackageError(f"{path}: sizes: expected an object of file to bytes")
    if not isinstance(check, dict) or not isinstance(check.get("steps", []), list):
        raise PackageError(f"{path}: check: expected an object with a list of steps")
    if not isinstance(parity, list):
        raise PackageError(f"{path}: parity: expected a list")
    steps = [_step(path, step) for step in check.get("steps", [])[:_ITEMS]]
    told = {key: str(check.get(key, ""))[:_TEXT] for key in ("linnet", "digest")}
    found = [_parity(path, item) for item in parity[:_ITEMS]]
    return Checked(sizes, {**told, "steps": steps} if steps else {}, found)


def _step(path: Path, step: Any) -> dict[str, Any]:
    if not isinstance(step, dict):
        raise PackageError(f"{path}: check: steps: expected objects")
    return {
        "name": str(step.get("name", ""))[:_TEXT],
        "detail": str(step.get("detail", ""))[:_TEXT],
        "ok": step.get("ok") is True,
        "skipped": step.get("skipped") is True,
    }


def _parity(path: Path, item: Any) -> dict[str, Any]:
    numbers = ("result", "tolerance", "blocks")
    if not isinstance(item, dict) or any(
        isinstance(item.get(key), bool) or not isinstance(item.get(key), (int, float))
        for key in numbers
    ):
        raise PackageError(f"{path}: parity: expected objects with {', '.join(numbers)}")
    words = ("reference", "weights", "entry", "dtype", "digest")
    return {
        **{key: str(item.get(key, ""))[:_TEXT] for key in words},
        **{key: float(item[key]) for key in numbers},
    }


def digest(card: Card) -> str:
    """Of all that a check depends on: card, manifest, source, bindings, importer."""
    found = hashlib.sha256()
    weights = card.weights
    named = [card.folder / "nest.toml", card.folder / "linnet.toml"]
    named += [path for path in (weights.bindings, weights.importer) if path is not None]
    sources = sorted(p for p in card.folder.rglob("*.linnet") if p.is_file() and not p.is_symlink())
    for path in [*named, *sources]:
        if path.is_file():
            found.update(path.name.encode())
            found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def record_check(card: Card, steps: Sequence[Mapping[str, Any]], sizes: Mapping[str, int]) -> None:
    """Raises PackageError where the folder cannot be written."""
    from linnet import __version__

    known = read_checked(card.folder)
    known.sizes.update(sizes)
    known.check = {"linnet": __version__, "digest": digest(card), "steps": list(steps)}
    _write(card.folder, known)


def record_parity(card: Card, found: Mapping[str, Any]) -> None:
    """In place of an earlier result of the same reference, weights, entry and dtype."""
    known = read_checked(card.folder)
    same = ("reference", "weights", "entry", "dtype")
    item = {**found, "digest": digest(card)}
    kept = [old for old in known.parity if any(old[key] != item[key] for key in same)]
    known.parity = [*kept, item]
    _write(card.folder, known)


def _write(folder: Path, known: Checked) -> None:
    document = {
        "version": VERSION, "sizes": dict(sorted(known.sizes.items())), "check": known.check,
        "parity": known.parity,
    }  # fmt: skip
    text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    try:
        with tempfile.NamedTemporaryFile(
            "w", dir=folder, prefix=f".{FILE}.", delete=False, encoding="utf-8"
        ) as file:
            file.write(text)
        os.chmod(file.name, 0o644)
        os.replace(file.name, folder / FILE)
    except OSError as error:
        raise PackageError(f"{folder / FILE}: cannot be written: {error.strerror}") from error
