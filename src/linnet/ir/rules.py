"""The verifier's table: for each operation, what must hold of its operands and results."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from linnet.dims import Dim
from linnet.ir.intrinsics import INTRINSICS
from linnet.ir.program import (
    At,
    AtValue,
    Binary,
    Broadcast,
    Call,
    Cast,
    Concat,
    Const,
    Cumsum,
    DimValue,
    Fill,
    GetField,
    Grid,
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
    Reshape,
    Select,
    Slice,
    StateWrite,
    TupleGet,
    Unary,
    While,
)
from linnet.ir.types import (
    EnumType,
    OptionalType,
    Pack,
    ScalarType,
    StructType,
    TensorType,
    TupleType,
    Type,
    count,
    dtype_of,
    shape_of,
)

if TYPE_CHECKING:
    from linnet.ir.verify import Verifier

COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
Rule = Callable[..., None]
RULES: dict[type[Op], Rule] = {}


def rule(kind: type[Op]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def add(check: Callable[..., None]) -> Callable[..., None]:
        RULES[kind] = check
        return check

    return add


@rule(Const)
def _const(v: Verifier, op: Const) -> None:
    v.results(op, 1)
    v.need(isinstance(op.result.type, (ScalarType, EnumType)), "a literal is a scalar")


@rule(DimValue)
def _dim_value(v: Verifier, op: DimValue) -> None:
    v.results(op, 1)
    v.need(isinstance(op.result.type, ScalarType), "a dimension's value is a scalar")


@rule(Unary)
def _unary(v: Verifier, op: Unary) -> None:
    v.need(v.same(op.x.type, op.result.type), "the result has the operand's type")


@rule(Binary)
def _binary(v: Verifier, op: Binary) -> None:
    if isinstance(op.a.type, EnumType):
        v.need(op.a.type == op.b.type and op.op in ("eq", "ne"), "enums only compare equal")
        return
    v.need(dtype_of(op.a.type) == dtype_of(op.b.type), "operands of one dtype")
    wanted = "bool" if op.op in COMPARISONS else dtype_of(op.a.type)
    v.need(dtype_of(op.result.type) == wanted, "the result is {}", wanted)
    shapes = shape_of(op.a.type), shape_of(op.b.type)
    v.need(v.broadcast(shapes, shape_of(op.result.type)), "operands broadcast to the result")


@rule(Select)
def _select(v: Verifier, op: Select) -> None:
    v.need(dtype_of(op.condition.type) == "bool", "the condition is bool")
    v.need(dtype_of(op.a.type) == dtype_of(op.b.type) == dtype_of(op.result.type), "one dtype")
    shapes = [shape_of(x.type) for x in op.operands()]
    v.need(v.broadcast(shapes, shape_of(op.result.type)), "operands broadcast to the result")


@rule(Cast)
def _cast(v: Verifier, op: Cast) -> None:
    v.need(v.same_shape(shape_of(op.x.type), shape_of(op.result.type)), "the shape stays")


@rule(Reshape)
def _reshape(v: Verifier, op: Reshape) -> None:
    v.need(dtype_of(op.x.type) == dtype_of(op.result.type), "the dtype stays")
    counts = count(shape_of(op.x.type)), count(shape_of(op.result.type))
    v.need(v.equal(*counts), "{} elements become {}", counts[0], counts[1])


@rule(Permute)
def _permute(v: Verifier, op: Permute) -> None:
    shape = shape_of(op.x.type)
    v.need(sorted(op.axes) == list(range(len(shape))), "{} is a permutation", op.axes)
    moved = tuple(shape[a] for a in op.axes if a < len(shape))
    v.need(v.same_shape(moved, shape_of(op.result.type)), "the result's axes are permuted")


@rule(Broadcast)
def _broadcast(v: Verifier, op: Broadcast) -> None:
    v.need(v.broadcast([shape_of(op.x.type)], shape_of(op.result.type)), "it broadcasts")


@rule(Concat)
def _concat(v: Verifier, op: Concat) -> None:
    result = shape_of(op.result.type)
    axis = op.axis % len(result)
    total: Dim = Dim.const(0)
    for x in op.xs:
        shape = shape_of(x.type)
        v.need(len(shape) == len(result), "parts have the result's rank")
        for position, (a, b) in enumerate(zip(shape, result, strict=False)):
            if position != axis:
                v.need(v.equal(a, b), "axis {} of a part is {}", position, a)
            elif isinstance(a, Dim):
                total = total + a
    v.need(v.equal(total, result[axis]), "the parts add to {}, not {}", total, result[axis])


@rule(Slice)
def _slice(v: Verifier, op: Slice) -> None:
    shape = shape_of(op.x.type)
    v.need(len(op.items) == len(shape), "one item an axis")
    left: list[Dim | Pack] = []
    for item, extent in zip(op.items, shape, strict=False):
        match item:
            case Keep():
                left.append(extent)
            case At(index) if isinstance(extent, Dim):
                v.need(v.facts.holds("<", index, extent), "index {} within {}", index, extent)
                v.need(v.facts.holds(">=", index, 0), "index {} is not negative", index)
            case AtValue(index):
                v.need(isinstance(index.type, ScalarType), "a run-time index is a scalar")
            case Range(start, stop, step) if isinstance(extent, Dim):
                v.need(v.facts.holds("<=", stop, extent), "stop {} within {}", stop, extent)
                v.need(v.facts.holds("<=", start, stop), "start {} before {}", start, stop)
                left.append((stop - start + step - 1) // step)
    v.need(v.same_shape(tuple(left), shape_of(op.result.type)), "the result has the axes left")


@rule(Iota)
def _iota(v: Verifier, op: Iota) -> None:
    v.need(len(shape_of(op.result.type)) == 1, "iota has one axis")


@rule(Fill)
def _fill(v: Verifier, op: Fill) -> None:
    v.need(isinstance(op.x.type, ScalarType), "fill repeats a scalar")
    v.need(dtype_of(op.x.type) == dtype_of(op.result.type), "the dtype stays")


@rule(Cumsum)
def _cumsum(v: Verifier, op: Cumsum) -> None:
    v.need(v.same(op.x.type, op.result.type), "the type stays")


@rule(Grid)
def _grid(v: Verifier, op: Grid) -> None:
    extents: list[Dim | Pack] = []
    for index in op.indices:
        extents.extend(index.extent if isinstance(index.extent, tuple) else (index.extent,))
    v.need(v.same_shape(tuple(extents), shape_of(op.result.type)), "the indices are the axes")
    v.need(op.body.dtype == dtype_of(op.result.type), "the body is {}", op.body.dtype)
    v.expr(op.body, set(op.indices))


@rule(MakeTuple)
def _make_tuple(v: Verifier, op: MakeTuple) -> None:
    made = TupleType(tuple(x.type for x in op.items))
    v.need(v.same(made, op.result.type), "the items' types")


@rule(TupleGet)
def _tuple_get(v: Verifier, op: TupleGet) -> None:
    type = op.x.type
    v.need(
        isinstance(type, TupleType) and v.same(type.items[op.index], op.result.type), "item type"
    )


@rule(MakeStruct)
def _make_struct(v: Verifier, op: MakeStruct) -> None:
    type = op.result.type
    v.need(isinstance(type, StructType) and len(type.fields) == len(op.items), "a value a field")


@rule(GetField)
def _get_field(v: Verifier, op: GetField) -> None:
    fields = dict(op.x.type.fields) if isinstance(op.x.type, StructType) else {}
    v.need(op.name in fields and v.same(fields[op.name], op.result.type), "field {}", op.name)


@rule(MakeSome)
def _make_some(v: Verifier, op: MakeSome) -> None:
    v.need(v.same(OptionalType(op.x.type), op.result.type), "some(x) is x's optional")


@rule(MakeNone)
def _make_none(v: Verifier, op: MakeNone) -> None:
    v.need(isinstance(op.result.type, OptionalType), "none is an optional")


@rule(If)
def _if(v: Verifier, op: If) -> None:
    v.need(op.condition.type == ScalarType("bool"), "the condition is a scalar bool")
    v.branches(op, [op.then, op.orelse])


@rule(MatchOptional)
def _match_optional(v: Verifier, op: MatchOptional) -> None:
    v.need(isinstance(op.x.type, OptionalType), "matches an optional")
    inside = [OptionalType(p.type) for p in op.some.params]
    v.need(len(inside) == 1 and v.same(inside[0], op.x.type), "some has the value inside")
    v.branches(op, [op.some, op.none])


@rule(MatchSub)
def _match_sub(v: Verifier, op: MatchSub) -> None:
    v.need(v.bound is None, "decided by specialization")
    v.branches(op, [op.some, op.none])


@rule(MatchEnum)
def _match_enum(v: Verifier, op: MatchEnum) -> None:
    type = op.x.type
    v.need(isinstance(type, EnumType) and len(type.variants) == len(op.arms), "an arm a variant")
    v.branches(op, op.arms)


@rule(Loop)
def _loop(v: Verifier, op: Loop) -> None:
    carried = len(op.init)
    v.need(len(op.body.params) == carried + 1, "a parameter for the counter and each carried")
    v.need(len(op.body.results) == len(op.results), "a result for each carried and yielded")
    for init, param, last in zip(op.init, op.body.params[1:], op.body.results, strict=False):
        v.need(v.same(init.type, param.type) and v.same(last.type, param.type), "carried types")
    for last, result in zip(op.body.results[:carried], op.results, strict=False):
        v.need(v.same(last.type, result.type), "carried results")
    for got, result in zip(op.body.results[carried:], op.results[carried:], strict=True):
        if isinstance(got.type, TupleType):
            continue  # a tuple of stacks
        shape = shape_of(result.type)
        v.need(shape and v.same_shape(shape_of(got.type), shape[1:]), "yields stack in front")
        v.need(shape and v.equal(shape[0], op.stop - op.start), "one yield a turn")


@rule(While)
def _while(v: Verifier, op: While) -> None:
    for region in (op.condition, op.body):
        v.need(len(region.params) == len(op.init), "a parameter for each carried")
        for init, param in zip(op.init, region.params, strict=False):
            v.need(v.same(init.type, param.type), "carried types")
    wanted = [ScalarType("bool")]
    v.need([r.type for r in op.condition.results] == wanted, "the condition gives one bool")
    v.branches(op, [op.body])


@rule(Call)
def _call(v: Verifier, op: Call) -> None:
    v.results(op, 1)
    if v.bound is None:
        assert v.program is not None
        callee = v.program.functions.get(op.callee)
        v.need(callee is not None, "calls {}, which does not exist", op.callee)
        if callee is not None:
            v.need(len(op.args) == len(callee.params), "an argument a parameter")
            v.need(len(op.generics) == len(callee.generics), "an argument a generic")
        return
    made = v.bound.functions.get(op.callee)
    v.need(made is not None, "calls {}, which does not exist", op.callee)
    if made is None:
        return
    v.need(len(op.generics) == len(made.dims), "a dimension for each of the callee's `dims`")
    v.need((made.kind is None) == (op.receiver is None), "a method has a receiver")
    v.need(len(op.args) == len(made.params), "an argument a parameter")
    for arg, (_, type) in zip(op.args, made.params, strict=False):
        v.need(_kind_of(arg.type) == _kind_of(type), "an argument is {}, not {}", arg.type, type)


def _kind_of(type: Type) -> object:
    """A type up to the dimensions that only a call's generics would tell."""
    if isinstance(type, TensorType):
        return ("tensor", len(type.shape), type.dtype)
    return type.__class__


@rule(ReadMember)
def _read_member(v: Verifier, op: ReadMember) -> None:
    v.results(op, 1)
    v.need(op.kind in ("param", "buffer", "state"), "a param, buffer or state")


@rule(StateWrite)
def _state_write(v: Verifier, op: StateWrite) -> None:
    v.results(op, 0)


@rule(Intrinsic)
def _intrinsic(v: Verifier, op: Intrinsic) -> None:
    meaning = INTRINSICS.get(op.name)
    v.need(meaning is not None, "there is no intrinsic {}", op.name)
    if meaning is None:
        return
    fewest, most = meaning.args
    v.need(fewest <= len(op.args) <= most, "{} has {} operands", op.name, len(op.args))
    v.results(op, meaning.results)
    v.need(set(meaning.attrs) <= op.attrs.keys(), "{} has its attributes", op.name)
    if op.name == "constant":
        assert v.bound is not None
        v.need(op.attrs["key"] in v.bound.constants, "the constant is known")
