"""Index notation as torch expressions over aligned axes.

The same alignment as the evaluator's (`grid`), decided when the source is generated: every
subexpression is an expression over the output indices and reductions that it depends on, in
the frame's order. What torch's operators do not spell falls back to the evaluator's rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from linnet.dims import Dim
from linnet.ir import program as ir
from linnet.ir.types import ScalarType, TensorType
from linnet.torch import dtypes
from linnet.torch import emit_text as ops
from linnet.torch.emit_text import TORCH, scalar_text, strip
from linnet.torch.runtime import GridCall

if TYPE_CHECKING:
    from linnet.torch.emit import FunctionEmitter

# An intermediate larger than this (symbolic extents counted as `TYPICAL`) is evaluated in
# windows by the evaluator's rule instead of whole.
LARGEST = 1 << 27
TYPICAL = 256
LONG = 88  # characters of an expression before it gets a line of its own


class Fallback(Exception):
    """The grid has something that only the evaluator's rule covers."""


@dataclass(frozen=True, slots=True)
class Piece:
    """An expression (an atom) over `axes`; `kind` is "int", "float" or "tensor"."""

    text: str
    axes: tuple[ir.Idx, ...]
    kind: str


def emit_grid(f: FunctionEmitter, op: ir.Grid) -> None:
    mark = len(f.lines)
    try:
        text = GridEmitter(f, op).text()
    except Fallback:
        del f.lines[mark:]
        text = fallback(f, op)
    f.define(op.result, text, op.span)


def fallback(f: FunctionEmitter, op: ir.Grid) -> str:
    call = GridCall(f.module.plain, op, f.options.device)
    name = f.module.provide("grid", call)
    args = ", ".join(f.ref(value) for value in call.values)
    dims = ", ".join(f"{name!r}: {text}" for name, text in f.dim_names.items())
    return f"{name}([{args}], {{{dims}}})"


