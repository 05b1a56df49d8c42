"""The card of a model, `nest.toml`: what it is, where its source and weights are, its sizes.

A card is data that may come from anywhere. Every value is checked before it is used, and no
path in it leads out of the card's folder.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import Any

from linnet.errors import CardError

FILE = "nest.toml"
# What a dtype generic can be given.
DTYPES = frozenset(
    {"bool", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64"}
)
_LIMIT = 1 << 20  # bytes; real cards have a few thousand

# Per table: key → kind of value. A trailing `!` marks a key that must be there.
_TABLES: dict[str, dict[str, str]] = {
    "model": {
        "name": "name!", "title": "text", "summary": "text", "license": "text",
        "family": "text", "tags": "texts",
    },
    "links": {"huggingface": "url!", "github": "url", "arxiv": "url", "homepage": "url"},
    "source": {"path": "path!", "root": "identifier", "entry": "identifier"},
    "weights": {
        "repo": "repo", "revision": "text", "files": "paths", "bindings": "path",
        "importer": "path", "package": "name", "package_file": "path",
    },
}  # fmt: skip
_FREE = ("generics", "check")  # tables whose keys are the program's own generics
_DEEP = re.compile(r"(?m)^[\s\[]*[\w\"'-]+\s*(?:\.\s*[\w\"'-]+\s*){64}")
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class CardWeights:
    """Where the weights are: a Hugging Face repository at a revision, with the files to take;
    or a file inside an installed Python distribution. `bindings` and `importer` are absolute."""

    repo: str | None = None
    revision: str | None = None
    files: tuple[str, ...] = ()
    bindings: Path | None = None
    importer: Path | None = None
    package: str | None = None
    package_file: str | None = None


@dataclass(frozen=True, slots=True)
class Card:
    """`source` is absolute. `generics` are the root block's, `check` the entry's own."""

    folder: Path
    name: str
    title: str
    summary: str
    license: str | None
    family: str | None
    tags: tuple[str, ...]
    links: dict[str, str]
    source: Path
    root: str | None
    entry: str | None
    generics: dict[str, int | str]
    check: dict[str, int | str]
    weights: CardWeights


def has_card(folder: Path) -> bool:
    return (folder / FILE).is_file()


def read_card(folder: str | Path) -> Card:
    """Read and check a card, given its folder or the file itself. Raises `CardError`."""
    path = Path(folder)
    if path.name != FILE or path.is_dir():
        path = path / FILE
    try:
        if not path.is_file():
            raise CardError(f"{path.parent}: no card there: expected {FILE}")
        data = path.read_bytes()
    except OSError as error:
        raise CardError(f"{path}: cannot be read: {error.strerror or error}") from error
    if len(data) > _LIMIT:
        raise CardError(f"{path}: {len(data)} bytes are too many for a card ({_LIMIT} at most)")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise CardError(f"{path}: not UTF-8 (byte {error.start})") from error
    return _Reader(path, text).card()


class _Reader:
    def __init__(self, path: Path, text: str):
        self.path = path
        self.folder = path.parent.resolve()
        self.text = text
        self.tables: dict[str, Any] = _toml(path, text)

    def card(self) -> Card:
        for table in self.tables:
            if table not in _TABLES and table not in _FREE:
                raise self.fail(table, None, f"unknown table{_near(table, [*_TABLES, *_FREE])}")
        model, links, source, weights = (self.table(name) for name in _TABLES)
        if "package" in weights and "package_file" not in weights:
            raise self.fail("weights", "package", "`package_file` must say which file of it")
        if "package_file" in weights and "package" not in weights:
            raise self.fail("weights", "package_file", "`package` must say of which distribution")
        return Card(
            folder=self.path.parent,
            name=model["name"],
            title=model.get("title", model["name"]),
            summary=model.get("summary", ""),
            license=model.get("license"),
            family=model.get("family"),
            tags=tuple(model.get("tags", ())),
            links=links,
            source=self.inside("source", "path", source["path"]),
            root=source.get("root"),
            entry=source.get("entry"),
            generics=self.generics("generics"),
            check=self.generics("check"),
            weights=CardWeights(
                repo=weights.get("repo"),
                revision=weights.get("revision"),
                files=tuple(weights.get("files", ())),
                bindings=self.inside("weights", "bindings", weights["bindings"])
                if "bindings" in weights
                else None,
                importer=self.inside("weights", "importer", weights["importer"])
                if "importer" in weights
                else None,
                package=weights.get("package"),
                package_file=weights.get("package_file"),
            ),
        )

    def raw(self, name: str) -> dict[str, Any]:
        table = self.tables.get(name, {})
        if not isinstance(table, dict):
            raise self.fail(name, None, f"expected a table, found {_shown(table)}")
        return table

    def table(self, name: str) -> dict[str, Any]:
        """A table with a fixed set of keys, each value checked."""
        keys = _TABLES[name]
        table = self.raw(name)
        for key, value in table.items():
            if key not in keys:
                raise self.fail(name, key, f"unknown key{_near(key, list(keys))}")
            self.check(name, key, keys[key].rstrip("!"), value)
        for key, kind in keys.items():
            if kind.endswith("!") and key not in table:
                raise self.fail(name, None, f"`{key}` is missing")
        return table

    def generics(self, name: str) -> dict[str, int | str]:
        table = self.raw(name)
        for key, value in table.items():
            if not _IDENTIFIER.fullmatch(key):
                raise self.fail(name, key, "not the name of a generic")
            if isinstance(value, str):
                if value not in DTYPES:
                    known = ", ".join(sorted(DTYPES))
                    raise self.fail(name, key, f"unknown dtype {value!r}; there are {known}")
            elif type(value) is not int:
                raise self.fail(
                    name, key, f"expected an integer or a dtype's name, found {_shown(value)}"
                )
            elif not 0 <= value < 1 << 63:
                raise self.fail(name, key, f"expected a dimension, found {value}")
        return dict(table)

    def check(self, table: str, key: str, kind: str, value: Any) -> None:
        if kind in ("texts", "paths"):
            if not isinstance(value, list):
                raise self.fail(table, key, f"expected a list of strings, found {_shown(value)}")
            for item in value:
                self.check(table, key, kind[:-1], item)
            return
        if not isinstance(value, str) or (not value and kind != "text"):
            raise self.fail(table, key, f"expected a string, found {_shown(value)}")
        problem = {
            "text": not value.isprintable() and "expected text without control characters",
            "name": not _NAME.fullmatch(value) and "expected a plain name",
            "identifier": not _IDENTIFIER.fullmatch(value) and "expected an identifier",
            "repo": not _REPO.fullmatch(value) and "expected `owner/name`",
            "url": not re.match(r"https?://\S+$", value) and "expected an http(s) address",
            "path": not _is_relative(value) and "expected a path inside the folder, with `/`",
        }.get(kind)
        if problem:
            raise self.fail(table, key, f"{problem}, found {value!r}")

    def inside(self, table: str, key: str, value: str) -> Path:
        """The file that a path key names. Symbolic links must not lead out either."""
        file = self.folder / value
        if not file.resolve().is_relative_to(self.folder):
            raise self.fail(table, key, f"{value!r} leads out of the card's folder")
        if not file.is_file():
            raise self.fail(table, key, f"no file {value!r} in {self.folder}")
        return file

    def fail(self, table: str, key: str | None, message: str) -> CardError:
        line = _line_of(self.text, table, key)
        where = f"{self.path}:{line}" if line else str(self.path)
        name = f"[{table}] {key}" if key else f"[{table}]"
        return CardError(f"{where}: {name}: {message}")


def _toml(path: Path, text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    if _DEEP.search(text):  # the parser takes quadratic time for these
        raise CardError(f"{path}: not TOML of a card: a key of more than 64 parts")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise CardError(f"{path}: not TOML: {error}") from error
    except (RecursionError, ValueError) as error:
        raise CardError(f"{path}: not TOML: nested too deeply or a number too long") from error


def _is_relative(value: str) -> bool:
    path = PurePosixPath(value)
    return not (
        path.is_absolute() or ".." in path.parts or "\\" in value or ":" in value or "\0" in value
    )


def _line_of(text: str, table: str, key: str | None) -> int | None:
    """The line on which a key stands, else its table; the parser keeps no positions."""
    current: str | None = None
    header: int | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if match := re.match(r"\s*\[+\s*[\"']?([^\"'\]]+?)[\"']?\s*\]", line):
            current = match[1]
            if current.split(".")[0] == table and header is None:
                header = number
        elif match := re.match(r"\s*[\"']?([\w.-]+)[\"']?\s*=", line):
            name = match[1] if current is None else f"{current}.{match[1]}"
            if name == (f"{table}.{key}" if key else table):
                return number
            if current is None and name.split(".")[0] == table and header is None:
                header = number
    return header


def _near(word: str, words: list[str]) -> str:
    close = get_close_matches(word, words, n=1)
    return f"; did you mean `{close[0]}`?" if close else f"; there are {', '.join(words)}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
