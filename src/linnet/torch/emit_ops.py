"""How each operation is spelled in torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from linnet.dims import Dim
from linnet.ir import program as ir
from linnet.ir.types import EnumType, ScalarType, StructType, TensorType, Type, dtype_of, shape_of
from linnet.torch import dtypes
from linnet.torch.block import attribute
from linnet.torch.emit import FunctionEmitter, Handler, fresh, kind_of
from linnet.torch.emit_grid import emit_grid
from linnet.torch.kernels.table import Choice

if TYPE_CHECKING:
    from linnet.ir.specialize import Instance

TORCH = {name: str(dtype) for name, dtype in dtypes.CARRIER.items()}
ODD = frozenset({"u16", "u32", "u64"})  # carried by a wider dtype
OPERATORS = {
    "add": "+", "sub": "-", "mul": "*", "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">",
    "ge": ">=", "and": "&", "or": "|", "xor": "^",
}  # fmt: skip
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


def literal(value: int | float | bool, dtype: str) -> str:
    """A scalar rounded to its dtype, as Python source."""
    if dtype in dtypes.FLOATS:
        text = repr(float(dtypes.constant(value, dtype)))
    elif dtype == "bool":
        text = str(bool(value))
    else:
        text = str(dtypes.wrap_int(int(value), dtype))
    return f"({text})" if text.startswith("-") else text


def dim_literal(f: FunctionEmitter, dim: Dim, dtype: str) -> str:
    """A compile-time integer as a scalar."""
    if dim.constant is not None:
        return literal(dim.constant, dtype)
    text = f"({f.dim(dim)})"
    if dtype in dtypes.FLOATS:
        return f"rt.scalar_cast({text}, 'i64', '{dtype}', DEVICE)"
    return text


def cast_text(x: str, source: str, target: str) -> str:
    """A tensor converted; `x` is an atom."""
    if source == target:
        return x
    if target == "f32" and source not in ODD:
        return f"{x}.float()"
    simple = source in dtypes.FLOATS and target in dtypes.FLOATS and source != "f64"
    widening = source in ("bool", "i8", "i16", "i32", "u8") and target in ("i32", "i64", "f64")
    if simple or widening or (source, target) in (("i64", "f64"), ("f64", "i64"), ("f32", "i64")):
        return f"{x}.to({TORCH[target]})"
    if target == "bool":
        return f"({x} != 0)"
    return f"rt.dtypes.cast({x}, '{source}', '{target}')"


def binary_text(
    f: FunctionEmitter, op: str, a: str, b: str, dtype: str, kinds: tuple[str, str], span: Any
) -> str:
    """An elementwise operation; `kinds` tell Python numbers from tensors."""
    where = f"'{span}'" if span is not None else "''"
    if kinds == ("int", "int"):
        return int_binary(op, a, b, dtype, where)
    if "tensor" not in kinds:
        return f"rt.scalar_binary('{op}', {a}, {b}, '{dtype}', DEVICE)"
    integer = dtype not in dtypes.FLOATS
    if op in ("min", "max") and dtype != "u64":
        if kinds == ("tensor", "tensor"):
            return f"torch.{op}imum({a}, {b})"
        return f"rt.extreme('{op}', {a}, {b})"
    odd = dtype in ODD and op not in ("eq", "ne", "and", "or", "xor")
    if (integer and op in ("div", "rem", "shl", "shr")) or odd or op in ("min", "max"):
        return f"rt.binary('{op}', {a}, {b}, '{dtype}', {where}, DEVICE)"
    if op == "div":
        return f"({a} / {b})"
    if op == "rem":
        return f"torch.fmod({a}, {b})"
    return f"({a} {OPERATORS[op]} {b})"


def int_binary(op: str, a: str, b: str, dtype: str, where: str) -> str:
    if op in ("min", "max"):
        return f"{op}({a}, {b})"
    if op in ("div", "rem"):
        return f"rt.divide('{op}', {a}, {b}, '{dtype}', {where})"
    if op in ("shl", "shr"):
        return f"rt.shift('{op}', {a}, {b}, '{dtype}')"
    if op in COMPARISONS or op in ("and", "or", "xor"):
        return f"({a} {OPERATORS[op]} {b})"
    return f"rt.dtypes.wrap_int({a} {OPERATORS[op]} {b}, '{dtype}')"


def unary_text(op: str, x: str, dtype: str, kind: str) -> str:
    if kind == "int":
        if op == "not":
            return f"(not {x})" if dtype == "bool" else f"rt.dtypes.wrap_int(~{x}, '{dtype}')"
        return f"rt.dtypes.wrap_int({'-' if op == 'neg' else 'abs'}({x}), '{dtype}')"
    if kind == "float":
        return f"rt.scalar_unary('{op}', {x}, '{dtype}', DEVICE)"
    if op == "neg" and dtype not in ODD:
        return f"(-{x})"
    if op == "not" and dtype not in ODD:
        return f"(~{x})"
    if op in ("neg", "not", "abs") and dtype in ODD:
        return f"rt.elementwise.unary('{op}', {x}, '{dtype}')"
    return f"{x}.{op}()"


def strip(text: str) -> str:
    """Without one pair of outer parentheses, where they enclose the whole and no tuple."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for position, character in enumerate(text):
        depth += (character in "([") - (character in ")]")
        if (depth == 0 and position < len(text) - 1) or (depth == 1 and character == ","):
            return text
    return text[1:-1]


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


