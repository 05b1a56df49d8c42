"""The reference evaluator: a specialized program walked operation by operation.

This is what `exact` means. Nothing here is clever: every op runs as its Linnet body, index
notation by broadcasting, run-time indices are checked where they are used. States are
written to a journal and committed when an entry has succeeded, so that an error leaves them
as they were.

Values are torch carriers (see `dtypes`); scalars are of rank 0. `none` is None, `some(x)` is
x (wrapped only where x is itself optional), tuples and structs are Python tuples, an enum's
value is its position.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from linnet.errors import InputError
from linnet.ir import program as ir
from linnet.ir.effects import walk_ops
from linnet.ir.types import (
    OptionalType,
    ScalarType,
    StructType,
    TensorType,
    Type,
    dtype_of,
    shape_of,
)
from linnet.torch import dtypes, elementwise
from linnet.torch.block import Block, attribute
from linnet.torch.grid import GridWalk

if TYPE_CHECKING:
    from linnet.ir.specialize import Bound, Instance

Env = dict[ir.Value, Any]
Dims = dict[str, int]
Watch = Callable[["Block | None", str, Any], None]


class Some:
    """`some(x)` where x is itself optional."""

    __slots__ = ("value",)

    def __init__(self, value: Any):
        self.value = value


def storage(x: Tensor) -> int:
    """Where a tensor's memory begins; 0 for one that has none of its own."""
    plain = type(x) in (Tensor, torch.nn.Parameter)
    return x.untyped_storage().data_ptr() if plain else 0


class Evaluator:
    """Runs instances of `bound`. `watch` sees (block, name, result) of every named value; a
    value inside a free function is named after it too (`rope.turned`)."""

    def __init__(
        self, bound: Bound, device: torch.device | str = "cpu", watch: Watch | None = None
    ):
        self.bound = bound
        self.device = torch.device(device)
        self.watch = watch
        self.journal: dict[tuple[Block, str], Tensor] = {}
        self.members: set[int] = set()  # where the members read lie

    def run(self, entry: str, root: Block | None, args: list[Any], dims: Dims) -> Any:
        """Call an instance by its id and commit the states that it wrote.

        A state written with what another one held, and a result that is a state, are copied:
        no write may change them afterwards.
        """
        self.journal, self.members = {}, set()
        try:
            result = self.call(self.bound.functions[entry], root, args, dims)
            written = [(key, self.apart(tensor)) for key, tensor in self.journal.items()]
            result = self.apart(result)
            for (block, name), tensor in written:
                self.commit(block, name, tensor)
            return result
        finally:
            self.journal, self.members = {}, set()

    def apart(self, value: Any) -> Any:
        """A value that shares no memory with a member of a block."""
        if isinstance(value, Tensor):
            at = storage(value)
            return value.clone() if at and at in self.members else value
        if isinstance(value, tuple):
            return tuple(self.apart(item) for item in value)
        return Some(self.apart(value.value)) if isinstance(value, Some) else value

    def commit(self, block: Block, name: str, tensor: Tensor) -> None:
        held = getattr(block, name)
        if held is not None and not torch.is_grad_enabled():
            held.copy_(tensor)
        else:
            setattr(block, name, tensor)

    def call(self, instance: Instance, block: Block | None, args: list[Any], dims: Dims) -> Any:
        env: Env = dict(zip(instance.body.params, args, strict=True))
        label = "" if instance.kind is not None else f"{instance.source.name}."
        return Frame(self, block, env, dims, label).region(instance.body)[0]


