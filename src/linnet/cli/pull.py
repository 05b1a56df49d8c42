"""`linnet pull`: a model's weights and its tokenizer onto this machine."""

from __future__ import annotations

import argparse

HELP = """\
Fetch a model's weights from the repository that its card names, at the revision it pins, with
tokenizer, template and generation defaults: only the files it needs. What was broken off goes
on where it stopped. Afterwards the model runs offline.

HF_HUB_CACHE, HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE count as with the hub's own tools."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a name of the zoo, or a folder with a card")
    parser.add_argument(
        "--dry-run", action="store_true", help="say what would be fetched, and fetch nothing"
    )


def run(args: argparse.Namespace) -> int:
    from linnet.errors import CardError, WeightsError
    from linnet.nest.card import has_card, read_card
    from linnet.nest.fetch import offline, pull_card
    from linnet.nest.zoo import find_model, find_weights

    path = find_model(args.model)
    if not path.is_dir() or not has_card(path):
        raise CardError(f"{path}: no card there (nest.toml), so nothing says where its weights are")
    card = read_card(path)
    if offline() or card.weights.repo is None:
        found = find_weights(card)  # says what to do where there are none
        first = found[0].parent if isinstance(found, list) else found
        print(f"{card.name}: its weights are here already, in {first}")
        return 0
    if args.dry_run:
        from linnet.weights.hub import plan_pull

        pull = plan_pull(card.weights.repo, card.weights.revision, card.weights.files)
        print(pull.summary())
        for file in pull.files:
            print(f"  {file.size:>16,}  {file.name}{'' if file.here is None else '  (here)'}")
        return 0
    paths = pull_card(card, lambda text: print(text, flush=True))
    if not paths:
        raise WeightsError(f"{card.name}: the card names no file")
    print(f"{card.name}: ready in {paths[0].parent}")
    return 0
