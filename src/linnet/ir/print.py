"""The text form of programs and instances; `parse.py` reads it back.

One operation a line, `%name = operation`, types written out where they cannot be seen
otherwise. Spans and documentation are left out.
"""

from __future__ import annotations

from collections.abc import Iterable

from linnet.dims import Dim
from linnet.ir.bound import Bound, Instance
from linnet.ir.program import (
    At,
    AtValue,
    Axis,
    Binary,
    Block,
    Call,
    Concat,
    Const,
    Cumsum,
    DimValue,
    Function,
    GApply,
    GBinary,
    GCast,
    GDim,
    Generic,
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
    Keep,
    Loop,
    MatchEnum,
    MatchOptional,
    MatchSub,
    Op,
    Permute,
    Program,
    Range,
    ReadMember,
    Region,
    Slice,
    StateWrite,
    Step,
    TupleGet,
    Unary,
    Value,
    While,
)
from linnet.ir.types import (
    DTYPES,
    BlockRef,
    EnumType,
    GenericArg,
    OptionalType,
    ScalarType,
    StructType,
    TensorType,
    TupleType,
    Type,
)

# Operations that are their operands and nothing else, by class name.
PLAIN = {
    "Select": "select", "Cast": "cast", "Reshape": "reshape", "Broadcast": "broadcast",
    "Iota": "iota", "Fill": "fill", "MakeTuple": "tuple", "MakeStruct": "struct",
    "MakeSome": "some", "MakeNone": "none",
}  # fmt: skip


def program_text(program: Program) -> str:
    parts = [f"program {program.root_package}"]
    parts += [block_text(block) for block in program.blocks.values()]
    parts += [function_text(function) for function in program.functions.values()]
    return "\n\n".join(parts) + "\n"


def bound_text(bound: Bound, entry: str | None = None) -> str:
    """Every instance, or those that one entry reaches, callers last."""
    wanted = reachable(bound, [bound.entries[entry]]) if entry else set(bound.functions)
    parts = [
        f"// constant {key}\n{instance_text(made)}" for key, made in bound.constants.items()
    ] if entry is None else []  # fmt: skip
    parts += [instance_text(f) for f in bound.functions.values() if f.id in wanted]
    return "\n\n".join(parts) + "\n"


def reachable(bound: Bound, starts: Iterable[str]) -> set[str]:
    from linnet.ir.effects import walk_ops

    seen: set[str] = set()
    stack = list(starts)
    while stack:
        name = stack.pop()
        if name in seen:
            continue
        seen.add(name)
        for op in walk_ops(bound.functions[name].body):
            stack.extend(callees(op))
    return seen


def callees(op: Op) -> list[str]:
    """The ids of the functions that an operation calls."""
    from linnet.ir.program import walk_expr

    match op:
        case Call(callee=callee):
            return [callee]
        case Grid(body=body):
            return [node.callee for node in walk_expr(body) if isinstance(node, GApply)]
        case Intrinsic(attrs=attrs) if "callee" in attrs:
            return [str(attrs["callee"])]
    return []


# --- types ---------------------------------------------------------------------------


def type_text(type: Type | BlockRef) -> str:
    match type:
        case OptionalType(inner):
            return f"{type_text(inner)}?"
        case TupleType(items):
            return f"({', '.join(map(type_text, items))})"
        case StructType(id, generics, fields):
            inside = ", ".join(f"{name}: {type_text(t)}" for name, t in fields)
            return f"struct {id}{arguments_text(generics)} {{{inside}}}"
        case EnumType(id, variants):
            return f"enum {id} {{{', '.join(variants)}}}"
        case BlockRef(id, generics):
            return f"{id}{arguments_text(generics)}"
        case TensorType() | ScalarType():
            return str(type)
    raise AssertionError(type)


def arguments_text(arguments: tuple[GenericArg, ...]) -> str:
    return f"<{', '.join(map(argument_text, arguments))}>" if arguments else ""


def argument_text(argument: GenericArg) -> str:
    if isinstance(argument, tuple):
        return f"[{', '.join(map(str, argument))}]"
    if isinstance(argument, str) and argument not in DTYPES:
        return f"'{argument}"  # a dtype generic: only the quote tells it from a dimension
    return str(argument)


def generics_text(generics: tuple[Generic, ...]) -> str:
    def one(generic: Generic) -> str:
        star = "*" if generic.kind == "Shape" else ""
        default = "" if generic.default is None else f" = {argument_text(generic.default)}"
        return f"{star}{generic.name}: {generic.kind}{default}"

    return f"<{', '.join(map(one, generics))}>" if generics else ""


# --- declarations ----------------------------------------------------------------------


def block_text(block: Block) -> str:
    lines = [f"{'pub ' if block.public else ''}block {block.id}{generics_text(block.generics)} {{"]
    lines += [f"  where {fact}" for fact in block.where]
    for member in block.members.values():
        if isinstance(member.type, BlockRef) and member.length is not None:
            type = f"[{type_text(member.type)}; {member.length}]"
        else:
            type = type_text(member.type)
        optional = "optional " if member.optional else ""
        lines.append(f"  {optional}{member.kind} {member.name}: {type}")
    lines += [f"  method {name} = {id}" for name, id in block.methods.items()]
    return "\n".join([*lines, "}"])