class Frame:
    """One call in progress: its values, its dimension bindings and its block."""

    __slots__ = ("evaluator", "block", "env", "dims", "label")

    def __init__(
        self, evaluator: Evaluator, block: Block | None, env: Env, dims: Dims, label: str = ""
    ):
        self.evaluator, self.block, self.env, self.dims = evaluator, block, env, dims
        self.label = label

    def region(self, region: ir.Region, args: list[Any] | None = None) -> list[Any]:
        env = self.env
        if args is not None:
            env.update(zip(region.params, args, strict=True))
        watch = self.evaluator.watch
        for op in region.ops:
            results = self.step(op)
            for value, result in zip(op.results, results, strict=True):
                env[value] = result
                if watch is not None and value.name:
                    watch(self.block, f"{self.label}{value.name}", result)
        return [env[value] for value in region.results]

    def shape(self, type: Type) -> list[int]:
        return [dim.evaluate(self.dims) for dim in shape_of(type)]  # type: ignore[union-attr]

    def constant(self, value: int | float | bool, type: Type) -> Any:
        if isinstance(type, ScalarType):
            return dtypes.constant(value, dtype_of(type), self.evaluator.device)
        return value  # an enum's variant

    def step(self, op: ir.Op) -> list[Any]:
        handler = _STEPS.get(type(op))
        if handler is None:
            raise AssertionError(f"the evaluator has no rule for {type(op).__name__}")
        try:
            return handler(self, op)
        except InputError:
            raise
        except RuntimeError as error:  # torch's own: out of memory, mostly
            raise type(error)(f"{op.span or ''}: {error}") from error

    # --- Elementwise ---------------------------------------------------------

    def const(self, op: ir.Const) -> list[Any]:
        return [self.constant(op.value, op.result.type)]

    def dim_value(self, op: ir.DimValue) -> list[Any]:
        return [self.constant(op.dim.evaluate(self.dims), op.result.type)]

    def unary(self, op: ir.Unary) -> list[Any]:
        return [elementwise.unary(op.op, self.env[op.x], dtype_of(op.x.type))]

    def binary(self, op: ir.Binary) -> list[Any]:
        a, b = self.env[op.a], self.env[op.b]
        if isinstance(a, int) and isinstance(b, int):  # two values of an enum
            equal = a == b
            return [torch.tensor(equal if op.op == "eq" else not equal)]
        return [elementwise.binary(op.op, a, b, dtype_of(op.a.type), op.span)]

    def select(self, op: ir.Select) -> list[Any]:
        return [torch.where(self.env[op.condition], self.env[op.a], self.env[op.b])]

    def cast(self, op: ir.Cast) -> list[Any]:
        return [dtypes.cast(self.env[op.x], dtype_of(op.x.type), dtype_of(op.result.type))]

    # --- Shapes --------------------------------------------------------------

    def reshape(self, op: ir.Reshape) -> list[Any]:
        return [self.env[op.x].reshape(self.shape(op.result.type))]

    def permute(self, op: ir.Permute) -> list[Any]:
        return [self.env[op.x].permute(op.axes)]

    def broadcast(self, op: ir.Broadcast) -> list[Any]:
        return [self.env[op.x].expand(self.shape(op.result.type))]

    def concat(self, op: ir.Concat) -> list[Any]:
        return [torch.cat([self.env[x] for x in op.xs], op.axis)]

    def slice(self, op: ir.Slice) -> list[Any]:
        x = self.env[op.x]
        axis = 0
        for number, item in enumerate(op.items):
            match item:
                case ir.Keep():
                    axis += 1
                case ir.At(index):
                    x = x.select(axis, index.evaluate(self.dims))
                case ir.AtValue(value):
                    at, extent = int(self.env[value]), x.shape[axis]
                    if not 0 <= at < extent:
                        raise InputError(
                            f"{op.span}: index {at} is outside axis {number} of "
                            f"{op.x.name or 'the tensor'}, which has extent {extent}"
                        )
                    x = x.select(axis, at)
                case ir.Range(start, stop, step):
                    a, b = start.evaluate(self.dims), stop.evaluate(self.dims)
                    items = [slice(None)] * axis + [slice(a, b, step)]
                    x = x[tuple(items)]
                    axis += 1
        return [x]

    def iota(self, op: ir.Iota) -> list[Any]:
        (n,) = self.shape(op.result.type)
        dtype = dtype_of(op.result.type)
        numbers = torch.arange(n, device=self.evaluator.device)
        return [dtypes.cast(numbers, "i64", dtype)]

    def fill(self, op: ir.Fill) -> list[Any]:
        return [self.env[op.x].expand(self.shape(op.result.type))]

    def cumsum(self, op: ir.Cumsum) -> list[Any]:
        dtype = dtype_of(op.result.type)
        x = self.env[op.x]
        if dtype in dtypes.NARROW_FLOATS:
            return [torch.cumsum(x.float(), op.axis).to(x.dtype)]
        if dtype in dtypes.FLOATS:
            return [torch.cumsum(x, op.axis)]
        return [dtypes.wrap(torch.cumsum(x, op.axis, dtype=torch.int64), dtype).to(x.dtype)]

    def grid(self, op: ir.Grid) -> list[Any]:
        walk = GridWalk(op, self.env.__getitem__, self.dims, self.apply, self.evaluator.device)
        return [walk.run()]

    # --- Aggregates ----------------------------------------------------------

    def make_tuple(self, op: ir.MakeTuple | ir.MakeStruct) -> list[Any]:
        return [tuple(self.env[item] for item in op.items)]

    def tuple_get(self, op: ir.TupleGet) -> list[Any]:
        return [self.env[op.x][op.index]]

    def get_field(self, op: ir.GetField) -> list[Any]:
        assert isinstance(op.x.type, StructType)
        names = [name for name, _ in op.x.type.fields]
        return [self.env[op.x][names.index(op.name)]]

    def make_some(self, op: ir.MakeSome) -> list[Any]:
        value = self.env[op.x]
        return [Some(value) if isinstance(op.x.type, OptionalType) else value]

    def make_none(self, op: ir.MakeNone) -> list[Any]:
        return [None]

    # --- Control -------------------------------------------------------------

    def branch(self, op: ir.If) -> list[Any]:
        return self.region(op.then if bool(self.env[op.condition]) else op.orelse)

    def match_optional(self, op: ir.MatchOptional) -> list[Any]:
        x = self.env[op.x]
        if x is None:
            return self.region(op.none)
        return self.region(op.some, [x.value if isinstance(x, Some) else x])

    def match_sub(self, op: ir.MatchSub) -> list[Any]:
        present = getattr(self.block, attribute(op.member)) is not None
        return self.region(op.some if present else op.none)

    def match_enum(self, op: ir.MatchEnum) -> list[Any]:
        return self.region(op.arms[int(self.env[op.x])])

    def loop(self, op: ir.Loop) -> list[Any]:
        start, stop = op.start.evaluate(self.dims), op.stop.evaluate(self.dims)
        carried = [self.env[value] for value in op.init]
        yields: list[list[Any]] = [[] for _ in op.results[len(carried) :]]
        for i in range(start, stop):
            counter = torch.tensor(i, device=self.evaluator.device)
            results = self.region(op.body, [counter, *carried])
            carried = results[: len(carried)]
            for column, item in zip(yields, results[len(carried) :], strict=True):
                column.append(item)
        stacked = [
            self.stack(column, value.type)
            for column, value in zip(yields, op.results[len(carried) :], strict=True)
        ]
        return [*carried, *stacked]

    def stack(self, column: list[Any], type: Type) -> Any:
        if column:
            return torch.stack(column)
        assert isinstance(type, TensorType)
        dtype = dtypes.CARRIER[type.dtype]
        return torch.empty(self.shape(type), dtype=dtype, device=self.evaluator.device)

    def loop_while(self, op: ir.While) -> list[Any]:
        carried = [self.env[value] for value in op.init]
        while bool(self.region(op.condition, carried)[0]):
            carried = self.region(op.body, carried)
        return carried

    # --- Blocks, calls, effects -----------------------------------------------

    def receiver(self, steps: tuple[ir.Step, ...]) -> Block:
        block: Any = self.block
        for step in steps:
            block = getattr(block, attribute(step.name))
            if isinstance(step.index, ir.Value):
                block = block[int(self.env[step.index])]
            elif step.index is not None:
                block = block[step.index.evaluate(self.dims)]
        return block

    def call(self, op: ir.Call) -> list[Any]:
        instance = self.evaluator.bound.functions[op.callee]
        block = None if op.receiver is None else self.receiver(op.receiver)
        dims = self.bind(instance, op.generics)
        args = [self.env[arg] for arg in op.args]
        return [self.evaluator.call(instance, block, args, dims)]

    def bind(self, instance: Instance, generics: tuple[Any, ...]) -> Dims:
        return {
            name: dim.evaluate(self.dims) for name, dim in zip(instance.dims, generics, strict=True)
        }

    def read_member(self, op: ir.ReadMember) -> list[Any]:
        assert self.block is not None
        name = attribute(op.name)
        written = self.evaluator.journal.get((self.block, name))
        if written is not None:
            return [written]
        held = getattr(self.block, name)
        if isinstance(held, Tensor):
            self.evaluator.members.add(storage(held))
        return [held]

    def state_write(self, op: ir.StateWrite) -> list[Any]:
        assert self.block is not None
        self.evaluator.journal[self.block, attribute(op.name)] = self.env[op.value]
        return []

    # --- Scalar functions inside index notation -----------------------------------

    def apply(self, node: ir.GApply, args: list[Tensor], mask: Tensor | None) -> Tensor:
        """A scalar function on aligned tensors, every element a lane of its own.

        A lane that `mask` does not want fails no check, and its value is any.
        """
        instance = self.evaluator.bound.functions[node.callee]
        dims = self.bind(instance, node.generics)
        aligned = [*args] if mask is None else [*args, mask]
        shape = torch.broadcast_shapes(*(x.shape for x in aligned))
        if _of_scalars(instance.body, self.evaluator.bound):
            env: Env = dict(zip(instance.body.params, args, strict=True))
            lanes = Lanes(self.evaluator, None, env, dims, mask=mask)
            return lanes.region(instance.body)[0].expand(shape)
        # It works on tensors of its own: one lane after the other.
        columns = [x.expand(shape).flatten() for x in args]
        wanted = None if mask is None else mask.expand(shape).flatten().tolist()
        dtype = dtypes.CARRIER[dtype_of(instance.result)]
        result = torch.zeros(math.prod(shape), dtype=dtype, device=self.evaluator.device)
        for i in range(result.numel()):
            if wanted is None or wanted[i]:
                result[i] = self.evaluator.call(instance, None, [x[i] for x in columns], dims)
        return result.reshape(shape)


