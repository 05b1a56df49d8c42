"""Ranks, top-K and one-hot sums in index notation, back to what they mean.

Identities, for numbers (a NaN has no rank):
- the count of the entries that outrank one (`x[j] > x[e]`, or equal and `j < e`) is its rank;
- `sum[e] select(rank[e] == k, v[e], 0)` is `v` at the entry of rank `k`, which is unique;
- softmax over `select(rank < K, x, floor)` at the entry of rank `k` is the softmax over the `K`
  first alone, since `exp(floor - max)` is zero: the class is equivalent, the rest is exact.
"""

from __future__ import annotations

from dataclasses import dataclass

from linnet.dims import Dim
from linnet.ir.bound import Bound, Instance
from linnet.ir.passes.linear import linear
from linnet.ir.passes.tools import Defs, Replacer, definitions, regions
from linnet.ir.program import (
    Axis,
    Call,
    Cast,
    GBinary,
    GCast,
    GExpr,
    GLit,
    GRead,
    GReduce,
    Grid,
    GSelect,
    Idx,
    Intrinsic,
    Op,
    Region,
    Value,
)
from linnet.ir.types import FLOATS, INTEGERS, dtype_of, shape_of, tensor

SOFTMAX = "std.nn.softmax::softmax"
FLOOR = -1e30  # at or below this, an entry has no share beside one of ordinary size


def find_ranks(instance: Instance, bound: Bound) -> Instance:
    """In place."""
    _Ranks(instance, bound).run()
    return instance


@dataclass(frozen=True, eq=False, slots=True)
class _Pick:
    """`sum[e] select(rank[.., e] == k, value, 0)`, one for each output `(.., k)`."""

    rank: Intrinsic
    entry: Idx
    value: GExpr


