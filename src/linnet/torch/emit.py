"""Readable torch source from an optimized program: one Python function an instance.

Functions of a block take the live block as `self`; the dimensions that stay symbolic come
last, as integers. Integer and boolean scalars are Python numbers, everything else torch
tensors, so that a step runs without waiting for the device. What an operation is lowered to
stands in `emit_ops`, index notation in `emit_grid`; which kernel replaces a call in
`kernels/table`.
"""

from __future__ import annotations

import builtins
import keyword
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from linnet.dims import Dim
from linnet.ir import program as ir
from linnet.ir.types import OptionalType, ScalarType, TensorType, Type
from linnet.torch import dtypes
from linnet.torch.block import attribute
from linnet.torch.kernels.table import Choice, choose

if TYPE_CHECKING:
    from linnet.ir.specialize import Bound, Instance
    from linnet.torch.runtime import Constants

KERNELS = ("attention", "cache", "dense", "moe", "order", "recurrent")  # modules, by name
RESERVED = frozenset(
    {"torch", "F", "rt", "C", "self", "DEVICE", "inf", "nan", "TRACE", "grid", *KERNELS}
)
_BUILTINS = frozenset(dir(builtins))


@dataclass(frozen=True)
class Options:
    """`functional`: states are replaced, never written in place (gradients, journals).

    `unchecked`: the accesses (by identity) whose run-time indices the entry's own checks
    cover; `trace`: every named value is reported.
    """

    numerics: str = "fast"
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    trainable: bool = False
    functional: bool = False
    trace: bool = False
    unchecked: frozenset[int] = frozenset()


@dataclass
class Generated:
    """One module of generated source and the values its names stand for."""

    text: str
    scope: dict[str, Any]
    choices: list[Choice] = field(default_factory=list)
    functions: dict[str, str] = field(default_factory=dict)  # instance id → Python name
    starts: dict[str, tuple[int, int]] = field(default_factory=dict)  # id → lines


class ModuleEmitter:
    """Emits every instance reachable from the entries, callees first."""

    def __init__(
        self, bound: Bound, constants: Constants, options: Options, plain: Bound | None = None
    ):
        """`plain`: the program before any pass, whose functions the evaluator can run."""
        self.bound, self.constants, self.options = bound, constants, options
        self.plain = plain or bound
        self.scope: dict[str, Any] = {}
        self.choices: list[Choice] = []
        self.names: dict[str, str] = {}
        self.taken: set[str] = set(RESERVED)
        self.wanted: list[str] = []
        for instance in bound.functions.values():
            self.names[instance.id] = self.fresh(instance.name)

    def fresh(self, stem: str) -> str:
        return fresh(stem, self.taken)

    def provide(self, stem: str, value: Any) -> str:
        """A module-level name for a Python object; one object has one name."""
        for name, known in self.scope.items():
            if known is value:
                return name
        name = self.fresh(stem)
        self.scope[name] = value
        return name

    def call_name(self, id: str) -> str:
        """The Python name of an instance, which is then emitted too."""
        if id not in self.wanted:
            self.wanted.append(id)
        return self.names[id]

    def kernel(self, function: Callable[..., Any]) -> str:
        """How generated code spells a kernel: its module and name."""
        module = function.__module__ or ""
        if module.startswith("linnet.torch.kernels."):
            return f"{module.rpartition('.')[2]}.{function.__name__}"
        for stem, home in (("F", torch.nn.functional), ("torch", torch)):
            if getattr(home, function.__name__, None) is function:
                return f"{stem}.{function.__name__}"
        return self.provide(function.__name__, function)

    def emit(self, entries: Iterable[str]) -> Generated:
        """The entries and what they come to call, callees first."""
        from linnet.torch import runtime

        self.wanted = list(entries)
        pieces: dict[str, str] = {}
        for id in self.wanted:  # grows while functions are emitted
            pieces[id] = FunctionEmitter(self, self.bound.functions[id]).emit()
        ordered = [id for id in self.bound.functions if id in pieces]
        starts, line = {}, 1
        for id in ordered:
            lines = pieces[id].count("\n")
            starts[id] = (line, line + lines)
            line += lines + 2
        self.scope.update(
            {name: import_module(f"linnet.torch.kernels.{name}") for name in KERNELS},
            torch=torch,
            F=torch.nn.functional,
            rt=runtime,
            C=self.constants,
            DEVICE=self.options.device,
            inf=float("inf"),
            nan=float("nan"),
        )
        text = "\n\n".join(pieces[id] for id in ordered)
        return Generated(text, self.scope, self.choices, self.names, starts)


def walk(region: ir.Region) -> Iterable[ir.Op]:
    for op in region.ops:
        yield op
        for inner in op.regions():
            yield from walk(inner)


def fresh(stem: str, taken: set[str]) -> str:
    stem = "".join(c if c.isalnum() or c == "_" else "_" for c in stem) or "t"
    if keyword.iskeyword(stem) or stem in _BUILTINS or stem[0].isdigit():
        stem += "_"
    name, serial = stem, 2
    while name in taken:
        name, serial = f"{stem}_{serial}", serial + 1
    taken.add(name)
    return name


