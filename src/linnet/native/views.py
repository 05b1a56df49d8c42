"""Tensors seen another way: reshape, permute, broadcast, concat and slices.

A view of memory is memory with other strides; a view of an expression is the expression read at
other indices. Elements move only where neither will do.
"""

from __future__ import annotations

from typing import Any

from linnet.dims import Dim
from linnet.ir import program as ir
from linnet.ir.types import dtype_of, shape_of
from linnet.native import elements
from linnet.native.elements import c_dim
from linnet.native.emit import Emitter
from linnet.native.frame import Frame
from linnet.native.nest import outer_index
from linnet.native.node import ONE, ZERO, Ix, Joined, Map, Mem, Moved, Node, row_major


def shape(f: Frame, type: Any) -> tuple[Dim, ...]:
    return tuple(d.substitute(f.bind) for d in shape_of(type))  # type: ignore[union-attr]


def moved(
    e: Emitter, f: Frame, result: ir.Value, base: Node, plan: list[Ix], to: tuple[Dim, ...]
) -> None:
    e.define(f, result, view(base, plan, to))


def view(base: Node, plan: list[Ix], to: tuple[Dim, ...]) -> Node:
    """`base` with its axis `i` read at `plan[i]`, a linear form over the new axes."""
    made = getattr(base, "made", None)
    base = made if made is not None else base
    if not isinstance(base, Mem):
        return Moved(base, to, tuple(plan))
    offset, strides = base.offset, [ZERO] * len(to)
    for form, stride in zip(plan, base.strides, strict=True):
        offset = offset + Ix((), form.const) * stride
        for name, coefficient in form.terms:
            if name.isdigit():
                strides[int(name)] = strides[int(name)] + coefficient * stride
            else:
                offset = offset + Ix(((name, coefficient),)) * stride
    return Mem(base.buffer, to, tuple(strides), base.dtype, offset)


def reshape(e: Emitter, f: Frame, op: ir.Reshape) -> None:
    base, to = e.node(f, op.x), shape(f, op.result.type)
    e.define(f, op.result, reshaped(e, base, to))


def reshaped(e: Emitter, base: Node, to: tuple[Dim, ...]) -> Node:
    if base.shape == to:
        return base
    if isinstance(base, Joined):
        plan = matched(base.shape, to)
        if plan is not None:
            axis = next((n for n, group in enumerate(plan) if group == [base.axis]), None)
            if axis is not None:
                parts = []
                for part in base.parts:
                    extents = list(to)
                    extents[axis] = part.shape[base.axis]
                    parts.append(reshaped(e, part, tuple(extents)))
                return Joined(parts, axis, to, base.dtype)
        base = e.memory(base)
    made = getattr(base, "made", None)
    base = made if made is not None else base
    split = divided(base.shape, to)
    if split is not None:
        return view(base, split, to)
    mem = e.memory(base)
    merged = merge(mem, to)
    if merged is not None:
        return merged
    mem = e.packed(mem)
    return Mem(mem.buffer, to, row_major(to), mem.dtype, mem.offset, param=mem.param)


def divided(old: tuple[Dim, ...], new: tuple[Dim, ...]) -> list[Ix] | None:
    """How each old axis is read where new axes only divide old ones (or have extent 1)."""
    plan: list[Ix] = []
    position = 0
    for extent in old:
        group: list[int] = []
        total = ONE
        while total != extent or not group:
            if position == len(new):
                if extent == ONE and not group:
                    break
                return None
            if not group and extent == ONE and new[position] != ONE:
                break
            group.append(position)
            total = total * new[position]
            position += 1
        form, step = Ix(), ONE
        for axis in reversed(group):
            if new[axis] != ONE:
                form = form + Ix.of(str(axis)) * step
            step = step * new[axis]
        plan.append(form)
    while position < len(new):
        if new[position] != ONE:
            return None
        position += 1
    return plan


def matched(old: tuple[Dim, ...], new: tuple[Dim, ...]) -> list[list[int]] | None:
    """For a reshape that only adds or drops axes of extent 1: the old axes of each new one."""
    kept = [n for n, extent in enumerate(old) if extent != ONE]
    if [old[n] for n in kept] != [extent for extent in new if extent != ONE]:
        return None
    left = iter(kept)
    return [[next(left)] if extent != ONE else [] for extent in new]


def merge(mem: Mem, to: tuple[Dim, ...]) -> Mem | None:
    """A reshape of strided memory that joins axes lying one behind another."""
    old = [(d, s) for d, s in zip(mem.shape, mem.strides, strict=True) if d != ONE]
    strides: list[Dim] = []
    position = 0
    for extent in to:
        if extent == ONE:
            strides.append(ZERO)
            continue
        if position == len(old):
            return None
        total, step = old[position]
        position += 1
        while total != extent and position < len(old):
            following, stride = old[position]
            if step != following * stride:
                return None
            total, step = total * following, stride
            position += 1
        if total != extent:
            return None
        strides.append(step)
    return (
        Mem(mem.buffer, to, tuple(strides), mem.dtype, mem.offset) if position == len(old) else None
    )


