"""`linnet nest site`: the zoo's pages, as files that any web server can show."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from linnet.nest.card import Card

HELP = "Write the zoo's pages into a folder: plain files, readable without scripts or a server."


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="DIR", required=True, help="where to write")
    parser.add_argument(
        "--ask-hub", action="store_true",
        help="ask the hub how large the weight files are (default: as `nest check --record` noted)",
    )  # fmt: skip
    add_models(parser)


def add_models(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "models", metavar="MODEL", nargs="*", help="names or folders (default: the whole zoo)"
    )


def folders(models: list[str]) -> list[Path]:
    """The folders of the models named, or of the whole zoo."""
    from linnet.nest.zoo import find_model, list_models

    return [find_model(name) for name in models] if models else list_models()


def run(args: argparse.Namespace) -> int:
    from linnet.nest.pages.site import build, write

    def progress(name: str) -> None:
        if sys.stderr.isatty():
            print(f"  {name}", file=sys.stderr)

    files, refused = build(folders(args.models), progress, *([_sizes] if args.ask_hub else []))
    total = write(files, Path(args.output))
    print(f"{args.output}: {len(files)} files, {total / 1e6:.1f} MB")
    for name, reason in refused.items():
        print(f"error: {name} is not shown: {reason}", file=sys.stderr)
    return 1 if refused else 0


def _sizes(card: Card) -> dict[str, int]:
    """Of a card's weight files on its hub; none, and a line on stderr, where it cannot be asked."""
    from linnet.errors import WeightsError
    from linnet.nest.fetch import plan_card

    if card.weights.repo is None:
        return {}
    try:
        return {file.name: file.size for file in plan_card(card).files}
    except WeightsError as error:
        print(f"{card.name}: sizes are not known: {error}", file=sys.stderr)
        return {}
