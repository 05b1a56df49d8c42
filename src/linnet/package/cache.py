"""What has been checked before, so that it need not be checked again.

Two kinds of entries lie in `$XDG_CACHE_HOME/linnet` (`~/.cache/linnet`):

- *clean*: a package without findings, with the digest of every file that a check of it reads.
  It holds while all of them, and the lists of modules, are the same;
- *bodies*: the functions of the library, or of a dependency, whose bodies have been proven,
  under the digest of that package's sources.

Both are plain text under a signature of the tool (its own files, and the library's, by size and
time as Python does for its compiled files) and end in a digest of themselves. What is stale,
damaged, foreign or unreadable counts as absent. Entries are written to a temporary file and
renamed, so that processes can share them. Nothing in an entry is ever executed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from linnet.package.package import Package

MAGIC = "linnet cache 1"
MAX_ENTRY = 4 << 20  # bytes; nothing larger is read
MAX_KEPT = 400  # entries; beyond that the oldest go
OFF = "LINNET_NO_CACHE"
SUFFIX = ".linnet"
MANIFESTS = ("linnet.toml", "nest.toml")
# The rooms whose code decides what a check finds, and the library.
_ROOMS = ("", "check", "diagnostics", "dims", "ir", "package", "std", "syntax")


def digest(data: bytes) -> str:
    # Not from `hashlib`, which takes longer to import than a package to read.
    from _blake2 import blake2b

    return blake2b(data, digest_size=32).hexdigest()


_signature: str | None = None


def signature() -> str:
    """Changes whenever the checker or the library does."""
    global _signature
    if _signature is None:
        import sys

        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        found = [root, sys.version]
        waiting = [os.path.join(root, room) for room in _ROOMS]
        for place in waiting:
            with os.scandir(place) as entries:
                for entry in entries:
                    if entry.name.endswith((".py", SUFFIX)):
                        stat = entry.stat()
                        found.append(f"{entry.path} {stat.st_size} {stat.st_mtime_ns}")
                    elif place != waiting[0] and "." not in entry.name and entry.is_dir():
                        waiting.append(entry.path)  # all but the other rooms
        found[2:] = sorted(found[2:])
        _signature = digest("\n".join(found).encode())
    return _signature


def folder() -> str | None:
    """Where entries lie, or None where there is no place or none is wanted."""
    if os.environ.get(OFF):
        return None
    base = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.join(os.path.expanduser("~"), ".cache")
        if not os.path.isabs(base):
            return None
    return os.path.join(base, "linnet")


# --- Clean packages --------------------------------------------------------------------


def recall(path: str) -> list[str] | None:
    """The modules of the package at `path`, if it is known to have no findings as it is now."""
    try:
        lines = _read(f"clean-{_place(path)}")
        if lines is None:
            return None
        modules: list[str] = []
        for line in lines:
            kind, value, name = line.split(" ", 2)
            if kind == "list":
                if _listing(name) != value:
                    return None
                continue
            if kind == "module":
                modules.append(name)
            if _file(name) != value:
                return None
        return modules
    except (OSError, ValueError):
        return None


def remember(path: str, package: Package) -> None:
    """Note that a package has just been checked and has no findings."""
    try:
        lines: list[str] = []
        for owner in package.with_dependencies():
            root = os.path.abspath(owner.root)
            if owner.file is None:
                sources = os.path.abspath(owner.source_root)
                lines.append(f"list {_listing(sources)} {sources}")
            for name in MANIFESTS:
                if os.path.isfile(manifest := os.path.join(root, name)):
                    lines.append(f"file {_file(manifest)} {manifest}")
            kind = "module" if owner is package else "file"
            for module in owner.loaded():
                file = module.source.path
                # What was checked, whatever the file holds by now.
                found = _content(file, module.source.text.encode())
                lines.append(f"{kind} {found} {os.path.abspath(file)}")
        if not any("\n" in line for line in lines):
            _write(f"clean-{_place(path)}", lines)
    except (OSError, ValueError):
        pass  # a cache is never needed


def _place(path: str) -> str:
    """A name for what `path` means here: the path, and the manifests that give it a package."""
    real = os.path.realpath(path)
    found = [os.path.abspath(path), real]
    here = real if os.path.isdir(real) else os.path.dirname(real)
    while True:
        found += [name for name in MANIFESTS if os.path.isfile(os.path.join(here, name))]
        above = os.path.dirname(here)
        if above == here or os.path.isdir(real):
            break
        found.append("above")
        here = above
    return digest("\n".join(found).encode())


def _file(path: str) -> str:
    """The digest of a file, and of where the links on its path lead."""
    with open(path, "rb") as file:
        return _content(path, file.read())


def _content(path: str, data: bytes) -> str:
    return digest(os.path.realpath(path).encode() + b"\n" + data)


def _listing(root: str) -> str:
    """The digest of the names of all modules below a folder."""
    found: list[str] = []
    waiting = [root]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif entry.name.endswith(SUFFIX) or entry.is_dir():
                    found.append(entry.path)
    return digest("\n".join(sorted(found)).encode())


# --- Bodies of the library and of dependencies -----------------------------------------


def proven(package: Package) -> tuple[str, frozenset[str]]:
    """A key for a package's sources as they are, and the functions proven under it."""
    if package.key == "std":
        key = "bodies-std"  # the signature covers it
    else:
        found = [package.key]
        owners = [package]
        for owner in owners:
            owners += [one for one in owner.dependencies.values() if one not in owners]
            for module in owner.module_paths():
                file = str(owner.module_file(module))
                found += [owner.module_id(module), _file(os.path.abspath(file))]
        key = f"bodies-{digest(chr(10).join(found).encode())}"
    try:
        return key, frozenset(_read(key) or ())
    except (OSError, ValueError):
        return key, frozenset()


def prove(key: str, functions: Iterable[str]) -> None:
    """Add functions to those proven under a key."""
    try:
        known = set(_read(key) or ())
        if not known.issuperset(functions):
            _write(key, sorted(known.union(functions)))
    except (OSError, ValueError):
        pass


# --- Entries ---------------------------------------------------------------------------


def _read(name: str) -> list[str] | None:
    place = folder()
    if place is None:
        return None
    try:
        with open(os.path.join(place, name), "rb") as file:
            data = file.read(MAX_ENTRY + 1)
    except OSError:
        return None
    head, mark, end = data.rpartition(b"\nend ")
    if not mark or len(data) > MAX_ENTRY or digest(head) != end.decode("ascii", "replace"):
        return None
    lines = head.decode("utf-8").split("\n")
    if lines[:2] != [MAGIC, signature()]:
        return None
    return lines[2:]


def _write(name: str, lines: list[str]) -> None:
    place = folder()
    if place is None:
        return
    os.makedirs(place, mode=0o700, exist_ok=True)
    head = "\n".join([MAGIC, signature(), *lines]).encode()
    temporary = os.path.join(place, f".new-{os.getpid()}-{os.urandom(6).hex()}")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(head + b"\nend " + digest(head).encode())
        os.replace(temporary, os.path.join(place, name))
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise
    _sweep(place)


def _sweep(place: str) -> None:
    """Drop the oldest entries once there are many."""
    with os.scandir(place) as found:
        entries = [(entry.stat().st_mtime_ns, entry.path) for entry in found if entry.is_file()]
    for _, path in sorted(entries)[: max(0, len(entries) - MAX_KEPT)]:
        try:
            os.unlink(path)
        except OSError:
            pass
