"""The terminal: colour, width, a pipe that closes; and a command line that is wrong."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO


class UsageError(Exception):
    """The command line is wrong. Exit status 2."""


def use_color(stream: TextIO) -> bool:
    """Whether to colour: on a terminal, unless NO_COLOR is set (https://no-color.org)."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def width(stream: TextIO) -> int:
    """Columns for source lines: the terminal's, held between 80 and 100."""
    if not stream.isatty():
        return 100
    try:
        columns = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return 100
    return max(80, min(100, columns))


def help_width() -> int:
    """Columns for help: those of COLUMNS or the terminal, as argparse takes them."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns) - 2
    try:
        return os.get_terminal_size(1).columns - 2
    except (OSError, ValueError):
        return 78


def prepare_streams() -> None:
    """Print any text on any terminal: what an encoding lacks is shown as an escape."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def abandon_output() -> None:
    """After a broken pipe: send what is still buffered nowhere, so that exit is quiet."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            os.dup2(nowhere, stream.fileno())
        except (OSError, ValueError):
            pass
