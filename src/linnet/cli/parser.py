"""argparse, with one line of standard error for a command line that is wrong."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import NoReturn

from linnet.cli.terminal import UsageError


class Parser(argparse.ArgumentParser):
    """Raises UsageError where argparse would print its usage and exit."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; `{self.prog} --help` tells more")

    def read(self, given: Sequence[str]) -> argparse.Namespace:
        """The arguments; options may stand between positional ones: `MODEL --chat PROMPT`."""
        args, rest = self.parse_known_intermixed_args(given)
        if rest:
            # What follows an unknown option may be its value, and is not to blame.
            options = [text for text in rest if text.startswith("-") and text != "-"]
            if options:
                self._unknown(options[0])
            self.error(_unexpected(rest))
        return args

    def _unknown(self, option: str) -> NoReturn:
        from difflib import get_close_matches

        name = option.partition("=")[0]
        known = [text for text in self._option_string_actions if text.startswith("--")]
        begun = [text for text in known if text.startswith(name)] if len(name) > 2 else []
        near = begun[:2] or get_close_matches(name, known, n=2, cutoff=0.6)
        if near:
            meant = " or ".join(f"`{one}`" for one in near)
            raise UsageError(f"unknown option `{name}`; did you mean {meant}?")
        self.error(f"unknown option `{name}`")


def _unexpected(rest: Sequence[str]) -> str:
    more = "argument" if len(rest) == 1 else "arguments"
    return f"unexpected {more} {' '.join(f'`{text}`' for text in rest)}"
