"""`linnet nest new`: a package for a checkpoint."""

from __future__ import annotations

import argparse
from pathlib import Path

HELP = """\
Write a package for a checkpoint of a family that the zoo knows: card, source, sizes and
bindings, from its config.json (a GGUF file's metadata) and the headers of its weights. For other
checkpoints it says what is missing."""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", metavar="DIR", type=Path, help="where to write; its name counts")
    parser.add_argument(
        "--from", dest="place", metavar="CHECKPOINT", required=True,
        help="a folder with config.json and safetensors, a GGUF file, or a repository `owner/name`",
    )  # fmt: skip
    parser.add_argument("--repo", metavar="OWNER/NAME", help="where the weights are published")
    parser.add_argument("--license", metavar="NAME", help="default: what the checkpoint states")


def run(args: argparse.Namespace) -> int:
    from linnet.nest.new.package import new_package

    made = new_package(args.folder, args.place, repo=args.repo, license=args.license)
    loaded = sum(len(entry.paths) for entry in made.plan.entries)
    print(
        f"{made.folder}: from `{made.base}`, {loaded} parameters bound to "
        f"{len(made.plan.entries)} tensors"
    )
    if made.plan.unused:
        print(f"  {len(made.plan.unused)} tensors are named by no parameter and ignored")
    if made.imported:
        print(f"  {made.imported} of its tensors are put together from parts by an importer")
    for note in made.notes:
        print(f"  note: {note}")
    return 0
