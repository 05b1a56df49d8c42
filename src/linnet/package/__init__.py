"""Packages: manifests, modules on disk, and what a `use` path names.

Each name is imported when it is first asked for, so that the cache of checked modules can be
asked before anything else is read.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from linnet.package.manifest import Manifest, ManifestError, read_manifest
    from linnet.package.module import ModuleFile
    from linnet.package.open import open_package
    from linnet.package.package import Package
    from linnet.package.roots import resolve, siblings, std_package

__all__ = [
    "Manifest",
    "ManifestError",
    "ModuleFile",
    "Package",
    "open_package",
    "read_manifest",
    "resolve",
    "siblings",
    "std_package",
]

_HOMES = {
    "Manifest": "manifest",
    "ManifestError": "manifest",
    "read_manifest": "manifest",
    "ModuleFile": "module",
    "open_package": "open",
    "Package": "package",
    "resolve": "roots",
    "siblings": "roots",
    "std_package": "roots",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'linnet.package' has no attribute '{name}'")
    from importlib import import_module

    value = getattr(import_module(f"linnet.package.{home}"), name)
    globals()[name] = value
    return value
