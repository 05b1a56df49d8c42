"""`linnet check`: read and prove files, packages and card folders."""

from __future__ import annotations

import argparse
import os
import sys

from linnet.errors import Error

TYPE_CHECKING = False
if TYPE_CHECKING:
    from linnet.diagnostics.diagnostic import Diagnostic
    from linnet.package import Package

HELP = """\
Check files, packages and card folders: every name, type, dtype and shape.

Findings go to standard error with the source they are about; in the other forms of
--output to standard output. A package without findings is remembered, and checked again
when it, what it depends on or linnet itself has changed.

Exit status: 0 no errors, 1 errors (with --strict also warnings), 2 the command line is
wrong.

  linnet check models/qwen3.6-35b-a3b
  linnet check --watch src/lib.linnet
  linnet check --fix .
  linnet check --output github ."""

FORMS = ("text", "concise", "json", "sarif", "github")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="a .linnet file, a package, a card folder"
    )
    parser.add_argument("--strict", action="store_true", help="warnings fail too")
    parser.add_argument(
        "--output",
        choices=FORMS,
        default="text",
        help="how findings are written (default: text; concise: one line each)",
    )
    parser.add_argument(
        "--json", dest="output", action="store_const", const="json", help="same as --output json"
    )
    parser.add_argument("--watch", action="store_true", help="check again whenever a file changes")
    parser.add_argument(
        "--fix", action="store_true", help="write safe fixes into the files, then report the rest"
    )
    parser.add_argument(
        "--unsafe-fixes",
        action="store_true",
        help="with --fix: those too that may not be what was meant",
    )


def run(args: argparse.Namespace) -> int:
    from linnet.cli.terminal import UsageError

    if args.unsafe_fixes and not args.fix:
        raise UsageError("--unsafe-fixes needs --fix")
    if args.watch:
        from linnet.cli.watching import watch

        return watch(args.paths, lambda: once(args))
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
    if args.fix:
        from linnet.cli.fixing import fix

        report, count, files = fix(args.paths, args.unsafe_fixes)
        print(said_of_fixes(count, len(files)), file=sys.stderr)
    else:
        report = check_paths(args.paths)
    show(report, args.output)
    failed = report.failures or report.count("error") or (args.strict and report.diagnostics)
    return 1 if failed else 0


def show(report: Report, form: str, clean: str = "no errors") -> None:
    """Print a report in one of `FORMS`. `clean` is said, in text, where nothing was found."""
    if form == "text":
        _print_text(report, clean)
    elif form in ("concise", "github"):
        _print_lines(report, form)
    else:
        _print_document(report, form)


def check_paths(paths: list[str]) -> Report:
    """Check each path once. A path that cannot be read at all does not stop the others."""
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
    import gc

    # Nothing here lets go of much: the collector would only look at it again and again.
    gc.disable()
    try:
        return _checked(path)
    finally:
        gc.enable()


def _checked(path: str) -> tuple[Package, list[Diagnostic]]:
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
    """The path itself, or what lies right inside a folder that is no package (`models/`):
    packages, and files that stand alone. A package's own folder `src` is that package."""
    if not os.path.isdir(path) or _is_package(path):
        return [path]
    inside = [os.path.join(path, name) for name in sorted(os.listdir(path))]
    packages = [child for child in inside if os.path.isdir(child) and _is_package(child)]
    files = [child for child in inside if child.endswith(".linnet") and os.path.isfile(child)]
    if files and _in_package(files[0]):
        files = files[:1]
    return [*packages, *files] or [path]


def _in_package(file: str) -> bool:
    """Whether a file is a module of a package, which a check of it reads as a whole."""
    from linnet.package import open_package

    try:
        return open_package(file).file is None
    except (Error, OSError):
        return False


def _is_package(folder: str) -> bool:
    names = ("linnet.toml", "nest.toml")
    return any(os.path.isfile(os.path.join(folder, name)) for name in names)


def _print_text(report: Report, clean: str) -> None:
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
    if hint := fixable(report):
        print(hint, file=sys.stderr)
    print(summary(report, clean), file=out)


def summary(report: Report, clean: str = "no errors") -> str:
    """`checked 6 files, no errors`, `checked 1 file: 2 errors, 1 warning`."""
    checked = f"checked {_number(len(report.files), 'file')}"
    errors = report.count("error") + len(report.failures)
    warnings = report.count("warning")
    found = [
        _number(count, word) for count, word in ((errors, "error"), (warnings, "warning")) if count
    ]
    return f"{checked}: {', '.join(found)}" if found else f"{checked}, {clean}"


def said_of_fixes(count: int, files: int) -> str:
    return f"{_number(count, 'fix', 'fixes')} in {_number(files, 'file')}"


def fixable(report: Report) -> str:
    """`2 can be fixed with --fix, 1 more with --fix --unsafe-fixes`, or nothing. What lint
    finds has safe fixes only."""
    own = [o for o in report.diagnostics if os.path.abspath(o.span.source.path) in report.files]
    safe = sum(any(fix.safety == "safe" for fix in one.fixes) for one in own)
    unsafe = sum(bool(one.fixes) for one in own) - safe
    if safe:
        more = f", {unsafe} more with --fix --unsafe-fixes" if unsafe else ""
        return f"{safe} can be fixed with --fix{more}"
    return f"{unsafe} can be fixed with --fix --unsafe-fixes" if unsafe else ""


def _number(count: int, word: str, plural: str | None = None) -> str:
    return f"{count} {word if count == 1 else plural or f'{word}s'}"


def _print_lines(report: Report, form: str) -> None:
    """A finding a line."""
    if form == "github":
        from linnet.diagnostics import github

        for one in report.diagnostics:
            print(github.render(one))
        for failure in report.failures:
            print(github.failure(failure))
        return
    if report.diagnostics:
        from linnet.diagnostics.concise import render

        for one in report.diagnostics:
            print(render(one))
    for failure in report.failures:
        print(f"error: {failure}", file=sys.stderr)


def _print_document(report: Report, form: str) -> None:
    """All findings as one JSON document."""
    from json import dumps

    if form == "sarif":
        from linnet import __version__
        from linnet.diagnostics import sarif

        whole = sarif.document(report.diagnostics, __version__, report.failures)
    else:
        from linnet.diagnostics.json import document

        whole = document(report.diagnostics)
        whole["summary"]["files"] = len(report.files)
        whole["summary"]["errors"] += len(report.failures)
        if report.failures:
            # What kept a path from being read at all; such a failure has no place in a source.
            whole["failures"] = report.failures
    print(dumps(whole, ensure_ascii=False, indent=2))
