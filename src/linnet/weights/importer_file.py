"""An importer of one's own: a TOML file that says how a checkpoint's tensors become those that the
bindings name. It is data: names, axes and dtypes.

    [[tensor]]
    from = "h.*.attn.c_attn.weight"
    to = ["h.*.attn.q.weight", "h.*.attn.k.weight", "h.*.attn.v.weight"]
    transpose = true
    split = 0

`*` stands for one part of a dotted name and is the same on both sides; `#` for a number counted
from 0, whose tensors are stacked on a new first axis. A rule works in this order: `transpose` each
source (true, or the order of its axes), `join` several along an axis, stack what `#` counts,
`split` along an axis into the names of `to` (equal parts, or `sizes`), and `cast`.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from linnet.errors import WeightsError
from linnet.weights.dtypes import is_float

LIMIT = 1 << 20  # bytes
RULES = 1000
_KEYS = ("from", "to", "transpose", "join", "split", "sizes", "cast")
_AXES = 8
_DEEP = re.compile(r"(?m)^[\s\[]*[\w\"'-]+\s*(?:\.\s*[\w\"'-]+\s*){64}")


@dataclass(frozen=True, slots=True)
class Rule:
    """One `[[tensor]]`. `where` names it in errors. `transpose` is () for a reversal of all axes,
    None for none."""

    where: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    transpose: tuple[int, ...] | None = None
    join: int | None = None
    split: int | None = None
    sizes: tuple[int, ...] = ()
    cast: str | None = None

    @property
    def stacks(self) -> bool:
        return "#" in self.sources[0]


def read_importer(path: Path | None) -> tuple[Rule, ...]:
    """The rules of a file, none for None. Raises `WeightsError` that names file, rule and key."""
    if path is None:
        return ()
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        if path.stat().st_size > LIMIT:
            raise WeightsError(
                f"{path}: {path.stat().st_size:,} bytes are too many for an importer "
                f"({LIMIT:,} at most)"
            )
        text = path.read_bytes().decode("utf-8")
        if _DEEP.search(text):  # the parser takes quadratic time for these
            raise WeightsError(f"{path}: not TOML of an importer: a key of more than 64 parts")
        document = tomllib.loads(text)
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError, ValueError) as error:
        raise WeightsError(f"{path}: not TOML: {error}") from error
    unknown = [key for key in document if key != "tensor"]
    tables = document.get("tensor")
    if unknown or not isinstance(tables, list) or not all(isinstance(t, dict) for t in tables):
        found = f"`{unknown[0]}`" if unknown else "none"
        raise WeightsError(f"{path}: expected tables `[[tensor]]` and nothing else, found {found}")
    if len(tables) > RULES:
        raise WeightsError(f"{path}: {len(tables)} rules; expected at most {RULES}")
    return tuple(_Table(path, number, table).rule() for number, table in enumerate(tables, 1))


class _Table:
    def __init__(self, path: Path, number: int, table: dict[str, Any]):
        self.table = table
        self.where = f"{path}: [[tensor]] {number}"

    def rule(self) -> Rule:
        for key in self.table:
            if key not in _KEYS:
                raise self.fail(key, f"unknown key; there are {', '.join(_KEYS)}")
        sources = self.names("from", None)
        targets = self.names("to", sources)
        self.stars(sources, targets)
        join, split = self.axis("join"), self.axis("split")
        if len(sources) > 1 and join is None:
            raise self.fail("join", f"missing: along which axis the {len(sources)} are joined")
        if len(sources) == 1 and join is not None:
            raise self.fail("join", "there is one source: nothing to join it to")
        if len(targets) > 1 and split is None:
            raise self.fail("split", f"missing: along which axis it becomes {len(targets)}")
        if len(targets) == 1 and split is not None:
            raise self.fail("split", "there is one name in `to`: nothing to split into")
        sizes = self.sizes(targets, split)
        cast = self.table.get("cast")
        if cast is not None and not (isinstance(cast, str) and is_float(cast)):
            raise self.fail("cast", f"expected f16, bf16, f32 or f64, found {cast!r}")
        return Rule(self.where, sources, targets, self.transpose(), join, split, sizes, cast)

    def names(self, key: str, default: tuple[str, ...] | None) -> tuple[str, ...]:
        value = self.table.get(key)
        if value is None and default is not None and len(default) == 1:
            return default
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, list) or not items:
            raise self.fail(key, f"expected a name or a list of names, found {value!r}")
        for item in items:
            if not isinstance(item, str) or not item or len(item) > 1000 or "**" in item:
                raise self.fail(key, f"expected the name of a tensor, found {str(item)[:60]!r}")
        if len(set(items)) < len(items):
            raise self.fail(key, "a name stands twice")
        return tuple(items)

    def stars(self, sources: tuple[str, ...], targets: tuple[str, ...]) -> None:
        """The same places on both sides, and `#` in each source or in none."""
        count = sources[0].count("*")
        for key, names in (("from", sources), ("to", targets)):
            for name in names:
                if name.count("*") != count:
                    raise self.fail(key, f"`{name}`: expected {count} `*`, as in `{sources[0]}`")
        numbered = {name.count("#") for name in sources}
        if numbered not in ({0}, {1}):
            raise self.fail("from", "expected one `#` in each name, or in none")
        if any("#" in name for name in targets):
            raise self.fail("to", "`#` counts sources; the tensors it counts become one")

    def axis(self, key: str) -> int | None:
        value = self.table.get(key)
        if value is not None and (type(value) is not int or not 0 <= value < _AXES):
            raise self.fail(key, f"expected an axis from 0, found {value!r}")
        return value

    def sizes(self, targets: tuple[str, ...], split: int | None) -> tuple[int, ...]:
        value = self.table.get("sizes")
        if value is None:
            return ()
        if split is None or not isinstance(value, list) or len(value) != len(targets):
            raise self.fail("sizes", f"expected a size for each name of `to`, found {value!r}")
        if not all(type(size) is int and size > 0 for size in value):
            raise self.fail("sizes", f"expected positive sizes, found {value!r}")
        return tuple(value)

    def transpose(self) -> tuple[int, ...] | None:
        value = self.table.get("transpose", False)
        if isinstance(value, bool):
            return () if value else None
        if not isinstance(value, list) or len(value) > _AXES or not value:
            raise self.fail("transpose", f"expected true or the order of axes, found {value!r}")
        if any(type(axis) is not int for axis in value) or sorted(value) != list(range(len(value))):
            raise self.fail("transpose", f"expected each axis from 0 once, found {value!r}")
        return tuple(value)

    def fail(self, key: str, message: str) -> WeightsError:
        return WeightsError(f"{self.where}: {key}: {message}")


def matcher(pattern: str) -> re.Pattern[str]:
    """`*` takes one part of a dotted name, `#` a number. Linear in the name's length."""
    parts = re.split(r"([*#])", pattern)
    kinds = {"*": r"([^.]+)", "#": r"(?P<number>\d{1,6})"}
    return re.compile("".join(kinds.get(part, re.escape(part)) for part in parts))


def fill(pattern: str, stars: tuple[str, ...], number: int | None = None) -> str:
    for star in stars:
        pattern = pattern.replace("*", star, 1)
    return pattern if number is None else pattern.replace("#", str(number), 1)
