"""`linnet list`: what models there are."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from linnet.weights.amounts import figures

HELP = """\
List the models of the zoo, or of another registry: a folder, a file or an address of an
index (`linnet nest index`). LINNET_REGISTRY names one for good. A line has a model's name, its
task, how many parameters it has and what they take as they are declared, licence and title."""


def arguments(parser: argparse.ArgumentParser) -> None:
    add_registry(parser)
    parser.add_argument("--task", metavar="TAG", help="only models with this tag")
    parser.add_argument("--family", metavar="NAME", help="only models of this family")
    parser.add_argument("--json", action="store_true", help="the models as JSON")


def add_registry(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--registry", metavar="WHERE", help="a folder, a file or an address")


def run(args: argparse.Namespace) -> int:
    from linnet.nest.registry import open_registry

    registry = open_registry(args.registry)
    models = [
        model
        for model in registry.models
        if (args.task is None or args.task in model.get("tags", []))
        and (args.family is None or args.family == model.get("family"))
    ]
    if args.json:
        from json import dumps

        print(dumps({"version": 1, "models": models}, indent=2))
    else:
        for line in table(models):
            print(line)
        if not models and registry.models:
            _say_none(args, registry.models)
    for name, reason in registry.refused.items():
        print(f"error: {name} is left out: {reason}", file=sys.stderr)
    return 1 if registry.refused else 0


def _say_none(args: argparse.Namespace, models: list[dict[str, Any]]) -> None:
    """What there is, where a filter leaves nothing."""
    asked, there = [], []
    if args.task is not None:
        asked.append(f"task `{args.task}`")
        there.append(f"tags: {', '.join(sorted({t for m in models for t in m.get('tags', [])}))}")
    if args.family is not None:
        asked.append(f"family `{args.family}`")
        there.append(f"families: {', '.join(sorted({str(m.get('family')) for m in models}))}")
    print(f"no model of {' and '.join(asked)}; there are {'; '.join(there)}", file=sys.stderr)


def table(models: list[dict[str, object]]) -> list[str]:
    rows = []
    for model in models:
        tags = model.get("tags")
        task = str(tags[0]) if isinstance(tags, list) and tags else ""
        count = model.get("parameters")
        size = human(count) if isinstance(count, int) else ""
        held = model.get("bytes_by_dtype")
        numbers = [n for n in held.values() if isinstance(n, int)] if isinstance(held, dict) else []
        weights = figures(sum(numbers)) if numbers else ""
        told = [str(model.get(key) or "") for key in ("license", "title")]
        rows.append([str(model["name"]), task, size, weights, *told])
    widths = [max((len(row[at]) for row in rows), default=0) for at in range(6)]
    lines = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True) if width]
        lines.append("  ".join(cells).rstrip())
    return lines


def human(count: int) -> str:
    """`134.5M`, as one speaks of parameters."""
    for unit, size in (("B", 10**9), ("M", 10**6), ("k", 10**3)):
        if count >= size:
            return f"{count / size:.3g}{unit}"
    return str(count)