def function_text(function: Function) -> str:
    writer = Writer()
    params = ", ".join(
        f"{writer.define(v)} {name}: {type_text(v.type)}"
        for v, (name, _) in zip(function.body.params, function.params, strict=True)
    )
    owner = f" in {function.block}" if function.block else ""
    head = (
        f"{'pub ' if function.public else ''}{function.kind} {function.id}"
        f"{generics_text(function.generics)}({params}) -> {type_text(function.result)}{owner} {{"
    )
    lines = [head] + [f"  where {fact}" for fact in function.where]
    writer.region(function.body, "  ", "return")
    return "\n".join([*lines, *writer.lines, "}"])


def instance_text(instance: Instance) -> str:
    """An instance as a function of its own; its effects as comments."""
    writer = Writer()
    params = ", ".join(
        f"{writer.define(v)} {name}: {type_text(v.type)}"
        for v, (name, _) in zip(instance.body.params, instance.params, strict=True)
    )
    dims = f"<{', '.join(instance.dims)}>" if instance.dims else ""
    lines = [f"// {instance.source.id}" + (f" of {instance.kind}" if instance.kind else "")]
    if instance.reads or instance.writes:
        lines.append(
            f"// reads {', '.join(sorted(instance.reads)) or 'nothing'};"
            f" writes {', '.join(sorted(instance.writes)) or 'nothing'}"
        )
    lines.append(f"fn {instance.id}{dims}({params}) -> {type_text(instance.result)} {{")
    writer.region(instance.body, "  ", "return")
    return "\n".join([*lines, *writer.lines, "}"])


# --- bodies ------------------------------------------------------------------------------


