"""Linnet: neural networks as checked text.

`check(path)` reads and proves a package; `load(model)` binds it to weights and runs it.
Both are imported when first used, so that `import linnet` costs next to nothing.
"""

from __future__ import annotations

import sys
from types import ModuleType

from linnet.errors import (
    BackendError,
    BindError,
    CardError,
    CheckError,
    Error,
    InputError,
    PackageError,
    WeightsError,
)

__version__ = "0.1.0"

__all__ = [
    "BackendError",
    "BindError",
    "CardError",
    "CheckError",
    "Error",
    "InputError",
    "PackageError",
    "WeightsError",
    "__version__",
    "check",
    "load",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from os import PathLike

    from linnet.ir.program import Program
    from linnet.torch.load import load


def check(path: str | PathLike[str]) -> Program:
    """Check a `.linnet` file, a package or a card folder, and return its program.

    Raises CheckError, whose `diagnostics` has every finding and whose text shows the errors
    with their source lines, and PackageError for a path that holds no package.
    """
    from linnet.check.path import check_path

    return check_path(path)


class _Package(ModuleType):
    """This package, with a function `check` although a subpackage has that name too.

    Importing `linnet.check` binds the subpackage to its parent's attribute. The function
    stays there, whatever came first.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if name == "check" and isinstance(value, ModuleType):
            return
        super().__setattr__(name, value)


def __getattr__(name: str) -> object:
    if name == "load":
        from linnet.torch.load import load

        globals()["load"] = load
        return load
    raise AttributeError(f"module 'linnet' has no attribute '{name}'")


sys.modules[__name__].__class__ = _Package
