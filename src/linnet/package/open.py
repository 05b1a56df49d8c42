"""From a path that a user typed to a package and everything it depends on."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from linnet.errors import PackageError
from linnet.package.files import MAX_MANIFEST, inside, read_bounded, reason
from linnet.package.manifest import (
    MANIFEST,
    Manifest,
    ManifestError,
    finding,
    locate,
    read_manifest,
)
from linnet.package.package import LIB, SUFFIX, Package
from linnet.package.roots import CRATE, std_package, std_root

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CARD = "nest.toml"
SOURCES = "src"
MAX_PACKAGES = 256


def open_package(path: str | os.PathLike[str]) -> Package:
    """Open a `.linnet` file, a folder with `linnet.toml`, or a card's folder.

    A file under the `src` of a package opens that package, with `focus` set; any
    other stands alone. ManifestError (E5001) for a wrong manifest, here or in a
    dependency; PackageError for a path that names none of these.
    """
    path = Path(path)
    try:
        if not path.exists():
            missing = "a link to nothing" if path.is_symlink() else "no such file or folder"
            raise PackageError(f"{path}: {missing}")
        is_folder = path.is_dir()
    except (OSError, ValueError) as error:
        why = reason(error) if isinstance(error, OSError) else str(error)
        raise PackageError(f"{path}: cannot be read ({why})") from None
    if is_folder:
        return _open_folder(path)
    if path.name in (MANIFEST, CARD):
        return _open_folder(path.parent)
    if path.suffix != SUFFIX:
        raise PackageError(f"{path}: expected a {SUFFIX} file or a folder with {MANIFEST}")
    return _open_file(path)


def _open_folder(folder: Path) -> Package:
    if (folder / MANIFEST).exists():
        return _Loader().crate(folder)
    if (folder / CARD).exists():
        return _open_card(folder)
    if inside(folder, std_root()):
        return std_package()
    try:
        empty = not any(folder.iterdir())
    except OSError as error:
        raise PackageError(f"{folder}: cannot be read ({reason(error)})") from None
    found = "an empty folder" if empty else f"a folder without {MANIFEST}"
    raise PackageError(f"{folder}: {found}; expected a package, a card's folder or a {SUFFIX} file")


def _open_file(path: Path) -> Package:
    if inside(path, std_root()):
        return std_package()
    for folder in path.absolute().parents:
        if not (folder / MANIFEST).is_file():
            continue
        sources = folder / SOURCES
        if not inside(path, sources):
            break
        shown = _shown(folder, path)
        package = _Loader().crate(shown)
        inner = Path(os.path.realpath(path)).relative_to(os.path.realpath(sources))
        parts = inner.with_suffix("").parts
        package.focus = () if parts == (LIB,) else parts
        return package
    return Package(path.stem, path.parent, CRATE, path.parent, file=path)


def _shown(folder: Path, path: Path) -> Path:
    """`folder` written the way `path` was: relative paths stay relative."""
    if path.is_absolute():
        return folder
    return Path(os.path.relpath(folder))


def _open_card(folder: Path) -> Package:
    """A card without a package beside it names one file."""
    card = folder / CARD
    try:
        document = tomllib.loads(read_bounded(card, MAX_MANIFEST).decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise PackageError(f"{card}: not valid TOML: {error}") from None
    source = document.get("source")
    name = source.get("path") if isinstance(source, dict) else None
    if not isinstance(name, str) or not name or "\0" in name:
        raise PackageError(f"{card}: `[source]` has no `path`; expected a {SUFFIX} file")
    file = folder / name
    if not inside(file, folder):
        raise PackageError(f"{card}: `path` leads outside the folder: {name}")
    if file.suffix != SUFFIX or not file.is_file():
        raise PackageError(f"{card}: `path` names no {SUFFIX} file: {name}")
    return Package(file.stem, folder, CRATE, file.parent, file=file)


class _Loader:
    """Opens a package and its dependencies, each folder once, the nearest first."""

    def __init__(self) -> None:
        self.packages: dict[str, Package] = {}  # by the folder's real path
        self.manifests: dict[str, Manifest] = {}
        self.acyclic: set[str] = set()  # keys of packages that lead into no cycle

    def crate(self, folder: Path) -> Package:
        package = self.add(folder, CRATE)
        queue = [package]
        for current in queue:
            manifest = self.manifests[os.path.realpath(current.root)]
            for key, path in manifest.dependencies.items():
                target = current.root / path
                known = self.packages.get(os.path.realpath(target))
                if known is None:
                    if not (target / MANIFEST).is_file():
                        span = locate(manifest.source, "dependencies", key)
                        found = f"no {MANIFEST} in {target}"
                        if not target.is_dir():
                            found = f"no folder {target}"
                        message = f"dependency `{key}` is not a package: {found}"
                        raise ManifestError([finding(span, message)])
                    known = self.add(target, self.key(current, key))
                    queue.append(known)
                current.dependencies[key] = known
        self.refuse_cycles(package, [])
        return package

    def key(self, owner: Package, key: str) -> str:
        # A slash stands in no name, so that `a/b` is no module of `a`.
        return key if owner.key == CRATE else f"{owner.key}/{key}"

    def add(self, folder: Path, key: str) -> Package:
        if len(self.packages) == MAX_PACKAGES:
            raise PackageError(f"{folder}: more than {MAX_PACKAGES} packages depend on each other")
        manifest = read_manifest(folder / MANIFEST)
        sources = folder / SOURCES
        if not sources.is_dir():
            raise PackageError(f"{folder}: the package has no folder `{SOURCES}`")
        if not inside(sources, folder):
            raise PackageError(f"{sources}: leads outside the package at {folder}")
        package = Package(manifest.name, folder, key, sources)
        real = os.path.realpath(folder)
        self.packages[real] = package
        self.manifests[real] = manifest
        if not package.module_paths():
            raise PackageError(f"{sources}: no {SUFFIX} file; expected {LIB}{SUFFIX}")
        return package

    def refuse_cycles(self, package: Package, above: list[tuple[Package, str]]) -> None:
        for key, dependency in package.dependencies.items():
            trail = [*above, (package, key)]
            owners = [owner for owner, _ in trail]
            if dependency in owners:
                names = [owner.name for owner in owners[owners.index(dependency) :]]
                source = self.manifests[os.path.realpath(package.root)].source
                cycle = " → ".join([*names, dependency.name])
                message = f"packages depend on each other: {cycle}"
                raise ManifestError([finding(locate(source, "dependencies", key), message)])
            if dependency.key not in self.acyclic:
                self.refuse_cycles(dependency, trail)
        self.acyclic.add(package.key)
