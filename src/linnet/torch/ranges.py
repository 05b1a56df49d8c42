"""What the run-time indices of an entry ask of its integer arguments.

An abstract walk from an entry through its calls. An integer is followed as bounds, each a
constant dimension or an argument of the entry plus one; where it indexes an axis of known
extent, the bounds become conditions on the argument (`pos + S - 1 < MaxSeq`), checked before
the entry runs. An index whose bounds all are proven or become conditions is *covered*; any
other is checked where it is used. Conditions are exact: they refuse only what would fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from linnet.dims import Dim, Fact, Facts
from linnet.ir import program as ir
from linnet.ir.types import INTEGERS, EnumType, ScalarType, TensorType, Type, dtype_of, shape_of
from linnet.source import Span
from linnet.torch.dtypes import limits

if TYPE_CHECKING:
    from linnet.ir.bound import Bound, Instance

ZERO = Dim.const(0)
# Their bodies clamp or compare what the kernel writes; positions are conditions all the same.
GUARDED = "std.nn.cache::"
DISTINCT = {"std.nn.cache::write_slots": 2}


@dataclass(frozen=True)
class Bounds:
    """Every value is at least each of `low` and at most each of `high`: pairs of an argument
    (or None) and an offset. None: unknown. `iota`: the tensor counts along its one axis."""

    low: tuple[tuple[str | None, Dim], ...] | None = None
    high: tuple[tuple[str | None, Dim], ...] | None = None
    iota: bool = False


UNKNOWN = Bounds()
Abstract = Bounds | tuple["Abstract", ...]


@dataclass(frozen=True)
class Condition:
    """Every element of `argument` plus `offset` (`offset` itself, without one) is at least 0
    (`extent` None) or below `extent`, unless one of `sizes` is 0: then no element is computed
    and no index read."""

    argument: str | None
    offset: Dim
    extent: Dim | None
    sizes: frozenset[Dim] = frozenset()


@dataclass
class Ranges:
    conditions: list[Condition] = field(default_factory=list)
    distinct: list[str] = field(default_factory=list)
    covered: set[int] = field(default_factory=set)  # ids of index expressions (or Slice ops)
    open: set[int] = field(default_factory=set)
    extents: set[Dim] = field(default_factory=set)  # of the axes that open indices read
    divides: bool = False  # by an integer that may be zero
    fails: set[Span] = field(default_factory=set)  # where an open index or such a division stands

    @property
    def unchecked(self) -> frozenset[int]:
        return frozenset(self.covered - self.open)

    def also(self, first: Ranges) -> Ranges:
        """These, with the conditions of the same entry before what is unused was removed."""
        self.conditions = list(dict.fromkeys([*first.conditions, *self.conditions]))
        self.distinct = list(dict.fromkeys([*first.distinct, *self.distinct]))
        return self


def analyze(bound: Bound, entry: str) -> Ranges:
    """The conditions of the entry whose instance id is `entry`."""
    instance = bound.functions[entry]
    walk = _Walk(bound, instance)
    args: list[Abstract] = []
    for name, type in instance.params:
        args.append(_of_argument(name, type))
    walk.function(instance, args, {n: Dim.name(n) for n in instance.dims}, False, False)
    return walk.ranges


def _of_argument(name: str, type: Type) -> Abstract:
    if isinstance(type, (ScalarType, TensorType)) and type.dtype in INTEGERS:
        return Bounds(((name, ZERO),), ((name, ZERO),))
    return UNKNOWN


def _known(f: Instance, args: list[Abstract]) -> bool:
    """Whether every integer that a function is called with is known, or bounded by arguments."""
    for arg, (_, type) in zip(args, f.params, strict=True):
        if isinstance(type, (ScalarType, TensorType)) and type.dtype in INTEGERS:
            if not isinstance(arg, Bounds) or arg.low is None or arg.high is None:
                return False
            free = any(argument is None for argument, _ in (*arg.low, *arg.high))
            if free and not (arg.low == arg.high and len(arg.low) == 1):
                return False
    return True


def _wide(type: Type | str) -> bool:
    """Whether sums of positions, and dimensions, do not wrap in an integer type."""
    dtype = type if isinstance(type, str) else getattr(type, "dtype", "")
    return dtype in ("i32", "i64")


def _constant(dim: Dim) -> Bounds:
    return Bounds(((None, dim),), ((None, dim),))


def _plain(terms: tuple[tuple[str | None, Dim], ...] | None) -> bool:
    return terms is not None and all(argument is None for argument, _ in terms)


def _add(a: Bounds, b: Bounds, sign: int) -> Bounds:
    other = (b.low, b.high) if sign > 0 else (b.high, b.low)

    def side(
        x: tuple[tuple[str | None, Dim], ...] | None, y: tuple[tuple[str | None, Dim], ...] | None
    ) -> tuple[tuple[str | None, Dim], ...] | None:
        if x is None or y is None:
            return None
        if not _plain(y):
            if sign < 0 or not _plain(x):
                return None
            x, y = y, x
        return tuple((p, m + n if sign > 0 else m - n) for p, m in x for _, n in y)

    return Bounds(side(a.low, other[0]), side(a.high, other[1]))


def _both(a: Abstract, b: Abstract) -> Abstract:
    """Either of the two: known only where no condition would follow from it."""
    if isinstance(a, tuple) and isinstance(b, tuple):
        return tuple(_both(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, tuple) or isinstance(b, tuple):
        return UNKNOWN
    low = a.low + b.low if _plain(a.low) and _plain(b.low) else None  # type: ignore[operator]
    high = a.high + b.high if _plain(a.high) and _plain(b.high) else None  # type: ignore[operator]
    return Bounds(low, high)


def _flat(x: Abstract) -> Bounds:
    return UNKNOWN if isinstance(x, tuple) else Bounds(x.low, x.high)


class _Walk:
    def __init__(self, bound: Bound, entry: Instance):
        self.bound = bound
        self.ranges = Ranges()
        self.facts = Facts(list(entry.source.where) + [Fact(">=", Dim.name(n), ZERO)
                                                       for n in entry.dims])  # fmt: skip
        self.memo: dict[tuple[object, ...], Abstract] = {}
        self.at: Span | None = None
        self.sizes: frozenset[Dim] = frozenset()

    def within(self, extents: Iterable[Dim]) -> frozenset[Dim]:
        """Sizes that may be 0, in which case nothing is computed."""
        return frozenset(e for e in extents if not self.facts.holds(">", e, ZERO))

    def function(
        self, f: Instance, args: list[Abstract], dims: dict[str, Dim], sure: bool, guarded: bool
    ) -> Abstract:
        """`sure` False: unconditional so far. Returns the result's bounds."""
        key = (f.id, tuple(args), tuple(dims.items()), sure, guarded)
        if key not in self.memo:
            self.memo[key] = UNKNOWN
            if f.source.id.startswith(GUARDED):
                guarded = guarded or _known(f, args)
            frame = _Frame(self, dims, sure, guarded)
            frame.env = dict(zip(f.body.params, args, strict=True))
            position = DISTINCT.get(f.source.id)
            if position is not None and not sure:
                self.distinct(args[position])
            results = frame.region(f.body)
            self.memo[key] = results[0] if results else UNKNOWN
        return self.memo[key]

    def distinct(self, slots: Abstract) -> None:
        if isinstance(slots, Bounds) and slots.low is not None and len(slots.low) == 1:
            argument, _ = slots.low[0]
            if argument is not None and argument not in self.ranges.distinct:
                self.ranges.distinct.append(argument)

    def index(self, node: object, at: Bounds, extent: Dim, maybe: bool, guarded: bool) -> None:
        """An index with bounds `at` into an axis; `maybe`: it may not run at all."""
        fine = True
        if at.low is None or at.high is None:
            fine = guarded
        certain = at.low == at.high and len(at.low or ()) == 1
        for terms, end in ((at.low, None), (at.high, extent)):
            for argument, offset in terms or ():
                if argument is None:
                    if self.facts.holds(
                        *((">=", offset, ZERO) if end is None else ("<", offset, end))
                    ):
                        continue
                    # Whether a place known but for sizes is inside is seen at the entry.
                    if not (guarded and certain):
                        fine &= guarded
                        continue
                if maybe:
                    fine = False
                else:
                    self.add(Condition(argument, offset, end, self.sizes))
        (self.ranges.covered if fine else self.ranges.open).add(id(node))
        if not fine:
            self.ranges.extents.add(extent)
            if self.at is not None:
                self.ranges.fails.add(self.at)

    def division(self, op: str, dtype: str, by: Bounds) -> None:
        if op not in ("div", "rem") or dtype not in INTEGERS:
            return
        positive = any(a is None and self.facts.holds(">", d, ZERO) for a, d in by.low or ())
        negative = any(a is None and self.facts.holds("<", d, ZERO) for a, d in by.high or ())
        if not (positive or negative):
            self.ranges.divides = True
            if self.at is not None:
                self.ranges.fails.add(self.at)

    def add(self, condition: Condition) -> None:
        if condition not in self.ranges.conditions:
            self.ranges.conditions.append(condition)


