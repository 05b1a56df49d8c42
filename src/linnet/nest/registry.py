"""A registry: a folder of cards, a folder or file with an index, or an address of one.

What an index says came from elsewhere: it is data, checked before it is shown, and nothing
it names is opened.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from linnet.errors import Error, PackageError
from linnet.nest.card import has_card, read_card
from linnet.nest.checked import figures
from linnet.nest.index import FILE, VERSION, describe, describe_card
from linnet.nest.zoo import list_models

VARIABLE = "LINNET_REGISTRY"
LIMIT = 16 << 20  # bytes of an index
TIMEOUT = 10.0  # seconds

# What a model of an index must be: key → type. Others may be absent.
_NEEDED: dict[str, type] = {"name": str}
_KNOWN: dict[str, type | tuple[type, ...]] = {
    "title": str, "summary": str, "license": (str, type(None)), "family": (str, type(None)),
    "tags": list, "links": dict, "generics": dict, "check": dict, "weights": dict,
    "parameters": int, "active_parameters": int, "bytes_by_dtype": dict, "entries": list,
    "files": list,
}  # fmt: skip


@dataclass
class Registry:
    """`models` are as an index holds them; `folders` is where those lie that are here;
    `refused` says why a card is not among them."""

    source: str
    models: list[dict[str, Any]]
    folders: dict[str, Path] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def find(self, name: str) -> dict[str, Any]:
        """One model; of a folder of cards with its figures, for which it is checked.

        Raises `PackageError` with near names, and what checking raises.
        """
        for model in self.models:
            if model["name"] == name:
                folder = self.folders.get(name)
                return model if folder is None else describe(folder)
        if name in self.refused:
            raise PackageError(self.refused[name])
        names = [model["name"] for model in self.models]
        close = get_close_matches(name, names, n=3)
        hint = f"did you mean {' or '.join(f'`{n}`' for n in close)}?" if close else (
            f"it has {', '.join(names)}" if names else "it is empty"
        )  # fmt: skip
        raise PackageError(f"{self.source}: no model `{name}`; {hint}")


def open_registry(where: str | None = None) -> Registry:
    """`where` is a folder, a file or an http(s) address; default: LINNET_REGISTRY, else the zoo."""
    where = where or os.environ.get(VARIABLE) or None
    if where is None:
        return _of_cards("the zoo", list_models())
    if where.startswith(("http://", "https://")):
        return _of_index(where, _fetch(where))
    path = Path(where)
    if path.is_dir():
        if not (path / FILE).is_file():
            folders = [f for f in sorted(path.iterdir()) if f.is_dir() and has_card(f)]
            if not folders:
                raise PackageError(f"{path}: no registry: neither {FILE} nor a folder with a card")
            return _of_cards(str(path), folders)
        path = path / FILE
    if not path.is_file():
        raise PackageError(f"{where}: no such registry: expected a folder, a file or an address")
    if path.stat().st_size > LIMIT:
        raise PackageError(f"{path}: {path.stat().st_size:,} bytes are too many for an index")
    return _of_index(str(path), path.read_bytes())


def _of_cards(source: str, folders: list[Path]) -> Registry:
    registry = Registry(source, [])
    for folder in folders:
        try:
            card = read_card(folder)
        except Error as error:
            registry.refused[folder.name] = str(error)
            continue
        registry.models.append({**describe_card(card), **figures(card)})
        registry.folders[card.name] = folder
    return registry


def _fetch(address: str) -> bytes:
    from urllib.error import URLError
    from urllib.request import Request, urlopen

    target = address if address.endswith(".json") else f"{address.rstrip('/')}/{FILE}"
    try:
        with urlopen(
            Request(target, headers={"User-Agent": "linnet"}), timeout=TIMEOUT
        ) as response:
            data: bytes = response.read(LIMIT + 1)
    except (URLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or error
        raise PackageError(f"{target}: cannot be read: {reason}") from error
    if len(data) > LIMIT:
        raise PackageError(f"{target}: more than {LIMIT:,} bytes are too many for an index")
    return data


def _of_index(source: str, data: bytes) -> Registry:
    try:
        document = json.loads(data.decode("utf-8"))
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise PackageError(f"{source}: not an index: {error}") from error
    if not isinstance(document, dict) or document.get("version") != VERSION:
        found = document.get("version") if isinstance(document, dict) else type(document).__name__
        raise PackageError(f"{source}: not an index of version {VERSION}: found {found!r}")
    models = document.get("models")
    if not isinstance(models, list):
        raise PackageError(f"{source}: `models` is no list")
    models = [_plain(model) for model in models]
    for number, model in enumerate(models):
        problem = _problem(model)
        if problem:
            raise PackageError(f"{source}: model {number}: {problem}")
    return Registry(source, models)


def _plain(value: Any, depth: int = 0) -> Any:
    """Without the characters that move a terminal's cursor or colour it."""
    if isinstance(value, str):
        return "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in value)
    if depth > 8:
        return None
    if isinstance(value, list):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {_plain(key, depth): _plain(item, depth + 1) for key, item in value.items()}
    return value


def _problem(model: Any) -> str | None:
    if not isinstance(model, dict):
        return f"expected an object, found {type(model).__name__}"
    for key, kind in _NEEDED.items():
        if not isinstance(model.get(key), kind):
            return f"`{key}` is missing or no {kind.__name__}"
    for key, kinds in _KNOWN.items():
        if key in model and (not isinstance(model[key], kinds) or isinstance(model[key], bool)):
            return f"`{model['name']}`: `{key}` is {type(model[key]).__name__}"
    for key, parts in (("entries", ("name", "signature")), ("files", ("path", "size"))):
        for item in model.get(key, []):
            if not isinstance(item, dict) or not all(part in item for part in parts):
                return f"`{model['name']}`: `{key}` has an item without {' and '.join(parts)}"
    return None
