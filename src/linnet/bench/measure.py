"""A loaded model measured: prompts, tokens, memory."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from linnet.bench.result import Job, Run
from linnet.bench.work import prompt_operations, token_bytes
from linnet.errors import InputError

if TYPE_CHECKING:
    from linnet.torch.module import Model

DECODER = ("prefill", "decode")
WHOLE = ("embed", "next_token", "forward")  # entries of other models, by preference
VOCABULARY = 1000  # where a model has no generic `Vocab`


def measure(model: Model, job: Job, entry: str | None = None) -> Run:
    """Time a model's prompt and tokens through `prefill` and `decode`.

    A model without them, and any model where `entry` is named, is measured by whole calls of one
    entry, for which `job.prompt` is the length of the sequences. Raises InputError for an entry
    that is not there and for sizes that the model does not take.
    """
    from linnet import __version__

    dtype = str(model.generics.get("T", "")) or "as declared"
    run = Run("linnet", __version__, dtype)
    if entry is None and set(DECODER) <= set(model.entries):
        _decoder(model, job, run)
    else:
        _whole(model, job, run, entry)
    run.peak = peak_memory()
    return run


def _decoder(model: Model, job: Job, run: Run) -> None:
    tokens = token_ids(job, job.prompt)
    steps = [token_ids(job, 1, seed=1 + i) for i in range(job.tokens)]

    def prompt() -> Any:
        return model.prefill(tokens, pos=0)

    def step(at: int) -> Any:
        return model.decode(steps[at], pos=job.prompt + at)

    run.first = 0.0
    if job.prompt:
        run.first += timed(prompt)
    if job.tokens:
        run.first += timed(lambda: step(0))
    for _ in range(job.repeat):
        model.reset_state()
        if job.prompt:
            run.prompt.append(timed(prompt))
        run.token += [timed(partial(step, at)) for at in range(job.tokens)]
    if job.prompt:
        run.prompt_operations = prompt_operations(model, "prefill", {"S": job.prompt})
    if job.tokens:
        run.token_bytes = token_bytes(model, job.prompt + job.tokens // 2, job.batch)


def _whole(model: Model, job: Job, run: Run, name: str | None) -> None:
    from linnet.torch.trial import made_up

    if name is None:
        name = next((n for n in WHOLE if n in model.entries), next(iter(model.entries), None))
    if name is None or name not in model.entries:
        known = ", ".join(model.entries) or "none"
        raise InputError(f"there is no entry `{name}` to measure; entries: {known}")
    entry = model.entries[name]
    own = {d: job.prompt if d == "S" else job.batch for d in entry.signature.dims}
    values, named = made_up(entry, own)
    run.first = timed(lambda: entry(*values, **named))
    run.prompt = [timed(lambda: entry(*values, **named)) for _ in range(job.repeat)]
    run.prompt_operations = prompt_operations(model, name, own)


def token_ids(job: Job, length: int, seed: int = 0) -> list[list[int]]:
    """Random ids `[batch, length]`, the same in every process; never the first hundred, which
    often are special."""
    draw = random.Random(seed)
    low = min(100, job.vocabulary // 2)
    return [[draw.randrange(low, job.vocabulary) for _ in range(length)] for _ in range(job.batch)]


def timed(run: Callable[[], Any]) -> float:
    """Seconds of a call until a number of its result is here."""
    start = time.perf_counter()
    _touch(run())
    return time.perf_counter() - start


def _touch(result: Any) -> None:
    """An accelerator goes on while Python waits for nothing."""
    for tensor in _tensors(result):
        if tensor.device.type != "cpu" and tensor.numel():
            tensor.reshape(-1)[0].item()


def _tensors(result: Any) -> Iterator[Any]:
    if isinstance(result, (tuple, list)):
        for item in result:
            yield from _tensors(item)
    elif isinstance(result, dict):
        yield from _tensors(list(result.values()))
    elif hasattr(result, "reshape"):
        yield result


def peak_memory() -> int | None:
    """The most memory of this process that was resident, in bytes, mapped files included."""
    try:
        with open("/proc/self/status") as file:
            for line in file:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        import resource
        import sys
    except ImportError:
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
