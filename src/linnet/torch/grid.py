"""Index notation evaluated by broadcasting over aligned axes, as it is written.

Every index is an axis of one frame: output indices first, then reductions in the order of
their nesting. A subexpression is a tensor over the axes that it depends on, in the frame's
order; operands are aligned by axes of extent 1. Large frames are evaluated window by
window, so that no intermediate exceeds `LIMIT` elements by much.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from linnet.dims import Dim
from linnet.errors import InputError
from linnet.ir.program import (
    GApply,
    GBinary,
    GCast,
    GDim,
    GExpr,
    GLit,
    GRead,
    GReduce,
    Grid,
    GSelect,
    GUnary,
    Idx,
    Value,
    children,
)
from linnet.torch import dtypes, elementwise

LIMIT = 1 << 24
Key = tuple[Idx, int]  # a component of an index; plain indices have the one component 0


@dataclass(slots=True)
class Part:
    """A tensor over some axes of the frame, sorted by the frame's order."""

    tensor: Tensor
    axes: tuple[Key, ...]


class GridWalk:
    """Evaluates one grid.

    `read` gives the carrier of a value from outside; `dims` binds the dimension names;
    `apply(node, args, mask)` evaluates a scalar function on aligned tensors, where `mask` wants it.
    """

    def __init__(
        self,
        grid: Grid,
        read: Callable[[Value], Tensor],
        dims: dict[str, int],
        apply: Callable[[GApply, list[Tensor], Tensor | None], Tensor],
        device: torch.device | str = "cpu",
    ):
        self.grid, self.read, self.dims, self.apply = grid, read, dims, apply
        self.device = device
        self.keys: dict[Idx, list[Key]] = {}
        self.order: dict[Key, int] = {}
        self.window: dict[Key, tuple[int, int]] = {}
        self.mask: Part | None = None
        for idx in grid.indices:
            self.declare(idx)
        self.outputs = list(self.order)
        self.volume = self.measure(grid.body)

    def declare(self, idx: Idx) -> None:
        extents = idx.extent if isinstance(idx.extent, tuple) else (idx.extent,)
        keys = []
        for position, extent in enumerate(extents):
            assert isinstance(extent, Dim), "packs are bound before evaluation"
            key = (idx, position)
            self.order[key] = len(self.order)
            self.window[key] = (0, extent.evaluate(self.dims))
            keys.append(key)
        self.keys[idx] = keys

    def measure(self, node: GExpr) -> int:
        """Declare the reductions below `node`; the largest count of reduced elements."""
        own = 1
        if isinstance(node, GReduce):
            for idx in node.indices:
                self.declare(idx)
                for key in self.keys[idx]:
                    own *= max(1, self.window[key][1])
        return own * max((self.measure(child) for child in children(node)), default=1)

    def run(self) -> Tensor:
        """The grid's value: a carrier of its dtype with one axis an output index."""
        sizes = [self.window[key][1] for key in self.outputs]
        if 0 in sizes:
            dtype = dtypes.CARRIER[self.grid.body.dtype]
            return torch.empty(sizes, dtype=dtype, device=self.device)
        return self.split(self.volume)

    def split(self, inner: int) -> Tensor:
        volume = inner
        for key in self.outputs:
            start, stop = self.window[key]
            volume *= stop - start
        if volume <= LIMIT or not self.outputs:
            return self.whole()
        widest = max(self.outputs, key=lambda k: self.window[k][1] - self.window[k][0])
        start, stop = self.window[widest]
        if stop - start == 1:
            return self.whole()
        # Pieces of the widest axis; a piece still too large is split again.
        step = max(1, (stop - start) * LIMIT // volume)
        parts = []
        for at in range(start, stop, step):
            self.window[widest] = (at, min(stop, at + step))
            parts.append(self.split(inner))
        self.window[widest] = (start, stop)
        return torch.cat(parts, self.outputs.index(widest))

    def whole(self) -> Tensor:
        part = self.eval(self.grid.body, False)
        sizes = [b - a for a, b in (self.window[key] for key in self.outputs)]
        aligned = self.expand(part, tuple(self.outputs))
        return aligned.expand(sizes).contiguous()

    # --- Alignment -----------------------------------------------------------

    def expand(self, part: Part, axes: tuple[Key, ...]) -> Tensor:
        """The part's tensor with an axis of extent 1 for each of `axes` it lacks."""
        if part.axes == axes:
            return part.tensor
        have = dict(zip(part.axes, part.tensor.shape, strict=True))
        return part.tensor.reshape([have.get(axis, 1) for axis in axes])

    def align(self, parts: list[Part]) -> tuple[list[Tensor], tuple[Key, ...]]:
        axes = tuple(sorted({a for p in parts for a in p.axes}, key=self.order.__getitem__))
        return [self.expand(part, axes) for part in parts], axes

    # --- Expressions -----------------------------------------------------------

    def actual(self, dtype: str, widen: bool) -> str:
        return "f32" if widen and dtype in dtypes.NARROW_FLOATS else dtype

    def eval(self, node: GExpr, widen: bool) -> Part:
        """`widen`: inside a sum or product that accumulates in f32, f16 and bf16 are f32."""
        dtype = self.actual(node.dtype, widen)
        match node:
            case GLit(value):
                return Part(dtypes.constant(value, dtype, self.device), ())
            case GDim(dim):
                return Part(dtypes.constant(dim.evaluate(self.dims), dtype, self.device), ())
            case GRead():
                part = self.access(node)
                if dtype != node.dtype:
                    part = Part(part.tensor.float(), part.axes)
                return part
            case GUnary(op, x):
                part = self.eval(x, widen)
                return Part(elementwise.unary(op, part.tensor, dtype), part.axes)
            case GBinary(op, a, b):
                (p, q), axes = self.align([self.eval(a, widen), self.eval(b, widen)])
                operand = self.actual(a.dtype, widen)
                if op in ("div", "rem") and operand not in dtypes.FLOATS:
                    q = self.guard_divisor(q, axes)
                return Part(elementwise.binary(op, p, q, operand, self.grid.span), axes)
            case GSelect(condition, a, b, _, lazy):
                chosen = self.eval(condition, widen)
                first = self.branch(a, widen, chosen, True) if lazy else self.eval(a, widen)
                second = self.branch(b, widen, chosen, False) if lazy else self.eval(b, widen)
                (c, p, q), axes = self.align([chosen, first, second])
                return Part(torch.where(c, p, q), axes)
            case GCast(x):
                part = self.eval(x, widen)
                y = dtypes.cast(part.tensor, self.actual(x.dtype, widen), node.dtype)
                return Part(y.float() if dtype != node.dtype else y, part.axes)
            case GReduce():
                return self.reduce(node, widen)
            case GApply(_, _, args):
                parts = [self.eval(arg, widen) for arg in args]
                if self.mask is None:
                    aligned, axes = self.align(parts)
                    return Part(self.apply(node, aligned, None), axes)
                (*aligned, mask), axes = self.align([*parts, self.mask])
                return Part(self.apply(node, aligned, mask), axes)
        raise AssertionError(node)

    def branch(self, node: GExpr, widen: bool, condition: Part, taken: bool) -> Part:
        """A branch of a lazy select: elements that are not taken fail no check."""
        outer = self.mask
        c = condition if taken else Part(~condition.tensor, condition.axes)
        if outer is None:
            self.mask = c
        else:
            (p, q), axes = self.align([outer, c])
            self.mask = Part(p & q, axes)
        try:
            return self.eval(node, widen)
        finally:
            self.mask = outer

    def guard_divisor(self, divisor: Tensor, axes: tuple[Key, ...]) -> Tensor:
        if self.mask is None or not set(self.mask.axes) <= set(axes):
            return divisor
        taken = self.expand(self.mask, axes)
        return torch.where(taken, divisor, torch.ones_like(divisor))

    def reduce(self, node: GReduce, widen: bool) -> Part:
        narrow = node.dtype in dtypes.NARROW_FLOATS
        adds = node.kind in ("sum", "prod")
        inner = widen or (adds and not node.stated and narrow)
        bound = [key for idx in node.indices for key in self.keys[idx]]
        if any(self.window[key][0] == self.window[key][1] for key in bound):
            return self.empty(node, widen)  # no element is computed, and none can fail
        part = self.eval(node.body, inner)
        # An index that the body's value does not depend on still counts.
        axes = tuple(sorted({*part.axes, *bound}, key=self.order.__getitem__))
        tensor = self.expand(part, axes)
        sizes = list(tensor.shape)
        for position, axis in enumerate(axes):
            if axis in bound:
                start, stop = self.window[axis]
                sizes[position] = stop - start
        tensor = tensor.expand(sizes)
        body_dtype = self.actual(node.body.dtype, inner)
        accumulate = self.actual(node.accumulate, inner) if adds else body_dtype
        if adds:
            tensor = dtypes.cast(tensor, body_dtype, accumulate)
        y = elementwise.reduce(
            node.kind, tensor, [i for i, axis in enumerate(axes) if axis in bound], accumulate
        )
        result = self.actual(node.dtype, widen)
        y = dtypes.cast(y, accumulate, result)
        return Part(y, tuple(axis for axis in axes if axis not in bound))

    def empty(self, node: GReduce, widen: bool) -> Part:
        """A reduction over an empty axis."""
        dtype = self.actual(node.dtype, widen)
        carrier = torch.zeros(0, dtype=dtypes.CARRIER[dtype], device=self.device)
        return Part(elementwise.reduce(node.kind, carrier, [0], dtype), ())

    # --- Accesses ----------------------------------------------------------------

    def access(self, node: GRead) -> Part:
        """Axes: plain indices stay, constants drop, run-time expressions gather."""
        tensor = self.read(node.value)
        slots: list[Key | int | GExpr] = []
        for axis in node.axes:
            if isinstance(axis, Idx):
                slots.extend(self.keys[axis])
            elif isinstance(axis, GExpr):
                slots.append(axis)
            else:
                slots.append(axis.evaluate(self.dims))
        kept: list[Key | GExpr] = []
        for slot in slots:
            if isinstance(slot, int):
                tensor = tensor.select(len(kept), slot)
            else:
                if isinstance(slot, tuple):
                    start, stop = self.window[slot]
                    if (start, stop) != (0, tensor.shape[len(kept)]):
                        tensor = tensor.narrow(len(kept), start, stop - start)
                kept.append(slot)
        if any(isinstance(slot, GExpr) for slot in kept):
            return self.gather(node, tensor, kept)
        return self.arrange(tensor, kept)  # type: ignore[arg-type]

    def arrange(self, tensor: Tensor, keys: list[Key]) -> Part:
        """Diagonals of repeated indices taken, then axes sorted by the frame's order."""
        keys = list(keys)
        for key in dict.fromkeys(keys):
            while keys.count(key) > 1:
                first = keys.index(key)
                second = keys.index(key, first + 1)
                tensor = tensor.diagonal(0, first, second)
                keys = [k for i, k in enumerate(keys) if i not in (first, second)] + [key]
        order = sorted(range(len(keys)), key=lambda i: self.order[keys[i]])
        if order != list(range(len(keys))):
            tensor = tensor.permute(order)
        return Part(tensor, tuple(keys[i] for i in order))

    def gather(self, node: GRead, tensor: Tensor, slots: list[Any]) -> Part:
        parts = {i: self.position(node, s, i, tensor.shape[i]) for i, s in enumerate(slots)
                 if isinstance(s, GExpr)}  # fmt: skip
        used = {key for part in parts.values() for key in part.axes}
        # A plain index that also stands in an index expression is gathered with it, and so
        # is one that occurs twice.
        plain = [s for s in slots if isinstance(s, tuple)]
        used |= {key for key in plain if plain.count(key) > 1}
        for i, slot in enumerate(slots):
            if isinstance(slot, tuple) and slot in used:
                numbers = torch.arange(tensor.shape[i], device=tensor.device)
                parts[i] = Part(numbers, (slot,))
        for i in parts:
            if tensor.shape[i] == 0:  # no element is wanted, or `position` had refused
                shape = [1 if i == j else n for j, n in enumerate(tensor.shape)]
                tensor = tensor.new_zeros(shape)
        places = sorted(parts)
        rest = [i for i in range(len(slots)) if i not in parts]
        aligned, axes = self.align([parts[i] for i in places])
        moved = tensor.permute([*places, *rest])
        return self.arrange(moved[tuple(aligned)], [*axes, *(slots[i] for i in rest)])

    def position(self, node: GRead, axis: GExpr, number: int, extent: int) -> Part:
        """A run-time index, checked against its axis where the element is wanted."""
        part = self.eval(axis, False)
        index = part.tensor.to(torch.int64)
        outside = (index < 0) | (index >= extent)
        axes = part.axes
        if self.mask is not None:
            (outside, wanted, index), axes = self.align(
                [Part(outside, axes), self.mask, Part(index, axes)]
            )
            index = index.expand(torch.broadcast_shapes(index.shape, wanted.shape))
            outside = outside & wanted
            index = torch.where(wanted, index, torch.zeros_like(index))
        if bool(outside.any()):
            bad = int(index.expand(outside.shape)[outside].flatten()[0])
            raise InputError(
                f"{node.span or self.grid.span or '<grid>'}: index {bad} is outside axis "
                f"{number} of {node.value.name or 'the tensor'}, which has extent {extent}"
            )
        return Part(index, axes)
