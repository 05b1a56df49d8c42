"""`linnet memory`: what a model holds in memory, before anything is loaded."""

from __future__ import annotations

import argparse
import os

from linnet.cli.inspect import human
from linnet.cli.model import Target, add_arguments, open_target
from linnet.errors import BindError

HELP = """\
Predict what a model holds in memory: weights, caches, states, and the values of one call
at their fullest moment. Sizes come from the card and from --bind; nothing is loaded. What
a framework or an allocator keeps for itself comes on top."""

QUANTIZED = {"int8": 8, "int4": 4}
_PARTS = {
    "weights": "",
    "caches": "growing with the context",
    "states": "of fixed size",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    add_arguments(parser)
    parser.add_argument("--batch", type=int, metavar="N", help="the rows that are kept (Batch)")
    parser.add_argument("--max-seq", type=int, metavar="N", help="the context (MaxSeq)")
    parser.add_argument("--quantize", choices=tuple(QUANTIZED), help="weights in fewer bits")
    parser.add_argument(
        "--tokens", type=int, default=512, metavar="N", help="tokens in one call (default: 512)"
    )
    parser.add_argument("--json", action="store_true", help="the same as JSON")


def run(args: argparse.Namespace) -> int:
    target = open_target(args)
    for name, value in (("Batch", args.batch), ("MaxSeq", args.max_seq)):
        if value is not None:
            target.generics[name] = value
    if args.tokens < 0:
        raise BindError(f"--tokens takes a number of tokens, found {args.tokens}")
    found = predict(target, QUANTIZED.get(args.quantize or "", 0), args.tokens)
    if args.json:
        from json import dumps

        print(dumps({"version": 1, "generics": target.generics, **found}, indent=2))
    else:
        print(shown(target, found, args.tokens))
    return 0


def predict(target: Target, quantize: int, tokens: int) -> dict[str, int | dict[str, int]]:
    """Bytes by part, and by entry for the values at work."""
    from linnet.ir.manifest import root_block
    from linnet.ir.memory import free_sizes, held, in_checkpoint, storage
    from linnet.ir.passes.pipeline import optimize
    from linnet.ir.peak import entry_sizes, peak
    from linnet.ir.specialize import bind_root, specialize

    program = target.program()
    root = root_block(program, target.root)
    bound_generics = bind_root(program, root, target.generics)
    generics: dict[str, int | str] = {
        name: int(str(value)) if str(value).isdigit() else str(value)
        for name, value in bound_generics.items()
    }
    free = free_sizes(program, root)
    parts = held(in_checkpoint(storage(program, root), target.bindings()), generics, free, quantize)
    bound = optimize(specialize(program, root, generics), "fast")
    work: dict[str, int] = {}
    for name in bound.entries:
        sizes = {n: tokens if n == "S" else 1 for n in entry_sizes(program.entries(root)[name])}
        work[name] = peak(bound, name, sizes).bytes.evaluate(sizes)
    together = sum(parts.values()) + max(work.values(), default=0)
    return {**parts, "work": work, "together": together}


def shown(target: Target, found: dict[str, int | dict[str, int]], tokens: int) -> str:
    chosen = ("Batch", "MaxSeq", "T")
    at = ", ".join(f"{n} = {target.generics[n]}" for n in chosen if n in target.generics)
    lines = [f"{target.card.name if target.card else target.path}{f' at {at}' if at else ''}"]
    for part, remark in _PARTS.items():
        amount = found[part]
        assert isinstance(amount, int)
        if amount or part == "weights":
            lines.append(f"  {part:<24}{human(amount):>10}  {remark}".rstrip())
    work = found["work"]
    assert isinstance(work, dict)
    for name, amount in work.items():
        lines.append(f"  {f'values of {name}':<24}{human(amount):>10}")
    if work:
        lines.append(f"  (a sequence a call; of those that take a length, {tokens} tokens)")
    together = found["together"]
    assert isinstance(together, int)
    lines.append(f"  {'together, at most':<24}{human(together):>10}")
    here = machine_memory()
    if here is not None:
        fits = "fits" if together <= here * 0.95 else "does not fit"
        lines.append(f"This machine has {human(here)}: it {fits}.")
    return "\n".join(lines)


def machine_memory() -> int | None:
    """Bytes of this machine's main memory, where the system says."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
