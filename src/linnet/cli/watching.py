"""Run something again whenever one of the files it reads changes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

PAUSE = 0.25  # seconds between two looks
SUFFIXES = (".linnet", ".toml")


def watch(paths: list[str], act: Callable[[], int]) -> int:
    """Act, wait for a change below `paths`, act again; Ctrl-C ends it. The last status."""
    from time import localtime, sleep, strftime

    status = 0
    try:
        while True:
            before = stamps(paths)
            _clear()
            status = act()
            sys.stdout.flush()  # where both end in one pipe, what was found comes first
            print(f"{strftime('%H:%M:%S', localtime())}  waiting for changes; Ctrl-C ends",
                  file=sys.stderr, flush=True)  # fmt: skip
            while stamps(paths) == before:
                sleep(PAUSE)
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return status


def _clear() -> None:
    """A fresh screen on a terminal, an empty line elsewhere."""
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        print("\x1b[2J\x1b[3J\x1b[H", end="", file=sys.stderr)


def stamps(paths: list[str]) -> dict[str, tuple[int, int]]:
    """The time and size of every source and manifest below some paths, and of the packages
    that files among them belong to."""
    found: dict[str, tuple[int, int]] = {}
    for path in paths:
        for file in _files(path):
            try:
                stat = os.stat(file)
            except OSError:
                continue  # it has just gone
            found[file] = (stat.st_mtime_ns, stat.st_size)
    return found


def _files(path: str) -> list[str]:
    if not os.path.isdir(path):
        path = _package_of(path) or path
    if not os.path.isdir(path):
        return [path]
    files: list[str] = []
    for folder, folders, names in os.walk(path):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files += [os.path.join(folder, name) for name in names if name.endswith(SUFFIXES)]
    return files


def _package_of(file: str) -> str | None:
    """The package that a file belongs to: what it imports may change as well."""
    folder = os.path.dirname(os.path.abspath(file))
    while True:
        if os.path.isfile(os.path.join(folder, "linnet.toml")):
            return folder
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above