class FunctionEmitter:
    """The lines of one function. `define` gives a value its Python expression."""

    def __init__(self, module: ModuleEmitter, instance: Instance):
        self.module, self.instance = module, instance
        self.options = module.options
        self.lines: list[str] = []
        self.depth = 1
        self.taken = set(module.taken) | _BUILTINS
        self.dim_names = {name: fresh(name.lstrip("*"), self.taken) for name in instance.dims}
        self.refs: dict[ir.Value, str] = {}
        self.defs: dict[ir.Value, ir.Op] = {}
        self.uses: dict[ir.Value, list[ir.Op | None]] = {}
        self.where: str = ""
        self.note_uses(instance.body)

    def note_uses(self, region: ir.Region) -> None:
        for op in region.ops:
            for value in op.results:
                self.defs[value] = op
            for value in op.operands():
                self.uses.setdefault(value, []).append(op)
            for inner in op.regions():
                self.note_uses(inner)
        for value in region.results:
            self.uses.setdefault(value, []).append(None)

    # --- Text ----------------------------------------------------------------

    def line(self, text: str, span: Any = None) -> None:
        note = ""
        if span is not None:
            place = f"{Path(span.source.path).name}:{span.source.position(span.start)[0]}"
            if place != self.where:
                self.where = place
                note = f"  # {place}"
        self.lines.append("    " * self.depth + text + note)

    def emit(self) -> str:
        instance = self.instance
        body = instance.body
        params = ["self"] if instance.kind is not None else []
        for (name, _), value in zip(instance.params, body.params, strict=True):
            self.refs[value] = fresh(name, self.taken)
            params.append(self.refs[value])
        params += [self.dim_names[name] for name in instance.dims]
        self.region(body)
        results = [self.ref(value) for value in body.results]
        self.line(f"return {', '.join(results)}")
        head = f"def {self.module.names[instance.id]}({', '.join(params)}):"
        span = instance.source.span
        note = (
            f"  # {Path(span.source.path).name}:{span.source.position(span.start)[0]}"
            if span
            else ""
        )
        return "\n".join([head + note, *self.lines]) + "\n"

    def region(self, region: ir.Region) -> None:
        from linnet.torch.emit_ops import HANDLERS

        for op in region.ops:
            if self.dead(op) or (op.results and all(v in self.refs for v in op.results)):
                continue  # unused, or handled with an earlier operation
            HANDLERS[type(op)](self, op)
            if self.options.trace:
                self.report(op)

    def dead(self, op: ir.Op) -> bool:
        return isinstance(op, (ir.ReadMember, ir.Iota)) and op.result not in self.uses

    def report(self, op: ir.Op) -> None:
        for value in op.results:
            if isinstance(op, ir.Call) and value not in self.refs:
                continue  # a kernel kept its two parts apart; there is no such value
            if value.name and isinstance(value.type, (TensorType, ScalarType)):
                method = self.instance.kind is not None
                name = value.name if method else f"{self.instance.source.name}.{value.name}"
                owner = "self" if method else "None"
                self.line(f"TRACE({owner}, {name!r}, {self.ref(value)})")
        if isinstance(op, ir.Call) and op.receiver:
            args = "".join(f"{self.refs[arg]}, " for arg in op.args if arg in self.refs)
            result = self.ref(op.result)
            self.line(f"TRACE({self.receiver(op.receiver)}, None, {result}, ({args}))")

    # --- Values --------------------------------------------------------------

    def dim(self, dim: Dim) -> str:
        return dim.python(lambda name: self.dim_names[name])

    def shape(self, type: Type) -> str:
        assert isinstance(type, TensorType)
        return ", ".join(self.dim(d) for d in type.shape)  # type: ignore[arg-type]

    def ref(self, value: ir.Value) -> str:
        """The expression for a value already defined; a mask not made yet is made here."""
        if value not in self.refs:
            from linnet.torch.emit_kernels import materialize

            return materialize(self, value)
        return self.refs[value]

    def define(self, value: ir.Value, expression: str, span: Any = None) -> str:
        """Assign to a fresh name."""
        name = fresh(value.name or "t", self.taken)
        self.line(f"{name} = {expression}", span)
        self.refs[value] = name
        return name

    def alias(self, value: ir.Value, expression: str) -> None:
        """Let a value stand for an expression that costs nothing and may be repeated."""
        self.refs[value] = expression

    def temporary(self, expression: str, stem: str = "t") -> str:
        name = fresh(stem, self.taken)
        self.line(f"{name} = {expression}")
        return name

    def receiver(self, steps: tuple[ir.Step, ...] | None) -> str:
        text = "self"
        for step in steps or ():
            text += f".{attribute(step.name)}"
            if isinstance(step.index, ir.Value):
                text += f"[{self.ref(step.index)}]"
            elif step.index is not None:
                text += f"[{self.dim(step.index)}]"
        return text

    # --- Calls ---------------------------------------------------------------

    def call(self, op: ir.Call) -> None:
        callee = self.module.bound.functions[op.callee]
        choice = choose(self.instance, op, callee, self)
        if callee.source.kind == "op":
            self.module.choices.append(choice)
        if choice.kernel is not None:
            from linnet.torch.emit_kernels import kernel_call

            kernel_call(self, op, callee, choice)
            return
        args = [] if op.receiver is None and callee.kind is None else [self.receiver(op.receiver)]
        args += [self.ref(arg) for arg in op.args]
        args += [self.dim(dim) for dim in op.generics]  # type: ignore[arg-type]
        self.define(op.result, f"{self.module.call_name(callee.id)}({', '.join(args)})", op.span)

    def some(self, value: ir.Value) -> ir.Value:
        """Look through `some(x)`, which costs nothing at run time."""
        op = self.defs.get(value)
        return self.some(op.x) if isinstance(op, ir.MakeSome) else value


def kind_of(type: Type) -> str:
    """How generated code holds a value: "int" (a Python number), "float", "tensor", "other"."""
    if isinstance(type, ScalarType):
        return "float" if type.dtype in dtypes.FLOATS else "int"
    if isinstance(type, TensorType):
        return "tensor"
    if isinstance(type, OptionalType):
        return kind_of(type.inner)
    return "other"


Handler = Callable[[FunctionEmitter, Any], None]
