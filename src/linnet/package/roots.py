"""What the root of a `use` path names: the library, the own package, a dependency."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import linnet.source
from linnet.package.files import inside
from linnet.package.module import ModuleFile
from linnet.package.package import SUFFIX, Package

STD = "std"
CRATE = "crate"


def std_root() -> Path:
    """The folder of the standard library, which is shipped beside this code."""
    return Path(linnet.source.__file__).parent / STD


@lru_cache(maxsize=1)
def std_package() -> Package:
    """The standard library; its modules are read as they are first asked for."""
    root = std_root()
    return Package(STD, root, STD, root)


def root_package(package: Package, root: str) -> Package | None:
    """The package that a path beginning with `root` leads into, as `package` sees it."""
    if root == STD:
        return package if package.key == STD else std_package()
    if root == CRATE:
        return package
    return package.dependencies.get(root)


def siblings(package: Package, path: Sequence[str]) -> list[str]:
    """The modules beside the one that `path` would name."""
    owner = root_package(package, path[0]) if path else None
    file = owner.module_file(path[1:]) if owner else None
    if owner is None or file is None or not inside(file.parent, owner.root):
        return []
    return sorted(one.stem for one in file.parent.glob(f"*{SUFFIX}"))


def resolve(package: Package, path: Sequence[str]) -> ModuleFile | None:
    """The module a `use` path of `package` names, or None. PackageError if its file
    cannot be read."""
    owner = root_package(package, path[0]) if path else None
    return owner.load(path[1:]) if owner else None
