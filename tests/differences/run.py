"""A random program under every evaluator, and what differs between them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor

import linnet
from differences.inputs import arguments, tensor
from differences.noise import noise
from differences.program import Entry, Program
from differences.value import size
from linnet.native import compiler

BACKENDS = ("torch", "native") if compiler.why_not() is None else ("torch",)
NOISES = 4
# Kernels round as the frameworks' own do: by the scale of what they add up.
KERNEL = re.compile(
    r"\b(gelu|gelu_erf|silu|softmax|log_softmax|\w+_norm|\w+_attention|linear\w*)\("
)


@dataclass
class Difference:
    """What an entry gave in two evaluators, at arguments that `call` describes."""

    entry: str
    call: int
    backend: str
    what: str
    detail: str
    result: int | None = None  # which of its results differs

    def __str__(self) -> str:
        return (
            f"{self.entry} call {self.call}: exact and {self.backend}: {self.what}: {self.detail}"
        )


@dataclass
class Outcome:
    """A call's results and the states behind it, or its error."""

    results: list[Tensor]
    states: dict[str, Tensor]
    error: str | None = None


def load(program: Program, folder: Path, backends: tuple[str, ...]) -> dict[str, Any]:
    """The program's model for "exact" and each backend, all with the same weights.

    Raises CheckError where the checker refuses what the generator wrote.
    """
    file = folder / "random.linnet"
    file.write_text(program.text())
    models = {}
    for name in ("exact", *backends):
        options = {"numerics": "exact"} if name == "exact" else {"backend": name}
        models[name] = linnet.load(
            file, root="Root", weights="random", generics=program.generics, **options
        )
    random = Random(program.seed)
    first = models["exact"]
    values = {}
    for path, held in first.state_dict().items():
        dtype = str(first._params[path][2].type.dtype)
        values[path] = tensor(random, dtype, list(held.shape), 0.0)
    for model in models.values():
        model.load_state_dict(values)
    return models


def compiles(model: Any) -> bool:
    """Whether the native backend takes any of the entries."""
    try:
        return any(model.native.entry(name) is not None for name in model.entries)
    except linnet.BackendError as error:
        if "cannot run this model" in str(error):
            return False
        raise


def flat(value: Any) -> list[Tensor]:
    if isinstance(value, tuple):
        return [leaf for item in value for leaf in flat(item)]
    return [value if isinstance(value, Tensor) else torch.tensor(value)]


def call(model: Any, name: str, args: list[Any], sizes: dict[str, int]) -> Outcome:
    try:
        made = flat(getattr(model, name)(*args, **sizes))
        error = None
    except linnet.InputError as found:
        made, error = [], str(found)
    return Outcome(made, {path: x.clone() for path, x in model.state.items()}, error)