class _Frame:
    """`maybe`: what runs here may not run."""

    def __init__(self, walk: _Walk, dims: dict[str, Dim], maybe: bool, guarded: bool):
        self.walk, self.dims, self.maybe, self.guarded = walk, dims, maybe, guarded
        self.env: dict[ir.Value, Abstract] = {}

    def dim(self, dim: Dim) -> Dim:
        return dim.substitute(self.dims) if self.dims else dim

    def get(self, value: ir.Value) -> Bounds:
        found = self.env.get(value, UNKNOWN)
        return UNKNOWN if isinstance(found, tuple) else found

    def region(self, region: ir.Region, maybe: bool = False) -> list[Abstract]:
        outer, self.maybe = self.maybe, self.maybe or maybe
        for op in region.ops:
            self.walk.at = op.span
            for value, result in zip(op.results, self.step(op), strict=False):
                self.env[value] = result
        self.maybe = outer
        return [self.env.get(value, UNKNOWN) for value in region.results]

    def step(self, op: ir.Op) -> list[Abstract]:
        match op:
            case ir.Const(value=value) if isinstance(value, int) and not isinstance(value, bool):
                return [_constant(Dim.const(value))]
            case ir.DimValue(dim=dim):
                wide = _wide(op.result.type) or dim.constant is not None
                return [_constant(self.dim(dim)) if wide else UNKNOWN]
            case ir.Binary(op=name, a=a, b=b) if not isinstance(a.type, EnumType):
                self.walk.division(name, dtype_of(a.type), self.get(b))
                return [self.binary(name, self.get(a), self.get(b), _wide(a.type))]
            case ir.Cast(x=x):
                return [self.cast(self.get(x), op.result.type)]
            case ir.Reshape(x=x) | ir.Permute(x=x) | ir.Broadcast(x=x) | ir.Fill(x=x):
                return [_flat(self.env.get(x, UNKNOWN))]
            case ir.MakeSome(x=x):
                return [self.env.get(x, UNKNOWN)]
            case ir.Concat(xs=xs):
                return [self.concat([self.get(x) for x in xs])]
            case ir.Slice():
                return [self.slice(op)]
            case ir.Iota():
                (extent,) = shape_of(op.result.type)
                assert isinstance(extent, Dim)
                if dtype_of(op.result.type) not in INTEGERS:
                    return [UNKNOWN]
                if not _wide(op.result.type) and not self.fits(self.dim(extent), op.result.type):
                    return [UNKNOWN]
                return [Bounds(((None, ZERO),), ((None, self.dim(extent) - 1),), True)]
            case ir.Select(a=a, b=b):
                return [_both(self.get(a), self.get(b))]
            case ir.Grid(indices=indices, body=body):
                with self.over(indices):
                    return [_flat(self.expression(body, False))]
            case ir.MakeTuple(items=items) | ir.MakeStruct(items=items):
                return [tuple(self.env.get(item, UNKNOWN) for item in items)]
            case ir.TupleGet(x=x, index=index):
                found = self.env.get(x, UNKNOWN)
                return [found[index] if isinstance(found, tuple) else UNKNOWN]
            case ir.Call():
                return [self.call(op)]
            case ir.Intrinsic():
                return self.intrinsic(op)
        return self.control(op)

    def control(self, op: ir.Op) -> list[Abstract]:
        match op:
            case ir.If(then=then, orelse=orelse):
                pairs = zip(self.region(then, True), self.region(orelse, True), strict=True)
                return [_both(a, b) for a, b in pairs]
            case ir.MatchOptional(x=x, some=some, none=none):
                for param in some.params:
                    self.env[param] = self.env.get(x, UNKNOWN)
                pairs = zip(self.region(some, True), self.region(none, True), strict=True)
                return [_both(a, b) for a, b in pairs]
            case ir.MatchEnum(arms=arms):
                for arm in arms:
                    self.region(arm, True)
            case ir.Loop(start=start, stop=stop, body=body, init=init):
                first, last = self.dim(start), self.dim(stop)
                runs = self.walk.facts.holds("<", first, last)
                counter = Bounds(((None, first),), ((None, last - 1),))
                self.env[body.params[0]] = counter
                for param in body.params[1:]:
                    self.env[param] = UNKNOWN
                results = self.region(body, not runs)
                stacked: list[Abstract] = [_flat(r) for r in results[len(init) :]]
                return [UNKNOWN] * len(init) + stacked
            case ir.While(condition=condition, body=body):
                self.region(condition, True)
                self.region(body, True)
        return [UNKNOWN] * len(op.results)

    def fits(self, extent: Dim, type: Type) -> bool:
        """Whether every position of an axis is a value of an integer type."""
        _, high = limits(dtype_of(type))
        return self.walk.facts.holds("<=", extent, Dim.const(high + 1))

    def binary(self, name: str, a: Bounds, b: Bounds, wide: bool) -> Bounds:
        if name in ("add", "sub"):  # a narrow or an unsigned sum may wrap
            return _add(a, b, 1 if name == "add" else -1) if wide else UNKNOWN
        if name in ("min", "max"):
            return self.extreme(name, a, b)
        return UNKNOWN

    def extreme(self, name: str, a: Bounds, b: Bounds) -> Bounds:
        """The far side must hold for both; the near side for one: taken where it is constant."""
        least = name == "min"
        far = (a.low, b.low) if least else (a.high, b.high)
        near = (a.high, b.high) if least else (a.low, b.low)
        both = far[0] + far[1] if far[0] is not None and far[1] is not None else None
        one = next((terms for terms in near if _plain(terms)), None)
        return Bounds(both, one) if least else Bounds(one, both)

    def cast(self, x: Bounds, target: Type) -> Bounds:
        dtype = target.dtype if isinstance(target, (ScalarType, TensorType)) else ""
        return x if dtype in ("i32", "i64") else UNKNOWN

    def concat(self, parts: list[Bounds]) -> Bounds:
        lows = [p.low for p in parts]
        highs = [p.high for p in parts]
        return Bounds(
            None if None in lows else tuple(t for low in lows for t in low or ()),
            None if None in highs else tuple(t for high in highs for t in high or ()),
        )

    def slice(self, op: ir.Slice) -> Bounds:
        x = self.get(op.x)
        result = Bounds(x.low, x.high)
        for extent, item in zip(shape_of(op.x.type), op.items, strict=True):
            if isinstance(item, ir.AtValue):
                assert isinstance(extent, Dim)
                at = self.get(item.index)
                self.walk.index(op, at, self.dim(extent), self.maybe, self.guarded)
                if x.iota:
                    result = at
            elif isinstance(item, ir.At) and x.iota:
                result = _constant(self.dim(item.index))
        return result

    # --- Index notation ----------------------------------------------------------

    def expression(self, node: ir.GExpr, maybe: bool) -> Bounds:
        match node:
            case ir.GLit(value) if isinstance(value, int) and not isinstance(value, bool):
                return _constant(Dim.const(value))
            case ir.GDim(dim, dtype):
                wide = _wide(dtype) or dim.constant is not None
                return _constant(self.dim(dim)) if wide else UNKNOWN
            case ir.GRead():
                return self.access(node, maybe)
            case ir.GBinary(op, a, b):
                p, q = self.expression(a, maybe), self.expression(b, maybe)
                self.walk.division(op, a.dtype, q)
                return self.binary(op, p, q, _wide(a.dtype))
            case ir.GCast(x, dtype):
                return self.cast(self.expression(x, maybe), ScalarType(dtype))
            case ir.GSelect(condition, a, b, _, lazy):
                self.expression(condition, maybe)
                inner = maybe or lazy
                both = _both(self.expression(a, inner), self.expression(b, inner))
                return both if isinstance(both, Bounds) else UNKNOWN
            case ir.GReduce(_, indices, inner_body):
                with self.over(indices):
                    self.expression(inner_body, maybe)
                return UNKNOWN
            case ir.GApply(callee, generics, args):
                at, before = self.walk.at, len(self.walk.ranges.fails)
                applied = self.walk.bound.functions[callee]
                given: list[Abstract] = [self.expression(arg, maybe) for arg in args]
                dims = self.bind(applied.dims, generics)
                self.walk.function(applied, given, dims, True, self.guarded)
                self.walk.at = at
                if at is not None and len(self.walk.ranges.fails) > before:
                    self.walk.ranges.fails.add(at)
                return UNKNOWN
        for child in ir.children(node):
            self.expression(child, maybe)
        return UNKNOWN

    @contextmanager
    def over(self, indices: tuple[ir.Idx, ...]) -> Iterator[None]:
        """What is computed for each of `indices`, and for none where an axis is empty."""
        outer = self.walk.sizes
        extents: list[Dim] = []
        for index in indices:
            parts = index.extent if isinstance(index.extent, tuple) else (index.extent,)
            extents += [self.dim(part) for part in parts if isinstance(part, Dim)]
        self.walk.sizes = outer | self.walk.within(extents)
        try:
            yield
        finally:
            self.walk.sizes = outer

    def access(self, node: ir.GRead, maybe: bool) -> Bounds:
        x = self.get(node.value)
        result = Bounds(x.low, x.high)
        extents = shape_of(node.value.type)
        for extent, axis in zip(extents, node.axes, strict=True):
            if isinstance(axis, ir.GExpr):
                at = self.expression(axis, maybe)
                assert isinstance(extent, Dim)
                self.walk.index(axis, at, self.dim(extent), self.maybe or maybe, self.guarded)
                if x.iota:
                    result = at
            elif isinstance(axis, Dim) and x.iota:
                result = _constant(self.dim(axis))
        return result

    # --- Calls ---------------------------------------------------------------------

    def bind(self, names: tuple[str, ...], generics: tuple[object, ...]) -> dict[str, Dim]:
        return {n: self.dim(g) for n, g in zip(names, generics, strict=True) if isinstance(g, Dim)}

    def call(self, op: ir.Call) -> Abstract:
        callee = self.walk.bound.functions[op.callee]
        args = [self.env.get(arg, UNKNOWN) for arg in op.args]
        dims = self.bind(callee.dims, op.generics)
        return self.walk.function(callee, args, dims, self.maybe, self.guarded)

    def intrinsic(self, op: ir.Intrinsic) -> list[Abstract]:
        if op.name == "constant":
            made = self.walk.bound.constants[str(op.attrs["key"])]
            dims = self.bind(made.dims, tuple(op.attrs.get("dims") or ()))  # type: ignore[arg-type]
            return [self.walk.function(made, [], dims, True, True)]
        if op.name in ("rank", "top_k"):
            extent = shape_of(op.args[0].type)[-1]
            assert isinstance(extent, Dim)
            order: Abstract = Bounds(((None, ZERO),), ((None, self.dim(extent) - 1),))
            if op.name == "rank":
                return [order]
            return [_flat(self.get(op.args[0])), order]
        if op.name in ("copy", "take_along"):
            return [_flat(self.get(op.args[0]))]
        if "callee" in op.attrs:
            callee = self.walk.bound.functions[str(op.attrs["callee"])]
            args: list[Abstract] = [UNKNOWN, *(self.env.get(arg, UNKNOWN) for arg in op.args)]
            dims = self.bind(callee.dims, tuple(op.attrs.get("generics") or ()))  # type: ignore[arg-type]
            self.walk.function(callee, args, dims, self.maybe, self.guarded)
            return []
        return [UNKNOWN] * len(op.results)