class GridEmitter:
    def __init__(self, f: FunctionEmitter, op: ir.Grid):
        self.f, self.op = f, op
        self.order: dict[ir.Idx, int] = {}
        self.lazy = False
        for idx in op.indices:
            self.order[idx] = len(self.order)
        if self.measure(op.body, self.size(op.indices)) > LARGEST:
            raise Fallback

    def size(self, indices: tuple[ir.Idx, ...]) -> int:
        total = 1
        for idx in indices:
            assert isinstance(idx.extent, Dim)
            constant = idx.extent.constant
            total *= TYPICAL if constant is None else max(1, constant)
        return total

    def measure(self, node: ir.GExpr, size: int) -> int:
        if isinstance(node, ir.GReduce):
            for idx in node.indices:
                self.order.setdefault(idx, len(self.order))
            size *= self.size(node.indices)
        return max([size, *(self.measure(child, size) for child in ir.children(node))])

    def text(self) -> str:
        piece = self.eval(self.op.body, False)
        type = self.op.result.type
        if isinstance(type, ScalarType):
            return scalar_text(piece.text, type) if piece.kind == "tensor" else piece.text
        assert isinstance(type, TensorType)
        if piece.kind != "tensor":
            shape = self.f.shape(type)
            return (
                f"torch.full(({shape},), {piece.text}, dtype={TORCH[type.dtype]}, device=DEVICE)"
                if piece.kind == "int"
                else f"rt.tensor({piece.text}, '{type.dtype}', DEVICE).expand({shape})"
            )
        text = self.expand(piece, self.op.indices)
        if piece.axes != self.op.indices:
            text = f"{text}.expand({self.f.shape(type)})"
        return strip(text)

    # --- Alignment -------------------------------------------------------------

    def expand(self, piece: Piece, axes: tuple[ir.Idx, ...]) -> str:
        """The expression with an axis of extent 1 for each of `axes` that it lacks.

        Axes missing in front need nothing: broadcasting aligns from the right.
        """
        text = piece.text
        seen = False
        position = 0
        for axis in axes:
            if axis in piece.axes:
                seen = True
                position += 1
            elif seen:
                remaining = any(a in piece.axes for a in axes[axes.index(axis) :])
                text += f".unsqueeze({position if remaining else -1})"
                position += 1
        return text

    def align(self, pieces: list[Piece]) -> tuple[list[str], tuple[ir.Idx, ...]]:
        axes = tuple(sorted({a for p in pieces for a in p.axes}, key=self.order.__getitem__))
        return [self.expand(piece, axes) for piece in pieces], axes

    def spill(self, piece: Piece) -> Piece:
        if len(piece.text) <= LONG:
            return piece
        return Piece(self.f.temporary(strip(piece.text)), piece.axes, piece.kind)

    # --- Expressions -------------------------------------------------------------

    def actual(self, dtype: str, widen: bool) -> str:
        return "f32" if widen and dtype in dtypes.NARROW_FLOATS else dtype

    def eval(self, node: ir.GExpr, widen: bool) -> Piece:
        return self.spill(self.build(node, widen))

    def build(self, node: ir.GExpr, widen: bool) -> Piece:
        dtype = self.actual(node.dtype, widen)
        scalar = "float" if dtype in dtypes.FLOATS else "int"
        match node:
            case ir.GLit(value):
                return Piece(ops.literal(value, dtype), (), scalar)
            case ir.GDim(dim):
                return Piece(ops.dim_literal(self.f, dim, dtype), (), scalar)
            case ir.GRead():
                piece = self.access(node)
                if dtype != node.dtype and piece.kind == "tensor":
                    return Piece(f"{piece.text}.float()", piece.axes, piece.kind)
                return piece
            case ir.GUnary(op, x):
                piece = self.eval(x, widen)
                return Piece(
                    ops.unary_text(op, piece.text, dtype, piece.kind), piece.axes, piece.kind
                )
            case ir.GBinary(op, a, b):
                return self.binary(op, a, b, widen)
            case ir.GSelect(condition, a, b, _, lazy):
                return self.select(condition, a, b, lazy, widen, dtype)
            case ir.GCast(x):
                return self.cast(x, node.dtype, dtype, widen)
            case ir.GReduce():
                return self.reduce(node, widen)
        raise Fallback

    def binary(self, op: str, a: ir.GExpr, b: ir.GExpr, widen: bool) -> Piece:
        first, second = self.eval(a, widen), self.eval(b, widen)
        operand = self.actual(a.dtype, widen)
        kinds = (first.kind, second.kind)
        if self.lazy and op in ("div", "rem") and operand not in dtypes.FLOATS:
            raise Fallback  # a divisor that is zero only where it is not wanted
        (p, q), axes = self.align([first, second])
        if op == "mul" and p == q and kinds == ("tensor", "tensor") and operand in dtypes.FLOATS:
            return Piece(f"{p}.square()", axes, "tensor")
        kind = "tensor" if "tensor" in kinds else first.kind
        if kind == "float" and op in ops.COMPARISONS:
            kind = "int"
        text = ops.binary_text(self.f, op, p, q, operand, kinds, self.op.span)
        return Piece(text, axes, kind)

    def select(
        self, condition: ir.GExpr, a: ir.GExpr, b: ir.GExpr, lazy: bool, widen: bool, dtype: str
    ) -> Piece:
        chosen = self.eval(condition, widen)
        outer, self.lazy = self.lazy, self.lazy or lazy
        first, second = self.eval(a, widen), self.eval(b, widen)
        self.lazy = outer
        (c, p, q), axes = self.align([chosen, first, second])
        if chosen.kind == "tensor":
            both = first.kind == second.kind == "tensor"
            text = f"torch.where({c}, {p}, {q})"
            if not both:
                text = f"rt.select({c}, {p}, {q}, '{dtype}', DEVICE)"
            return Piece(text, axes, "tensor")
        if first.kind == second.kind != "tensor":
            return Piece(f"({p} if {c} else {q})", axes, first.kind)
        if first.axes != second.axes or first.kind != second.kind:
            return Piece(f"rt.select({c}, {p}, {q}, '{dtype}', DEVICE)", axes, "tensor")
        return Piece(f"({p} if {c} else {q})", axes, "tensor")

    def cast(self, x: ir.GExpr, target: str, actual: str, widen: bool) -> Piece:
        piece = self.eval(x, widen)
        source = self.actual(x.dtype, widen)
        if piece.kind == "tensor":
            text = ops.cast_text(piece.text, source, target)
            if actual != target:
                text = f"{text}.float()"
            return Piece(text, piece.axes, "tensor")
        kind = "float" if target in dtypes.FLOATS else "int"
        if source == target:
            return piece
        if piece.kind == kind == "int":
            text = f"({piece.text} != 0)" if target == "bool" else (
                f"int({piece.text})" if source == "bool"
                else f"rt.dtypes.wrap_int({piece.text}, '{target}')"
            )  # fmt: skip
            low, high = dtypes.limits(source)
            bounds = dtypes.limits(target)
            if bounds[0] <= low and high <= bounds[1] and source != "bool":
                text = piece.text
        else:
            text = f"rt.scalar_cast({piece.text}, '{source}', '{target}', DEVICE)"
        return Piece(text, piece.axes, kind)

    def reduce(self, node: ir.GReduce, widen: bool) -> Piece:
        adds = node.kind in ("sum", "prod")
        narrow = node.dtype in dtypes.NARROW_FLOATS
        inner = widen or (adds and not node.stated and narrow)
        rounded_once = self.actual(node.dtype, widen) == self.actual(node.body.dtype, inner)
        if rounded_once and (factored := self.factored(node)) is not None:
            return self.scaled(*factored, widen)
        piece = self.eval(node.body, inner)
        if not set(node.indices) <= set(piece.axes) or piece.kind != "tensor":
            raise Fallback
        body = self.actual(node.body.dtype, inner)
        accumulate = self.actual(node.accumulate, inner) if adds else body
        text = piece.text
        if adds and body != accumulate:
            text = ops.cast_text(text, body, accumulate)
        axes = [i - len(piece.axes) for i, axis in enumerate(piece.axes) if axis in node.indices]
        listed = axes[0] if len(axes) == 1 else tuple(axes)
        filled = all(
            isinstance(idx.extent, Dim) and (idx.extent.constant or 0) > 0 for idx in node.indices
        )
        if node.kind == "sum" and accumulate in dtypes.FLOATS:
            text = f"{text}.sum({listed})"
        elif node.kind == "sum" and accumulate not in ops.ODD:
            text = f"{text}.sum({listed}, dtype={ops.TORCH[accumulate]})"
        elif node.kind in ("max", "min") and filled and accumulate != "u64":
            text = f"{text}.a{node.kind}({listed})"
        elif node.kind in ("any", "all") and len(axes) == 1:
            text = f"{text}.{node.kind}({listed})"
        else:
            positive = [a + len(piece.axes) for a in axes]
            text = f"rt.reduce('{node.kind}', {text}, {positive}, '{accumulate}')"
        result = self.actual(node.dtype, widen)
        text = ops.cast_text(text, accumulate, result)
        kept = tuple(axis for axis in piece.axes if axis not in node.indices)
        return Piece(text, kept, "tensor")

    def factored(self, node: ir.GReduce) -> tuple[ir.GReduce, ir.GBinary] | None:
        """`sum(e / c)` and `sum(e * c)` with a constant `c`, as the sum of `e` and the rest."""
        body = node.body
        if node.kind != "sum" or self.f.options.numerics == "exact":
            return None
        if not isinstance(body, ir.GBinary) or body.op not in ("mul", "div"):
            return None
        if body.dtype not in dtypes.FLOATS or not isinstance(body.b, (ir.GLit, ir.GDim)):
            return None
        plain = ir.GReduce("sum", node.indices, body.a, node.accumulate, node.dtype, node.stated)
        return plain, body

    def scaled(self, plain: ir.GReduce, body: ir.GBinary, widen: bool) -> Piece:
        total = self.eval(plain, widen)
        factor = self.eval(body.b, widen)
        operand = self.actual(body.dtype, widen)
        kinds = (total.kind, factor.kind)
        text = ops.binary_text(
            self.f, body.op, total.text, factor.text, operand, kinds, self.op.span
        )
        return Piece(text, total.axes, "tensor")

    # --- Accesses ------------------------------------------------------------------

    def access(self, node: ir.GRead) -> Piece:
        from linnet.torch.emit import kind_of

        value = node.value
        kind = kind_of(value.type)
        text = self.f.ref(value)
        if not node.axes:
            return Piece(text, (), kind)
        slots: list[ir.Idx | Piece] = []
        for number, axis in enumerate(node.axes):
            if isinstance(axis, ir.Idx):
                slots.append(axis)
            elif isinstance(axis, Dim):
                text += f".select({len(slots)}, {self.f.dim(axis)})"
            else:
                piece = self.position(node, axis, number)
                if piece.kind == "int":
                    text += f".select({len(slots)}, {piece.text})"
                else:
                    slots.append(piece)
        if any(isinstance(slot, Piece) for slot in slots):
            return self.gather(text, slots)
        return self.arrange(text, slots)  # type: ignore[arg-type]

    def arrange(self, text: str, keys: list[ir.Idx]) -> Piece:
        keys = list(keys)
        for key in dict.fromkeys(keys):
            while keys.count(key) > 1:
                first = keys.index(key)
                second = keys.index(key, first + 1)
                text += f".diagonal(0, {first}, {second})"
                keys = [k for i, k in enumerate(keys) if i not in (first, second)] + [key]
        order = sorted(range(len(keys)), key=lambda i: self.order[keys[i]])
        moved = [i for i, axis in enumerate(order) if i != axis]
        if len(moved) == 2:
            text += f".transpose({moved[0]}, {moved[1]})"
        elif moved:
            text += f".permute({', '.join(map(str, order))})"
        return Piece(text, tuple(keys[i] for i in order), "tensor")

    def position(self, node: ir.GRead, axis: ir.GExpr, number: int) -> Piece:
        """A run-time index; checked here unless the entry's checks cover it."""
        piece = self.eval(axis, False)
        if piece.kind == "tensor" and axis.dtype in ("i8", "i16", "u8"):
            # Torch takes no index so narrow, and u8 for a mask.
            piece = Piece(f"{piece.text}.long()", piece.axes, piece.kind)
        if id(axis) in self.f.options.unchecked:
            return piece
        if self.lazy:
            raise Fallback
        type = node.value.type
        assert isinstance(type, TensorType)
        extent = type.shape[number]
        assert isinstance(extent, Dim)
        check = "at" if piece.kind == "int" else "index"
        name = f"axis {number} of {node.value.name or 'the tensor'}"
        span = node.span or self.op.span or ""
        text = f"rt.{check}({piece.text}, {self.f.dim(extent)}, '{span}', '{name}')"
        return Piece(text, piece.axes, piece.kind)

    def gather(self, text: str, slots: list[Any]) -> Piece:
        run_time = [i for i, slot in enumerate(slots) if isinstance(slot, Piece)]
        used = {axis for i in run_time for axis in slots[i].axes}
        plain = [slot for slot in slots if isinstance(slot, ir.Idx)]
        if len(run_time) == 1 and len(slots[run_time[0]].axes) == 1 and not used & set(plain):
            (at,) = run_time
            keys = [slot.axes[0] if isinstance(slot, Piece) else slot for slot in slots]
            return self.arrange(f"{text}.index_select({at}, {slots[at].text})", keys)
        used |= {key for key in plain if plain.count(key) > 1}
        pieces: dict[int, Piece] = {i: slots[i] for i in run_time}
        for i, slot in enumerate(slots):
            if isinstance(slot, ir.Idx) and slot in used:
                extent = slot.extent
                assert isinstance(extent, Dim)
                numbers = f"torch.arange({self.f.dim(extent)}, device=DEVICE)"
                pieces[i] = Piece(numbers, (slot,), "tensor")
        places = sorted(pieces)
        texts, axes = self.align([pieces[i] for i in places])
        by_place = dict(zip(places, texts, strict=True))
        items = [by_place.get(i, ":") for i in range(len(slots))]
        rest = [slots[i] for i in range(len(slots)) if i not in pieces]
        # Torch puts the gathered axes where they stood if they stand together, else first.
        together = places == list(range(places[0], places[-1] + 1))
        before = rest[: places[0]] if together else []
        keys = [*before, *axes, *rest[len(before) :]]
        while items[-1] == ":":
            items.pop()
        return self.arrange(f"{text}[{', '.join(items)}]", keys)
