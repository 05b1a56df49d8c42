"""Copying bodies with generics substituted: shared by specialization and inlining.

Packs are spelled out on the way: a pack index becomes one index an axis, a kept pack in
a slice one item an axis, and axis numbers are renumbered to the axes there are now.
"""

from __future__ import annotations

from linnet.dims import Dim
from linnet.ir.program import (
    At,
    AtValue,
    Axis,
    Binary,
    Broadcast,
    Call,
    Cast,
    Concat,
    Const,
    Cumsum,
    DimValue,
    Fill,
    GApply,
    GBinary,
    GCast,
    GDim,
    GetField,
    GExpr,
    GLit,
    GRead,
    GReduce,
    Grid,
    GSelect,
    GUnary,
    Idx,
    If,
    Intrinsic,
    Iota,
    Keep,
    Loop,
    MakeNone,
    MakeSome,
    MakeStruct,
    MakeTuple,
    MatchEnum,
    MatchOptional,
    MatchSub,
    Op,
    Permute,
    Range,
    ReadMember,
    Region,
    Reshape,
    Select,
    Slice,
    SliceItem,
    StateWrite,
    Step,
    TupleGet,
    Unary,
    Value,
    While,
)
from linnet.ir.types import (
    GenericArg,
    OptionalType,
    Pack,
    ScalarType,
    Shape,
    Substitution,
    Type,
    shape_of,
    substitute,
    substitute_arg,
    substitute_dim,
    substitute_dtype,
    substitute_shape,
)


