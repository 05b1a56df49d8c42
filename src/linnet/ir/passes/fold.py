"""Folding: operations whose result is known, or is a value that is there already.

Each case is an identity on its own; literals are computed as `numbers.py` states. Class: exact,
but for `rsqrt` of a literal, which is rounded from f64 (a last place may differ: equivalent).
"""

from __future__ import annotations

from collections.abc import Callable

from linnet.dims import Dim
from linnet.ir.bound import Instance
from linnet.ir.passes import numbers
from linnet.ir.passes.tools import Defs, Replacer, definitions
from linnet.ir.program import (
    At,
    Binary,
    Broadcast,
    Cast,
    Concat,
    Const,
    DimValue,
    Fill,
    GetField,
    If,
    Keep,
    MakeNone,
    MakeSome,
    MakeStruct,
    MakeTuple,
    MatchEnum,
    MatchOptional,
    Op,
    Permute,
    Range,
    Region,
    Reshape,
    Select,
    Slice,
    TupleGet,
    Unary,
    Value,
)
from linnet.ir.types import FLOATS, EnumType, ScalarType, StructType, dtype_of, shape_of


def fold(instance: Instance, exact: bool = False) -> Instance:
    """In place."""
    folder = _Folder(definitions(instance.body), exact)
    folder.region(instance.body)
    folder.swap.apply(instance.body)
    return instance