class Writer:
    """Names every value uniquely, near its source name, and writes lines."""

    def __init__(self) -> None:
        self.names: dict[Value, str] = {}
        self.used: set[str] = set()
        self.indices: dict[Idx, str] = {}
        self.lines: list[str] = []
        self.next = 0

    def define(self, value: Value) -> str:
        if value.name:
            name = value.name
            serial = 2
            while name in self.used:
                name = f"{value.name}.{serial}"
                serial += 1
        else:
            name = str(self.next)
            self.next += 1
        self.used.add(name)
        self.names[value] = name
        return f"%{name}"

    def use(self, value: Value) -> str:
        return f"%{self.names.get(value, f'undefined.{value.id}')}"

    def uses(self, values: Iterable[Value]) -> str:
        return ", ".join(map(self.use, values))

    def region(self, region: Region, indent: str, end: str = "yield") -> None:
        for op in region.ops:
            self.op(op, indent)
        self.lines.append(f"{indent}{end} {self.uses(region.results)}".rstrip())

    def op(self, op: Op, indent: str) -> None:
        regions = self.op_regions(op)
        text = self.op_body(op)
        if not regions:
            self.lines.append(f"{indent}{self._results(op)}{text}")
            return
        self.lines.append(f"{indent}{{HOLE}}{text} {{")
        hole = len(self.lines) - 1
        for position, (label, region) in enumerate(regions):
            if position:
                self.lines.append(f"{indent}}} {label} {{")
            elif label:
                self.lines[-1] = f"{indent}{{HOLE}}{text} {label} {{"
            if region.params:
                params = ", ".join(f"{self.define(p)}: {type_text(p.type)}" for p in region.params)
                self.lines.append(f"{indent}  params {params}")
            self.region(region, indent + "  ")
        self.lines.append(f"{indent}}}")
        self.lines[hole] = self.lines[hole].replace("{HOLE}", self._results(op), 1)

    def _results(self, op: Op) -> str:
        if not op.results:
            return ""
        return ", ".join(f"{self.define(r)}: {type_text(r.type)}" for r in op.results) + " = "

    def op_regions(self, op: Op) -> list[tuple[str, Region]]:
        match op:
            case If():
                return [("", op.then), ("else", op.orelse)]
            case MatchOptional() | MatchSub():
                return [("some", op.some), ("none", op.none)]
            case MatchEnum():
                return [(f"arm {n}", arm) for n, arm in enumerate(op.arms)]
            case Loop():
                return [("", op.body)]
            case While():
                return [("", op.condition), ("do", op.body)]
        return []

    def op_body(self, op: Op) -> str:
        use = self.use
        match op:
            case Const(value=value):
                return f"const {_literal(value)}"
            case DimValue(dim=dim):
                return f"dim [{dim}]"
            case Unary(op=name, x=x):
                return f"{name} {use(x)}"
            case Binary(op=name, a=a, b=b):
                return f"{name} {use(a)}, {use(b)}"
            case Permute(x=x, axes=axes):
                return f"permute {use(x)} [{', '.join(map(str, axes))}]"
            case Concat(xs=xs, axis=axis):
                return f"concat {self.uses(xs)} axis {axis}"
            case Cumsum(x=x, axis=axis):
                return f"cumsum {use(x)} axis {axis}"
            case Slice(x=x, items=items):
                return f"slice {use(x)} [{', '.join(map(self._item, items))}]"
            case Grid(indices=indices, body=body):
                return f"grid [{self._indices(indices)}] {self.expr(body)}"
            case TupleGet(x=x, index=index):
                return f"get {use(x)} {index}"
            case GetField(x=x, name=name):
                return f"field {use(x)} {name}"
            case If(condition=condition):
                return f"if {use(condition)}"
            case MatchOptional(x=x):
                return f"match {use(x)}"
            case MatchSub(member=member):
                return f"match_sub {member}"
            case MatchEnum(x=x):
                return f"match_enum {use(x)}"
            case Loop(start=start, stop=stop, init=init, static=static):
                word = "static loop" if static else "loop"
                return f"{word} [{start}] to [{stop}] ({self.uses(init)})"
            case While(init=init):
                return f"while ({self.uses(init)})"
            case Call(callee=callee, generics=generics, args=args, receiver=receiver):
                on = "" if receiver is None else f" on {self._steps(receiver)}"
                return f"call {callee}{arguments_text(generics)}({self.uses(args)}){on}"
            case ReadMember(kind=kind, name=name):
                return f"read {kind} {name}"
            case StateWrite(name=name, value=value):
                return f"write {name} {use(value)}"
            case Intrinsic(name=name, args=args, attrs=attrs):
                inside = ", ".join(f"{k} = {attribute_text(v)}" for k, v in attrs.items())
                return f"intrinsic {name}({self.uses(args)}) {{{inside}}}"
        return f"{PLAIN[type(op).__name__]} {self.uses(op.operands())}".rstrip()

    def _item(self, item: object) -> str:
        match item:
            case Keep():
                return ":"
            case At(index):
                return str(index)
            case AtValue(index):
                return self.use(index)
            case Range(start, stop, step):
                return f"{start} : {stop}" + (f" : {step}" if step != 1 else "")
        raise AssertionError(item)

    def _steps(self, receiver: tuple[Step, ...]) -> str:
        def one(step: Step) -> str:
            if step.index is None:
                return step.name
            at = self.use(step.index) if isinstance(step.index, Value) else str(step.index)
            return f"{step.name}[{at}]"

        return ".".join(map(one, receiver)) or "self"

    # --- index notation ----------------------------------------------------------------

    def _indices(self, indices: tuple[Idx, ...]) -> str:
        return ", ".join(f"{self._bind(i)}: {self._extent(i)}" for i in indices)

    def _bind(self, index: Idx) -> str:
        taken = set(self.indices.values())
        name = index.name
        serial = 2
        while name in taken:
            name = f"{index.name}.{serial}"
            serial += 1
        self.indices[index] = name
        return f"*{name}" if index.pack else name

    @staticmethod
    def _extent(index: Idx) -> str:
        if isinstance(index.extent, tuple):
            return f"[{', '.join(map(str, index.extent))}]"
        return str(index.extent)

    def expr(self, node: GExpr) -> str:
        match node:
            case GLit(value, dtype):
                return f"{_literal(value)}:{dtype}"
            case GDim(dim, dtype):
                return f"dim[{dim}]:{dtype}"
            case GRead(value, axes, dtype):
                inside = f"[{', '.join(map(self._axis, axes))}]" if axes else ""
                return f"{self.use(value)}{inside}:{dtype}"
            case GUnary(op, x, dtype):
                return f"{op}({self.expr(x)}):{dtype}"
            case GBinary(op, a, b, dtype):
                return f"{op}({self.expr(a)}, {self.expr(b)}):{dtype}"
            case GSelect(condition, a, b, dtype, lazy):
                word = "if" if lazy else "select"
                return f"{word}({self.expr(condition)}, {self.expr(a)}, {self.expr(b)}):{dtype}"
            case GCast(x, dtype):
                return f"cast({self.expr(x)}):{dtype}"
            case GReduce(kind, indices, body, accumulate, dtype, stated):
                mark = "!" if stated else ""
                bound = self._indices(indices)
                return f"{kind}<{accumulate}{mark}>[{bound}]({self.expr(body)}):{dtype}"
            case GApply(callee, generics, args, dtype):
                inside = ", ".join(map(self.expr, args))
                return f"apply {callee}{arguments_text(generics)}({inside}):{dtype}"
        raise AssertionError(node)

    def _axis(self, axis: Axis) -> str:
        if isinstance(axis, Idx):
            name = self.indices.get(axis, f"unbound.{axis.name}")
            return f"*{name}" if axis.pack else name
        if isinstance(axis, Dim):
            return f"{{{axis}}}"
        return f"({self.expr(axis)})"


def _literal(value: int | float | bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)


def attribute_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"({', '.join(map(attribute_text, value))})"
    if isinstance(value, Dim):
        return f"[{value}]"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, (int, float)):
        return repr(value)
    raise AssertionError(f"no text for the attribute {value!r}")
