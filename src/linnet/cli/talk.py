"""What `generate` and `chat` share: arguments, loading, Ctrl-C, figures."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from linnet.cli.model import Generics, Target, add_arguments, open_target
from linnet.cli.terminal import UsageError
from linnet.errors import BindError, InputError, WeightsError

if TYPE_CHECKING:
    from linnet.ir.program import Program
    from linnet.text.context import Context
    from linnet.text.generation import Finished
    from linnet.text.open import TextModel
    from linnet.text.settings import Settings


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """MODEL and how to load and sample it."""
    add_arguments(parser)
    load = parser.add_argument_group("loading")
    load.add_argument(
        "--weights",
        metavar="PATH",
        action="append",
        help="a folder or file of weights, or `random` (default: the card's)",
    )
    load.add_argument("--tokenizer", metavar="DIR", help="where the tokenizer is, if elsewhere")
    load.add_argument(
        "--max-seq",
        type=int,
        metavar="N",
        help="context length in tokens (default: what fits the memory)",
    )
    load.add_argument("--device", default="cpu", help="cpu (default), cuda, cuda:1 …")
    load.add_argument(
        "--numerics",
        choices=("exact", "equivalent", "fast"),
        default="fast",
        help="exact: as written, slow; equivalent: up to reassociation; fast (default)",
    )
    load.add_argument(
        "--quantize", metavar="FORMAT",
        help="int8 or int4: pack the weights on load; stored: run a GGUF's own formats",
    )  # fmt: skip
    load.add_argument(
        "--embedding", type=int, choices=(4, 8), default=8,
        help="bits of embeddings and of heads of their shape under int4 (default: 8)",
    )  # fmt: skip
    load.add_argument("--cache", metavar="FORMAT", help="int8: keep keys and values in 8 bits")
    draw = parser.add_argument_group("sampling (default: the model's own, else greedy)")
    draw.add_argument("--max-new", type=int, metavar="N", help="at most N new tokens")
    draw.add_argument("--temperature", type=float, metavar="X", help="0 is greedy")
    draw.add_argument("--top-k", type=int, metavar="N", help="keep the N likeliest tokens")
    draw.add_argument("--top-p", type=float, metavar="P", help="keep the likeliest that carry P")
    draw.add_argument("--min-p", type=float, metavar="P", help="at least P of the likeliest")
    draw.add_argument("--repetition-penalty", type=float, metavar="X", help="1 is none")
    draw.add_argument("--presence-penalty", type=float, metavar="X", help="-2 to 2; 0 is none")
    draw.add_argument("--frequency-penalty", type=float, metavar="X", help="-2 to 2; 0 is none")
    draw.add_argument("--seed", type=int, metavar="N", help="the same seed, the same answer")
    draw.add_argument(
        "--stop", action="append", metavar="TEXT", help="end the answer before TEXT; may repeat"
    )
    draw.add_argument("--system", metavar="TEXT", help="a system message for the chat template")
    parser.add_argument("--quiet", "-q", action="store_true", help="no figures at the end")


@dataclass
class Loaded:
    """A model ready to talk."""

    model: Any
    text: TextModel
    settings: Settings
    context: Context | None
    recurrent: frozenset[str]  # paths of states that do not grow with the context


def load_model(args: argparse.Namespace) -> Loaded:
    """Checks the program, chooses the context, loads the weights. Raises `linnet.Error`."""
    # Wrong settings are said before anything large is read.
    settings = settings_of(args, None)
    target = open_target(args)
    program = target.program()
    refuse_encoders(program, target)
    weights, random = chosen_weights(args, target)
    text = _text(args, target, weights)
    settings = settings_of(args, text)
    generics, context, recurrent = _generics(args, target, program, None if random else weights)

    import linnet

    model = linnet.load(
        str(target.path),
        program=program,
        root=target.root,
        weights="random" if random else weights,
        generics=generics,
        device=args.device,
        numerics=args.numerics,
        quantize=args.quantize,
        embedding=args.embedding,
        cache=args.cache,
    )
    return Loaded(model, text, settings, context, recurrent)


def refuse_encoders(program: Program, target: Target) -> None:
    """Raises InputError for a model that continues no text, before its weights are looked for."""
    from linnet.ir.manifest import root_block

    there = program.entries(root_block(program, target.root))
    if "prefill" not in there or "decode" not in there:
        name = target.card.name if target.card else str(target.path)
        raise InputError(
            f"{name}: continues no text: expected the entries `prefill` and `decode`, found "
            f"{', '.join(f'`{one}`' for one in there) or 'none'}"
        )


def compile_entries(model: Any, quiet: bool) -> float:
    """Compiles before anything is timed, which a terminal is told. Seconds that it took."""
    native = getattr(model, "native", None)
    if native is None:
        return 0.0
    terminal = sys.stderr.isatty() and not quiet
    if terminal:
        print("compiling …", end="", file=sys.stderr, flush=True)
    start = time.perf_counter()
    native.entry("decode")
    if terminal:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
    return time.perf_counter() - start


def settings_of(args: argparse.Namespace, text: TextModel | None) -> Settings:
    """The model's generation settings with what the command line changes."""
    from linnet.text.settings import Settings

    base = Settings() if text is None else text.settings
    return base.change(
        temperature=args.temperature,
        top_k=args.top_k,
        top_p=args.top_p,
        min_p=args.min_p,
        repetition_penalty=args.repetition_penalty,
        presence_penalty=args.presence_penalty,
        frequency_penalty=args.frequency_penalty,
        seed=args.seed,
        max_new_tokens=args.max_new,
        stop=(*base.stop, *args.stop) if args.stop else None,
    )


