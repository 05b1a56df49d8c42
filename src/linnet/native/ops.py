"""What each operation of the IR becomes: an expression, a view, a step or a kernel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from linnet.dims import Dim
from linnet.ir import program as ir
from linnet.ir.types import EnumType, ScalarType, StructType, TensorType, dtype_of, shape_of
from linnet.native import elements
from linnet.native.elements import HELD, c_dim
from linnet.native.emit import Emitter, Frame, Some, Value, flatten, narrow, volume
from linnet.native.node import (
    ONE,
    ZERO,
    Buffer,
    Comprehension,
    Counted,
    Ix,
    Joined,
    Map,
    Mem,
    Moved,
    Node,
    Scalar,
    Size,
    Unsupported,
    row_major,
)


def shape(f: Frame, type: Any) -> tuple[Dim, ...]:
    return tuple(d.substitute(f.bind) for d in shape_of(type))  # type: ignore[union-attr]


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


# --- Shapes -------------------------------------------------------------------------------


def moved(e: Emitter, f: Frame, result: ir.Value, base: Node, plan: list[Ix], to: tuple[Dim, ...]) -> None:
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
    return Mem(mem.buffer, to, tuple(strides), mem.dtype, mem.offset) if position == len(old) else None


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
    if item is None or (isinstance(item, tuple) and item[0] == ZERO and item[1] == edges[-1] and item[2] == 1):
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
    value = f"({held})sum_" if source.dtype not in elements.NARROW else elements.rounded("sum_", source.dtype)
    body = (
        f"{{ const {stored} *x_ = {pointer(source)}; {stored} *y_ = {pointer(made)};"
        f" for (long at = lo; at < hi; at++) {{ long o_ = at / ({m}) * ({k}) * ({m}) + at % ({m});"
        f" {held} sum_ = 0; for (long i_ = 0; i_ < {k}; i_++) {{ sum_ += "
        f"{elements.load('x_', f'o_ + i_ * ({m})', source.dtype)};"
        f" y_[o_ + i_ * ({m})] = {elements.store(value, source.dtype)}; }} }} }}"
    )
    e.line(f"NEST({hazard}, ({n}) * ({m}), (double)({n}) * ({m}) * ({k}), {body});")
    e.define(f, op.result, made)


def pointer(mem: Mem) -> str:
    from linnet.native.nest import outer_index

    offset = outer_index(mem.offset)
    base = f"({elements.STORED[mem.dtype]} *){mem.buffer.name}"
    return base if offset == "0" else f"({base} + {offset})"


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


CHEAP = 4


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
        f.env[counter] = Scalar(f"(int64_t){name}" if False else name, "i64")
        e.scoped_body(f, op.body, turns, stacks, name, start)
        e.line("}")

    e.enclose(write)
    for value, turn in zip(carried, turns, strict=True):
        f.env[value] = turn.now
    for value, stack in zip(columns, stacks, strict=True):
        f.env[value] = stack


class Turn:
    """A carried value: `now` is read in a turn, `next` written for the following one.

    A tensor has two places of memory whose pointers change roles after each turn.
    """

    def __init__(self, e: Emitter, f: Frame, now: Node, next: Node, swap: str):
        self.now, self.next, self.swap = now, next, swap


def carry(e: Emitter, f: Frame, param: ir.Value, init: ir.Value) -> Turn:
    start = f.env[init]
    type = param.type
    if isinstance(type, ScalarType):
        scalar = e.force(e.node(f, init))
        name, following = e.fresh("s"), e.fresh("s")
        held = HELD[type.dtype]
        e.line(f"{held} {name} = {scalar.text}, {following} = 0; (void){following};")
        now = Scalar(name, type.dtype)
        return Turn(e, f, now, Scalar(following, type.dtype), f"{name} = {following};")
    if not isinstance(type, TensorType) or not isinstance(start, Node):
        raise Unsupported(f"a loop that carries a value of type {type}")
    extents = shape(f, type)
    first, second = e.new(extents, type.dtype), e.new(extents, type.dtype)
    e.copy(start, first)
    a, b = e.fresh("w"), e.fresh("w")
    e.line(f"char *{a} = {first.buffer.name}, *{b} = {second.buffer.name};")
    both = (first.buffer, second.buffer)
    strides = row_major(extents)
    now = Mem(Buffer(a, type.dtype, alias=both), extents, strides, type.dtype)
    next = Mem(Buffer(b, type.dtype, alias=both), extents, strides, type.dtype)
    return Turn(e, f, now, next, f"{{ char *w_ = {a}; {a} = {b}; {b} = w_; }}")


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

__all__ = ["HANDLERS", "flatten", "narrow", "pointer", "reshaped", "shape", "sliced"]
