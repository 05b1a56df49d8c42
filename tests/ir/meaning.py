"""What the intrinsics mean, for the reference evaluator: passes are compared with no passes.

States are live here: a read gives the tensor itself, a write copies into it, as a backend may do
it. So a copy that the pass `protect` misses shows as a wrong number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from linnet.ir import program as ir
from linnet.ir.bound import Bound
from linnet.ir.types import dtype_of, shape_of
from linnet.torch import dtypes, evaluate
from linnet.torch.block import Block, attribute, build, leaves


def _constant(f: Any, op: ir.Intrinsic) -> list[Any]:
    made = f.evaluator.bound.constants[op.attrs["key"]]
    dims = [dim.evaluate(f.dims) for dim in op.attrs["dims"]]  # type: ignore[attr-defined]
    return [f.evaluator.call(made, None, [], dict(zip(made.dims, dims, strict=True)))]


def _causal_mask(f: Any, op: ir.Intrinsic) -> list[Any]:
    axes = op.attrs["axes"]
    shape = f.shape(op.result.type)
    assert isinstance(axes, tuple)
    place = {axis: torch.arange(n).view([-1 if a == axis else 1 for a in axes])
             for axis, n in zip(axes, shape, strict=True)}  # fmt: skip
    at = op.attrs["offset"].evaluate(f.dims)  # type: ignore[attr-defined]
    if op.args:
        given = f.env[op.args[0]].long()
        at = at + (given.view([-1 if a == "b" else 1 for a in axes]) if given.dim() else given)
    return [(place["k"] <= place.get("q", 0) + at).expand(shape)]


def _order(x: torch.Tensor, descending: object) -> torch.Tensor:
    return torch.sort(x, dim=-1, descending=bool(descending), stable=True).indices


def _rank(f: Any, op: ir.Intrinsic) -> list[Any]:
    order = _order(f.env[op.args[0]], op.attrs["descending"])
    return [torch.argsort(order, dim=-1).to(dtypes.CARRIER[dtype_of(op.result.type)])]


def _top_k(f: Any, op: ir.Intrinsic) -> list[Any]:
    x = f.env[op.args[0]]
    index = _order(x, op.attrs["descending"])[..., : op.attrs["k"].evaluate(f.dims)]  # type: ignore[attr-defined]
    return [x.gather(-1, index), index]


def _take_along(f: Any, op: ir.Intrinsic) -> list[Any]:
    return [f.env[op.args[0]].gather(-1, f.env[op.args[1]])]


def _softmax(f: Any, op: ir.Intrinsic) -> list[Any]:
    x = f.env[op.args[0]]
    return [torch.softmax(x.float(), -1).to(x.dtype)]


def _einsum(f: Any, op: ir.Intrinsic) -> list[Any]:
    letters: dict[str, str] = {}

    def spell(labels: Any) -> str:
        return "".join(letters.setdefault(label, chr(97 + len(letters))) for label in labels)

    inputs = op.attrs["inputs"]
    assert isinstance(inputs, tuple)
    spec = ",".join(map(spell, inputs)) + "->" + spell(op.attrs["output"])
    wide = dtypes.CARRIER[str(op.attrs["accumulate"])]
    result = torch.einsum(spec, *(f.env[a].to(wide) for a in op.args))
    return [result.to(dtypes.CARRIER[dtype_of(op.result.type)])]


def _write(f: Any, op: ir.Intrinsic) -> list[Any]:
    live = getattr(f.block, attribute(str(op.attrs["state"])))
    made = f.evaluator.bound.functions[op.attrs["callee"]]
    args = [live.clone(), *(f.env[a] for a in op.args)]
    live.copy_(f.evaluator.call(made, None, args, f.bind(made, op.attrs["generics"])))
    return []


MEANING: dict[str, Callable[[Any, ir.Intrinsic], list[Any]]] = {
    "constant": _constant,
    "copy": lambda f, op: [_copy(f.env[op.args[0]])],
    "causal_mask": _causal_mask,
    "rank": _rank,
    "top_k": _top_k,
    "take_along": _take_along,
    "softmax": _softmax,
    "einsum": _einsum,
}


def _copy(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_copy, value))
    return value.clone() if isinstance(value, torch.Tensor) else value


def _intrinsic(f: Any, op: ir.Intrinsic) -> list[Any]:
    return MEANING.get(op.name, _write)(f, op)


def _read(f: Any, op: ir.ReadMember) -> list[Any]:
    return [getattr(f.block, attribute(op.name))]


def _assign(f: Any, op: ir.StateWrite) -> list[Any]:
    getattr(f.block, attribute(op.name)).copy_(f.env[op.value])
    return []


@contextmanager
def intrinsics_known(live: bool) -> Iterator[None]:
    """The evaluator with intrinsics, and with states read and written as live tensors."""
    steps = evaluate._STEPS
    old = dict(steps)
    steps[ir.Intrinsic] = _intrinsic
    if live:
        steps.update({ir.ReadMember: _read, ir.StateWrite: _assign})
    try:
        yield
    finally:
        steps.clear()
        steps.update(old)


class Machine:
    """A bound program with random weights and zero states; two with one seed are equal."""

    def __init__(self, bound: Bound, seed: int = 0):
        self.bound = bound
        root, found = build(bound)
        self.root: Block = root
        self.states: dict[str, tuple[Block, str]] = {}
        rng = torch.Generator().manual_seed(seed)
        for path, owner, member in leaves(bound, found):
            if not member.present:
                continue
            type = getattr(member.type, "inner", member.type)
            sizes = [int(dim.constant) for dim in shape_of(type)]  # type: ignore[union-attr, arg-type]
            wanted = dtypes.CARRIER[dtype_of(type)]
            if member.kind == "state":
                self.states[path] = (owner, attribute(member.name))
                tensor = torch.zeros(sizes, dtype=wanted)
            else:
                tensor = (torch.randn(sizes, generator=rng) * 0.4).to(wanted)
            setattr(owner, attribute(member.name), tensor)

    def run(self, entry: str, args: list[Any], dims: dict[str, int], live: bool) -> Any:
        evaluator = evaluate.Evaluator(self.bound)
        with torch.no_grad(), intrinsics_known(live):
            return evaluator.run(self.bound.entries[entry], self.root, args, dims)

    def state(self) -> dict[str, torch.Tensor]:
        return {path: getattr(owner, name).clone() for path, (owner, name) in self.states.items()}
