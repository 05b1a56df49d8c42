"""What generated code calls besides torch itself and the kernels: scalars, checks, fallbacks.

In generated code integer and boolean scalars are Python numbers, so that a position never
forces a wait for the device; float scalars are Python floats or tensors of rank 0.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from linnet.errors import InputError
from linnet.ir import program as ir
from linnet.ir.types import ScalarType
from linnet.torch import dtypes, elementwise

if TYPE_CHECKING:
    from linnet.ir.specialize import Bound

Number = int | float | bool


class Causal:
    """A mask never made: key `k` is seen by query `q` when `k <= q + offset`.

    `offset` is a number, or a tensor `[B]` with one for each row.
    """

    __slots__ = ("offset",)

    def __init__(self, offset: int | Tensor):
        self.offset = offset


def causal_mask(mask: Causal, axes: str, shape: Sequence[int], device: Any) -> Tensor:
    """The bool tensor that `mask` stands for; `axes` of `b`, `q`, `k` in order."""
    keys = torch.arange(shape[-1], device=device)
    offset = mask.offset
    if "q" in axes:
        queries = torch.arange(shape[-2], device=device).unsqueeze(-1)
        if isinstance(offset, Tensor):
            offset = offset.reshape(-1, 1, 1)
        return (keys <= queries + offset).expand(shape)
    return (keys <= (offset.unsqueeze(-1) if isinstance(offset, Tensor) else offset)).expand(shape)


# --- Scalars ------------------------------------------------------------------


def divide(op: str, a: int, b: int, dtype: str, span: str) -> int:
    """`/` and `%` of integer scalars, truncating toward zero."""
    if b == 0:
        raise InputError(f"{span}: integer division by zero")
    quotient = abs(a) // abs(b)
    quotient = quotient if (a < 0) == (b < 0) else -quotient
    return dtypes.wrap_int(quotient if op == "div" else a - quotient * b, dtype)


def shift(op: str, a: int, b: int, dtype: str) -> int:
    if not 0 <= b < int(dtype[1:]):
        return -1 if op == "shr" and a < 0 else 0
    return dtypes.wrap_int(a << b if op == "shl" else a >> b, dtype)


def tensor(x: Any, dtype: str, device: Any) -> Tensor:
    """A scalar as a carrier of rank 0."""
    return x if isinstance(x, Tensor) else dtypes.constant(x, dtype, device)


def scalar_unary(op: str, x: Any, dtype: str, device: Any) -> Any:
    return elementwise.unary(op, tensor(x, dtype, device), dtype)


def scalar_binary(op: str, a: Any, b: Any, dtype: str, device: Any) -> Any:
    y = elementwise.binary(op, tensor(a, dtype, device), tensor(b, dtype, device), dtype)
    return bool(y) if y.dtype == torch.bool else y


def scalar_cast(x: Any, source: str, target: str, device: Any) -> Any:
    """Integers and bools come out as Python numbers, floats as tensors of rank 0."""
    y = dtypes.cast(tensor(x, source, device), source, target)
    if target in dtypes.FLOATS:
        return y
    return y.item() % 2**64 if target == "u64" else y.item()


def number(x: Tensor, dtype: str) -> Any:
    """A rank-0 carrier as the scalar that generated code uses."""
    if dtype in dtypes.FLOATS:
        return x
    return x.item() % 2**64 if dtype == "u64" else x.item()


# --- Tensors ---------------------------------------------------------------------


def binary(op: str, a: Any, b: Any, dtype: str, span: str, device: Any) -> Tensor:
    """An operation that torch's operators do not spell: division, shifts, unsigned."""
    return elementwise.binary(op, tensor(a, dtype, device), tensor(b, dtype, device), dtype, span)


def extreme(op: str, a: Any, b: Any) -> Tensor:
    """`min` and `max` where one side may be a Python number."""
    if not isinstance(a, Tensor):
        a, b = b, a
    if isinstance(b, Tensor):
        return torch.minimum(a, b) if op == "min" else torch.maximum(a, b)
    return torch.clamp_max(a, b) if op == "min" else torch.clamp_min(a, b)


def over(a: Any, b: Tensor, dtype: str) -> Tensor:
    """A number divided by a tensor; torch's own operator rounds the reciprocal first."""
    return torch.div(tensor(a, dtype, b.device), b)


def select(condition: Any, a: Any, b: Any, dtype: str, device: Any) -> Tensor:
    """`torch.where` where both branches may be Python numbers, or the condition one."""
    if not isinstance(condition, Tensor):
        condition = torch.tensor(condition, device=device)
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        a, b = tensor(a, dtype, device), tensor(b, dtype, device)
    return torch.where(condition, a, b)


def reduce(kind: str, x: Tensor, axes: list[int], dtype: str) -> Tensor:
    return elementwise.reduce(kind, x, axes, dtype)