def _of_scalars(body: ir.Region, bound: Bound) -> bool:
    """Whether a function works on scalars alone, so that all lanes run at once."""
    for op in walk_ops(body):
        if isinstance(op, ir.Grid) or not all(isinstance(v.type, ScalarType) for v in op.results):
            return False
        if isinstance(op, ir.Call) and not _of_scalars(bound.functions[op.callee].body, bound):
            return False
    return True


class Lanes(Frame):
    """A frame whose scalars are tensors of lanes: both branches of an `if` run.

    `mask`: the lanes whose values are wanted; the others fail no check and end no loop late.
    """

    __slots__ = ("mask",)

    def __init__(self, *args: Any, mask: Tensor | None = None):
        super().__init__(*args)
        self.mask = mask

    def within(self, condition: Tensor, region: ir.Region, args: list[Any] | None) -> list[Any]:
        outer = self.mask
        self.mask = condition if outer is None else outer & condition
        try:
            return self.region(region, args)
        finally:
            self.mask = outer

    def binary(self, op: ir.Binary) -> list[Any]:
        a, b, dtype = self.env[op.a], self.env[op.b], dtype_of(op.a.type)
        if self.mask is not None and op.op in ("div", "rem") and dtype not in dtypes.FLOATS:
            b = torch.where(self.mask, b, torch.ones_like(b))
        return [elementwise.binary(op.op, a, b, dtype, op.span)]

    def branch(self, op: ir.If) -> list[Any]:
        condition = self.env[op.condition]
        if condition.dim() == 0:
            return super().branch(op)
        first = self.within(condition, op.then, None)
        second = self.within(~condition, op.orelse, None)
        return [torch.where(condition, a, b) for a, b in zip(first, second, strict=True)]

    def call(self, op: ir.Call) -> list[Any]:
        instance = self.evaluator.bound.functions[op.callee]
        env: Env = dict(zip(instance.body.params, (self.env[a] for a in op.args), strict=True))
        dims = self.bind(instance, op.generics)
        inner = Lanes(self.evaluator, None, env, dims, mask=self.mask)
        return [inner.region(instance.body)[0]]

    def loop_while(self, op: ir.While) -> list[Any]:
        carried = [self.env[value] for value in op.init]
        outer, active = self.mask, self.mask
        try:
            while True:
                self.mask = active  # a lane that has ended computes no condition again
                goes_on = self.region(op.condition, carried)[0]
                active = goes_on if active is None else active & goes_on
                if not bool(active.any()):
                    return carried
                self.mask = active
                following = self.region(op.body, carried)
                carried = [
                    torch.where(active, b, a) for a, b in zip(carried, following, strict=True)
                ]
        finally:
            self.mask = outer