def compare(
    a: Tensor,
    b: Tensor,
    noisy: list[Tensor] | None,
    floor: float = 0.0,
    finite: bool = False,
) -> str | None:
    """How `b` differs from the reference `a`; None: it does not, within what `noisy` allows."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{list(a.shape)} of {a.dtype} and {list(b.shape)} of {b.dtype}"
    if a.dtype is torch.uint64:
        a, b = a.view(torch.int64), b.view(torch.int64)
    if not a.is_floating_point():
        wrong = a != b
        return _first(a, b, wrong) if bool(wrong.any()) else None
    x, y = a.double(), b.double()
    same = (x == y) | (x.isnan() & y.isnan())
    if noisy is None:
        wrong = ~same
        return _first(a, b, wrong) if bool(wrong.any()) else None
    spread, steady = torch.zeros_like(x), torch.ones_like(same)
    for other in noisy:
        z = other.double()
        alike = torch.isfinite(z) == torch.isfinite(x)
        kind = torch.isfinite(x) | (z == x) | (x.isnan() & z.isnan())
        steady &= alike & kind
        spread = torch.maximum(spread, (z - x).abs().nan_to_num(0.0, 0.0, 0.0))
    if finite:
        steady &= torch.isfinite(x)
    info = torch.finfo(a.dtype)
    size = x.abs().nan_to_num(0.0, 0.0, 0.0)
    allowed = 8 * spread + 2 * info.eps * size + 2 * info.smallest_normal
    if floor and x.numel():
        allowed = allowed + floor * info.eps * size.max()
    wrong = steady & ~same & ~((x - y).abs() <= allowed)
    return _first(a, b, wrong) if bool(wrong.any()) else None


def _first(a: Tensor, b: Tensor, wrong: Tensor) -> str:
    at = [int(i) for i in wrong.nonzero()[0]] if wrong.dim() else []
    where = tuple(at)
    return f"{int(wrong.sum())} of {wrong.numel()} differ, at {at}: {a[where].item()!r} and {b[where].item()!r}"


class Runner:
    """Runs the entries of one program; `differences` collects what was found."""

    def __init__(self, program: Program, folder: Path, backends: tuple[str, ...] = BACKENDS):
        self.program, self.backends = program, backends
        self.models = load(program, folder, backends)
        if "native" in backends and not compiles(self.models["native"]):
            self.backends = tuple(name for name in backends if name != "native")
        self.differences: list[Difference] = []
        self.calls = self.errors = self.native = 0

    def run(self, times: int = 3, only: tuple[str, int] | None = None) -> list[Difference]:
        """Every entry `times` times; or one call of one entry alone."""
        for entry in self.program.entries:
            for turn in range(times):
                if only is None or only == (entry.name, turn):
                    self.entry(entry, turn)
        return self.differences

    def entry(self, entry: Entry, turn: int) -> None:
        random = Random(f"{self.program.seed} {entry.name} {turn}")
        # Where squares overflow, kernels give what the frameworks' own give.
        plain = KERNEL.search(entry.routine.text(0)) is not None
        args, sizes = arguments(random, entry.params, entry.least, self.program.generics, plain)
        self.calls += 1
        exact = self.models["exact"]
        before = {path: x.clone() for path, x in exact.state.items()}
        want = call(exact, entry.name, args, sizes)
        self.errors += want.error is not None
        noisy = (
            self.noisy(entry, args, sizes, before, want)
            if entry.close and want.error is None
            else []
        )
        for backend in self.backends:
            model = self.models[backend]
            got = call(model, entry.name, args, sizes)
            self.judge(entry, turn, backend, before, want, got, noisy)
            for path, x in want.states.items():  # from here on all go on from the same
                model.state[path] = x
            if backend == "native":
                compiled = model.native.entry(entry.name) is not None
                self.native += compiled
                if compiled and entry.rows and want.error is None and got.error is None:
                    self.rows(entry, turn, model, args, sizes, got)

    def noisy(
        self, entry: Entry, args: list[Any], sizes: dict[str, int], before: dict[str, Tensor],
        want: Outcome,
    ) -> list[Outcome]:  # fmt: skip
        exact = self.models["exact"]
        made = []
        for seed in range(NOISES):
            for path, x in before.items():
                exact.state[path] = x
            with noise(seed):
                made.append(call(exact, entry.name, args, sizes))
        for path, x in want.states.items():
            exact.state[path] = x
        return [one for one in made if one.error is None]

    def judge(
        self, entry: Entry, turn: int, backend: str, before: dict[str, Tensor], want: Outcome,
        got: Outcome, noisy: list[Outcome],
    ) -> None:  # fmt: skip
        def found(what: str, detail: str, result: int | None = None) -> None:
            self.differences.append(Difference(entry.name, turn, backend, what, detail, result))

        if (want.error is None) != (got.error is None):
            found("error", f"{want.error or 'none'} and {got.error or 'none'}")
            return
        if want.error is not None:
            for path, x in before.items():
                detail = compare(x, got.states[path], None)
                if detail:
                    found("written before an error", f"{path}: {detail}")
            return
        text = entry.routine.text(0)
        floor = 4.0 if KERNEL.search(text) else 0.0
        finite = "_attention(" in text  # a masked key may be infinite, or left out
        for i, (a, b) in enumerate(zip(want.results, got.results, strict=True)):
            same = entry.routine.results[i][2]
            detail = compare(
                a, b, None if same else [one.results[i] for one in noisy], floor, finite
            )
            if detail:
                found("result", f"`{entry.routine.results[i][0]}`: {detail}", i)
        loose = {s.name for s in self.program.states if not s.exact}
        for path, x in want.states.items():
            near = [one.states[path] for one in noisy] if path in loose else None
            detail = compare(x, got.states[path], near, floor, finite)
            if detail:
                found("state", f"{path}: {detail}")

    def rows(
        self, entry: Entry, turn: int, model: Any, args: list[Any], sizes: dict[str, int],
        together: Outcome,
    ) -> None:  # fmt: skip
        """Each row alone gives the bits that it gives among the others."""
        batch = {len(a) for a, p in zip(args, entry.params) if p.dims and p.dims[0] == "B"}
        for row in range(min(batch, default=0)):
            mine = [
                a[row : row + 1] if p.dims and p.dims[0] == "B" else a
                for a, p in zip(args, entry.params)
            ]
            alone = call(model, entry.name, mine, {n: s for n, s in sizes.items() if n != "B"})
            for i, (a, b) in enumerate(zip(together.results, alone.results)):
                detail = compare(a[row : row + 1], b, None)
                if detail:
                    name = entry.routine.results[i][0]
                    self.differences.append(
                        Difference(
                            entry.name,
                            turn,
                            "a row alone",
                            "row",
                            f"`{name}` row {row}: {detail}",
                            i,
                        )
                    )


def measured(entry: Entry, args: list[Any]) -> dict[str, int]:
    """The sizes of an entry's dimensions at given arguments."""
    return {d: n for a, p in zip(args, entry.params) if p.dims for d, n in zip(p.dims, a.shape)}


__all__ = ["Difference", "Runner", "load", "measured", "size"]
