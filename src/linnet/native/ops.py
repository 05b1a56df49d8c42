"""What each operation of the IR becomes: an expression, a view, a step or a kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from linnet.ir import program as ir
from linnet.ir.types import EnumType, ScalarType, StructType, TensorType, dtype_of
from linnet.native import elements
from linnet.native.elements import HELD, c_dim
from linnet.native.emit import Emitter
from linnet.native.frame import CHEAP, Frame, Some, Value
from linnet.native.node import (
    ZERO,
    Buffer,
    Comprehension,
    Counted,
    Ix,
    Map,
    Mem,
    Node,
    Scalar,
    Size,
    Unsupported,
    row_major,
    volume,
)
from linnet.native.views import broadcast, concat, permute, pointer, reshape, shape, slice_

# --- Scalars and elementwise ---------------------------------------------------------


def const(e: Emitter, f: Frame, op: ir.Const) -> None:
    type = op.result.type
    dtype = type.dtype if isinstance(type, ScalarType) else "i64"
    f.env[op.result] = Scalar(elements.literal(op.value, dtype), dtype, value=op.value)


def dim_value(e: Emitter, f: Frame, op: ir.DimValue) -> None:
    dim, dtype = op.dim.substitute(f.bind), dtype_of(op.result.type)
    if dim.constant is not None:
        text = elements.literal(dim.constant, dtype)
        f.env[op.result] = Scalar(text, dtype, value=dim.constant)
    else:
        f.env[op.result] = Size(dim, dtype)


def mapped(e: Emitter, f: Frame, op: Any, name: str, *values: ir.Value) -> None:
    args = [e.simple(e.node(f, value)) for value in values]
    dtype = dtype_of(op.result.type) if not isinstance(op.result.type, EnumType) else "i64"
    made = Map(name, args, shape(f, op.result.type), dtype)
    if not made.shape and all(isinstance(arg, (Scalar, Size)) for arg in args):
        f.env[op.result] = e.force(made)
    else:
        e.define(f, op.result, made)


def cast(e: Emitter, f: Frame, op: ir.Cast) -> None:
    if dtype_of(op.x.type) == dtype_of(op.result.type):
        f.env[op.result] = f.env[op.x]
    else:
        mapped(e, f, op, "cast", op.x)


# --- Sources -------------------------------------------------------------------------------


def iota(e: Emitter, f: Frame, op: ir.Iota) -> None:
    f.env[op.result] = Counted(shape(f, op.result.type), dtype_of(op.result.type))


def fill(e: Emitter, f: Frame, op: ir.Fill) -> None:
    node = e.node(f, op.x)
    made = Map("cast", [node], shape(f, op.result.type), node.dtype)
    made.cost = node.cost
    e.define(f, op.result, made)


def cumsum(e: Emitter, f: Frame, op: ir.Cumsum) -> None:
    source = e.packed(e.node(f, op.x))
    made = e.new(source.shape, source.dtype)
    axis = op.axis if op.axis >= 0 else len(source.shape) + op.axis
    inner, outer = volume(source.shape[axis + 1 :]), volume(source.shape[:axis])
    hazard = e.step([source.buffer], [made.buffer])
    held = "float" if source.dtype in elements.NARROW else HELD[source.dtype]
    stored = elements.STORED[source.dtype]
    n, m, k = c_dim(outer), c_dim(inner), c_dim(source.shape[axis])
    value = elements.rounded("sum_", source.dtype)
    if source.dtype not in elements.NARROW:
        value = f"({held})sum_"
    body = (
        f"{{ const {stored} *x_ = {pointer(source)}; {stored} *y_ = {pointer(made)};"
        f" for (long at = lo; at < hi; at++) {{ long o_ = at / ({m}) * ({k}) * ({m}) + at % ({m});"
        f" {held} sum_ = 0; for (long i_ = 0; i_ < {k}; i_++) {{ sum_ += "
        f"{elements.load('x_', f'o_ + i_ * ({m})', source.dtype)};"
        f" y_[o_ + i_ * ({m})] = {elements.store(value, source.dtype)}; }} }} }}"
    )
    e.line(f"NEST({hazard}, ({n}) * ({m}), (double)({n}) * ({m}) * ({k}), {body});")
    e.define(f, op.result, made)


def grid(e: Emitter, f: Frame, op: ir.Grid) -> None:
    to = shape(f, op.result.type)
    read: dict[ir.Value, Node] = {}
    reduces = any(isinstance(node, ir.GReduce) for node in ir.walk_expr(op.body))
    for value in op.operands():
        node = e.simple(e.node(f, value))
        if reduces and node.shape and node.cost > CHEAP:
            node = e.memory(node)
        read[value] = node
    made = Comprehension(op, read, f.bind, to, dtype_of(op.result.type))
    if not to and all(isinstance(node, (Scalar, Size)) for node in read.values()):
        f.env[op.result] = e.force(made)
    else:
        e.define(f, op.result, made)


# --- Aggregates ------------------------------------------------------------------------------


def make_tuple(e: Emitter, f: Frame, op: ir.MakeTuple | ir.MakeStruct) -> None:
    f.env[op.result] = tuple(f.env[item] for item in op.items)


def tuple_get(e: Emitter, f: Frame, op: ir.TupleGet) -> None:
    f.env[op.result] = f.env[op.x][op.index]


def get_field(e: Emitter, f: Frame, op: ir.GetField) -> None:
    assert isinstance(op.x.type, StructType)
    names = [name for name, _ in op.x.type.fields]
    f.env[op.result] = f.env[op.x][names.index(op.name)]


def make_some(e: Emitter, f: Frame, op: ir.MakeSome) -> None:
    f.env[op.result] = Some(f.env[op.x])


def make_none(e: Emitter, f: Frame, op: ir.MakeNone) -> None:
    f.env[op.result] = None


# --- Control -----------------------------------------------------------------------------------


def branch(e: Emitter, f: Frame, op: ir.If) -> None:
    condition = e.force(e.node(f, op.condition))
    if condition.value is not None:
        taken = op.then if condition.value else op.orelse
        e.region(f, taken)
        for value, result in zip(op.results, taken.results, strict=True):
            f.env[value] = f.env[result]
        return
    arms = [(f"if ({condition.text}) {{", op.then), ("} else {", op.orelse)]
    branches(e, f, op, arms)


def branches(e: Emitter, f: Frame, op: Any, arms: list[tuple[str, ir.Region]]) -> None:
    e.settle(f, [region for _, region in arms])
    targets = [joined_type(e, f, value) for value in op.results]

    def write() -> None:
        for head, region in arms:
            e.line(head)
            e.fence = True
            e.scoped_region(f, region, targets)
        e.line("}")

    e.enclose(write)
    for value, target in zip(op.results, targets, strict=True):
        f.env[value] = target


def joined_type(e: Emitter, f: Frame, value: ir.Value) -> Node:
    """What the arms of a branch, or the turns of a loop, leave a result in."""
    type = value.type
    if isinstance(type, ScalarType):
        name = e.fresh("s")
        e.line(f"{HELD[type.dtype]} {name} = 0; (void){name};")
        return Scalar(name, type.dtype)
    if isinstance(type, TensorType):
        return e.new(shape(f, type), type.dtype)
    raise Unsupported(f"a branch or loop with a result of type {type}")


def match_optional(e: Emitter, f: Frame, op: ir.MatchOptional) -> None:
    x = f.env[op.x]
    region = op.none if x is None else op.some
    if x is not None and region.params:
        e.define(f, region.params[0], x.value if isinstance(x, Some) else x)
    e.region(f, region)
    for value, result in zip(op.results, region.results, strict=True):
        f.env[value] = f.env[result]


def match_enum(e: Emitter, f: Frame, op: ir.MatchEnum) -> None:
    x = e.force(e.node(f, op.x))
    if x.value is not None:
        region = op.arms[int(x.value)]
        e.region(f, region)
        for value, result in zip(op.results, region.results, strict=True):
            f.env[value] = f.env[result]
        return
    arms = []
    for position, region in enumerate(op.arms):
        head = "if" if position == 0 else "} else if"
        arms.append((f"{head} ({x.text} == {position}) {{", region))
    branches(e, f, op, arms)


def loop(e: Emitter, f: Frame, op: ir.Loop) -> None:
    start, stop = op.start.substitute(f.bind), op.stop.substitute(f.bind)
    count = stop - start
    counter, *params = op.body.params
    carried, columns = op.results[: len(params)], op.results[len(params) :]
    if count.constant == 1 and not columns:  # one turn is the body
        f.env[counter] = Scalar(str(c_dim(start)), "i64", value=start.constant)
        for param, init in zip(params, op.init, strict=True):
            f.env[param] = f.env[init]
        e.region(f, op.body)
        for value, result in zip(carried, op.body.results, strict=False):
            f.env[value] = f.env[result]
        return
    e.settle(f, [op.body])
    turns = [carry(e, f, param, init) for param, init in zip(params, op.init, strict=True)]
    stacks = []
    for value in columns:
        stacks.append(e.new(shape(f, value.type), dtype_of(value.type)))
    name = e.fresh("n")

    def write() -> None:
        e.line(f"for (long {name} = {c_dim(start)}; {name} < {c_dim(stop)}; {name}++) {{")
        f.env[counter] = Scalar(name, "i64")
        e.scoped_body(f, op.body, turns, stacks, name, start)
        e.line("}")

    e.enclose(write)
    for value, turn in zip(carried, turns, strict=True):
        f.env[value] = turn.now
    for value, stack in zip(columns, stacks, strict=True):
        f.env[value] = stack


@dataclass
class Turn:
    """A carried value: `now` is read in a turn, `next` written for the following one.

    A tensor has two places of memory whose pointers change roles after each turn.
    """

    now: Node
    next: Node
    swap: str


def carry(e: Emitter, f: Frame, param: ir.Value, init: ir.Value) -> Turn:
    start = f.env[init]
    type = param.type
    if isinstance(type, ScalarType):
        scalar = e.force(e.node(f, init))
        name, following = e.fresh("s"), e.fresh("s")
        held = HELD[type.dtype]
        e.line(f"{held} {name} = {scalar.text}, {following} = 0; (void){following};")
        now = Scalar(name, type.dtype)
        return Turn(now, Scalar(following, type.dtype), f"{name} = {following};")
    if not isinstance(type, TensorType) or not isinstance(start, Node):
        raise Unsupported(f"a loop that carries a value of type {type}")
    extents = shape(f, type)
    first, second = e.new(extents, type.dtype), e.new(extents, type.dtype)
    e.copy(start, first)
    a, b = e.fresh("w"), e.fresh("w")
    e.line(f"char *{a} = {first.buffer.name}, *{b} = {second.buffer.name};")
    both = (first.buffer, second.buffer)
    strides = row_major(extents)
    return Turn(
        Mem(Buffer(a, type.dtype, alias=both), extents, strides, type.dtype),
        Mem(Buffer(b, type.dtype, alias=both), extents, strides, type.dtype),
        f"{{ char *w_ = {a}; {a} = {b}; {b} = w_; }}",
    )


def while_(e: Emitter, f: Frame, op: ir.While) -> None:
    e.settle(f, [op.condition, op.body])
    turns = [carry(e, f, p, i) for p, i in zip(op.condition.params, op.init, strict=True)]

    def write() -> None:
        e.line("for (;;) {")
        for param, turn in zip(op.condition.params, turns, strict=True):
            f.env[param] = turn.now
        e.fence = True
        mark = len(e.log)
        e.region(f, op.condition)
        test = e.force(e.node(f, op.condition.results[0]))
        e.forget(mark)
        e.line(f"if (!({test.text})) break;")
        e.scoped_body(f, op.body, turns, [], None, ZERO)
        e.line("}")

    e.enclose(write)
    for value, turn in zip(op.results, turns, strict=True):
        f.env[value] = turn.now


# --- Blocks and effects ---------------------------------------------------------------------------


def read_member(e: Emitter, f: Frame, op: ir.ReadMember) -> None:
    type = op.result.type
    mem = e.member(f, op.name)
    if isinstance(type, ScalarType) or not mem.shape:
        raise Unsupported("a scalar parameter")
    f.env[op.result] = mem


def state_write(e: Emitter, f: Frame, op: ir.StateWrite) -> None:
    e.write_state(f, op.name, e.node(f, op.value))


def call(e: Emitter, f: Frame, op: ir.Call) -> None:
    from linnet.native.kernels import KERNELS

    callee = e.bound.functions[op.callee]
    bind = {
        name: dim.substitute(f.bind)  # type: ignore[union-attr]
        for name, dim in zip(callee.dims, op.generics, strict=True)
    }
    kernel = KERNELS.get(callee.source.id)
    if kernel is not None and kernel(e, f, op, callee, bind):
        return
    if callee.source.kind == "op":
        e.note(op, callee, None)
    place = f.place if op.receiver is not None else None
    if callee.kind is None:
        place = None
    elif op.receiver:
        kind = f.kind
        assert kind is not None and place is not None
        for step in op.receiver:
            index = None
            if isinstance(step.index, ir.Value):
                scalar = e.node(f, step.index)
                assert isinstance(scalar, Scalar)
                index = Ix.of(int(scalar.value)) if scalar.value is not None else Ix.of(scalar.text)
            elif step.index is not None:
                index = Ix.of(step.index.substitute(f.bind))
            place, kind = e.table.enter(place, kind, step.name, index)
    args = [f.env[arg] for arg in op.args]
    result = e.inline(callee, args, bind, place)
    if op.results:
        define_any(e, f, op.result, result)


def define_any(e: Emitter, f: Frame, value: ir.Value, result: Value) -> None:
    if isinstance(result, Node):
        e.define(f, value, result)
    else:
        f.env[value] = result


def intrinsic(e: Emitter, f: Frame, op: ir.Intrinsic) -> None:
    from linnet.native.intrinsics import INTRINSICS

    handler = INTRINSICS.get(op.name)
    if handler is None:
        raise Unsupported(f"the intrinsic {op.name}")
    handler(e, f, op)


Handler = Callable[[Emitter, Frame, Any], None]
HANDLERS: dict[type, Handler] = {
    ir.Const: const,
    ir.DimValue: dim_value,
    ir.Unary: lambda e, f, op: mapped(e, f, op, op.op, op.x),
    ir.Binary: lambda e, f, op: mapped(e, f, op, op.op, op.a, op.b),
    ir.Select: lambda e, f, op: mapped(e, f, op, "select", op.condition, op.a, op.b),
    ir.Cast: cast,
    ir.Reshape: reshape,
    ir.Permute: permute,
    ir.Broadcast: broadcast,
    ir.Concat: concat,
    ir.Slice: slice_,
    ir.Iota: iota,
    ir.Fill: fill,
    ir.Cumsum: cumsum,
    ir.Grid: grid,
    ir.MakeTuple: make_tuple,
    ir.TupleGet: tuple_get,
    ir.MakeStruct: make_tuple,
    ir.GetField: get_field,
    ir.MakeSome: make_some,
    ir.MakeNone: make_none,
    ir.If: branch,
    ir.MatchOptional: match_optional,
    ir.MatchEnum: match_enum,
    ir.Loop: loop,
    ir.While: while_,
    ir.Call: call,
    ir.ReadMember: read_member,
    ir.StateWrite: state_write,
    ir.Intrinsic: intrinsic,
}
