"""`linnet show`: one card, with its entries and its figures."""

from __future__ import annotations

import argparse
from typing import Any

from linnet.cli.list import add_registry, human

HELP = "Show one model of the zoo, or of another registry: its card, entries, sizes and files."


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a name of the registry, or a folder")
    add_registry(parser)
    parser.add_argument("--json", action="store_true", help="all of it as JSON")


def run(args: argparse.Namespace) -> int:
    from pathlib import Path

    from linnet.nest.card import has_card
    from linnet.nest.index import describe
    from linnet.nest.registry import open_registry

    folder = Path(args.model)
    if args.registry is None and folder.is_dir() and has_card(folder):
        model = describe(folder)
    else:
        model = open_registry(args.registry).find(args.model)
    if args.json:
        from json import dumps

        print(dumps(model, indent=2))
    else:
        print(text(model))
    return 0


def text(model: dict[str, Any]) -> str:
    lines = [f"{model['name']}: {model.get('title') or model['name']}"]
    if model.get("summary"):
        from textwrap import wrap

        lines += ["", *wrap(str(model["summary"]), 90)]
    facts: list[tuple[str, str]] = [
        ("family", str(model.get("family") or "")),
        ("licence", str(model.get("license") or "")),
        ("tags", ", ".join(map(str, model.get("tags", [])))),
    ]
    count = model.get("parameters")
    if isinstance(count, int):
        active = model.get("active_parameters")
        told = f"{human(count)} ({count:,})"
        if isinstance(active, int) and active != count:
            told += f", {human(active)} at work on a token"
        facts.append(("parameters", told))
    sizes = model.get("bytes_by_dtype")
    if isinstance(sizes, dict):
        told = ", ".join(f"{dtype} {size / 1e9:.3g} GB" for dtype, size in sizes.items())
        facts.append(("weights", told))
    generics = model.get("generics", {})
    facts.append(("sizes", ", ".join(f"{name}={value}" for name, value in generics.items())))
    where = model.get("weights", {})
    if where.get("repo"):
        revision = where.get("revision")
        told = f"{where['repo']} at {revision}" if revision else str(where["repo"])
        files = len(where.get("files") or [])
        if files:
            told += f", {files} file{'s' * (files != 1)}"
        facts.append(("from", told))
    facts += [(name, str(link)) for name, link in model.get("links", {}).items()]
    width = max(len(name) for name, _ in facts) + 2
    lines += ["", *(f"{name:<{width}}{value}" for name, value in facts if value)]
    if model.get("entries"):
        lines += ["", "entries"]
        for entry in model["entries"]:
            lines.append(f"  {entry['signature']}")
    if model.get("files"):
        lines += ["", "files"]
        lines += [f"  {file['size']:>10,}  {file['path']}" for file in model["files"]]
    return "\n".join(lines)
