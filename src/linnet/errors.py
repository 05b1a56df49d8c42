"""The errors a user of the Python API can catch, all under `linnet.Error`."""

from __future__ import annotations

TYPE_CHECKING = False  # as `typing` has it, which takes a while to import
if TYPE_CHECKING:
    from linnet.diagnostics.diagnostic import Diagnostic


class Error(Exception):
    """The root of every error raised on purpose. `str()` is a message fit for a user."""


class CheckError(Error):
    """A program has errors; `.diagnostics` holds all of them."""

    def __init__(self, message: str, diagnostics: list[Diagnostic]):
        super().__init__(message)
        self.diagnostics = diagnostics


class PackageError(Error):
    """A package, its manifest or a path to one cannot be used."""


class CardError(Error):
    """A card (`nest.toml`) is wrong."""


class WeightsError(Error):
    """A checkpoint does not fit the program; `.problems` lists every finding."""

    def __init__(self, message: str, problems: list[str] | None = None):
        super().__init__(message)
        self.problems = problems or [message]


class BindError(Error):
    """The generics given do not fit the program."""


class InputError(Error):
    """An argument of an entry is wrong."""


class BackendError(Error):
    """A backend cannot do what was asked."""


def how_to_install(extra: str) -> str:
    """The command that installs what an extra needs. In a clone it names the clone: there is no
    release, and under the same name an index may hold something else."""
    from pathlib import Path

    clone = Path(__file__).resolve().parents[2]
    if (clone / "pyproject.toml").is_file() and (clone / "src" / "linnet").is_dir():
        return f"pip install -e '{clone}[{extra}]'"
    return f"pip install 'linnet[{extra}]'"
