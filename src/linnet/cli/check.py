"""`linnet check`: read and prove files, packages and card folders."""

from __future__ import annotations

import argparse
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from linnet.diagnostics.diagnostic import Diagnostic
    from linnet.package import Package

HELP = """\
Check files, packages and card folders: every name, type, dtype and shape.

Findings go to standard error with the source they are about; with --json or
--output concise to standard output. Exit status: 0 no errors, 1 errors
(with --strict also warnings), 2 the command line is wrong."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="a .linnet file, a package, a card folder"
    )
    parser.add_argument("--strict", action="store_true", help="warnings fail too")
    parser.add_argument(
        "--output",
        choices=("text", "concise", "json"),
        default="text",
        help="how findings are written (default: text; concise: one line each)",
    )
    parser.add_argument(
        "--json", dest="output", action="store_const", const="json", help="same as --output json"
    )
    parser.add_argument("--watch", action="store_true", help="check again whenever a file changes")


def run(args: argparse.Namespace) -> int:
    if args.watch:
        return _watch(args)
    return once(args)


class Report:
    """What was found under all paths of one run."""

    def __init__(self) -> None:
        self.diagnostics: list[Diagnostic] = []
        self.failures: list[str] = []
        self.files: set[str] = set()

    def count(self, severity: str) -> int:
        return sum(one.severity == severity for one in self.diagnostics)


def once(args: argparse.Namespace) -> int:
    report = check_paths(args.paths)
    if args.output == "json":
        _print_json(report)
    elif args.output == "concise":
        from linnet.diagnostics.concise import render

        for one in report.diagnostics:
            print(render(one))
        for failure in report.failures:
            print(f"error: {failure}", file=sys.stderr)
    else:
        _print_text(report)
    failed = report.failures or report.count("error") or (args.strict and report.diagnostics)
    return 1 if failed else 0


def check_paths(paths: list[str]) -> Report:
    """Check each path once. A path that cannot be read at all does not stop the others."""
    from linnet.errors import Error
    from linnet.package import cache

    report = Report()
    seen: set[tuple[str, int, int, str]] = set()
    for path in [inner for given in paths for inner in packages_in(given)]:
        if (clean := cache.recall(path)) is not None:
            report.files.update(clean)
            continue
        try:
            package, diagnostics = _check(path)
        except Error as error:
            found = getattr(error, "diagnostics", None)
            if not found:
                report.failures.append(str(error))
                continue
            diagnostics = found
        except OSError as error:
            report.failures.append(f"{error.filename or path}: {error.strerror or error}")
            continue
        else:
            for module in package.module_paths():
                report.files.add(os.path.abspath(str(package.module_file(module))))
        for one in diagnostics:
            span = one.span
            key = (span.source.path, span.start, span.end, one.code + one.message)
            if key not in seen:
                seen.add(key)
                report.diagnostics.append(one)
    return report


def _check(path: str) -> tuple[Package, list[Diagnostic]]:
    """Check one package, leaving out what has been proven of others before."""
    from linnet.check import check_package
    from linnet.package import cache, open_package

    package = open_package(path)
    kept: dict[Package, tuple[str, frozenset[str]]] = {}

    def known(owner: Package, function: str) -> bool:
        if owner not in kept:
            kept[owner] = cache.proven(owner)
        return function in kept[owner][1]

    checked = check_package(package, known)
    if checked.ok:
        for owner, functions in checked.proven.items():
            cache.prove(kept[owner][0], functions)
        if not checked.diagnostics:
            cache.remember(path, package)
    return package, checked.diagnostics


def packages_in(path: str) -> list[str]:
    """The path itself, or the packages right inside a folder that is none (`models/`)."""
    if not os.path.isdir(path) or _is_package(path):
        return [path]
    inside = (os.path.join(path, name) for name in sorted(os.listdir(path)))
    return [child for child in inside if os.path.isdir(child) and _is_package(child)] or [path]


def _is_package(folder: str) -> bool:
    names = ("linnet.toml", "nest.toml")
    return any(os.path.isfile(os.path.join(folder, name)) for name in names)


def _print_text(report: Report) -> None:
    if report.diagnostics:
        from linnet.cli.terminal import use_color, width
        from linnet.diagnostics.text import render_all

        color, columns = use_color(sys.stderr), width(sys.stderr)
        text = render_all(report.diagnostics, color=color, width=columns)
        print(text, end="", file=sys.stderr)
    for failure in report.failures:
        print(f"error: {failure}", file=sys.stderr)
    out = sys.stderr if report.failures or report.count("error") else sys.stdout
    codes = dict.fromkeys(one.code for one in report.diagnostics if one.severity == "error")
    if codes:
        shown = " ".join(list(codes)[:3])
        print(f"for an example and the way out: linnet explain {shown}", file=out)
    print(summary(report), file=out)


def summary(report: Report) -> str:
    """`checked 6 files, no errors`, `checked 1 file: 2 errors, 1 warning`."""
    checked = f"checked {_number(len(report.files), 'file')}"
    errors = report.count("error") + len(report.failures)
    warnings = report.count("warning")
    found = [
        _number(count, word) for count, word in ((errors, "error"), (warnings, "warning")) if count
    ]
    return f"{checked}: {', '.join(found)}" if found else f"{checked}, no errors"


def _number(count: int, word: str) -> str:
    return f"{count} {word}{'' if count == 1 else 's'}"


def _print_json(report: Report) -> None:
    from json import dumps

    from linnet.diagnostics.json import document

    whole = document(report.diagnostics)
    whole["summary"]["files"] = len(report.files)
    whole["summary"]["errors"] += len(report.failures)
    if report.failures:
        # What kept a path from being read at all; such a failure has no place in a source.
        whole["failures"] = report.failures
    print(dumps(whole, ensure_ascii=False, indent=2))


def _watch(args: argparse.Namespace) -> int:
    """Check, wait for a change, check again, until interrupted."""
    from time import sleep

    while True:
        before = _stamps(args.paths)
        status = once(args)
        try:
            while _stamps(args.paths) == before:
                sleep(0.3)
        except KeyboardInterrupt:
            return status
        print("", file=sys.stderr)


def _stamps(paths: list[str]) -> dict[str, tuple[int, int]]:
    """The time and size of everything that a check of these paths reads."""
    stamps: dict[str, tuple[int, int]] = {}
    from pathlib import Path

    for path in map(Path, paths):
        found = [path]
        if path.is_dir():
            found = [*path.rglob("*.linnet"), *path.rglob("*.toml")]
        for file in found:
            try:
                stat = file.stat()
            except OSError:
                continue
            stamps[str(file)] = (stat.st_mtime_ns, stat.st_size)
    return stamps
