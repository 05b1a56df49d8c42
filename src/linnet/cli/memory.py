"""`linnet memory`: what a model holds in memory, before anything is loaded."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from linnet.cli.model import Target, add_arguments, open_target
from linnet.errors import BindError
from linnet.weights.amounts import tenths

HELP = """\
Predict what a model holds in memory: weights, caches, recurrent state, and the values of one
call at their fullest moment; and what of it this machine can hold, in which format and with
how long a context. Sizes come from the card and from --bind; nothing is loaded."""

QUANTIZED = {"int8": 8, "int4": 4}
# What Python and torch take before a model is there: 240 MB, measured by bench/whole.py.
RUNTIME = 240_000_000
FILLED = 0.95  # of the machine's memory that a model may take
_PARTS = {
    "weights": ("weights", ""),
    "caches": ("caches", "growing with the context"),
    "states": ("recurrent state", "of fixed size"),
}
Found = dict[str, "int | dict[str, int]"]


def arguments(parser: argparse.ArgumentParser) -> None:
    add_arguments(parser)
    parser.add_argument("--batch", type=int, metavar="N", help="the rows that are kept (Batch)")
    parser.add_argument("--max-seq", type=int, metavar="N", help="the context (MaxSeq)")
    parser.add_argument("--quantize", choices=tuple(QUANTIZED), help="weights in fewer bits")
    parser.add_argument(
        "--embedding", type=int, choices=(4, 8), default=8,
        help="bits of embeddings and of heads of their shape under int4 (default: 8)",
    )  # fmt: skip
    parser.add_argument("--cache", choices=("int8",), help="keys and values in 8 bits")
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
    if target.folder is not None and args.quantize is None:
        args.quantize, args.embedding = target.folder.quantize, target.folder.embedding
    bits = QUANTIZED.get(args.quantize or "", 0)
    predicted = Prediction(target, args.tokens)
    found = predicted.at(bits, args.embedding, 8 if args.cache else 0)
    if args.json:
        from json import dumps

        print(dumps({"version": 1, "generics": target.generics, **found}, indent=2))
    else:
        print(shown(target, found, args.tokens))
        print("\n".join([*read_in(found), *predicted.fits(args)]))
    return 0


class Prediction:
    """A model's bytes by part, for weights and caches of some bits."""

    def __init__(self, target: Target, tokens: int):
        from linnet.ir.manifest import root_block
        from linnet.ir.memory import free_sizes, in_checkpoint, storage
        from linnet.ir.passes.pipeline import optimize
        from linnet.ir.peak import entry_sizes, peak
        from linnet.ir.specialize import bind_root, specialize

        program = target.program()
        root = root_block(program, target.root)
        self.generics: dict[str, int | str] = {
            name: int(str(value)) if str(value).isdigit() else str(value)
            for name, value in bind_root(program, root, target.generics).items()
        }
        self.free = free_sizes(program, root)
        self.stored = in_checkpoint(storage(program, root), target.bindings())
        self.most = target.card.generics.get("MaxSeq") if target.card else None
        bound = optimize(specialize(program, root, self.generics), "fast")
        self.work: dict[str, int] = {}
        for name in bound.entries:
            sizes = {n: tokens if n == "S" else 1 for n in entry_sizes(program.entries(root)[name])}
            self.work[name] = peak(bound, name, sizes).bytes.evaluate(sizes)

    def at(self, quantize: int, embedding: int, cache: int) -> Found:
        """Bytes by part, and by entry for the values at work."""
        from linnet.ir.memory import held

        parts = held(self.stored, self.generics, self.free, quantize, embedding, cache)
        together = sum(parts.values()) + max(self.work.values(), default=0) + RUNTIME
        return {**parts, "work": self.work, "runtime": RUNTIME, "together": together}

    def fits(self, args: argparse.Namespace) -> list[str]:
        """What of this machine's memory it takes, in this and in other formats."""
        here = machine_memory()
        if here is None:
            return []
        bits = QUANTIZED.get(args.quantize or "", 0)
        cache = 8 if args.cache else 0
        lines = [
            f"This machine has {tenths(here)}: {self._line(here, bits, args.embedding, cache)}"
        ]
        for name, other in (("as declared", 0), *QUANTIZED.items()):
            for few in (0, 8):
                if (other, few) == (bits, cache) or (few and self._same(other)):
                    continue
                text = name if not other else f"--quantize {name}"
                text += " --cache int8" if few else ""
                lines.append(f"  {text:<32}{self._line(here, other, args.embedding, few)}")
        return lines

    def _same(self, bits: int) -> bool:
        """Whether 8-bit caches save nothing."""
        return self.at(bits, 8, 8)["caches"] == self.at(bits, 8, 0)["caches"]

    def _line(self, here: int, bits: int, embedding: int, cache: int) -> str:
        found = self.at(bits, embedding, cache)
        together, caches = found["together"], found["caches"]
        assert isinstance(together, int) and isinstance(caches, int)
        room = int(here * FILLED)
        text = f"{tenths(together)} {'fits' if together <= room else 'does not fit'}"
        length = self.generics.get("MaxSeq")
        if isinstance(length, int) and caches and length > 0:
            longest = (room - together + caches) * length // caches
            if isinstance(self.most, int):
                longest = min(longest, self.most)
            if isinstance(self.most, int) and length > self.most:
                text += f"; the model was made for at most {self.most:,} tokens"
            elif longest > 0:
                text += f", with a context of up to {longest:,} tokens"
        return text


def shown(target: Target, found: Found, tokens: int) -> str:
    chosen = ("Batch", "MaxSeq", "T")
    at = ", ".join(f"{n} = {target.generics[n]}" for n in chosen if n in target.generics)
    lines = [
        f"{target.card.name if target.card else _name(target.path)}{f' at {at}' if at else ''}"
    ]
    for part, (name, remark) in _PARTS.items():
        amount = found[part]
        assert isinstance(amount, int)
        if amount or part == "weights":
            lines.append(f"  {name:<28}{tenths(amount):>10}  {remark}".rstrip())
    work = found["work"]
    assert isinstance(work, dict)
    for entry, amount in work.items():
        lines.append(f"  {f'activations of {entry}':<28}{tenths(amount):>10}")
    if work:
        lines.append(f"  (a sequence a call; of those that take a length, {tokens} tokens)")
    lines.append(f"  {'Python and torch, about':<28}{tenths(RUNTIME):>10}")
    together = found["together"]
    assert isinstance(together, int)
    lines.append(f"  {'together, at most':<28}{tenths(together):>10}")
    return "\n".join(lines)


def read_in(found: Found) -> list[str]:
    """What a load does with weights that a file holds as they are kept."""
    from linnet.weights.resident import outlook

    weights = found["weights"]
    assert isinstance(weights, int)
    if not weights:
        return []
    now, reason = outlook(weights)
    does = "reads them in" if now else "leaves them there, to come in as they are touched"
    return [f"Weights of a file in this format are mapped; a load now {does}: {reason}"]


def _name(path: Path) -> str:
    """A folder's own name, also of one called `.`."""
    return path.resolve().name or str(path)


def machine_memory() -> int | None:
    """Bytes of this machine's main memory, where the system says."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
