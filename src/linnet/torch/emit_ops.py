"""How each operation is spelled in torch."""

from __future__ import annotations

from linnet.dims import Dim
from linnet.ir import program as ir
from linnet.ir.types import EnumType, ScalarType, StructType, TensorType, dtype_of, shape_of
from linnet.torch import dtypes
from linnet.torch.block import attribute
from linnet.torch.emit import FunctionEmitter, Handler, fresh, kind_of
from linnet.torch.emit_grid import emit_grid
from linnet.torch.emit_text import (
    OPERATORS,
    TORCH,
    binary_text,
    cast_text,
    dim_literal,
    literal,
    scalar_text,
    strip,
    unary_text,
    where_text,
)

# --- Scalars and elementwise ------------------------------------------------------


def const(f: FunctionEmitter, op: ir.Const) -> None:
    type = op.result.type
    text = literal(op.value, type.dtype) if isinstance(type, ScalarType) else str(op.value)
    f.alias(op.result, text)


def dim_value(f: FunctionEmitter, op: ir.DimValue) -> None:
    f.alias(op.result, dim_literal(f, op.dim, dtype_of(op.result.type)))


def unary(f: FunctionEmitter, op: ir.Unary) -> None:
    text = unary_text(op.op, f.ref(op.x), dtype_of(op.x.type), kind_of(op.x.type))
    f.define(op.result, strip(text), op.span)


def binary(f: FunctionEmitter, op: ir.Binary) -> None:
    if isinstance(op.a.type, EnumType):
        f.define(op.result, f"{f.ref(op.a)} {OPERATORS[op.op]} {f.ref(op.b)}", op.span)
        return
    kinds = (kind_of(op.a.type), kind_of(op.b.type))
    text = binary_text(f, op.op, f.ref(op.a), f.ref(op.b), dtype_of(op.a.type), kinds, op.span)
    f.define(op.result, strip(text), op.span)


def select(f: FunctionEmitter, op: ir.Select) -> None:
    c, a, b = f.ref(op.condition), f.ref(op.a), f.ref(op.b)
    if kind_of(op.condition.type) == "int":
        text = f"{a} if {c} else {b}"
        if isinstance(op.result.type, TensorType):
            dtype = dtype_of(op.result.type)
            text = f"rt.tensor({text}, '{dtype}', DEVICE).expand({f.shape(op.result.type)})"
        f.define(op.result, text, op.span)
        return
    f.define(op.result, where_text(c, a, b, op.a.type, op.b.type), op.span)


def cast(f: FunctionEmitter, op: ir.Cast) -> None:
    source, target = dtype_of(op.x.type), dtype_of(op.result.type)
    x = f.ref(op.x)
    if source == target:
        f.alias(op.result, x)
    elif kind_of(op.x.type) == "tensor":
        f.define(op.result, cast_text(x, source, target), op.span)
    elif kind_of(op.x.type) == kind_of(op.result.type) == "int":
        if target == "bool":
            text = f"{x} != 0"
        elif source == "bool":
            text = f"int({x})"
        else:
            text = f"rt.dtypes.wrap_int({x}, '{target}')"
            low, high = dtypes.limits(source)
            bounds = dtypes.limits(target)
            if bounds[0] <= low and high <= bounds[1]:
                f.alias(op.result, x)
                return
        f.define(op.result, text, op.span)
    else:
        f.define(op.result, f"rt.scalar_cast({x}, '{source}', '{target}', DEVICE)", op.span)


# --- Shapes ------------------------------------------------------------------------


def reshape(f: FunctionEmitter, op: ir.Reshape) -> None:
    if shape_of(op.x.type) == shape_of(op.result.type):
        f.alias(op.result, f.ref(op.x))
    elif isinstance(op.result.type, TensorType):
        x = f.ref(op.x)
        if kind_of(op.x.type) != "tensor":
            x = f"rt.tensor({x}, '{dtype_of(op.x.type)}', DEVICE)"
        f.define(op.result, f"{x}.reshape({f.shape(op.result.type)})", op.span)
    else:
        f.define(op.result, scalar_text(f"{f.ref(op.x)}.reshape(())", op.result.type), op.span)


