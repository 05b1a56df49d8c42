"""Accesses of index notation: `x[*s, i, pos[b]]`."""

from __future__ import annotations

from linnet.check import expressions, grids, slices
from linnet.check.body import LITERALS, Int, Pending
from linnet.check.coerce import (
    is_integer,
)
from linnet.check.dimensions import clause_help, proof_notes
from linnet.check.infer import same_shape
from linnet.check.notation import Bound, Notation, Part, literal_part, mentions
from linnet.check.report import plural
from linnet.check.typing import (
    ERROR,
)
from linnet.diagnostics.diagnostic import Label
from linnet.dims import Dim, Fact
from linnet.ir.program import (
    Axis,
    GRead,
    Idx,
    Value,
)
from linnet.ir.types import (
    Pack,
    ScalarType,
    Shape,
    TensorType,
    Type,
    tensor,
)
from linnet.source import Span
from linnet.syntax import tree


def access(gx: Notation, node: tree.Index) -> Part:
    cx = gx.cx
    if mentions(gx, node.object):
        cx.report.error(
            "E3104",
            node.object.span,
            "an accessed expression cannot itself use indices",
            help="name it first in a `let` of its own",
        )
        return None
    value = expressions.value(cx, node.object)
    if value.type is ERROR:
        _quiet(gx, node)
        return None
    if not isinstance(value.type, TensorType):
        cx.report.error("E2104", node.object.span, f"`{value.type}` cannot be indexed")
        return None
    shape = value.type.shape
    packs = [
        i
        for i, item in enumerate(node.items)
        if isinstance(item, tree.PackExpr) or _is_pack(gx, item)
    ]
    if len(packs) > 1:
        cx.report.error("E3106", node.items[packs[1]].span, "one access takes one pack")
        return None
    spread = len(shape) - len(node.items) + 1 if packs else 1
    if (not packs and len(node.items) != len(shape)) or spread < 0:
        cx.report.error(
            "E2204",
            node.span,
            f"{plural(len(node.items), 'index')} for {plural(len(shape), 'axis')}"
            f" of `{value.type}`",
            related=cx.bound_at(value),
            help="in index notation every axis is indexed",
        )
        _quiet(gx, node)
        return None
    axes: list[Axis] = []
    position = 0
    failed = False
    for at, item in enumerate(node.items):
        if packs and at == packs[0]:
            covered = shape[position : position + spread]
            position += spread
            found: Axis | None = _pack_axis(gx, item, covered, value)
        else:
            extent = shape[position]
            position += 1
            if isinstance(extent, Pack):
                cx.report.error(
                    "E3106",
                    item.span,
                    f"an axis of `{value.type}` is the pack `{extent}`: index it by a pack",
                )
                failed = True
                continue
            found = _axis(gx, item, extent, value)
        if found is None:
            failed = True
        else:
            axes.append(found)
    if failed:
        return None
    return GRead(value, tuple(axes), value.type.dtype, node.span)


def _is_pack(gx: Notation, item: tree.Node) -> bool:
    return isinstance(item, tree.Name) and item.text in gx.indices and gx.indices[item.text].pack


def _quiet(gx: Notation, node: tree.Index) -> None:
    """Count the indices of a failed access as used, so that none is reported as unused."""
    for item in node.items:
        if isinstance(item, (tree.Name, tree.PackExpr)):
            name = item.text if isinstance(item, tree.Name) else item.name
            bound = gx.indices.get(name)
            if bound is not None and bound.first is None:
                bound.first = item.span


