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

from linnet.errors import Error, PackageError
from linnet.nest.card import Card
from linnet.nest.checks.report import whole_numbers
from linnet.package import open_package
from linnet.package.manifest import MANIFEST

FILE = "checked.json"
VERSION = 1
LIMIT = 1 << 20  # bytes
_ITEMS = 200
_TEXT = 500  # characters of one


@dataclass
class Checked:
    """`sizes` are bytes of weight files on their hub. `check` has `linnet`, `digest`, `steps` and,
    where the program has checked, `parameters` and `bytes_by_dtype`; each of `parity` has
    `reference`, `weights`, `entry`, `dtype`, `result`, `tolerance`, `blocks`, `digest`."""

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
    told: dict[str, Any] = {key: str(check.get(key, ""))[:_TEXT] for key in ("linnet", "digest")}
    if type(count := check.get("parameters")) is int and count >= 0:
        told["parameters"] = count
    if isinstance(held := check.get("bytes_by_dtype"), dict):
        told["bytes_by_dtype"] = whole_numbers(held)
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
    """Of all that a result depends on: what the card says of the program and its weights; bindings
    and importer; manifest and source of the package and of those that it depends on. Titles,
    links and README may change. Raises PackageError for source that cannot be found."""
    weights = card.weights
    said = {
        "root": card.root, "entry": card.entry, "generics": card.generics, "check": card.check,
        "source": os.path.relpath(os.path.realpath(card.source), os.path.realpath(card.folder)),
        "repo": weights.repo, "revision": weights.revision, "files": weights.files,
        "package": [weights.package, weights.package_file],
    }  # fmt: skip
    found = hashlib.sha256(json.dumps(said, sort_keys=True).encode())
    named = [path for path in (weights.bindings, weights.importer) if path is not None]
    for owner in open_package(card.folder).with_dependencies():
        named.append(owner.root / MANIFEST)
        found.update(owner.key.encode())
        files = (owner.module_file(module) for module in owner.module_paths())
        named += [file for file in files if file is not None]
    for path in named:
        if path.is_file():
            found.update(path.name.encode())
            found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def figures(card: Card) -> dict[str, Any]:
    """`parameters` and `bytes_by_dtype` as they were noted, while they are of these files."""
    try:
        check = read_checked(card.folder).check
        if not check or check["digest"] != digest(card):
            return {}
    except (Error, OSError):
        return {}
    return {key: check[key] for key in ("parameters", "bytes_by_dtype") if key in check}


def record_check(
    card: Card, steps: Sequence[Mapping[str, Any]], sizes: Mapping[str, int],
    counted: Mapping[str, int] | None = None,
) -> None:  # fmt: skip
    """`counted` are the figures of the step `sizes`. Raises PackageError where the folder cannot be
    written."""
    from linnet import __version__

    known = read_checked(card.folder)
    known.sizes.update(sizes)
    known.check = {"linnet": __version__, "digest": digest(card), "steps": list(steps)}
    if counted:
        held = {name: count for name, count in counted.items() if name != "parameters"}
        known.check |= {"parameters": counted["parameters"], "bytes_by_dtype": held}
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