def permute(f: FunctionEmitter, op: ir.Permute) -> None:
    axes = list(op.axes)
    moved = [i for i, axis in enumerate(axes) if i != axis]
    x = f.ref(op.x)
    if not moved:
        f.alias(op.result, x)
    elif len(moved) == 2:
        f.define(op.result, f"{x}.transpose({moved[0]}, {moved[1]})", op.span)
    else:
        f.define(op.result, f"{x}.permute({', '.join(map(str, axes))})", op.span)


def broadcast(f: FunctionEmitter, op: ir.Broadcast) -> None:
    x = f.ref(op.x)
    if shape_of(op.x.type) == shape_of(op.result.type):
        f.alias(op.result, x)
        return
    if kind_of(op.x.type) != "tensor":
        x = f"rt.tensor({x}, '{dtype_of(op.x.type)}', DEVICE)"
    f.define(op.result, f"{x}.expand({f.shape(op.result.type)})", op.span)


def concat(f: FunctionEmitter, op: ir.Concat) -> None:
    parts = ", ".join(f.ref(x) for x in op.xs)
    f.define(op.result, f"torch.cat(({parts},), {op.axis})", op.span)


def slice_(f: FunctionEmitter, op: ir.Slice) -> None:
    extents = shape_of(op.x.type)
    items = []
    for number, item in enumerate(op.items):
        match item:
            case ir.Keep():
                items.append(":")
            case ir.At(index):
                items.append(f.dim(index))
            case ir.AtValue(value):
                text = f.ref(value)
                if id(op) not in f.options.unchecked:
                    extent = extents[number]
                    assert isinstance(extent, Dim)
                    name = f"axis {number} of {op.x.name or 'the tensor'}"
                    text = f"rt.at({text}, {f.dim(extent)}, '{op.span}', '{name}')"
                items.append(text)
            case ir.Range(start, stop, step):
                if start.constant == 0 and stop == extents[number] and step == 1:
                    items.append(":")
                else:
                    first = "" if start.constant == 0 else f.dim(start)
                    tail = f":{step}" if step != 1 else ""
                    items.append(f"{first}:{f.dim(stop)}{tail}")
    while items and items[-1] == ":":
        items.pop()
    x = f.ref(op.x)
    if not items:
        f.alias(op.result, x)
        return
    text = slice_text(x, items)
    if isinstance(op.result.type, ScalarType):
        text = scalar_text(text, op.result.type)
    f.define(op.result, text, op.span)


def slice_text(x: str, items: list[str]) -> str:
    # One sliced axis: `select` and `narrow` cost less than the indexing protocol.
    active = [i for i, item in enumerate(items) if item != ":"]
    if len(active) == 1 and ":" not in items[active[0]]:
        return f"{x}.select({active[0]}, {items[active[0]]})"
    return f"{x}[{', '.join(items)}]"


def iota(f: FunctionEmitter, op: ir.Iota) -> None:
    dtype = dtype_of(op.result.type)
    text = f"torch.arange({f.shape(op.result.type)}, dtype={TORCH[dtype]}, device=DEVICE)"
    f.define(op.result, text, op.span)


def fill(f: FunctionEmitter, op: ir.Fill) -> None:
    dtype = dtype_of(op.result.type)
    source = f.defs.get(op.x)
    shape = f.shape(op.result.type)
    if kind_of(op.x.type) == "int" or isinstance(source, (ir.Const, ir.DimValue)):
        text = f"torch.full(({shape},), {f.ref(op.x)}, dtype={TORCH[dtype]}, device=DEVICE)"
        if isinstance(source, ir.Const) and source.value == 0:
            text = f"torch.zeros(({shape},), dtype={TORCH[dtype]}, device=DEVICE)"
    else:
        text = f"rt.tensor({f.ref(op.x)}, '{dtype}', DEVICE).expand({shape})"
    f.define(op.result, text, op.span)