class _Folder:
    def __init__(self, defs: Defs, exact: bool):
        self.defs = defs
        self.exact = exact
        self.swap = Replacer()

    def region(self, region: Region) -> None:
        ops: list[Op] = []
        for op in region.ops:
            self.one(op, ops)
        region.ops = ops
        region.results = [self.swap.get(r) for r in region.results]

    def one(self, op: Op, ops: list[Op]) -> None:
        op.replace(self.swap.get)
        taken = self.taken(op)
        if taken is not None:
            self.region_into(taken, op, ops)
            return
        for inner in op.regions():
            self.region(inner)
        if len(op.results) == 1:
            new = self.result_of(op)
            if isinstance(new, Value):
                self.swap.set(op.result, new)
                return
            if isinstance(new, Op):
                new.span = op.span
                self.defs[new.result] = new
                ops.append(new)
                return
        ops.append(op)

    def region_into(self, region: Region, op: Op, ops: list[Op]) -> None:
        for inner in region.ops:
            self.one(inner, ops)
        for old, new in zip(op.results, region.results, strict=True):
            self.swap.set(old, self.swap.get(new))

    def taken(self, op: Op) -> Region | None:
        """The region that certainly runs."""
        match op:
            case If(condition=c) if isinstance(known := self.defs.get(c), Const):
                return op.then if known.value else op.orelse
            case MatchOptional(x=x):
                known_x = self.defs.get(x)
                if isinstance(known_x, MakeNone):
                    return op.none
                if isinstance(known_x, MakeSome):
                    self.swap.set(op.some.params[0], known_x.x)
                    return op.some
            case MatchEnum(x=x) if isinstance(known := self.defs.get(x), Const):
                return op.arms[int(known.value)]
        return None

    def literal(self, value: Value) -> numbers.Number | None:
        """The number of a scalar that is a literal, or of a tensor filled with one."""
        known = self.defs.get(value)
        match known:
            case Const(value=number):
                return number
            case DimValue(dim=dim) if dim.constant is not None:
                return numbers.convert(dim.constant, dtype_of(value.type))
        return None

    def result_of(self, op: Op) -> Value | Op | None:
        """A value that equals the result, or an operation to take the place of `op`."""
        defs = self.defs
        match op:
            case TupleGet(x=x, index=index):
                if isinstance(made := defs.get(x), MakeTuple):
                    return made.items[index]
            case GetField(x=x, name=name):
                if isinstance(made := defs.get(x), MakeStruct) and isinstance(x.type, StructType):
                    names = [field for field, _ in x.type.fields]
                    return made.items[names.index(name)]
            case Cast(x=x):
                return self.cast(op, x)
            case Unary(op=name, x=x):
                number = self.literal(x)
                if name == "rsqrt" and self.exact:
                    return None
                if number is not None and isinstance(x.type, ScalarType):
                    return self.number(op, numbers.unary(name, number, dtype_of(x.type)))
            case Binary(op=name, a=a, b=b):
                return self.binary(op, name, a, b)
            case Select(condition=c, a=a, b=b):
                known = self.literal(c)
                if known is not None:
                    chosen = a if known else b
                    return chosen if chosen.type == op.result.type else None
            case Reshape(x=x):
                if x.type == op.result.type:
                    return x
                if isinstance(inner := defs.get(x), Reshape):
                    return self.again(op, Reshape([op.result], None, inner.x))
                if isinstance(inner, (Fill, Broadcast)) and isinstance(inner.x.type, ScalarType):
                    if inner.x.type == op.result.type:
                        return inner.x
                    return self.again(op, Fill([op.result], None, inner.x))
            case Permute(x=x, axes=axes):
                if axes == tuple(range(len(axes))):
                    return x
                if isinstance(inner := defs.get(x), Permute):
                    joined = tuple(inner.axes[a] for a in axes)
                    return self.again(op, Permute([op.result], None, inner.x, joined))
            case Broadcast(x=x):
                if x.type == op.result.type:
                    return x
                if isinstance(x.type, ScalarType):
                    return self.again(op, Fill([op.result], None, x))
            case Concat(xs=xs):
                if len(xs) == 1:
                    return xs[0]
            case Slice(x=x, items=items):
                pairs = list(zip(items, shape_of(x.type), strict=True))
                if all(_whole(item, n) for item, n in pairs):
                    return x
                if all(_whole(item, n) or _only(item, n) for item, n in pairs):
                    return self.again(op, Reshape([op.result], None, x))
        return None

    def again(self, op: Op, new: Op) -> Value | Op:
        """A simpler form of `op`, which may fold further."""
        further = self.result_of(new)
        return new if further is None else further

    def number(self, op: Op, number: numbers.Number | None) -> Op | None:
        if number is None or not isinstance(op.result.type, ScalarType):
            return None
        return Const([op.result], None, number)

    def cast(self, op: Op, x: Value) -> Value | Op | None:
        if x.type == op.result.type:
            return x
        dtype = dtype_of(op.result.type)
        number = self.literal(x)
        if number is not None and isinstance(x.type, ScalarType):
            return self.number(op, numbers.convert(number, dtype))
        inner = self.defs.get(x)
        match inner:
            case DimValue(dim=dim) if dtype in ("i32", "i64") and dtype_of(x.type) == "i64":
                return DimValue([op.result], None, dim)
            case Cast(x=first) if _widens(dtype_of(first.type), dtype_of(x.type)):
                # Widening and then casting is casting: the first step is exact.
                if dtype_of(first.type) == dtype:
                    return first
                return Cast([op.result], None, first)
        return None

    def binary(self, op: Op, name: str, a: Value, b: Value) -> Value | Op | None:
        x, y = self.literal(a), self.literal(b)
        if isinstance(a.type, EnumType):
            return None if x is None or y is None else self.number(op, (x == y) == (name == "eq"))
        dtype = dtype_of(a.type)
        if x is not None and y is not None and isinstance(op.result.type, ScalarType):
            return self.number(op, numbers.binary(name, x, y, dtype))
        if dtype == "bool" and name in ("and", "or"):
            for known, other in ((x, b), (y, a)):
                if known is None or other.type != op.result.type:
                    continue
                if bool(known) == (name == "and"):
                    return other
                if isinstance(op.result.type, ScalarType):
                    return Const([op.result], None, name == "or")
        if dtype not in FLOATS and dtype != "bool":
            neutral: dict[str, Callable[[], Value | None]] = {
                "add": lambda: b if x == 0 else a if y == 0 else None,
                "sub": lambda: a if y == 0 else None,
                "mul": lambda: b if x == 1 else a if y == 1 else None,
            }
            found = neutral.get(name, lambda: None)()
            if found is not None and found.type == op.result.type:
                return found
            return self.dims(op, name, a, b)
        return None

    def dims(self, op: Op, name: str, a: Value, b: Value) -> Op | None:
        """Sums and products of compile-time integers that are symbolic stay such."""
        p, q = self.as_dim(a), self.as_dim(b)
        if p is None or q is None or name not in ("add", "mul"):
            return None
        if dtype_of(a.type) not in ("i32", "i64") or not isinstance(op.result.type, ScalarType):
            return None
        return DimValue([op.result], None, p + q if name == "add" else p * q)

    def as_dim(self, value: Value) -> Dim | None:
        known = self.defs.get(value)
        if isinstance(known, DimValue):
            return known.dim
        if isinstance(known, Const) and isinstance(known.value, int) and known.value >= 0:
            return Dim.const(int(known.value))
        return None


def _whole(item: object, extent: object) -> bool:
    if isinstance(item, Keep):
        return True
    return (
        isinstance(item, Range)
        and item.step == 1
        and item.start == Dim.const(0)
        and item.stop == extent
    )


def _only(item: object, extent: object) -> bool:
    """Whether an item picks the one element of an axis of size 1."""
    return isinstance(item, At) and extent == Dim.const(1)


# What each dtype can be cast to without losing a value.
_WIDER = {
    "bool": {"i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64"},
    "i8": {"i16", "i32", "i64", "f16", "bf16", "f32", "f64"},
    "u8": {"i16", "i32", "i64", "u16", "u32", "u64", "f16", "bf16", "f32", "f64"},
    "i16": {"i32", "i64", "f32", "f64"},
    "u16": {"i32", "i64", "u32", "u64", "f32", "f64"},
    "i32": {"i64", "f64"},
    "u32": {"i64", "u64", "f64"},
    "f16": {"f32", "f64"},
    "bf16": {"f32", "f64"},
    "f32": {"f64"},
}


def _widens(narrow: str, wide: str) -> bool:
    return wide in _WIDER.get(narrow, ())