class Cloner:
    """`mapping` gives the generics; `env` collects what each old value became."""

    def __init__(self, mapping: Substitution, env: dict[Value, Value] | None = None):
        self.mapping = mapping
        self.env: dict[Value, Value] = env if env is not None else {}
        self.indices: dict[Idx, tuple[Idx, ...]] = {}
        self.optionals: dict[Value, MakeSome | MakeNone] = {}  # those known by their new value
        self.counters: dict[Value, int] = {}  # counters of loops being unrolled, by old value

    # --- what a subclass decides ---------------------------------------------

    def new_type(self, type: Type) -> Type:
        return substitute(type, self.mapping)

    def resolve(
        self, callee: str, generics: tuple[GenericArg, ...], receiver: tuple[Step, ...] | None
    ) -> tuple[str, tuple[GenericArg, ...]]:
        return callee, tuple(substitute_arg(g, self.mapping) for g in generics)

    def optional_member(self, name: str) -> bool | None:
        return None

    def mixed(self, steps: tuple[Step, ...], counter: Value) -> bool:
        return False

    # --- values ----------------------------------------------------------------

    def value(self, value: Value) -> Value:
        return self.env[value]

    def define(self, value: Value) -> Value:
        self.env[value] = new = Value(self.new_type(value.type), value.name)
        return new

    def dim(self, dim: Dim) -> Dim:
        return substitute_dim(dim, self.mapping)

    # --- regions ---------------------------------------------------------------

    def region(self, region: Region) -> Region:
        params = [self.define(p) for p in region.params]
        ops: list[Op] = []
        self.into(region, ops)
        return Region(params, ops, [self.value(r) for r in region.results])

    def into(self, region: Region, ops: list[Op]) -> None:
        """Append a region's operations; its parameters are in `env` already."""
        for op in region.ops:
            self.op(op, ops)

    def splice(self, region: Region, op: Op, ops: list[Op]) -> None:
        """Put a region in the place of the operation that held it."""
        self.into(region, ops)
        for old, new in zip(op.results, region.results, strict=True):
            self.env[old] = self.value(new)

    def op(self, op: Op, ops: list[Op]) -> None:
        v = self.value
        span = op.span
        match op:
            case MatchSub(member=member):
                there = self.optional_member(member)
                if there is not None:
                    self.splice(op.some if there else op.none, op, ops)
                    return
            case MatchOptional(x=x) if v(x) in self.optionals:
                known = self.optionals[v(x)]
                if isinstance(known, MakeSome):
                    self.env[op.some.params[0]] = known.x
                    self.splice(op.some, op, ops)
                else:
                    self.splice(op.none, op, ops)
                return
            case Loop(static=True) if self._must_unroll(op):
                self._unroll(op, ops)
                return
            case ReadMember(name=name):
                there = self.optional_member(name)
                if there is not None:
                    self._read_optional(op, there, ops)
                    return
            case DimValue():
                pass
        new = self._copy(op, ops)
        if new is None:
            return
        new.span = span
        ops.append(new)
        if isinstance(new, (MakeSome, MakeNone)):
            self.optionals[new.result] = new

    def _read_optional(self, op: ReadMember, there: bool, ops: list[Op]) -> None:
        old = op.result
        type = self.new_type(old.type)
        assert isinstance(type, OptionalType)
        new = Value(type, old.name)
        self.env[old] = new
        made: MakeSome | MakeNone
        if there:
            inside = Value(type.inner, old.name)
            ops.append(ReadMember([inside], op.span, op.kind, op.name))
            made = MakeSome([new], op.span, inside)
        else:
            made = MakeNone([new], op.span)
        ops.append(made)
        self.optionals[new] = made

    def _copy(self, op: Op, ops: list[Op]) -> Op | None:
        """The operation anew; None where it turned out to do nothing."""
        v = self.value
        # Everything but results first: an operation reads the values before it.
        match op:
            case Const(value=value):
                return Const([self.define(op.result)], None, value)
            case DimValue(dim=dim):
                return DimValue([self.define(op.result)], None, self.dim(dim))
            case Unary(op=name, x=x):
                return Unary([self.define(op.result)], None, name, v(x))
            case Binary(op=name, a=a, b=b):
                return Binary([self.define(op.result)], None, name, v(a), v(b))
            case Select(condition=c, a=a, b=b):
                return Select([self.define(op.result)], None, v(c), v(a), v(b))
            case Cast(x=x):
                return Cast([self.define(op.result)], None, v(x))
            case Reshape(x=x):
                return Reshape([self.define(op.result)], None, v(x))
            case Permute(x=x, axes=axes):
                moved = self._permutation(axes, shape_of(x.type))
                if isinstance(v(x).type, ScalarType):
                    self.env[op.result] = v(x)
                    return None
                return Permute([self.define(op.result)], None, v(x), moved)
            case Broadcast(x=x):
                return Broadcast([self.define(op.result)], None, v(x))
            case Concat(xs=xs, axis=axis):
                axis = self._axis(axis, shape_of(xs[0].type))
                return Concat([self.define(op.result)], None, [v(x) for x in xs], axis)
            case Cumsum(x=x, axis=axis):
                axis = self._axis(axis, shape_of(x.type))
                return Cumsum([self.define(op.result)], None, v(x), axis)
            case Slice(x=x, items=items):
                new_items = self._items(items, shape_of(x.type))
                if not new_items:
                    self.env[op.result] = v(x)
                    return None
                return Slice([self.define(op.result)], None, v(x), new_items)
            case Iota():
                return Iota([self.define(op.result)], None)
            case Fill(x=x):
                if isinstance(self.new_type(op.result.type), ScalarType):
                    self.env[op.result] = v(x)
                    return None
                return Fill([self.define(op.result)], None, v(x))
            case Grid(indices=indices, body=body):
                new_indices = self._indices(indices)
                new_body = self.expr(body)
                return Grid([self.define(op.result)], None, new_indices, new_body)
            case MakeTuple(items=items):
                return MakeTuple([self.define(op.result)], None, [v(x) for x in items])
            case TupleGet(x=x, index=index):
                return TupleGet([self.define(op.result)], None, v(x), index)
            case MakeStruct(items=items):
                return MakeStruct([self.define(op.result)], None, [v(x) for x in items])
            case GetField(x=x, name=name):
                return GetField([self.define(op.result)], None, v(x), name)
            case MakeSome(x=x):
                return MakeSome([self.define(op.result)], None, v(x))
            case MakeNone():
                return MakeNone([self.define(op.result)], None)
            case If(condition=c, then=then, orelse=orelse):
                parts = self.region(then), self.region(orelse)
                return If([self.define(r) for r in op.results], None, v(c), *parts)
            case MatchOptional(x=x, some=some, none=none):
                parts = self.region(some), self.region(none)
                return MatchOptional([self.define(r) for r in op.results], None, v(x), *parts)
            case MatchSub(member=member, some=some, none=none):
                parts = self.region(some), self.region(none)
                return MatchSub([self.define(r) for r in op.results], None, member, *parts)
            case MatchEnum(x=x, arms=arms):
                regions = [self.region(arm) for arm in arms]
                return MatchEnum([self.define(r) for r in op.results], None, v(x), regions)
            case Loop(start=start, stop=stop, init=init, body=body, static=static):
                begin, end = self.dim(start), self.dim(stop)
                carried = [v(x) for x in init]
                inner = self.region(body)
                results = [self.define(r) for r in op.results]
                return Loop(results, None, begin, end, carried, inner, static)
            case While(init=init, condition=condition, body=body):
                carried = [v(x) for x in init]
                parts = self.region(condition), self.region(body)
                return While([self.define(r) for r in op.results], None, carried, *parts)
            case Call(callee=callee, generics=generics, args=args, receiver=receiver):
                steps = self._steps(receiver)
                callee, dims = self.resolve(callee, generics, steps)
                values = [v(a) for a in args]
                return Call([self.define(r) for r in op.results], None, callee, dims, values, steps)
            case ReadMember(kind=kind, name=name):
                return ReadMember([self.define(op.result)], None, kind, name)
            case StateWrite(name=name, value=value):
                return StateWrite([], None, name, v(value))
            case Intrinsic(name=name, args=args, attrs=attrs):
                new_args = [v(a) for a in args]
                new_attrs = {k: self._attribute(a) for k, a in attrs.items()}
                return Intrinsic(
                    [self.define(r) for r in op.results], None, name, new_args, new_attrs
                )
        raise AssertionError(f"no way to copy {type(op).__name__}")

    def _attribute(self, value: object) -> object:
        if isinstance(value, Dim):
            return self.dim(value)
        if isinstance(value, tuple):
            return tuple(self._attribute(item) for item in value)
        return value

    def _steps(self, receiver: tuple[Step, ...] | None) -> tuple[Step, ...] | None:
        if receiver is None:
            return None
        steps = []
        for step in receiver:
            index: Dim | Value | None = step.index
            if isinstance(index, Value):
                if index in self.counters:
                    index = Dim.const(self.counters[index])
                else:
                    index = self.value(index)
            elif isinstance(index, Dim):
                index = self.dim(index)
            steps.append(Step(step.name, index))
        return tuple(steps)

    # --- loops over arrays whose elements differ --------------------------------

    def _must_unroll(self, loop: Loop) -> bool:
        return any(
            isinstance(op, Call) and op.receiver and self.mixed(op.receiver, loop.body.params[0])
            for op in _nested(loop.body)
        )

    def _unroll(self, loop: Loop, ops: list[Op]) -> None:
        start, stop = self.dim(loop.start).constant, self.dim(loop.stop).constant
        assert start is not None and stop is not None
        counter, *carried = loop.body.params
        now = [self.value(x) for x in loop.init]
        yields: list[list[Value]] = [[] for _ in loop.body.results[len(carried) :]]
        for position in range(start, stop):
            self.counters[counter] = position
            at = Value(counter.type, counter.name)
            ops.append(DimValue([at], loop.span, Dim.const(position)))
            self.env[counter] = at
            self.env.update(zip(carried, now, strict=True))
            self.into(loop.body, ops)
            results = [self.value(r) for r in loop.body.results]
            now = results[: len(carried)]
            for rows, value in zip(yields, results[len(carried) :], strict=True):
                rows.append(value)
        del self.counters[counter]
        assert not any(yields), "a static loop yields nothing"
        for old, new in zip(loop.results, now, strict=True):
            self.env[old] = new

    # --- packs spelled out ---------------------------------------------------------

    def _spread(self, shape: Shape) -> list[range]:
        """For each item of an old shape, the axes that it became."""
        spread: list[range] = []
        at = 0
        for item in shape:
            width = len(substitute_shape((item,), self.mapping)) if isinstance(item, Pack) else 1
            spread.append(range(at, at + width))
            at += width
        return spread

    def _axis(self, axis: int, shape: Shape) -> int:
        return self._spread(shape)[axis].start

    def _permutation(self, axes: tuple[int, ...], shape: Shape) -> tuple[int, ...]:
        spread = self._spread(shape)
        return tuple(a for axis in axes for a in spread[axis])

    def _items(self, items: tuple[SliceItem, ...], shape: Shape) -> tuple[SliceItem, ...]:
        spread = self._spread(shape)
        new: list[SliceItem] = []
        for position, item in enumerate(items):
            match item:
                case Keep():
                    new.extend(Keep() for _ in spread[position])
                case At(index):
                    new.append(At(self.dim(index)))
                case AtValue(index):
                    new.append(AtValue(self.value(index)))
                case Range(start, stop, step):
                    new.append(Range(self.dim(start), self.dim(stop), step))
        for rest in spread[len(items) :]:
            new.extend(Keep() for _ in rest)
        return tuple(new)

    # --- index notation ---------------------------------------------------------------

    def _indices(self, indices: tuple[Idx, ...]) -> tuple[Idx, ...]:
        return tuple(new for index in indices for new in self._index(index))

    def _index(self, index: Idx) -> tuple[Idx, ...]:
        if index not in self.indices:
            if isinstance(index.extent, tuple):
                extents = substitute_shape(index.extent, self.mapping)
                made = tuple(
                    Idx(f"{index.name}{n}", (extent,) if isinstance(extent, Pack) else extent)
                    for n, extent in enumerate(extents)
                )
            else:
                made = (Idx(index.name, self.dim(index.extent)),)
            self.indices[index] = made
        return self.indices[index]

    def expr(self, node: GExpr) -> GExpr:
        dtype = substitute_dtype(node.dtype, self.mapping)
        match node:
            case GLit(value):
                return GLit(value, dtype)
            case GDim(dim):
                return GDim(self.dim(dim), dtype)
            case GRead(value, axes, _, span):
                new: list[Axis] = []
                for axis in axes:
                    if isinstance(axis, Idx):
                        new.extend(self._index(axis))
                    elif isinstance(axis, Dim):
                        new.append(self.dim(axis))
                    else:
                        new.append(self.expr(axis))
                return GRead(self.value(value), tuple(new), dtype, span)
            case GUnary(op, x):
                return GUnary(op, self.expr(x), dtype)
            case GBinary(op, a, b):
                return GBinary(op, self.expr(a), self.expr(b), dtype)
            case GSelect(c, a, b, _, lazy):
                return GSelect(self.expr(c), self.expr(a), self.expr(b), dtype, lazy)
            case GCast(x):
                return GCast(self.expr(x), dtype)
            case GReduce(kind, indices, body, accumulate, _, stated):
                accumulate = substitute_dtype(accumulate, self.mapping)
                if not stated and kind in ("sum", "prod") and accumulate in ("f16", "bf16"):
                    accumulate = "f32"  # the rule for a dtype generic bound to a half type
                inner = self._indices(indices)
                return GReduce(kind, inner, self.expr(body), accumulate, dtype, stated)
            case GApply(callee, generics, args):
                callee, dims = self.resolve(callee, generics, None)
                return GApply(callee, dims, tuple(self.expr(a) for a in args), dtype)
        raise AssertionError(f"no way to copy {type(node).__name__}")


def _nested(region: Region) -> list[Op]:
    found: list[Op] = []
    for op in region.ops:
        found.append(op)
        for inner in op.regions():
            found.extend(_nested(inner))
    return found