def cumsum(f: FunctionEmitter, op: ir.Cumsum) -> None:
    dtype = dtype_of(op.result.type)
    x = f.ref(op.x)
    if dtype in dtypes.NARROW_FLOATS:
        text = f"{x}.float().cumsum({op.axis}).to({TORCH[dtype]})"
    elif dtype in dtypes.FLOATS:
        text = f"{x}.cumsum({op.axis})"
    else:
        text = f"{x}.cumsum({op.axis}, dtype=torch.int64)"
        text = f"rt.dtypes.wrap({text}, '{dtype}').to({TORCH[dtype]})"
    f.define(op.result, text, op.span)


def grid(f: FunctionEmitter, op: ir.Grid) -> None:
    emit_grid(f, op)


# --- Aggregates and control ------------------------------------------------------------


def make_tuple(f: FunctionEmitter, op: ir.MakeTuple | ir.MakeStruct) -> None:
    f.define(op.result, f"({''.join(f'{f.ref(item)}, ' for item in op.items)})", op.span)


def tuple_get(f: FunctionEmitter, op: ir.TupleGet) -> None:
    f.define(op.result, f"{f.ref(op.x)}[{op.index}]", op.span)


def get_field(f: FunctionEmitter, op: ir.GetField) -> None:
    assert isinstance(op.x.type, StructType)
    names = [name for name, _ in op.x.type.fields]
    f.define(op.result, f"{f.ref(op.x)}[{names.index(op.name)}]", op.span)


def make_some(f: FunctionEmitter, op: ir.MakeSome) -> None:
    if f.some(op.x) in f.refs:
        f.alias(op.result, f.ref(op.x))


def make_none(f: FunctionEmitter, op: ir.MakeNone) -> None:
    f.alias(op.result, "None")


def branches(f: FunctionEmitter, op: ir.Op, arms: list[tuple[str, ir.Region]]) -> None:
    names = [fresh(value.name or "t", f.taken) for value in op.results]
    for head, region in arms:
        f.line(head, op.span)
        f.depth += 1
        start = len(f.lines)
        f.region(region)
        for name, value in zip(names, region.results, strict=True):
            f.line(f"{name} = {f.ref(value)}")
        never_empty(f, start)
        f.depth -= 1
    for name, value in zip(names, op.results, strict=True):
        f.refs[value] = name


def never_empty(f: FunctionEmitter, start: int) -> None:
    """A block of lines that begins at `start`: operations may have needed none."""
    if len(f.lines) == start:
        f.line("pass")


def if_(f: FunctionEmitter, op: ir.If) -> None:
    branches(f, op, [(f"if {strip(f.ref(op.condition))}:", op.then), ("else:", op.orelse)])


def match_optional(f: FunctionEmitter, op: ir.MatchOptional) -> None:
    x = f.ref(op.x)
    if op.some.params:
        f.refs[op.some.params[0]] = x
    branches(f, op, [(f"if {x} is not None:", op.some), ("else:", op.none)])


def match_enum(f: FunctionEmitter, op: ir.MatchEnum) -> None:
    x = f.ref(op.x)
    arms = []
    for position, region in enumerate(op.arms):
        head = "if" if position == 0 else "elif"
        last = position == len(op.arms) - 1 and position > 0
        arms.append(("else:" if last else f"{head} {x} == {position}:", region))
    branches(f, op, arms)


