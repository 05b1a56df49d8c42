"""What MODEL means on a command line: a zoo name, a card folder, a package or a `.linnet` file."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from linnet.cli.terminal import UsageError
from linnet.errors import BindError

if TYPE_CHECKING:
    from linnet.ir.program import Program
    from linnet.nest.card import Card
    from linnet.nest.described import Described
    from linnet.package import Package

Generics = dict[str, "int | str"]


@dataclass
class Target:
    """A model found: where it is, its card if it has one, and its generics as bound."""

    path: Path
    card: Card | None
    package: Package
    generics: Generics
    root: str | None  # a block's name, or None to choose the only one with entries
    folder: Described | None = None  # MODEL was a folder of weights that names its model

    def program(self) -> Program:
        """The checked program. Raises CheckError."""
        from linnet.check.path import program_of

        return program_of(self.package, str(self.path))

    def bindings(self) -> dict[str, str]:
        """The tensor of each parameter path, where a card says so."""
        if self.card is None or self.card.weights.bindings is None:
            return {}
        from linnet.weights.bindings import read_bindings

        return read_bindings(self.card.weights.bindings)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """MODEL, `--root` and `--bind`."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        help="a name of the zoo, a folder with a card, a package or a .linnet file",
    )
    parser.add_argument("--root", metavar="BLOCK", help="the root block (default: the card's)")
    parser.add_argument(
        "--bind",
        metavar="N=V",
        nargs="+",
        action="extend",
        default=[],
        help="values for generics: `Groups=2 T=f32`; they override the card's",
    )


def open_target(args: argparse.Namespace) -> Target:
    """Find what the arguments name. Raises PackageError, CardError, BindError or UsageError."""
    from linnet.nest.card import read_card
    from linnet.nest.described import described
    from linnet.nest.zoo import find_model
    from linnet.package import open_package

    bind = list(args.bind)
    model = args.model
    if model is None:
        # `--bind A=1 B=2 MODEL`: the list took the model too.
        if bind and "=" not in bind[-1]:
            model = bind.pop()
        else:
            raise UsageError("no MODEL given: a name of the zoo, a folder or a .linnet file")
    folder = described(model)
    path = folder.home() if folder else find_model(model)
    card = read_card(path) if path.is_dir() and (path / "nest.toml").is_file() else None
    generics: Generics = dict(card.generics) if card else {}
    root = args.root or (card.root if card else None)
    if folder is not None:
        generics.update(folder.generics)
        root = args.root or folder.root or root
        if getattr(args, "weights", 0) is None:
            args.weights = [str(folder.weights)]
    generics.update(parse_bindings(bind))
    return Target(path, card, open_package(path), generics, root, folder)


def parse_bindings(items: list[str]) -> Generics:
    """`["Groups=2", "T=f32"]` as values. Raises BindError for what is no `N=V`."""
    generics: Generics = {}
    for item in items:
        name, equals, value = (part.strip() for part in item.partition("="))
        if not equals or not name.isidentifier() or not value:
            # It takes all that follows up to the next option, a prompt too.
            elsewhere = "" if equals else "; what is none stands before --bind"
            raise BindError(f"--bind takes NAME=VALUE, found `{item}`{elsewhere}")
        if name in generics:
            raise BindError(f"--bind gives `{name}` twice")
        try:
            generics[name] = int(value, 0)
        except ValueError:
            generics[name] = value
    return generics
