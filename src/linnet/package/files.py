"""Reading files that belong to a package: bounded, and never outside their root."""

from __future__ import annotations

import os
from pathlib import Path

from linnet.errors import PackageError

MAX_SOURCE = 16 << 20  # bytes
MAX_MANIFEST = 1 << 20  # bytes


def inside(path: Path, root: Path) -> bool:
    """Whether a path, all links followed, lies in a folder, all links followed."""
    try:
        real, base = os.path.realpath(path), os.path.realpath(root)
        return os.path.commonpath([real, base]) == base
    except (OSError, ValueError):
        return False


def read_bounded(path: Path, limit: int) -> bytes:
    """The bytes of a plain file of at most `limit` bytes. PackageError otherwise."""
    try:
        if not path.is_file():
            raise PackageError(f"{path}: expected a plain file")
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise PackageError(f"{path}: cannot be read ({reason(error)})") from None
    if len(data) > limit:
        raise PackageError(f"{path}: larger than {limit >> 20} MiB, the most that is read")
    return data


def reason(error: OSError) -> str:
    return error.strerror or type(error).__name__