def _pack_axis(gx: Notation, item: tree.Node, covered: Shape, value: Value) -> Idx | None:
    cx = gx.cx
    name = item.name if isinstance(item, tree.PackExpr) else ""
    if isinstance(item, tree.Name):
        cx.report.error("E3106", item.span, f"a pack of indices is written `*{item.text}`")
        return None
    bound = gx.indices.get(name)
    if bound is None:
        if name in gx.unbound:
            return None
        gx.unbound.add(name)
        cx.report.error(
            "E3101", item.span, f"pack `*{name}` is neither an output index nor bound here"
        )
        return None
    if not bound.pack:
        cx.report.error("E3106", item.span, f"`{name}` is one index, not a pack")
        return None
    idx = bound.idx
    if bound.first is None:
        idx.extent = tuple(covered)
        bound.first = item.span
        return idx
    if idx.extent is None:
        return None
    assert isinstance(idx.extent, tuple)
    if not same_shape(cx.facts, idx.extent, tuple(covered)):
        _two_extents(gx, bound, tensor(tuple(covered), "f32"), item.span, value)
        return None
    return idx


def _two_extents(gx: Notation, bound: Bound, other: Type | Dim, span: Span, value: Value) -> None:
    cx = gx.cx

    def text(extent: object) -> str:
        if isinstance(extent, tuple):
            return f"[{', '.join(map(str, extent))}]"
        if isinstance(extent, TensorType):
            return f"[{', '.join(map(str, extent.shape))}]"
        return "[]" if isinstance(extent, ScalarType) else str(extent)

    notes: list[str] = []
    help = None
    if isinstance(other, Dim) and isinstance(bound.idx.extent, Dim):
        goal = Fact("==", bound.idx.extent, other)
        proof = cx.facts.prove(goal)
        notes, help = proof_notes(cx.facts, goal, proof), clause_help(cx.facts, proof)
    related = [Label(bound.first, f"here it is `{text(bound.idx.extent)}`")] if bound.first else []
    cx.report.error(
        "E2201",
        span,
        f"index `{bound.idx.name}` has two extents: `{text(bound.idx.extent)}` and `{text(other)}`",
        f"here it is `{text(other)}`",
        related=[*related, *cx.bound_at(value)],
        notes=notes,
        help=help,
    )


def _axis(gx: Notation, item: tree.Node, extent: Dim, value: Value) -> Axis | None:
    cx = gx.cx
    while isinstance(item, tree.Paren):
        item = item.inner
    if isinstance(item, tree.Name) and (bound := gx.indices.get(item.text)) is not None:
        if bound.first is None:
            bound.idx.extent = extent
            bound.first = item.span
            return bound.idx
        if bound.idx.extent is None:
            return None
        assert isinstance(bound.idx.extent, Dim)
        if not cx.facts.equal(bound.idx.extent, extent):
            _two_extents(gx, bound, extent, item.span, value)
            return None
        return bound.idx
    if isinstance(item, (tree.SliceItem, tree.RestItem)):
        cx.report.error(
            "E3104",
            item.span,
            "slices do not stand in index notation",
            help="slice in a `let` of its own, then index the result",
        )
        return None
    assert isinstance(item, tree.Expr)
    if isinstance(item, tree.Name) and item.text in gx.unbound:
        return None
    if isinstance(item, tree.Name) and _unbound(gx, item.text):
        gx.unbound.add(item.text)
        cx.report.error(
            "E3101",
            item.span,
            f"index `{item.text}` is neither an output index nor bound by a reduction",
            help=f"list it on the left, or reduce over it: `sum[{item.text}] …`",
        )
        return None
    part = grids.scalar(gx, item)
    if part is None:
        return None
    if isinstance(part, Int):
        return part.dim if slices.proven_index(cx, part.dim, extent, item.span, value) else None
    if isinstance(part, Pending):
        part = literal_part(gx, part, "i64", item.span)
        if part is None:
            return None
    if isinstance(part, LITERALS) or not is_integer(cx, part.dtype):
        shown = "float" if isinstance(part, LITERALS) else part.dtype
        cx.report.error("E2209", item.span, f"an index is an integer, not `{shown}`")
        return None
    return part


def _unbound(gx: Notation, name: str) -> bool:
    cx = gx.cx
    if cx.find(name) is not None or name in cx.scope.generics:
        return False
    if cx.block is not None and name in cx.checker.members(cx.block):
        return False
    return cx.scope.module.lookup(name) is None
