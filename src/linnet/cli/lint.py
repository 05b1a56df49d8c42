"""`linnet lint`: what is correct and could be better."""

from __future__ import annotations

import argparse
import sys

from linnet.cli.check import FORMS, Report, packages_in, show

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


def run(args: argparse.Namespace) -> int:
    from linnet.errors import Error
    from linnet.lint import lint_package
    from linnet.package import open_package

    report = Report()
    for path in [inner for given in args.paths for inner in packages_in(given)]:
        try:
            package = open_package(path)
            report.diagnostics += lint_package(package)
            report.files.update(module.source.path for module in package.loaded())
        except Error as error:
            found = getattr(error, "diagnostics", None)
            report.diagnostics += found or []
            if not found:
                report.failures.append(str(error))
        except OSError as error:
            print(f"error: {error.filename or path}: {error.strerror or error}", file=sys.stderr)
            return 1
    show(report, args.output)
    return 1 if report.failures or report.diagnostics else 0
