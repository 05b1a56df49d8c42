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
    from linnet.check import check
    from linnet.torch import load


class _Package(ModuleType):
    """This package, with a function `check` although a subpackage has that name too.

    Importing `linnet.check` binds the subpackage to the parent's attribute; a property
    with a setter that does nothing keeps the function there, whatever came first.
    """

    @property
    def check(self) -> object:
        from linnet.check import check

        return check

    @check.setter
    def check(self, subpackage: ModuleType) -> None:
        pass


def __getattr__(name: str) -> object:
    if name == "load":
        from linnet.torch import load

        globals()["load"] = load
        return load
    raise AttributeError(f"module 'linnet' has no attribute '{name}'")


sys.modules[__name__].__class__ = _Package
