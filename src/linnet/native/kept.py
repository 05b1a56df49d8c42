"""What a process knows of compiled entries, kept beside their library for the next one.

A program is optimized and written as C to get three things: the library, the arena of each entry
and what its arguments must satisfy. They lie in the cache folder under a key of all that they
follow from: the program's sources and what is bound, the tool's own sources, the compiler, its
flags. A file is JSON under a first line with its digest. What is stale, damaged or unreadable
counts as absent; nothing in it is ever executed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.dims.dim import Atom, Dim, _atom
from linnet.native import compiler
from linnet.native.code import Code
from linnet.native.frame import Choice, Function
from linnet.native.node import Buffer

if TYPE_CHECKING:
    from linnet.ir.bound import Bound

MAGIC = "linnet native 1"
OFF = "LINNET_NO_CACHE"  # set: nothing is kept, as of the checker's results
LIMIT = 64 << 20  # bytes; nothing larger is read
SUFFIX = ".json"


class DimsOut:
    """Dimensions as numbers into a list, each written once."""

    def __init__(self) -> None:
        self.listed: list[Any] = []
        self._known: dict[Dim, int] = {}

    def put(self, dim: Dim) -> int:
        if dim not in self._known:
            terms = [[factor, *map(self._power, monomial)] for monomial, factor in dim.terms]
            self._known[dim] = len(self.listed)
            self.listed.append(terms)
        return self._known[dim]

    def _power(self, item: tuple[Atom, int]) -> list[Any]:
        atom, power = item
        return [power, atom.kind, atom.name, *map(self.put, atom.args)]


class DimsIn:
    """The same dimensions again. They are in normal form as they are."""

    def __init__(self, listed: Iterable[Any]):
        self._dims: list[Dim] = []
        for terms in listed:
            self._dims.append(
                Dim(
                    tuple(
                        (tuple((self._atom(rest), power) for power, *rest in powers), factor)
                        for factor, *powers in terms
                    )
                )
            )

    def get(self, number: int) -> Dim:
        return self._dims[number]

    def _atom(self, item: list[Any]) -> Atom:
        kind, name, *args = item
        return _atom(kind, name, tuple(map(self.get, args)))


@dataclass
class Kept:
    """`more` is what the caller kept beside the code, with `dims` to read its dimensions."""

    code: Code
    library: Path
    more: Any
    dims: DimsIn


# --- Keys ---------------------------------------------------------------------------


@cache
def signature() -> str | None:
    """Changes whenever this tool does: its files by size and time, as Python does for its own
    compiled files. None where a file changed after this process began, which may have read it
    as it was before."""
    root = Path(__file__).resolve().parent.parent
    found = [sys.version]
    newest = 0.0
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            if name.endswith((".py", ".c", ".h", ".linnet")):
                status = os.stat(os.path.join(folder, name))
                found.append(f"{folder}/{name} {status.st_size} {status.st_mtime_ns}")
                newest = max(newest, status.st_mtime)
    if newest >= _began():
        return None
    return hashlib.sha256("\n".join(sorted(found)).encode()).hexdigest()


def _began() -> float:
    """When this process began, in seconds since 1970, to the tick before."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    booted = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
    return booted + (ticks - 1) / os.sysconf("SC_CLK_TCK")


def key(
    bound: Bound, caches: frozenset[tuple[str, str]], symbols: Iterable[str] = ()
) -> str | None:
    """For the native code of a program that was just specialized, with `symbols` left open.

    None where it was not made from checked sources, or nothing is to be kept.
    """
    cc, tool = compiler.find_cc(), signature()
    if not bound.program.sources or cc is None or tool is None or os.environ.get(OFF):
        return None
    status = os.stat(cc)
    level = compiler.level()
    found = [
        MAGIC, tool, os.path.realpath(cc), str((status.st_size, status.st_mtime_ns)),
        level, *compiler.flags(level), bound.root, *sorted(bound.entries), *symbols,
        *(f"{block} {name}" for block, name in sorted(caches)),
    ]  # fmt: skip
    for id, source in bound.program.sources:
        found += [id, source.path, source.text]
    for kind in bound.kinds.values():
        found += [kind.id, kind.block, *(f"{n} = {v}" for n, v in kind.bindings.items())]
        for m in kind.members:
            found.append(f"{m.kind} {m.name}: {m.type} {m.sub} {m.length} {m.present} {m.each}")
    h = hashlib.sha256()
    for part in found:
        data = part.encode()
        h.update(b"%d\0" % len(data) + data)
    return h.hexdigest()[:32]


# --- Files --------------------------------------------------------------------------


def read(key: str) -> Kept | None:
    """What was kept under a key, where it and its library are there and whole."""
    folder = compiler.cache_folder()
    path = folder / (key + SUFFIX)
    try:
        if not path.is_file():
            return None
        with open(path, "rb") as file:
            data = file.read(LIMIT + 1)
        head, _, body = data.partition(b"\n")
        if len(data) > LIMIT or head != _head(key, body):
            return None
        found = json.loads(body)
        library = folder / found["library"]
        if not compiler.whole(library):
            return None
        dims = DimsIn(found["dims"])
        code = Code(
            {name: _function(function, dims) for name, function in found["functions"].items()},
            found["refused"],
            set(found["packable"]),
            {(kind, member) for kind, member in found["dense"]},
        )
        for used in (path, library):  # what is used last goes last
            os.utime(used)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None
    return Kept(code, library, found["more"], dims)


def write(key: str, code: Code, library: Path, more: Any, dims: DimsOut) -> None:
    """Keep what was made beside its library; without a word where that cannot be."""
    folder = compiler.cache_folder()
    if library.parent != folder:
        return  # a folder of this process's own
    functions = {name: _functions_form(function, dims) for name, function in code.functions.items()}
    with contextlib.suppress(OSError):
        made = {
            "library": library.name,
            "functions": functions,
            "refused": code.refused,
            "packable": sorted(code.packable),
            "dense": sorted(code.dense),
            "more": more,
            "dims": dims.listed,
        }
        body = json.dumps(made, separators=(",", ":")).encode()
        handle, temporary = tempfile.mkstemp(prefix="build-", dir=folder)
        try:
            with open(handle, "wb") as file:
                file.write(_head(key, body) + b"\n" + body)
            os.replace(temporary, folder / (key + SUFFIX))
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


def _head(key: str, body: bytes) -> bytes:
    return f"{MAGIC} {key} {hashlib.sha256(body).hexdigest()}".encode()


def _functions_form(function: Function, dims: DimsOut) -> dict[str, Any]:
    """A function as JSON, without its text."""
    arena = [
        [b.dtype, None if b.size is None else dims.put(b.size), b.first, b.last, b.output]
        for b in function.arena
    ]
    choices = [[c.op, c.kernel, c.reason, c.span] for c in function.choices]
    return {"name": function.name, "arena": arena, "choices": choices}


def _function(found: dict[str, Any], dims: DimsIn) -> Function:
    arena = [
        Buffer(
            "", dtype, None if size is None else dims.get(size), number, first, last, output=output
        )
        for number, (dtype, size, first, last, output) in enumerate(found["arena"])
    ]
    return Function(found["name"], "", arena, [Choice(*choice) for choice in found["choices"]])
