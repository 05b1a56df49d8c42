"""Which kernel may run in place of an op's body: one row a kernel.

A row names the op by its identity, the numerics classes in which it may be chosen, a
condition on the call, the function, and the test that compares it with the body. The first
row that fits is taken; where none does, the body runs, compiled like user code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from linnet.ir import program as ir
from linnet.ir.types import dtype_of, shape_of

if TYPE_CHECKING:
    from linnet.ir.specialize import Instance
    from linnet.torch.emit import FunctionEmitter

BOTH = frozenset({"equivalent", "fast"})
FAST = frozenset({"fast"})
TEST = "tests/torch/test_kernels.py"


@dataclass(frozen=True)
class Site:
    """A call as a condition sees it: argument dtypes and ranks, the device, gradients."""

    callee: Instance
    op: ir.Call
    device: str
    trainable: bool

    @property
    def dtype(self) -> str:
        """The element type of the first argument."""
        return dtype_of(self.op.args[0].type)


Condition = Callable[[Site], "str | None"]  # None: fits; else why not


@dataclass(frozen=True)
class Kernel:
    """`indices`: (argument, generic) pairs, the argument's values being below the generic.
    `split`/`in_place`: the two parts of a result of outputs and a final state; `state` is the
    position of the initial state among the arguments."""

    op: str
    numerics: frozenset[str]
    function: Callable[..., Any]
    test: str
    condition: Condition | None = None
    generics: tuple[str, ...] = ()
    indices: tuple[tuple[int, str], ...] = ()
    split: Callable[..., Any] | None = None
    in_place: Callable[..., Any] | None = None
    state: int = -1

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def test_id(self) -> str:
        return f"{TEST}::{self.test}"


@dataclass
class Choice:
    """What was chosen for one call, and why; `checks` are index checks made before it."""

    caller: str
    op: str
    kernel: Kernel | None
    reason: str
    span: str = ""
    checks: list[tuple[int, str, str]] = field(default_factory=list)


def floats(site: Site) -> str | None:
    return None if site.dtype in ("f16", "bf16", "f32", "f64") else f"not for {site.dtype}"


def narrow(site: Site) -> str | None:
    return None if site.dtype in ("f16", "bf16") else "for f16 and bf16"


def single(site: Site) -> str | None:
    """f32 arithmetic inside would lose f64."""
    return "computes in f32, the call is f64" if site.dtype == "f64" else None


def wide(site: Site) -> str | None:
    return None if site.dtype in ("f32", "f64") else "rounds once where the body rounds each step"


def no_grad(site: Site) -> str | None:
    return "writes in place; gradients are on" if site.trainable else None


def rows() -> dict[str, list[Kernel]]:
    """The table, by op."""
    global _ROWS
    if _ROWS is None:
        _ROWS = {}
        for kernel in _make():
            _ROWS.setdefault(kernel.op, []).append(kernel)
    return _ROWS


_ROWS: dict[str, list[Kernel]] | None = None


def _make() -> list[Kernel]:
    import torch
    import torch.nn.functional as F

    from linnet.torch.kernels import attention, dense, moe, recurrent

    a, n, m, r = "std.nn.attention::", "std.nn.norm::", "std.nn.moe::", "std.nn.recurrent::"
    act = "std.nn.activations::"
    table = [
        Kernel("std.nn.linear::linear", BOTH, dense.linear, "test_linear", floats),
        Kernel("std.nn.embedding::embedding", BOTH, dense.embedding, "test_embedding",
               indices=((0, "V"),)),
        Kernel("std.nn.softmax::softmax", BOTH, dense.softmax, "test_softmax"),
        Kernel("std.nn.mlp::swiglu", FAST, dense.swiglu, "test_swiglu", no_grad),
        Kernel("std.nn.mlp::swiglu", FAST, dense.swiglu_new, "test_swiglu"),
        Kernel(act + "silu", BOTH, F.silu, "test_activations", wide),
        Kernel(act + "silu", FAST, F.silu, "test_activations"),
        Kernel(act + "sigmoid", BOTH, torch.sigmoid, "test_activations", wide),
        Kernel(act + "sigmoid", FAST, torch.sigmoid, "test_activations"),
        Kernel(act + "relu", BOTH, F.relu, "test_activations"),
        Kernel(act + "gelu", BOTH, dense.gelu_tanh, "test_activations", wide),
        Kernel(act + "gelu", FAST, dense.gelu_tanh, "test_activations"),
        Kernel(act + "gelu_erf", BOTH, dense.gelu_erf, "test_activations", wide),
        Kernel(act + "gelu_erf", FAST, dense.gelu_erf, "test_activations"),
        Kernel(n + "rms_norm", BOTH, dense.rms_norm, "test_rms_norm", single),
        Kernel(n + "layer_norm", BOTH, dense.layer_norm, "test_layer_norm", single),
    ]  # fmt: skip
    for name in ("attention", "attention_rows", "grouped_attention", "grouped_attention_rows"):
        table += [
            Kernel(a + name, FAST, attention.grouped_attention, "test_attention", single),
            Kernel(a + name, BOTH, attention.grouped_attention_f32, "test_attention", single),
        ]
    table += [
        Kernel(r + "causal_conv", BOTH, recurrent.causal_conv, "test_causal_conv", single),
        Kernel(r + "gated_delta_rule", BOTH, recurrent.gated_delta_rule, "test_gated_delta_rule",
               single, split=recurrent.gated_delta_rule_parts, state=5),
        Kernel(r + "gated_delta_step", BOTH, recurrent.gated_delta_step, "test_gated_delta_step",
               single, split=recurrent.gated_delta_step_parts,
               in_place=recurrent.gated_delta_step_in_place, state=5),
        Kernel(m + "linear_experts", BOTH, moe.linear_experts, "test_experts", floats,
               indices=((2, "E"),)),
        Kernel(m + "linear_experts_shared", BOTH, moe.linear_experts_shared, "test_experts", floats,
               indices=((2, "E"),)),
        Kernel(m + "combine_experts", FAST, moe.combine_experts, "test_experts", floats,
               indices=((2, "E"),)),
        Kernel(m + "combine_experts", BOTH, moe.combine_experts, "test_experts", wide,
               indices=((2, "E"),)),
        Kernel(m + "combine_experts", BOTH, moe.combine_experts_f32, "test_experts", narrow,
               indices=((2, "E"),)),
    ]  # fmt: skip
    return table


def choose(caller: Instance, op: ir.Call, callee: Instance, f: FunctionEmitter) -> Choice:
    """The kernel for a call, or none with the reason."""
    options = f.options
    name = callee.source.id
    choice = Choice(caller.id, name, None, "", str(op.span) if op.span else "")
    if options.numerics == "exact":
        choice.reason = "exact: every op runs as its body"
        return choice
    candidates = rows().get(name)
    if not candidates:
        choice.reason = "no kernel for this op: its body is compiled"
        return choice
    site = Site(callee, op, options.device.type, options.trainable)
    reasons = []
    for kernel in candidates:
        if options.numerics not in kernel.numerics:
            reasons.append(f"{kernel.name} is for {', '.join(sorted(kernel.numerics))}")
            continue
        why = kernel.condition(site) if kernel.condition else None
        if why is not None:
            reasons.append(f"{kernel.name}: {why}")
            continue
        choice.kernel = kernel
        shape = ", ".join(map(str, shape_of(op.args[0].type)))
        choice.reason = f"{options.numerics}, {site.dtype} [{shape}], {site.device}"
        if uncovered(callee, f):
            for position, generic in kernel.indices:
                extent = callee.arguments[generic]
                mapping = dict(zip(callee.dims, op.generics, strict=True))
                extent = extent.substitute(mapping)  # type: ignore[union-attr, arg-type]
                choice.checks.append((position, f.dim(extent), choice.span))
        return choice
    choice.reason = "; ".join(reasons)
    return choice


def uncovered(callee: Instance, f: FunctionEmitter) -> bool:
    """Whether the body has a run-time index that no check of the entry covers."""
    from linnet.torch.emit import walk

    for op in walk(callee.body):
        if isinstance(op, ir.Grid):
            for node in ir.walk_expr(op.body):
                if isinstance(node, ir.GRead):
                    for axis in node.axes:
                        if isinstance(axis, ir.GExpr) and id(axis) not in f.options.unchecked:
                            return True
        elif isinstance(op, ir.Call):
            if uncovered(f.module.bound.functions[op.callee], f):
                return True
    return False
