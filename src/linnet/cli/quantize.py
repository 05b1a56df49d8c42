"""`linnet quantize`: a checkpoint in few bits, as a folder that loads as it lies."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.cli.model import Target, add_arguments, open_target
from linnet.cli.terminal import UsageError
from linnet.errors import WeightsError
from linnet.weights.amounts import tenths

if TYPE_CHECKING:
    from linnet.ir.manifest import Parameter
    from linnet.nest.described import Described
    from linnet.weights.choice import Choice
    from linnet.weights.folder import Output

HELP = """\
Write a model's weights in 4 or 8 bits as a folder of safetensors, with the tokenizer, the
chat template and the generation defaults beside them. One tensor is in memory at a time. A
run that was stopped goes on where it was. The folder loads as it lies and names its model:
`linnet chat DIR`."""


def arguments(parser: argparse.ArgumentParser) -> None:
    add_arguments(parser)
    parser.add_argument("-o", "--output", metavar="DIR", required=True, help="the folder to write")
    parser.add_argument(
        "--quantize", choices=("int8", "int4"), default="int4", help="the format (default: int4)"
    )
    parser.add_argument(
        "--embedding", type=int, choices=(4, 8), default=8,
        help="bits of embeddings and of heads of their shape under int4 (default: 8)",
    )  # fmt: skip
    parser.add_argument(
        "--weights", metavar="PATH", action="append",
        help="a folder or file of weights, or `random` (default: the card's)",
    )  # fmt: skip
    parser.add_argument("--cast", action="store_true", help="let dense weights be narrowed")
    parser.add_argument("--seed", type=int, default=0, help="for --weights random")
    parser.add_argument(
        "--shard", type=int, default=2000, metavar="MB", help="bytes of a file (default: 2000 MB)"
    )
    parser.add_argument("--quiet", "-q", action="store_true", help="no progress")


def run(args: argparse.Namespace) -> int:
    from linnet.ir.manifest import manifest, root_block
    from linnet.weights.choice import Choice
    from linnet.weights.folder import write_folder

    if args.shard < 1:
        raise UsageError(f"--shard takes a number of megabytes, found {args.shard}")
    target = open_target(args)
    program = target.program()
    root = root_block(program, target.root)
    for name in ("Batch", "MaxSeq"):  # no weight depends on what only states have
        if name in {g.name for g in program.blocks[root].generics}:
            target.generics.setdefault(name, 1)
    choice = Choice(program, root, target.generics, args.quantize, args.embedding)
    listed = [p for p in manifest(program, root, target.generics) if p.kind != "state"]
    about = {
        "linnet.model": target.card.name if target.card else target.path.stem,
        "linnet.format": f"{args.quantize}, embeddings {args.embedding}",
    }
    places: list[Any] = []
    if args.weights == ["random"]:
        about["linnet.source"] = f"random, seed {args.seed}"
        from linnet.torch.random import random_outputs

        outputs = random_outputs(listed, choice, target.bindings(), args.seed)
    else:
        weights = _weights(args, target)
        places.append(weights)
        outputs, about["linnet.source"] = _stored(listed, choice, target, weights, args.cast)
    if target.path.is_dir():
        places.append(target.path)
    folder = Path(args.output)
    texts: list[str] = []
    lacking = ""

    def finish(at: Path) -> None:
        from linnet.nest.described import describe
        from linnet.text.copy import copy_text
        from linnet.text.errors import TextError

        nonlocal lacking
        describe(at, _described(target, args))
        try:
            texts.extend(copy_text(at, *places))
        except TextError as error:  # the weights are worth having without it
            lacking = str(error)

    files = write_folder(
        folder, outputs, about, shard_bytes=args.shard * 1_000_000,
        progress=None if args.quiet else _progress, finish=finish,
    )  # fmt: skip
    packed = sum(1 for output in outputs if output.kind)
    size = sum(output.nbytes for output in outputs)
    print(
        f"{folder}: {len(outputs)} tensors, {packed} of them packed, {tenths(size)} in "
        f"{len(files)} file{'s' * (len(files) > 1)}"
    )
    print(f"  with {', '.join(texts)}" if texts else f"  without a tokenizer: {lacking}")
    return 0


def _described(target: Target, args: argparse.Namespace) -> Described:
    """What the folder says of itself: its model, and the sizes that are not the card's."""
    from linnet.nest.described import Described
    from linnet.nest.zoo import spoken

    declared = target.card.generics if target.card else {}
    generics = {
        name: value
        for name, value in target.generics.items()
        if declared.get(name) != value and name not in ("Batch", "MaxSeq")
    }
    model = spoken(target.card) if target.card else str(target.path)
    if Path(model).exists():
        model = str(Path(model).resolve())
    return Described(model, Path(args.output), generics, target.root, args.quantize, args.embedding)


def _weights(args: argparse.Namespace, target: Target) -> Any:
    from linnet.nest.zoo import find_weights

    if args.weights:
        return args.weights[0] if len(args.weights) == 1 else args.weights
    if target.card is None:
        raise WeightsError(f"{target.path}: has no card; give the weights with --weights")
    return find_weights(target.card)


def _stored(
    listed: list[Parameter], choice: Choice, target: Target, weights: Any, cast: bool
) -> tuple[list[Output], str]:
    """What becomes of the tensors of a checkpoint, and a line that identifies it."""
    from linnet.weights.checkpoint import open_checkpoint
    from linnet.weights.folder import Output
    from linnet.weights.importer_file import read_importer
    from linnet.weights.plan import plan
    from linnet.weights.quantize import quantize_tensor

    checkpoint = open_checkpoint(weights)
    names = target.bindings()
    rules = read_importer(target.card.weights.importer if target.card else None)
    checkpoint.adapt((names.get(p.path, p.path) for p in listed), rules)
    planned = plan(listed, checkpoint, names, cast)

    def output(entry: Any) -> Output:
        kind = choice.format(entry.paths, entry.shape, entry.dtype)

        def make() -> Any:
            checkpoint.forget(last[0]) if last else None
            last[:] = [entry.tensor]
            if kind is None:
                return checkpoint.read(entry.tensor, entry.dtype)
            return quantize_tensor(checkpoint, entry.tensor, entry.shape, kind)

        return Output(entry.tensor, entry.dtype, entry.shape, kind, make)

    last: list[str] = []
    stats = [(path.name, path.stat()) for path in checkpoint.files]
    source = "; ".join(f"{name} {s.st_size} {s.st_mtime_ns}" for name, s in stats)
    return [output(entry) for entry in planned.entries], source


def _progress(done: int, total: int, name: str) -> None:
    if sys.stderr.isatty():
        text = f"{done / max(1, total):4.0%}  {tenths(done)} of {tenths(total)}  {name}"
        print(f"\r\x1b[K{text[:78]}", end="" if done < total else "\n", file=sys.stderr, flush=True)
