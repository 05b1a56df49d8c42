"""`linnet lint`: what is correct and could be better."""

from __future__ import annotations

import argparse
import os
import sys

from linnet.cli.check import FORMS, Report, packages_in, said_of_fixes, show

HELP = """\
Look for what is correct and could be better: index notation that is slow and that no
rewrite makes fast, casts and variables that are not needed, names unlike the others.

A comment `// lint: allow` on the line, or alone on the line before, silences a finding.
Exit status: 0 nothing found, 1 something found, 2 the command line is wrong.

  linnet lint models/qwen3.6-35b-a3b
  linnet lint --output github src/lib.linnet"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", nargs="+", metavar="PATH", help="a .linnet file, a package, a card folder"
    )
    parser.add_argument(
        "--output", choices=FORMS, default="text", help="how findings are written (default: text)"
    )
    parser.add_argument(
        "--json", dest="output", action="store_const", const="json", help="same as --output json"
    )
    parser.add_argument(
        "--fix", action="store_true", help="write safe fixes into the files, then report the rest"
    )


def run(args: argparse.Namespace) -> int:
    if args.fix:
        from linnet.cli.fixing import fix

        report, count, files = fix(args.paths, False, look)
        print(said_of_fixes(count, len(files)), file=sys.stderr)
    else:
        report = look(args.paths)
    show(report, args.output, "nothing to improve")
    return 1 if report.failures or report.diagnostics else 0


def look(paths: list[str]) -> Report:
    """The findings under all paths. One that cannot be read does not stop the others."""
    from linnet.errors import Error
    from linnet.lint import lint_package
    from linnet.package import open_package

    report = Report()
    for path in [inner for given in paths for inner in packages_in(given)]:
        try:
            package = open_package(path)
            report.diagnostics += lint_package(package)
            report.files.update(os.path.abspath(module.source.path) for module in package.loaded())
        except Error as error:
            found = getattr(error, "diagnostics", None)
            report.diagnostics += found or []
            if not found:
                report.failures.append(str(error))
        except OSError as error:
            report.failures.append(f"{error.filename or path}: {error.strerror or error}")
    return report
