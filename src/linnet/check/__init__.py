"""The checker: proves a package's shapes and dtypes, and gives the program as data."""

from linnet.check.checker import Checked, check_package

__all__ = ["Checked", "check_package"]
