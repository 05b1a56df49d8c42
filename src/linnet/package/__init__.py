"""Packages: manifests, modules on disk, and what a `use` path names."""

from linnet.package.manifest import Manifest, ManifestError, read_manifest
from linnet.package.module import ModuleFile
from linnet.package.open import open_package
from linnet.package.package import Package
from linnet.package.resolve import resolve, std_package

__all__ = [
    "Manifest",
    "ManifestError",
    "ModuleFile",
    "Package",
    "open_package",
    "read_manifest",
    "resolve",
    "std_package",
]
