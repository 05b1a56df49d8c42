"""From an entry to a Python function: analyze, optimize, emit, and make it callable.

The source is this backend's own text, so executing it executes nothing that a package, card
or checkpoint wrote: names are sanitized, strings are quoted by `repr`. It is registered with
`linecache`, and tracebacks show its lines.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

import torch

from linnet.ir.passes.pipeline import optimize
from linnet.torch.emit import Generated, ModuleEmitter, Options
from linnet.torch.ranges import Ranges, analyze
from linnet.torch.runtime import Constants

if TYPE_CHECKING:
    from linnet.ir.bound import Bound

_serial = count()


@dataclass
class Compiled:
    """`function(root, *args, *dims)`; `bound` is the program that it was made from."""

    function: Callable[..., Any]
    generated: Generated
    bound: Bound
    ranges: Ranges
    functional: bool
    constants: Constants = field(repr=False, default=None)  # type: ignore[assignment]


@dataclass
class Compiler:
    """Compiles the entries of one specialized program, each when first used."""

    bound: Bound
    numerics: str
    device: torch.device
    trainable: bool = False
    _optimized: dict[bool, tuple[Bound, Constants]] = field(default_factory=dict)
    _compiled: dict[str, Compiled] = field(default_factory=dict)
    _meant: dict[str, Ranges] = field(default_factory=dict)

    def optimized(self, in_place: bool) -> tuple[Bound, Constants]:
        if in_place not in self._optimized:
            fails = frozenset(at for name in self.bound.entries for at in self.meant(name).fails)
            bound = optimize(self.bound, self.numerics, in_place=in_place, fails=fails)
            self._optimized[in_place] = (bound, Constants(bound, self.device))
        return self._optimized[in_place]

    def meant(self, entry: str) -> Ranges:
        """The ranges of an entry as it is written, before any pass."""
        if entry not in self._meant:
            self._meant[entry] = analyze(self.bound, self.bound.entries[entry])
        return self._meant[entry]

    def ranges(self, bound: Bound, entry: str) -> Ranges:
        """The ranges of an entry of an optimized program; what it refuses is what is written."""
        return analyze(bound, bound.entries[entry]).also(self.meant(entry))

    def compile(self, entry: str, trace: Callable[..., None] | None = None) -> Compiled:
        """`trace(block, name, value)` sees every named value of a traced compilation.

        Where a run-time index is not covered by the entry's own checks, states are replaced
        instead of written, so that an error half-way leaves them as they were.
        """
        if trace is None and entry in self._compiled:
            return self._compiled[entry]
        functional = self.trainable or trace is not None
        bound, constants = self.optimized(not functional)
        if trace is not None:
            bound, constants = self.bound, Constants(self.bound, self.device)
        ranges = self.ranges(bound, entry)
        fails = ranges.open or ranges.divides
        if fails and not functional and self._writes(bound, entry):
            functional = True
            bound, constants = self.optimized(False)
            ranges = self.ranges(bound, entry)
        options = Options(
            self.numerics, self.device, self.trainable, functional, trace is not None,
            ranges.unchecked,
        )  # fmt: skip
        emitter = ModuleEmitter(bound, constants, options, self.bound)
        generated = emitter.emit([bound.entries[entry]])
        if trace is not None:
            generated.scope["TRACE"] = trace
        function = load_source(generated, generated.functions[bound.entries[entry]], entry)
        made = Compiled(function, generated, bound, ranges, functional, constants)
        if trace is None:
            self._compiled[entry] = made
        return made

    def _writes(self, bound: Bound, entry: str) -> bool:
        return bool(bound.functions[bound.entries[entry]].writes)


def load_source(generated: Generated, name: str, entry: str) -> Callable[..., Any]:
    """Define the functions of generated source and return the one called `name`."""
    file = f"<linnet {entry} {next(_serial)}>"
    text = generated.text
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    exec(compile(text, file, "exec"), generated.scope)
    function: Callable[..., Any] = generated.scope[name]
    return function