def chosen_weights(args: argparse.Namespace, target: Target) -> tuple[Any, bool]:
    """The weights to load, or None, and whether they are to be random."""
    from linnet.nest.fetch import get_weights

    given = args.weights or []
    if "random" in given:
        if len(given) > 1:
            raise UsageError("--weights random stands alone")
        return None, True
    if given:
        return (given[0] if len(given) == 1 else given), False
    if target.card is None:
        raise WeightsError(f"{target.path}: has no card; give the weights with --weights")
    return get_weights(target.card), False


def _text(args: argparse.Namespace, target: Target, weights: Any) -> TextModel:
    from linnet.nest.zoo import find_weights
    from linnet.text.open import open_text

    if args.tokenizer is not None:
        return open_text(args.tokenizer)
    places = [weights, target.path if target.path.is_dir() else target.path.parent]
    if args.weights and target.card is not None:
        # Weights given without a tokenizer: the one of the card's own weights serves.
        try:
            places.append(find_weights(target.card))
        except WeightsError:
            pass
    return open_text(*places)


def _generics(
    args: argparse.Namespace, target: Target, program: Program, weights: Any
) -> tuple[Generics, Context | None, frozenset[str]]:
    """The generics to load with: one row, and a context that fits; and the recurrent states."""
    from linnet.ir.manifest import manifest, root_block
    from linnet.text.context import choose_context
    from linnet.weights.occupied import state_bytes, weight_bytes

    root = root_block(program, target.root)
    names = {g.name for g in program.blocks[root].generics}
    generics = dict(target.generics)
    if "Batch" in names:
        generics["Batch"] = 1

    def parameters(values: Generics) -> list[Any]:
        return list(manifest(program, root, values))

    if "MaxSeq" not in names:
        if args.max_seq is not None:
            raise InputError("--max-seq: the model has no generic MaxSeq")
        return generics, None, frozenset(p.path for p in parameters(generics) if p.kind == "state")
    bound = [item for item in args.bind if item.partition("=")[0].strip() == "MaxSeq"]
    wanted = args.max_seq
    if bound and wanted is None:
        value = generics["MaxSeq"]
        if not isinstance(value, int):
            raise BindError(f"MaxSeq is {value!r}; expected an integer")
        wanted = value
    most = target.card.generics.get("MaxSeq") if target.card else None
    generics.setdefault("MaxSeq", 1)

    stored = weight_bytes(
        program, root, generics, target.bindings(), weights, args.quantize, args.embedding
    )
    context = choose_context(
        state_bytes(program, root, generics, args.cache),
        most if isinstance(most, int) else None,
        wanted=wanted,
        weights=stored,
        free=_free(args.device),
    )
    generics["MaxSeq"] = context.length
    # A state that holds one entry a position has another shape at another length.
    shapes = {p.path: p.shape for p in parameters({**generics, "MaxSeq": context.length + 1})}
    recurrent = frozenset(
        p.path for p in parameters(generics) if p.kind == "state" and p.shape == shapes[p.path]
    )
    return generics, context, recurrent


def _free(device: str) -> int | None:
    """Free memory of an accelerator; None for this machine's own, which is measured without."""
    if device == "cpu":
        return None
    from linnet.torch.memory import free_memory

    return free_memory(device)


class Interrupt:
    """Ctrl-C within `with`: the first sets `asked`, a second one raises KeyboardInterrupt.

    A step of the model is never cut in the middle, which would leave its state half written.
    """

    def __init__(self) -> None:
        self.asked = False

    def __call__(self) -> bool:
        return self.asked

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True

    @contextmanager
    def listen(self) -> Iterator[Interrupt]:
        before = signal.signal(signal.SIGINT, self._handle)
        try:
            yield self
        finally:
            signal.signal(signal.SIGINT, before)


def write(text: str) -> None:
    """Text of the answer, shown at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def figures(done: Finished) -> str:
    """One line: tokens, tokens per second, why it ended."""

    def rate(value: float | None) -> str:
        if value is None:
            return ""
        return f", {value:.0f} tokens/s" if value >= 10 else f", {value:.2g} tokens/s"

    reused = f" ({done.reused_tokens} kept)" if done.reused_tokens else ""
    ends = {
        "length": "; stopped at the length asked for",
        "context": "; stopped: the context is full",
        "interrupted": "; interrupted",
    }
    return (
        f"prompt {done.prompt_tokens} tokens{reused}{rate(done.prompt_rate)}; "
        f"answer {len(done.tokens)} tokens{rate(done.decode_rate)}{ends.get(done.reason, '')}"
    )


def read_words(args: argparse.Namespace) -> None:
    """`--bind A=1 MODEL PROMPT`: gives back the words that the list of bindings took too."""
    free = [name for name in ("model", "prompt") if getattr(args, name, "") is None]
    taken = next((i for i, item in enumerate(args.bind) if not _binds(item)), None)
    if not free or taken is None:
        return
    words = args.bind[taken:]
    args.bind = args.bind[:taken]
    if len(words) > len(free):
        raise UsageError(f"one word too many: {words[-1]!r}")
    for name, word in zip(free, words, strict=False):
        setattr(args, name, word)


def _binds(item: str) -> bool:
    name, equals, _ = item.partition("=")
    return bool(equals) and name.strip().isidentifier()