def loop(f: FunctionEmitter, op: ir.Loop) -> None:
    counter, *params = op.body.params
    carried = [f.define(value, f.ref(init)) for value, init in
               zip(params, op.init, strict=True)]  # fmt: skip
    columns = [f.temporary("[]", "column") for _ in op.results[len(carried) :]]
    i = fresh(counter.name or "i", f.taken)
    f.refs[counter] = i
    f.line(f"for {i} in range({f.dim(op.start)}, {f.dim(op.stop)}):", op.span)
    f.depth += 1
    start = len(f.lines)
    f.region(op.body)
    results = [f.ref(value) for value in op.body.results]
    for column, text in zip(columns, results[len(carried) :], strict=True):
        f.line(f"{column}.append({text})")
    assign(f, carried, results[: len(carried)])
    never_empty(f, start)
    f.depth -= 1
    for value, carried_name in zip(op.results, carried, strict=False):
        f.refs[value] = carried_name
    for column, value in zip(columns, op.results[len(carried) :], strict=True):
        type = value.type
        assert isinstance(type, TensorType)
        dtype = TORCH[type.dtype]
        if len(type.shape) == 1 and type.dtype not in dtypes.FLOATS:
            items = column
            if type.dtype == "u64":  # carried by its bits
                items = f"[rt.dtypes.wrap_int(x, 'i64') for x in {column}]"
            f.define(value, f"torch.tensor({items}, dtype={dtype}, device=DEVICE)")
        else:
            empty = f"torch.empty(({f.shape(type)},), dtype={dtype}, device=DEVICE)"
            items = column
            if len(type.shape) == 1:  # a float is a number where it is a literal
                items = f"[rt.tensor(x, '{type.dtype}', DEVICE) for x in {column}]"
            f.define(value, f"torch.stack({items}) if {column} else {empty}")


def assign(f: FunctionEmitter, names: list[str], values: list[str]) -> None:
    pairs = [(n, v) for n, v in zip(names, values, strict=True) if n != v]
    if pairs:
        f.line(f"{', '.join(n for n, _ in pairs)} = {', '.join(v for _, v in pairs)}")


def while_(f: FunctionEmitter, op: ir.While) -> None:
    carried = [f.define(value, f.ref(init)) for value, init in
               zip(op.condition.params, op.init, strict=True)]  # fmt: skip
    for value, name in zip(op.body.params, carried, strict=True):
        f.refs[value] = name
    f.line("while True:", op.span)
    f.depth += 1
    f.region(op.condition)
    f.line(f"if not {f.ref(op.condition.results[0])}:")
    f.depth += 1
    f.line("break")
    f.depth -= 1
    f.region(op.body)
    assign(f, carried, [f.ref(value) for value in op.body.results])
    f.depth -= 1
    for value, name in zip(op.results, carried, strict=True):
        f.refs[value] = name


# --- Blocks and effects -------------------------------------------------------------------


def read_member(f: FunctionEmitter, op: ir.ReadMember) -> None:
    text = f"self.{attribute(op.name)}"
    if kind_of(op.result.type) == "int":
        f.define(op.result, f"rt.number({text}, '{dtype_of(op.result.type)}')", op.span)
    elif op.kind == "state" and isinstance(op.result.type, ScalarType):
        f.define(op.result, f"{text}.clone()", op.span)  # a number, whatever becomes of the state
    elif op.kind == "state":
        f.define(op.result, text, op.span)
    else:
        f.alias(op.result, text)


def state_write(f: FunctionEmitter, op: ir.StateWrite) -> None:
    if op.value in f.refs and f.refs[op.value] == "":  # the kernel wrote it already
        return
    name, value = attribute(op.name), f.ref(op.value)
    if isinstance(op.value.type, ScalarType):
        value = f"rt.tensor({value}, '{op.value.type.dtype}', DEVICE)"
    if f.options.functional:
        f.line(f"self.{name} = {value}", op.span)
    else:
        f.line(f"self.{name}.copy_({value})", op.span)


# --- Intrinsics --------------------------------------------------------------


def intrinsic(f: FunctionEmitter, op: ir.Intrinsic) -> None:
    from linnet.torch.emit_intrinsics import INTRINSICS

    INTRINSICS[op.name](f, op)


HANDLERS: dict[type, Handler] = {
    ir.Const: const,
    ir.DimValue: dim_value,
    ir.Unary: unary,
    ir.Binary: binary,
    ir.Select: select,
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
    ir.If: if_,
    ir.MatchOptional: match_optional,
    ir.MatchEnum: match_enum,
    ir.Loop: loop,
    ir.While: while_,
    ir.Call: lambda f, op: f.call(op),
    ir.ReadMember: read_member,
    ir.StateWrite: state_write,
    ir.Intrinsic: intrinsic,
}