class _Ranks:
    def __init__(self, instance: Instance, bound: Bound):
        self.body = instance.body
        self.bound = bound
        self.facts = instance.facts()
        self.defs: Defs = definitions(instance.body)
        self.home: dict[Op, Region] = {
            op: region
            for region in regions(instance.body)
            for op in region.ops
            if isinstance(op, Intrinsic)
        }
        self.tops: dict[tuple[Op, Dim], Intrinsic] = {}
        self.swap = Replacer()

    def run(self) -> None:
        for region in list(regions(self.body)):
            position = 0
            while position < len(region.ops):
                op = region.ops[position]
                op.replace(self.swap.get)
                new = self.one(op, region)
                if new:
                    position = region.ops.index(op)
                    region.ops[position : position + 1] = new
                    for added in new:
                        added.span = added.span or op.span
                        self.defs.update(dict.fromkeys(added.results, added))
                        if isinstance(added, Intrinsic):
                            self.home[added] = region
                    position += len(new)
                elif isinstance(new, list):
                    position = region.ops.index(op)
                    del region.ops[position]
                else:
                    position += 1
        self.swap.apply(self.body)

    def one(self, op: Op, region: Region) -> list[Op] | None:
        """What takes the operation's place; an empty list drops it, None keeps it."""
        if isinstance(op, Cast):
            return self.index_cast(op)
        if not isinstance(op, Grid):
            return None
        rank = self.rank(op)
        if rank is not None:
            return [rank]
        pick = self.pick(op)
        return None if pick is None else self.picked(op, pick)

    # --- rank by counting ---------------------------------------------------------

    def rank(self, grid: Grid) -> Intrinsic | None:
        count = _uncast(grid.body)
        if not (isinstance(count, GReduce) and count.kind == "sum" and len(count.indices) == 1):
            return None
        if not grid.indices or grid.body.dtype not in INTEGERS:
            return None
        (other,) = count.indices
        own = grid.indices[-1]
        condition = _indicator(count.body)
        found = None if condition is None else self.outranks(condition, own, other)
        if found is None:
            return None
        read, descending = found
        if read.axes != grid.indices or shape_of(read.value.type) != shape_of(grid.result.type):
            return None
        return Intrinsic([grid.result], None, "rank", [read.value], {"descending": descending})

    def outranks(self, node: GExpr, own: Idx, other: Idx) -> tuple[GRead, bool] | None:
        """`x[other] > x[own]`, or equal and `other < own`: the read of `x[own]`, and which way."""
        if isinstance(node, GBinary) and node.op == "or":
            for strict, ties in ((node.a, node.b), (node.b, node.a)):
                found = self.strict(strict, own, other)
                if (
                    found is not None
                    and isinstance(ties, GBinary)
                    and ties.op == "and"
                    and any(
                        self.equal(e, found[0], own, other) and self.earlier(i, own, other)
                        for e, i in ((ties.a, ties.b), (ties.b, ties.a))
                    )
                ):
                    return found
        if isinstance(node, GSelect) and self.earlier(node.condition, own, other):
            found = self.strict(node.b, own, other)
            if found is not None and self.at_least(node.a, found, own, other):
                return found
        return None

    def compared(self, node: GExpr, own: Idx, other: Idx) -> tuple[str, GRead, bool] | None:
        """A comparison of `x[own]` with `x[other]`: the operation, the read of `x[own]`, and
        whether that stands on the left."""
        if not isinstance(node, GBinary):
            return None
        a, b = _element(node.a), _element(node.b)
        if a is None or b is None or a.value is not b.value or not a.axes:
            return None
        if a.axes[:-1] != b.axes[:-1]:
            return None
        if (a.axes[-1], b.axes[-1]) == (own, other):
            return node.op, a, True
        if (a.axes[-1], b.axes[-1]) == (other, own):
            return node.op, b, False
        return None

    def strict(self, node: GExpr, own: Idx, other: Idx) -> tuple[GRead, bool] | None:
        found = self.compared(node, own, other)
        if found is None or found[0] not in ("lt", "gt"):
            return None
        op, read, left = found
        return read, (op == "lt") == left  # x[own] < x[other]: the larger outranks

    def at_least(self, node: GExpr, strict: tuple[GRead, bool], own: Idx, other: Idx) -> bool:
        found = self.compared(node, own, other)
        if found is None or found[0] not in ("le", "ge") or found[1].value is not strict[0].value:
            return False
        return ((found[0] == "le") == found[2]) == strict[1]

    def equal(self, node: GExpr, read: GRead, own: Idx, other: Idx) -> bool:
        found = self.compared(node, own, other)
        return found is not None and found[0] == "eq" and found[1].value is read.value

    def earlier(self, node: GExpr, own: Idx, other: Idx) -> bool:
        """Whether a comparison says `other < own`."""
        if not (isinstance(node, GBinary) and node.op in ("lt", "gt")):
            return False
        low, high = (node.a, node.b) if node.op == "lt" else (node.b, node.a)
        gap = linear(high, self.defs).add(linear(low, self.defs), -1)
        return not gap.terms and gap.offset == Dim.const(0) and gap.indices == {own: 1, other: -1}

    # --- the entry of a rank ---------------------------------------------------------

    def pick(self, grid: Grid) -> _Pick | None:
        total = grid.body
        if not (isinstance(total, GReduce) and total.kind == "sum" and len(total.indices) == 1):
            return None
        if not grid.indices:
            return None
        (entry,) = total.indices
        place = grid.indices[-1]
        body = total.body
        match body:
            case GSelect(condition, value, GLit(zero)) if zero == 0:
                pass
            case GBinary("mul", GCast(condition), value) if condition.dtype == "bool":
                pass
            case GBinary("mul", value, GCast(condition)) if condition.dtype == "bool":
                pass
            case _:
                return None
        if not (isinstance(condition, GBinary) and condition.op == "eq"):
            return None
        gap = linear(condition.a, self.defs).add(linear(condition.b, self.defs), -1)
        if gap.offset != Dim.const(0) or len(gap.terms) != 1 or list(gap.indices) != [place]:
            return None
        read, sign = next(iter(gap.terms.values()))
        rank = self.rank_read(read, (*grid.indices[:-1], entry))
        if rank is None or gap.indices[place] != -sign or abs(sign) != 1:
            return None
        assert isinstance(place.extent, Dim) and isinstance(entry.extent, Dim)
        if not self.facts.holds("<=", place.extent, entry.extent):
            return None
        return _Pick(rank, entry, value)

    def rank_read(self, node: GExpr, axes: tuple[Idx, ...]) -> Intrinsic | None:
        if not (isinstance(node, GRead) and node.axes == axes):
            return None
        made = self.defs.get(node.value)
        return made if isinstance(made, Intrinsic) and made.name == "rank" else None

    def picked(self, grid: Grid, pick: _Pick) -> list[Op] | None:
        count = grid.indices[-1].extent
        assert isinstance(count, Dim)
        axes = (*grid.indices[:-1], pick.entry)
        dtype = dtype_of(grid.result.type)
        place = linear(pick.value, self.defs)
        if not place.terms and place.offset == Dim.const(0) and place.indices == {pick.entry: 1}:
            return self.as_dtype(grid.result, self.top(pick.rank, count).results[1], dtype)
        read = _uncast(pick.value)
        if not (isinstance(read, GRead) and read.axes == axes):
            return None
        if read.value is pick.rank.args[0]:
            return self.as_dtype(grid.result, self.top(pick.rank, count).results[0], dtype)
        chosen = self.chosen_softmax(read.value, pick.rank, count)
        if chosen is not None:
            *before, value = chosen
            return [*before, *self.as_dtype(grid.result, value.result, dtype, value)]
        if len(shape_of(read.value.type)) != len(axes):
            return None
        index = self.top(pick.rank, count).results[1]
        taken = Value(tensor(shape_of(grid.result.type), read.dtype))
        gather = Intrinsic([taken], None, "take_along", [read.value, index])
        return [gather, *self.as_dtype(grid.result, taken, dtype)]

    def top(self, rank: Intrinsic, count: Dim) -> Intrinsic:
        """The top-K of the ranked tensor, made once, right behind the rank."""
        key = (rank, count)
        if key not in self.tops:
            x = rank.args[0]
            shape = (*shape_of(x.type)[:-1], count)
            results = [Value(tensor(shape, dtype_of(x.type)), "top"),
                       Value(tensor(shape, "i64"), "chosen")]  # fmt: skip
            attrs = {"k": count, "descending": rank.attrs["descending"]}
            made = Intrinsic(results, rank.span, "top_k", [x], attrs)
            region = self.home[rank]
            region.ops.insert(region.ops.index(rank) + 1, made)
            self.defs.update(dict.fromkeys(results, made))
            self.tops[key] = made
        return self.tops[key]

    def as_dtype(self, old: Value, value: Value, dtype: str, last: Op | None = None) -> list[Op]:
        """Operations that give `value` in a dtype as the value `old`."""
        before = [last] if last is not None else []
        if dtype_of(value.type) == dtype:
            self.swap.set(old, value)
            return before
        return [*before, Cast([old], None, value)]

    def chosen_softmax(self, probabilities: Value, rank: Intrinsic, count: Dim) -> list[Op] | None:
        """Where `probabilities` is a softmax over the entries that rank below `count` only."""
        call = self.defs.get(probabilities)
        if not (isinstance(call, Call) and self.bound.functions[call.callee].source.id == SOFTMAX):
            return None
        kept = self.defs.get(call.args[0])
        if not (isinstance(kept, Grid) and isinstance(kept.body, GSelect)):
            return None
        condition, value, floor = kept.body.condition, kept.body.a, kept.body.b
        if not (isinstance(floor, GLit) and floor.value <= FLOOR):
            return None
        if not (isinstance(condition, GBinary) and condition.op in ("lt", "gt", "le", "ge")):
            return None
        less = condition.op in ("lt", "le")
        low, high = (condition.a, condition.b) if less else (condition.b, condition.a)
        gap = linear(high, self.defs).add(linear(low, self.defs), -1)
        if condition.op in ("lt", "gt"):
            gap.offset = gap.offset - 1
        if gap.indices or len(gap.terms) != 1 or gap.offset != count - 1:
            return None
        read, sign = next(iter(gap.terms.values()))
        if sign != -1 or self.rank_read(read, kept.indices) is not rank:
            return None
        inner = _uncast(value)
        if not (
            isinstance(inner, GRead)
            and inner.value is rank.args[0]
            and inner.axes == kept.indices
            and value.dtype in FLOATS
        ):
            return None
        ops: list[Op] = []
        source = self.top(rank, count).results[0]
        if value.dtype != inner.dtype:
            wide = Value(tensor(shape_of(source.type), value.dtype))
            ops.append(Cast([wide], None, source))
            source = wide
        result = Value(source.type)
        return [*ops, Intrinsic([result], None, "softmax", [source])]

    def index_cast(self, cast: Cast) -> list[Op] | None:
        """Casts of a top-K index between integers: it lies within its axis and fits them all."""
        source = cast.x
        while isinstance(step := self.defs.get(source), Cast):
            source = step.x
        made = self.defs.get(source)
        wide = ("i32", "i64", "u32", "u64")
        if not (isinstance(made, Intrinsic) and made.name == "top_k" and source is made.results[1]):
            return None
        if dtype_of(cast.result.type) not in wide or source is cast.x:
            return None
        if source.type == cast.result.type:
            self.swap.set(cast.result, source)
            return []
        cast.x = source
        return None


def _uncast(node: GExpr) -> GExpr:
    while isinstance(node, GCast):
        node = node.x
    return node


def _element(node: GExpr) -> GRead | None:
    """The read under casts that keep the order of what is read."""
    inner = node
    while isinstance(inner, GCast) and (inner.x.dtype, inner.dtype) in _ORDERED:
        inner = inner.x
    return inner if isinstance(inner, GRead) and all(_plain(a) for a in inner.axes) else None


_ORDERED = {("bf16", "f32"), ("f16", "f32"), ("f32", "f64"), ("bf16", "f64"), ("f16", "f64")}


def _plain(axis: Axis) -> bool:
    return isinstance(axis, Idx)


def _indicator(node: GExpr) -> GExpr | None:
    """The condition that `cast(c)` or `select(c, 1, 0)` counts."""
    match node:
        case GCast(x) if x.dtype == "bool":
            return x
        case GSelect(condition, GLit(one), GLit(zero)) if one == 1 and zero == 0:
            return condition
    return None