def where_text(c: str, a: str, b: str, first: Type, second: Type) -> str:
    if kind_of(first) == kind_of(second) == "tensor":
        return f"torch.where({c}, {a}, {b})"
    return f"rt.select({c}, {a}, {b}, '{dtype_of(first)}', DEVICE)"


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


def scalar_text(x: str, type: Type) -> str:
    """A rank-0 tensor as the scalar that generated code holds."""
    return x if dtype_of(type) in dtypes.FLOATS else f"rt.number({x}, '{dtype_of(type)}')"


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
        f.region(region)
        for name, value in zip(names, region.results, strict=True):
            f.line(f"{name} = {f.ref(value)}")
        if not names and not region.ops:
            f.line("pass")
        f.depth -= 1
    for name, value in zip(names, op.results, strict=True):
        f.refs[value] = name


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
    name = fresh(counter.name or "i", f.taken)
    f.refs[counter] = name
    f.line(f"for {name} in range({f.dim(op.start)}, {f.dim(op.stop)}):", op.span)
    f.depth += 1
    f.region(op.body)
    results = [f.ref(value) for value in op.body.results]
    for column, value in zip(columns, results[len(carried) :], strict=True):
        f.line(f"{column}.append({value})")
    assign(f, carried, results[: len(carried)])
    if not op.body.ops and not results:
        f.line("pass")
    f.depth -= 1
    for value, carried_name in zip(op.results, carried, strict=False):
        f.refs[value] = carried_name
    for column, value in zip(columns, op.results[len(carried) :], strict=True):
        type = value.type
        assert isinstance(type, TensorType)
        dtype = TORCH[type.dtype]
        if len(type.shape) == 1 and type.dtype not in dtypes.FLOATS:
            f.define(value, f"torch.tensor({column}, dtype={dtype}, device=DEVICE)")
        else:
            empty = f"torch.empty(({f.shape(type)},), dtype={dtype}, device=DEVICE)"
            f.define(value, f"torch.stack({column}) if {column} else {empty}")


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
    if op.kind == "state":
        f.define(op.result, text, op.span)
    else:
        f.alias(op.result, text)


def state_write(f: FunctionEmitter, op: ir.StateWrite) -> None:
    if op.value in f.refs and f.refs[op.value] == "":  # the kernel wrote it already
        return
    name = attribute(op.name)
    if f.options.functional:
        f.line(f"self.{name} = {f.ref(op.value)}", op.span)
    else:
        f.line(f"self.{name}.copy_({f.ref(op.value)})", op.span)


# --- Kernels and intrinsics ------------------------------------------------------------------


def argument(f: FunctionEmitter, value: ir.Value) -> str:
    """A kernel's argument; a causal mask stays a position."""
    op = f.defs.get(f.some(value))
    if isinstance(op, ir.Intrinsic) and op.name == "causal_mask":
        return f"rt.Causal({mask_offset(f, op)})"
    return f.ref(value)


def mask_offset(f: FunctionEmitter, op: ir.Intrinsic) -> str:
    """`k <= q + at + offset`: the two added up."""
    offset = op.attrs["offset"]
    assert isinstance(offset, Dim)
    if not op.args:
        return f.dim(offset)
    at = f.ref(op.args[0])
    return at if offset.constant == 0 else f"{at} + {f.dim(offset)}"


