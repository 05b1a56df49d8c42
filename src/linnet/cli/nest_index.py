"""`linnet nest index`: one JSON of all cards, which a registry serves."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from linnet.cli.nest_site import add_models, folders

HELP = "Write one JSON of all cards, with entries, signatures, parameter counts and files."


def arguments(parser: argparse.ArgumentParser) -> None:
    add_models(parser)
    parser.add_argument("-o", "--output", metavar="FILE", help="default: standard output")


def run(args: argparse.Namespace) -> int:
    from linnet.nest.index import build_index, index_text

    def progress(name: str) -> None:
        if sys.stderr.isatty():
            print(f"  {name}", file=sys.stderr)

    index, refused = build_index(folders(args.models), progress)
    text = index_text(index)
    if args.output is None:
        print(text, end="")
    else:
        Path(args.output).write_text(text, encoding="utf-8")
        count = len(index["models"])
        print(f"{args.output}: {count} model{'s' * (count != 1)}, {len(text):,} characters")
    for name, reason in refused.items():
        print(f"error: {name} is left out: {reason}", file=sys.stderr)
    return 1 if refused else 0