def einsum(spec: str, xs: list[Tensor], accumulate: str, result: str) -> Tensor:
    """A sum of products that is no plain matrix product; one rounding to `result`."""
    if accumulate not in dtypes.FLOATS:
        return _integer_einsum(spec, xs, accumulate).to(dtypes.CARRIER[result])
    target = dtypes.CARRIER[accumulate]
    y = torch.einsum(spec, *(x.to(target) for x in xs))
    return y.to(dtypes.CARRIER[result])


def _integer_einsum(spec: str, xs: list[Tensor], accumulate: str) -> Tensor:
    inputs, output = spec.split("->")
    names = list(dict.fromkeys(output + inputs.replace(",", "")))
    aligned: Tensor | None = None
    for labels, x in zip(inputs.split(","), xs, strict=True):
        order = sorted(range(len(labels)), key=lambda i: names.index(labels[i]))
        sizes = {labels[i]: x.shape[i] for i in order}
        x = x.to(dtypes.CARRIER[accumulate]).permute(order)
        x = x.reshape([sizes.get(name, 1) for name in names])
        aligned = x if aligned is None else dtypes.wrap(aligned * x, accumulate)
    assert aligned is not None
    axes = list(range(len(output), len(names)))
    return elementwise.reduce("sum", aligned, axes, accumulate)


def linear_einsum(x: Tensor, weight: Tensor, result: str) -> Tensor:
    """`sum[i] x[.., i] * weight[o, i]` in the operands' own dtype (it accumulates in f32)."""
    return torch.nn.functional.linear(x, weight).to(dtypes.CARRIER[result])


# --- Run-time indices ---------------------------------------------------------------


def index(x: Tensor, extent: int, span: str, name: str) -> Tensor:
    """Indices that no range of the entry's inputs covers, checked here."""
    if x.numel():
        low, high = torch.aminmax(x)
        if int(low) < 0 or int(high) >= extent:
            bad = int(low) if int(low) < 0 else int(high)
            raise InputError(f"{span}: index {bad} is outside {name}, which has extent {extent}")
    return x


def at(x: int, extent: int, span: str, name: str) -> int:
    if not 0 <= x < extent:
        raise InputError(f"{span}: index {x} is outside {name}, which has extent {extent}")
    return x


# --- Constants and fallbacks -----------------------------------------------------------


class Constants:
    """Values that depend on no input: each computed once, shared by every layer.

    A value without entry dimensions is an attribute; `at(key, dims)` memoizes the rest,
    the most recent few of each.
    """

    KEEP = 4

    def __init__(self, bound: Bound, device: torch.device):
        self._bound, self._device = bound, device
        self._keys: dict[str, str] = {}
        self._recent: dict[str, OrderedDict[tuple[int, ...], Any]] = {}

    def name(self, key: str) -> str:
        """The attribute under which a constant is read."""
        stem = "".join(c if c.isalnum() else "_" for c in key)
        stem = f"c_{stem}" if not stem[:1].isalpha() or stem in ("at", "name", "value") else stem
        while self._keys.setdefault(stem, key) != key:
            stem += "_"
        return stem

    def value(self, key: str, dims: tuple[int, ...] = ()) -> Any:
        from linnet.torch.evaluate import Evaluator

        instance = self._bound.constants[key]
        names = dict(zip(instance.dims, dims, strict=True))
        with torch.inference_mode(False), torch.no_grad():
            result = Evaluator(self._bound, self._device).call(instance, None, [], names)
        if isinstance(instance.result, ScalarType):
            return number(result, instance.result.dtype)
        return result

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._keys:
            raise AttributeError(name)
        value = self.value(self._keys[name])
        setattr(self, name, value)
        return value

    def at(self, key: str, *dims: int) -> Any:
        recent = self._recent.get(key)
        if recent is None:
            recent = self._recent[key] = OrderedDict()
        value = recent.get(dims)
        if value is None:
            value = recent[dims] = self.value(key, dims)
            if len(recent) > self.KEEP:
                recent.popitem(last=False)
        else:
            recent.move_to_end(dims)
        return value


class GridCall:
    """A grid that generated code leaves to the evaluator's rule."""

    def __init__(self, bound: Bound, op: ir.Grid, device: torch.device):
        self.bound, self.op, self.device = bound, op, device
        self.values = op.operands()

    def __call__(self, args: Sequence[Any], dims: dict[str, int]) -> Any:
        from linnet.torch.evaluate import Evaluator, Frame

        env: dict[ir.Value, Any] = {}
        for value, arg in zip(self.values, args, strict=True):
            if not isinstance(arg, Tensor) and isinstance(value.type, ScalarType):
                arg = dtypes.constant(arg, value.type.dtype, self.device)
            env[value] = arg
        (result,) = Frame(Evaluator(self.bound, self.device), None, env, dims).grid(self.op)
        type = self.op.result.type
        return number(result, type.dtype) if isinstance(type, ScalarType) else result


def distinct(x: Tensor, span: str) -> Tensor:
    """Slots of which none may be named twice."""
    if x.numel() != torch.unique(x).numel():
        raise InputError(f"{span}: a slot is named twice in {x.tolist()}")
    return x
