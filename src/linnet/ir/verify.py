"""The rules of the IR as a table: one checker an operation, plus scoping and effects.

`verify_program` checks bodies as the checker makes them, `verify_instance` after
specialization and after every pass. Dimensions are equal after normalization, or by the facts
in scope (an op body may rest on `Conv == 2 * K + V`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from linnet.dims import Dim, Facts
from linnet.ir.bound import Bound, Instance
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
    Function,
    GApply,
    GBinary,
    GCast,
    GetField,
    GExpr,
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
    Program,
    Range,
    ReadMember,
    Region,
    Reshape,
    Select,
    Slice,
    StateWrite,
    TupleGet,
    Unary,
    Value,
    While,
)
from linnet.ir.types import (
    EnumType,
    OptionalType,
    Pack,
    ScalarType,
    Shape,
    StructType,
    TensorType,
    TupleType,
    Type,
    count,
    dtype_of,
    shape_of,
)

COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


class Invalid(AssertionError):
    """A rule is broken; the message names the function, the operation and the rule."""


def verify_program(program: Program) -> None:
    for function in program.functions.values():
        block = program.blocks.get(function.block or "")
        facts = Facts((*function.where, *(block.where if block else ())))
        problems = Verifier(facts, program=program).run(function)
        _raise(function.id, problems)


def verify_instance(instance: Instance, bound: Bound) -> None:
    block = bound.program.blocks.get(instance.source.block or "")
    facts = Facts((*instance.source.where, *(block.where if block else ())))
    _raise(instance.id, Verifier(facts, bound=bound).run(instance))


def _raise(name: str, problems: list[str]) -> None:
    if problems:
        raise Invalid(f"{name}: " + "; ".join(problems[:8]))


class Verifier:
    def __init__(self, facts: Facts, program: Program | None = None, bound: Bound | None = None):
        self.facts = facts
        self.program = program
        self.bound = bound
        self.problems: list[str] = []
        self.op: Op | None = None

    def run(self, function: Function | Instance) -> list[str]:
        scope: set[Value] = set()
        for param, (name, type) in zip(function.body.params, function.params, strict=True):
            self.need(self.same(param.type, type), f"parameter {name} is {param.type}, not {type}")
        self.region(function.body, scope)
        self.op = None
        for result in function.body.results:
            self.need(self.same(result.type, function.result), f"result is {result.type}")
        return self.problems

    def need(self, holds: object, rule: str) -> None:
        if not holds:
            where = ""
            if self.op is not None:
                names = ", ".join(map(repr, self.op.results))
                where = f"{type(self.op).__name__} [{names}]: "
            self.problems.append(where + rule)

    # --- dimensions, shapes, types ------------------------------------------------------

    def equal(self, a: Dim | Pack, b: Dim | Pack) -> bool:
        if isinstance(a, Pack) or isinstance(b, Pack):
            return a == b
        return a == b or self.facts.equal(a, b)

    def same_shape(self, a: Shape, b: Shape) -> bool:
        return len(a) == len(b) and all(self.equal(x, y) for x, y in zip(a, b, strict=True))

    def same(self, a: Type, b: Type) -> bool:
        match a, b:
            case TensorType(), TensorType():
                return a.dtype == b.dtype and self.same_shape(a.shape, b.shape)
            case OptionalType(x), OptionalType(y):
                return self.same(x, y)
            case TupleType(xs), TupleType(ys):
                return len(xs) == len(ys) and all(map(self.same, xs, ys))
            case StructType(), StructType():
                fields = zip(a.fields, b.fields, strict=False)
                return a.id == b.id and all(self.same(x, y) for (_, x), (_, y) in fields)
        return a == b

    def broadcast(self, parts: Iterable[Shape], result: Shape) -> bool:
        """Right-aligned; each aligned pair equal or one of them 1."""
        for part in parts:
            if len(part) > len(result):
                return False
            for a, b in zip(reversed(part), reversed(result), strict=False):
                if not self.equal(a, b) and a != Dim.const(1):
                    return False
        return True

    # --- regions ---------------------------------------------------------------------------

    def region(self, region: Region, above: set[Value]) -> None:
        scope = set(above)
        scope.update(region.params)
        for op in region.ops:
            self.op = op
            for value in op.operands():
                self.need(value in scope, f"{value!r} is used before it is defined")
            for result in op.results:
                self.need(result not in scope, f"{result!r} is defined twice")
            rule = RULES.get(type(op))
            if rule is None:
                self.need(False, "no rule for this operation")
            else:
                rule(self, op)
            for inner in op.regions():
                self.region(inner, scope)
            scope.update(op.results)
        self.op = None
        for result in region.results:
            self.need(result in scope, f"the region's result {result!r} is not in scope")

    def results(self, op: Op, wanted: int) -> None:
        self.need(len(op.results) == wanted, f"has {len(op.results)} results, not {wanted}")

    def branches(self, op: Op, regions: list[Region]) -> None:
        for region in regions:
            self.need(len(region.results) == len(op.results), "a branch gives another count")
            for got, wanted in zip(region.results, op.results, strict=False):
                self.need(self.same(got.type, wanted.type), f"a branch gives {got.type}")

    # --- index notation -----------------------------------------------------------------------

    def expr(self, node: GExpr, scope: set[Idx]) -> None:
        match node:
            case GRead(value, axes, dtype):
                self.need(dtype_of(value.type) == dtype, f"reads {value!r} as {dtype}")
                shape = shape_of(value.type)
                self.need(len(axes) == len(shape), f"{len(axes)} axes for {value!r}")
                for axis, extent in zip(axes, shape, strict=False):
                    self.axis(axis, extent, scope)
            case GUnary(_, x):
                self.need(x.dtype == node.dtype, "a unary changes the dtype")
                self.expr(x, scope)
            case GCast(x):
                self.expr(x, scope)
            case GBinary(op, a, b):
                self.need(a.dtype == b.dtype, f"{op} of {a.dtype} and {b.dtype}")
                self.need(node.dtype == ("bool" if op in COMPARISONS else a.dtype), f"{op} dtype")
                self.expr(a, scope)
                self.expr(b, scope)
            case GSelect(c, a, b):
                self.need(c.dtype == "bool" and a.dtype == b.dtype == node.dtype, "select dtypes")
                for part in (c, a, b):
                    self.expr(part, scope)
            case GReduce(_, indices, body):
                self.need(not scope & set(indices), "an index is bound twice")
                self.expr(body, scope | set(indices))
            case GApply(callee, _, args):
                known = self.bound.functions if self.bound else self.program.functions  # type: ignore[union-attr]
                self.need(callee in known, f"calls {callee}, which does not exist")
                for arg in args:
                    self.expr(arg, scope)

    def axis(self, axis: object, extent: Dim | Pack, scope: set[Idx]) -> None:
        if isinstance(axis, Idx):
            self.need(axis in scope, f"index {axis.name} is not bound")
            own = axis.extent if isinstance(axis.extent, tuple) else (axis.extent,)
            self.need(self.same_shape(own, (extent,)), f"index {axis.name} over {extent}")
        elif isinstance(axis, Dim):
            if not isinstance(extent, Pack):
                self.need(self.facts.holds("<", axis, extent), f"index {axis} within {extent}")
        elif isinstance(axis, GExpr):
            self.expr(axis, scope)


# --- the table ------------------------------------------------------------------------------

Rule = Callable[[Verifier, Op], None]
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
    v.need(dtype_of(op.result.type) == wanted, f"the result is {wanted}")
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
    v.need(v.equal(*counts), f"{counts[0]} elements become {counts[1]}")


@rule(Permute)
def _permute(v: Verifier, op: Permute) -> None:
    shape = shape_of(op.x.type)
    v.need(sorted(op.axes) == list(range(len(shape))), f"{op.axes} is a permutation")
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
                v.need(v.equal(a, b), f"axis {position} of a part is {a}")
            elif isinstance(a, Dim):
                total = total + a
    v.need(v.equal(total, result[axis]), f"the parts add to {total}, not {result[axis]}")


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
                v.need(v.facts.holds("<", index, extent), f"index {index} within {extent}")
                v.need(v.facts.holds(">=", index, 0), f"index {index} is not negative")
            case AtValue(index):
                v.need(isinstance(index.type, ScalarType), "a run-time index is a scalar")
            case Range(start, stop, step) if isinstance(extent, Dim):
                v.need(v.facts.holds("<=", stop, extent), f"stop {stop} within {extent}")
                v.need(v.facts.holds("<=", start, stop), f"start {start} before {stop}")
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
    v.need(op.body.dtype == dtype_of(op.result.type), f"the body is {op.body.dtype}")
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
    v.need(op.name in fields and v.same(fields[op.name], op.result.type), f"field {op.name}")


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
        v.need(callee is not None, f"calls {op.callee}, which does not exist")
        if callee is not None:
            v.need(len(op.args) == len(callee.params), "an argument a parameter")
            v.need(len(op.generics) == len(callee.generics), "an argument a generic")
        return
    made = v.bound.functions.get(op.callee)
    v.need(made is not None, f"calls {op.callee}, which does not exist")
    if made is None:
        return
    v.need(len(op.generics) == len(made.dims), "a dimension for each of the callee's `dims`")
    v.need((made.kind is None) == (op.receiver is None), "a method has a receiver")
    for arg, (_, type) in zip(op.args, made.params, strict=True):
        v.need(_kind_of(arg.type) == _kind_of(type), f"an argument is {arg.type}, not {type}")


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
    v.need(meaning is not None, f"there is no intrinsic {op.name}")
    if meaning is None:
        return
    fewest, most = meaning.args
    v.need(fewest <= len(op.args) <= most, f"{op.name} has {len(op.args)} operands")
    v.results(op, meaning.results)
    v.need(set(meaning.attrs) <= op.attrs.keys(), f"{op.name} has its attributes")
    if op.name == "constant":
        assert v.bound is not None
        v.need(op.attrs["key"] in v.bound.constants, "the constant is known")
