"""From a path to a checked program, or one error that shows all findings."""

from __future__ import annotations

from os import PathLike

from linnet.check.checker import check_package
from linnet.errors import CheckError
from linnet.ir.program import Program
from linnet.package import Package, open_package


def check_path(path: str | PathLike[str]) -> Program:
    """Check a `.linnet` file, a package or a card folder, and return its program.

    Raises CheckError, whose `diagnostics` has every finding and whose text shows the errors
    with their source lines, and PackageError for a path that holds no package.
    """
    return program_of(open_package(path), str(path))


def program_of(package: Package, name: str) -> Program:
    """The same for a package that is open already; `name` is what the error calls it."""
    checked = check_package(package)
    if checked.program is not None:
        return checked.program
    from linnet.diagnostics.text import render_all

    errors = [one for one in checked.diagnostics if one.severity == "error"]
    count = f"{len(errors)} error{'' if len(errors) == 1 else 's'}"
    text = f"{name}: {count}\n\n{render_all(errors)}".rstrip()
    raise CheckError(text, checked.diagnostics)
