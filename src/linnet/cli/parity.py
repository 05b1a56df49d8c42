"""`linnet parity`: where our values and a reference's first part."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.cli.model import add_arguments, open_target

if TYPE_CHECKING:
    from linnet.torch.parity.compare import Parity

HELP = """\
Run a model and a reference on the same input and weights, and name the first block whose result
parts from the module that holds the same tensors: how far, in which file and line, and how the
gap grows from there. Exit status: 0 in parity, 1 not."""


def arguments(parser: argparse.ArgumentParser) -> None:
    add_arguments(parser)
    parser.add_argument(
        "--reference", choices=("transformers",), required=True, help="what to compare with"
    )
    parser.add_argument(
        "--weights", metavar="FOLDER", type=Path,
        help="a folder with config.json and safetensors (default: the card's)",
    )  # fmt: skip
    parser.add_argument("--bindings", metavar="FILE", type=Path, help="default: the card's")
    parser.add_argument("--entry", metavar="E", help="default: the card's")
    parser.add_argument(
        "--dtype", choices=("f32", "bf16", "f16"), default="f32",
        help="what both compute in (default: f32, in which a gap is no rounding)",
    )  # fmt: skip
    parser.add_argument("--length", type=int, default=16, metavar="S", help="tokens (default: 16)")
    parser.add_argument("--seed", type=int, default=0, help="of the random input (default: 0)")
    parser.add_argument("--prompt", metavar="TEXT", help="a text in place of random tokens")
    parser.add_argument(
        "--tolerance", type=float, metavar="G",
        help="a gap up to it is rounding (default: 1e-4 of the largest magnitude in f32)",
    )  # fmt: skip
    parser.add_argument("--all", action="store_true", help="every block, not only those that part")
    parser.add_argument("--json", action="store_true", help="the comparison as JSON")
    parser.add_argument(
        "--record", metavar="WEIGHTS", nargs="?", const="",
        help="write the result into checked.json beside the card, for the model's page; WEIGHTS "
        "says which weights they were (default: the folder's name)",
    )  # fmt: skip


def run(args: argparse.Namespace) -> int:
    from linnet.cli.terminal import UsageError
    from linnet.errors import BindError
    from linnet.torch.load import load
    from linnet.torch.parity.compare import compare, make_inputs
    from linnet.torch.parity.reference import Reference

    if args.length < 1:
        raise UsageError(f"--length takes at least 1, found {args.length}")
    target = open_target(args)
    folder = args.weights or _folder(target)
    entry = args.entry or (target.card.entry if target.card else None)
    if entry is None:
        raise BindError("--entry must say which entry: there is no card that names one")
    generics: dict[str, Any] = {"T": args.dtype, **target.generics}
    if target.card is not None and "T" not in dict(_bound(args)):
        generics["T"] = args.dtype
    model = load(
        target.path, root=target.root, weights=folder, bindings=args.bindings, generics=generics,
        cast=args.dtype != "f32",
    )  # fmt: skip
    from linnet.torch import dtypes

    reference = Reference.open(Path(folder), dtypes.STORAGE[str(model.generics.get("T", "f32"))])
    tokens = _tokens(args.prompt, folder) if args.prompt is not None else None
    inputs = make_inputs(model, entry, args.length, args.seed, tokens)
    found = compare(model, reference, entry, inputs, args.tolerance)
    if args.json:
        from json import dumps

        print(dumps(document(found), indent=2))
    else:
        print(text(found, args.all))
    if args.record is not None:
        weights = args.record or Path(folder).resolve().name
        _record(target, found, reference.name, weights, args.dtype)
    return 0 if found.result <= found.tolerance else 1


def _record(target: Any, found: Parity, reference: str, weights: str, dtype: str) -> None:
    from linnet.errors import CardError
    from linnet.nest.checked import record_parity

    if target.card is None:
        raise CardError(f"{target.path}: no card there (nest.toml), beside which to record")
    record_parity(
        target.card,
        {
            "reference": reference, "weights": weights,
            "entry": found.entry, "dtype": dtype, "result": found.result,
            "tolerance": found.tolerance, "blocks": len(found.gaps),
        },
    )  # fmt: skip


def _bound(args: argparse.Namespace) -> dict[str, Any]:
    from linnet.cli.model import parse_bindings

    return parse_bindings([item for item in args.bind if "=" in item])


def _folder(target: Any) -> Path:
    from linnet.errors import WeightsError
    from linnet.nest.fetch import get_weights

    if target.card is None:
        raise WeightsError(f"{target.path}: no card names weights: give --weights FOLDER")
    found = get_weights(target.card)
    first = found[0] if isinstance(found, list) else found
    return first if first.is_dir() else first.parent


def _tokens(prompt: str, folder: Path) -> list[int]:
    from linnet.text.open import open_text

    return list(open_text(folder).tokenizer.encode(prompt))


def text(found: Parity, everything: bool) -> str:
    compared = f"{len(found.gaps)} blocks compared, {len(found.unmatched)} without a counterpart"
    if found.result <= found.tolerance:
        lines = [f"in parity: `{found.entry}` within {found.result:.1e} of the reference"]
    else:
        lines = [f"not in parity: `{found.entry}` parts by {found.result:.2g} of its scale"]
        first = found.first
        if first is None:
            lines.append("every block compared agrees; the mistake is outside them, in the entry")
        else:
            lines += [
                f"the first block that parts: `{first.path}` ({first.block}), {first.where}",
                f"  its counterpart is `{first.module}`; the gap is {first.gap:.2g} of its scale",
            ]
            grown = found.growth()
            lines += ["how it grows:", *_table(grown)]
    if everything:
        lines += ["every block, in the order they finish:", *_table(found.gaps, limit=None)]
    return "\n".join([*lines, compared])


def _table(gaps: list[Any], limit: int | None = 24) -> list[str]:
    shown = gaps if limit is None or len(gaps) <= limit else [*gaps[: limit - 1], gaps[-1]]
    width = max((len(gap.path) for gap in shown), default=0)
    lines = [f"  {gap.path:<{width}}  {gap.gap:8.2e}  {gap.module}" for gap in shown]
    if len(shown) < len(gaps):
        lines.insert(len(lines) - 1, f"  … {len(gaps) - len(shown)} more")
    return lines


def document(found: Parity) -> dict[str, Any]:
    def one(gap: Any) -> dict[str, Any]:
        return {
            "path": gap.path, "module": gap.module, "block": gap.block, "where": gap.where,
            "gap": gap.gap, "gap_before": gap.before,
        }  # fmt: skip

    first = found.first
    return {
        "version": 1,
        "entry": found.entry,
        "result": found.result,
        "tolerance": found.tolerance,
        "parity": found.result <= found.tolerance,
        "first": one(first) if first else None,
        "growth": [one(gap) for gap in found.growth()],
        "blocks": [one(gap) for gap in found.gaps],
        "without_counterpart": found.unmatched,
    }