_STEPS: dict[type, Callable[[Any, Any], list[Any]]] = {
    ir.Const: lambda f, op: f.const(op),
    ir.DimValue: lambda f, op: f.dim_value(op),
    ir.Unary: lambda f, op: f.unary(op),
    ir.Binary: lambda f, op: f.binary(op),
    ir.Select: lambda f, op: f.select(op),
    ir.Cast: lambda f, op: f.cast(op),
    ir.Reshape: lambda f, op: f.reshape(op),
    ir.Permute: lambda f, op: f.permute(op),
    ir.Broadcast: lambda f, op: f.broadcast(op),
    ir.Concat: lambda f, op: f.concat(op),
    ir.Slice: lambda f, op: f.slice(op),
    ir.Iota: lambda f, op: f.iota(op),
    ir.Fill: lambda f, op: f.fill(op),
    ir.Cumsum: lambda f, op: f.cumsum(op),
    ir.Grid: lambda f, op: f.grid(op),
    ir.MakeTuple: lambda f, op: f.make_tuple(op),
    ir.TupleGet: lambda f, op: f.tuple_get(op),
    ir.MakeStruct: lambda f, op: f.make_tuple(op),
    ir.GetField: lambda f, op: f.get_field(op),
    ir.MakeSome: lambda f, op: f.make_some(op),
    ir.MakeNone: lambda f, op: f.make_none(op),
    ir.If: lambda f, op: f.branch(op),
    ir.MatchOptional: lambda f, op: f.match_optional(op),
    ir.MatchSub: lambda f, op: f.match_sub(op),
    ir.MatchEnum: lambda f, op: f.match_enum(op),
    ir.Loop: lambda f, op: f.loop(op),
    ir.While: lambda f, op: f.loop_while(op),
    ir.Call: lambda f, op: f.call(op),
    ir.ReadMember: lambda f, op: f.read_member(op),
    ir.StateWrite: lambda f, op: f.state_write(op),
}