def materialize(f: FunctionEmitter, value: ir.Value) -> str:
    """Make a causal mask where something other than a kernel wants it."""
    inner = f.some(value)
    op = f.defs[inner]
    assert isinstance(op, ir.Intrinsic) and op.name == "causal_mask", op
    axes = op.attrs["axes"]
    assert isinstance(axes, tuple)
    offset = mask_offset(f, op)
    shape = f.shape(inner.type)
    text = f"rt.causal_mask(rt.Causal({offset}), '{''.join(axes)}', ({shape},), DEVICE)"
    return f.temporary(text, "mask")


def kernel_call(f: FunctionEmitter, op: ir.Call, callee: Instance, choice: Choice) -> None:
    kernel = choice.kernel
    assert kernel is not None
    args = [argument(f, arg) for arg in op.args]
    for position, extent, span in choice.checks:
        args[position] = f"rt.index({args[position]}, {extent}, '{span}', '{callee.source.name}')"
    mapping = dict(zip(callee.dims, op.generics, strict=True))
    for name in kernel.generics:
        dim = callee.arguments[name]
        assert isinstance(dim, Dim)
        args.append(f.dim(dim.substitute({k: v for k, v in mapping.items() if isinstance(v, Dim)})))
    if kernel.split is not None and split_call(f, op, callee, kernel, args):
        return
    name = f.module.kernel(kernel.function)
    f.define(op.result, f"{name}({', '.join(args)})", op.span)


def split_call(f: FunctionEmitter, op: ir.Call, callee: Instance, kernel: Any, args: list[str]) -> bool:
    """A result of outputs and a final state, joined along axis 1, kept apart.

    Applies where every use slices one of the two parts out whole. Where the state given
    is the block's own and is written back, it is updated in place.
    """
    type = op.result.type
    assert isinstance(type, TensorType)
    state_rows = shape_of(op.args[kernel.state].type)[2]
    assert isinstance(state_rows, Dim)
    total = type.shape[1]
    assert isinstance(total, Dim)
    cut = total - state_rows
    uses = f.uses.get(op.result, [])
    parts: list[tuple[ir.Slice, bool]] = []
    for use in uses:
        if not isinstance(use, ir.Slice) or len(use.items) < 2:
            return False
        item = use.items[1]
        rest = [i for n, i in enumerate(use.items) if n != 1]
        if not isinstance(item, ir.Range) or item.step != 1 or not all(whole(i) for i in rest):
            return False
        if item.start.constant == 0 and item.stop == cut:
            parts.append((use, False))
        elif item.start == cut and item.stop == total:
            parts.append((use, True))
        else:
            return False
    write = None if f.options.functional else own_state(f, op, kernel, parts)
    function = kernel.split if write is None else kernel.in_place
    name = f.module.kernel(function)
    outputs, state = fresh("outputs", f.taken), fresh("final", f.taken)
    f.line(f"{outputs}, {state} = {name}({', '.join(args)})", op.span)
    for use, final in parts:
        # Handled here: the slice itself then only stands for the part.
        f.defs[use.result] = use
        f.refs[use.result] = f"{state}.transpose(1, 2)" if final else outputs
    if write is not None:
        f.refs[write.value] = ""
    return True


def whole(item: ir.SliceItem) -> bool:
    return isinstance(item, ir.Keep)


def own_state(
    f: FunctionEmitter, op: ir.Call, kernel: Any, parts: list[tuple[ir.Slice, bool]]
) -> ir.StateWrite | None:
    """The write of the final state back to where the initial one was read, if that is all."""
    read = f.defs.get(op.args[kernel.state])
    if kernel.in_place is None or not isinstance(read, ir.ReadMember) or read.kind != "state":
        return None
    if len(f.uses.get(read.result, [])) != 1:
        return None
    finals = [use for use, final in parts if final]
    if len(finals) != 1 or len(f.uses.get(finals[0].result, [])) != 1:
        return None
    back = f.uses[finals[0].result][0]
    if not isinstance(back, ir.Permute) or back.axes != (0, 2, 1, 3):
        return None
    writes = f.uses.get(back.result, [])
    if len(writes) != 1 or not isinstance(writes[0], ir.StateWrite):
        return None
    write = writes[0]
    region = next((r for r in regions(f.instance.body) if op in r.ops and write in r.ops), None)
    if write.name != read.name or region is None:
        return None
    for between in region.ops[region.ops.index(op) + 1 : region.ops.index(write)]:
        if isinstance(between, ir.Call) and between.receiver is not None:
            return None
        if isinstance(between, (ir.ReadMember, ir.StateWrite)) and between.name == read.name:
            return None
    return write


def regions(region: ir.Region) -> list[ir.Region]:
    return [region] + [r for op in region.ops for inner in op.regions() for r in regions(inner)]


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
