"""The index of a registry: one JSON with every card, its entries, its figures and its files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from linnet.errors import Error, PackageError
from linnet.ir.program import Function
from linnet.nest.card import Card

VERSION = 1
FILE = "index.json"


def describe(folder: Path) -> dict[str, Any]:
    """One model as an index holds it. The program is checked for it.

    Raises CardError, PackageError or CheckError.
    """
    from linnet.nest.pages.shown import Shown

    shown = Shown.open(folder)
    root = folder.resolve()
    return {
        **describe_card(shown.card),
        "parameters": shown.parameters,
        "active_parameters": shown.active,
        "bytes_by_dtype": shown.bytes_by_dtype,
        "entries": [
            {"name": name, "signature": signature(entry), "doc": entry.doc or ""}
            for name, entry in shown.entries.items()
        ],
        "files": [
            {"path": path, "size": size, "sha256": _digest(root / path)}
            for path, size in shown.files()
        ],
    }


def describe_card(card: Card) -> dict[str, Any]:
    """The card alone: what can be said without checking the program."""
    weights = card.weights
    return {
        "name": card.name,
        "title": card.title,
        "summary": card.summary,
        "license": card.license,
        "family": card.family,
        "tags": list(card.tags),
        "links": dict(card.links),
        "root": card.root,
        "entry": card.entry,
        "generics": dict(card.generics),
        "check": dict(card.check),
        "weights": {
            "repo": weights.repo,
            "revision": weights.revision,
            "files": list(weights.files),
            "package": weights.package,
        },
    }


def signature(entry: Function) -> str:
    """An entry as one would write it, in one line, with its types as checked."""
    own = ", ".join(f"{g.name}: {g.kind}" for g in entry.generics)
    params = ", ".join(f"{name}: {type}" for name, type in entry.params)
    where = f" where {', '.join(map(str, entry.where))}" if entry.where else ""
    generics = f"<{own}>" if own else ""
    return f"{entry.name}{generics}({params}) -> {entry.result}{where}"


def build_index(
    folders: Iterable[Path], progress: Callable[[str], None] | None = None
) -> tuple[dict[str, Any], dict[str, str]]:
    """The index of these folders, and why others have no place in it, by name."""
    models: list[dict[str, Any]] = []
    refused: dict[str, str] = {}
    for folder in folders:
        if progress is not None:
            progress(folder.name)
        try:
            model = describe(folder)
            if any(model["name"] == other["name"] for other in models):
                raise PackageError(f"another model is called `{model['name']}` too")
            models.append(model)
        except Error as error:
            refused[folder.name] = str(error).splitlines()[0]
    models.sort(key=lambda model: model["name"])
    return {"version": VERSION, "models": models}, refused


def index_text(index: dict[str, Any]) -> str:
    return json.dumps(index, indent=1, ensure_ascii=False) + "\n"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        found = hashlib.sha256()
        while part := file.read(1 << 20):
            found.update(part)
    return found.hexdigest()
