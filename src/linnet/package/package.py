"""A package: a folder of modules with a name, and the packages it depends on."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from linnet.errors import PackageError
from linnet.package.files import inside, reason
from linnet.package.module import ModuleFile, read_module
from linnet.record import dataclass, field

SUFFIX = ".linnet"
LIB = "lib"
_SEGMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


@dataclass(eq=False)
class Package:
    """`key` is "crate" for the package being checked, "std" for the library, and for
    others the keys that lead to it: "layers", or "layers/common" for what only
    `layers` depends on. `source_root` is the folder of the modules. A stand-alone
    file is a package of one module, `file`. `focus` is the module that was asked for,
    where a file inside a package was named."""

    name: str
    root: Path
    key: str
    source_root: Path
    dependencies: dict[str, Package] = field(default_factory=dict)
    file: Path | None = None
    focus: tuple[str, ...] | None = None
    _modules: dict[tuple[str, ...], ModuleFile | None] = field(default_factory=dict, repr=False)

    def with_dependencies(self) -> list[Package]:
        """This package first, then all that it depends on, the library left out."""
        owners = [self]
        for owner in owners:
            owners += [one for one in owner.dependencies.values() if one not in owners]
        return owners

    def module_id(self, path: Sequence[str]) -> str:
        return ".".join((self.key, *path))

    def module_paths(self) -> list[tuple[str, ...]]:
        """Every module, sorted; `()` is `lib.linnet`. PackageError for a file that has
        no name a `use` could give."""
        if self.file is not None:
            return [()]
        paths: list[tuple[str, ...]] = []
        for folder, folders, files in os.walk(self.source_root, onerror=_unreadable):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            above = Path(folder).relative_to(self.source_root).parts
            for name in files:
                if not name.endswith(SUFFIX) or name.startswith("."):
                    continue
                path = (*above, name[: -len(SUFFIX)])
                if not all(map(_SEGMENT.fullmatch, path)):
                    raise PackageError(
                        f"{Path(folder, name)}: cannot be a module; its path under "
                        f"{self.source_root.name}/ may use letters, digits and `_` only"
                    )
                paths.append(() if path == (LIB,) else path)
        return sorted(paths)

    def module_file(self, path: Sequence[str]) -> Path | None:
        """Where a module would stand, or None if no file can hold it."""
        if self.file is not None:
            return None if path else self.file
        if tuple(path) == (LIB,) or not all(map(_SEGMENT.fullmatch, path)):
            return None
        return self.source_root.joinpath(*path[:-1], (path[-1] if path else LIB) + SUFFIX)

    def load(self, path: Sequence[str]) -> ModuleFile | None:
        """A module, parsed once; None if there is none. PackageError if its file cannot
        be read, or lies outside the package."""
        path = tuple(path)
        if path not in self._modules:
            self._modules[path] = self._load(path)
        return self._modules[path]

    def loaded(self) -> list[ModuleFile]:
        """The modules read so far."""
        return [module for module in self._modules.values() if module is not None]

    def _load(self, path: tuple[str, ...]) -> ModuleFile | None:
        file = self.module_file(path)
        try:
            if file is None or not os.path.lexists(file):
                return None
        except (OSError, ValueError):
            return None  # a name that is too long
        if self.file is None and not inside(file, self.root):
            raise PackageError(f"{file}: leads outside the package at {self.root}")
        tree, diagnostics = read_module(file)
        return ModuleFile(self.module_id(path), self, path, tree, diagnostics)


def _unreadable(error: OSError) -> None:
    raise PackageError(f"{error.filename}: cannot be read ({reason(error)})")