def permute(e: Emitter, f: Frame, op: ir.Permute) -> None:
    base = e.node(f, op.x)
    e.define(f, op.result, permuted(base, op.axes))


def permuted(base: Node, axes: tuple[int, ...]) -> Node:
    to = tuple(base.shape[axis] for axis in axes)
    if isinstance(base, Joined) and getattr(base, "made", None) is None:
        parts = [permuted(part, axes) for part in base.parts]
        return Joined(parts, axes.index(base.axis), to, base.dtype)
    plan = [Ix()] * len(axes)
    for new, old in enumerate(axes):
        plan[old] = Ix.of(str(new))
    return view(base, plan, to)


def broadcast(e: Emitter, f: Frame, op: ir.Broadcast) -> None:
    base, to = e.simple(e.node(f, op.x)), shape(f, op.result.type)
    spare = len(to) - len(base.shape)
    plan = [Ix() if d == ONE else Ix.of(str(spare + n)) for n, d in enumerate(base.shape)]
    if not base.shape:
        e.define(f, op.result, Map("cast", [base], to, base.dtype))
    else:
        moved(e, f, op.result, base, plan, to)


def concat(e: Emitter, f: Frame, op: ir.Concat) -> None:
    to = shape(f, op.result.type)
    axis = op.axis if op.axis >= 0 else len(to) + op.axis
    parts: list[Node] = []
    for value in op.xs:
        node = e.node(f, value)
        if isinstance(node, Joined) and node.axis == axis and getattr(node, "made", None) is None:
            parts.extend(node.parts)
        else:
            parts.append(e.simple(node))
    e.define(f, op.result, Joined(parts, axis, to, dtype_of(op.result.type)))


def slice_(e: Emitter, f: Frame, op: ir.Slice) -> None:
    base = e.node(f, op.x)
    items: list[Any] = []
    for number, item in enumerate(op.items):
        match item:
            case ir.At(index):
                items.append(Ix.of(index.substitute(f.bind)))
            case ir.AtValue(value):
                scalar = e.force(e.node(f, value))
                if id(op) not in e.covered:
                    name = e.fresh("s")
                    extent = c_dim(base.shape[number])
                    e.line(f"const long {name} = clamp_index({scalar.text}, {extent}, &a->error);")
                    items.append(Ix.of(name))
                elif scalar.value is not None:
                    items.append(Ix.of(int(scalar.value)))
                else:
                    items.append(Ix.of(scalar.text))
            case ir.Range(start, stop, step):
                items.append((start.substitute(f.bind), stop.substitute(f.bind), step))
            case _:
                items.append(None)
    e.define(f, op.result, sliced(e, base, items, shape(f, op.result.type)))


def sliced(e: Emitter, base: Node, items: list[Any], to: tuple[Dim, ...]) -> Node:
    if isinstance(base, Joined) and getattr(base, "made", None) is None:
        piece = of_joined(e, base, items, to)
        if piece is not None:
            return piece
        base = e.memory(base)
    plan: list[Ix] = []
    axis = 0
    for item in items:
        if isinstance(item, Ix):
            plan.append(item)
            continue
        form = Ix.of(str(axis))
        if item is not None:
            start, _, step = item
            form = form * step + Ix.of(start)
        plan.append(form)
        axis += 1
    return view(base, plan, to)


def of_joined(e: Emitter, base: Joined, items: list[Any], to: tuple[Dim, ...]) -> Node | None:
    """A slice that lies within some of the parts."""
    item = items[base.axis]
    kept = sum(not isinstance(i, Ix) for i in items[: base.axis])
    edges = [ZERO]
    for part in base.parts:
        edges.append(edges[-1] + part.shape[base.axis])
    if item is None or item == (ZERO, edges[-1], 1):
        parts = []
        for part in base.parts:
            inner = list(items)
            inner[base.axis] = None
            extents = list(to)
            extents[kept] = part.shape[base.axis]
            parts.append(sliced(e, part, inner, tuple(extents)))
        return Joined(parts, kept, to, base.dtype)
    if isinstance(item, Ix):
        if item.terms:
            return None
        low, high = item.const, item.const + 1
    else:
        low, high = item[0], item[1]
    for number, part in enumerate(base.parts):
        a, b = edges[number], edges[number + 1]
        if at_most(a, low) and at_most(high, b):
            inner = list(items)
            inner[base.axis] = (
                Ix.of(low - a) if isinstance(item, Ix) else (low - a, high - a, item[2])
            )
            return sliced(e, part, inner, to)
    return None


def at_most(a: Dim, b: Dim) -> bool:
    low = (b - a).low
    return low is not None and low >= 0


def pointer(mem: Mem) -> str:
    offset = outer_index(mem.offset)
    base = f"({elements.STORED[mem.dtype]} *){mem.buffer.name}"
    return base if offset == "0" else f"({base} + {offset})"
