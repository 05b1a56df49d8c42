"""An entry as one C function: everything it calls written into it, in order.

All dimensions are polynomials over the entry's own, so shapes and strides are known symbolically;
arrays of blocks stay loops, over a table with one `weight` for every parameter and state. What
is elementwise stays an expression (`node.py`) until something needs it in memory; what memory
each step touches is noted in `steps.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from linnet.dims import Dim
from linnet.ir import program as ir
from linnet.ir.types import ScalarType, TensorType, Type, dtype_of, shape_of
from linnet.native import elements
from linnet.native.elements import HELD, STORED, c_dim
from linnet.native.frame import (
    CHEAP,
    Choice,
    Frame,
    Function,
    Some,
    Value,
    count_uses,
    effect,
    flat,
    flat_types,
    flatten,
    narrow,
    nodes_of,
    same_place,
    siblings_together,
    view_only,
)
from linnet.native.nest import Nest, outer_index
from linnet.native.node import (
    Buffer,
    Ix,
    Joined,
    Mem,
    Node,
    Scalar,
    Unsupported,
    row_major,
    volume,
)
from linnet.native.steps import Steps

if TYPE_CHECKING:
    from linnet.ir.bound import Bound, Instance
    from linnet.native.ops import Turn
    from linnet.native.table import Table


class Emitter(Steps):
    """Writes one entry. `nests` collects loop nests by their text, shared by all entries."""

    def __init__(
        self,
        bound: Bound,
        table: Table,
        instance: Instance,
        nests: dict[str, str],
        covered: frozenset[int],
        caches: frozenset[tuple[str, str]] = frozenset(),
    ):
        super().__init__()
        self.caches = caches  # states kept in 8 bits
        self.bound, self.table, self.instance = bound, table, instance
        self.nests, self.covered = nests, covered
        self.members: dict[str, Buffer] = {}
        self.pending: list[tuple[Frame, ir.Value, Node]] = []
        self.constants: dict[object, Value] = {}
        self.head: list[str] = []
        self.early: list[str] = []
        self.choices: list[Choice] = []
        self.packable: set[str] = set()  # parameters that kernels for packed weights read
        self.places: dict[str, tuple[str, str]] = {}  # a member's memory → its kind and name
        self.in_range: set[Buffer] = set()  # indices made here that are sound by construction

    def scoped_region(self, frame: Frame, region: ir.Region, targets: list[Node]) -> None:
        """One arm of a branch, its results left in `targets`."""
        mark = len(self.log)
        self.region(frame, region)
        for value, target in zip(region.results, targets, strict=True):
            self.assign(self.node(frame, value), target)
        self.forget(mark)

    def scoped_body(
        self,
        frame: Frame,
        region: ir.Region,
        turns: list[Turn],
        stacks: list[Mem],
        counter: str | None,
        start: Dim,
    ) -> None:
        """One turn of a loop: carried values passed on, yields put in their rows."""
        mark = len(self.log)
        self.fence = True
        params = region.params if counter is None else region.params[1:]
        for param, turn in zip(params, turns, strict=True):
            frame.env[param] = turn.now
        self.region(frame, region)
        results = [self.node(frame, value) for value in region.results]
        for node, turn in zip(results, turns, strict=False):
            self.assign(node, turn.next)
        for node, stack in zip(results[len(turns) :], stacks, strict=True):
            assert counter is not None
            row = (
                stack.offset + Ix(((counter, stack.strides[0]),)) + stack.strides[0] * (-1) * start
            )
            self.copy(node, Mem(stack.buffer, stack.shape[1:], stack.strides[1:], stack.dtype, row))
        for turn in turns:
            self.line(turn.swap)
        self.forget(mark)

    def assign(self, node: Node, target: Node) -> None:
        if isinstance(target, Scalar):
            self.line(f"{target.text} = {self.force(node).text};")
        else:
            assert isinstance(target, Mem)
            self.copy(node, target)

    def note(self, op: ir.Call, callee: Instance, kernel: str | None, reason: str = "") -> None:
        if kernel is None and not reason:
            reason = "no kernel for this op: its body is compiled"
        self.choices.append(Choice(callee.source.id, kernel, reason, str(op.span or "")))

    def settle(self, frame: Frame, regions: Iterable[ir.Region]) -> None:
        """Before a loop or branch: make what it reads that would not be the same inside."""
        from linnet.ir.passes.tools import free_values

        for region in regions:
            for value in sorted(free_values(region), key=lambda v: v.id):
                for node in nodes_of(frame.env.get(value)):
                    if isinstance(node, (Mem, Scalar)) or not node.shape:
                        continue
                    if node.cost > CHEAP or any(not b.constant for b in node.buffers()):
                        self.memory(node)

    # --- The entry -----------------------------------------------------------------

    def run(self, name: str) -> Function:
        instance = self.instance
        bind = {n: Dim.name(n) for n in instance.dims}
        place = Ix() if instance.kind is not None else None
        frame = Frame(instance, {}, bind, place, instance.kind, count_uses(instance.body))
        for position, (value, (_, type)) in enumerate(
            zip(instance.body.params, instance.params, strict=True)
        ):
            frame.env[value] = self.argument(position, type)
        self.region(frame, instance.body)
        (result,) = instance.body.results
        outputs = flatten(self.value(frame, result))
        for position, (node, type) in enumerate(
            zip(outputs, flat_types(instance.result), strict=True)
        ):
            self.output(position, node, type)
        dims = [
            f"const long D_{n.replace('*', 'p_')} = a->dim[{i}]; (void)D_{n.replace('*', 'p_')};"
            for i, n in enumerate(instance.dims)
        ]
        arena = [
            f"char *const {b.name} = a->out[{b.output}]; (void){b.name};"
            if b.output is not None
            else f"char *const {b.name} = a->arena + a->offset[{b.number}]; (void){b.name};"
            for b in self.arena
        ]
        early = [*self.early, "team_meet(c);"] if self.early else []
        body = [*dims, *arena, *self.head, *early, *self.lines]
        steps = ("NEST(", "k_")
        body = [f"STEP({n}, {s})" if s.startswith(steps) else s for n, s in enumerate(body)]
        text = f"void {name}(ctx *c, call *a) {{\n" + "\n".join(body) + "\n}\n"
        for key, (kind, member) in self.places.items():
            if (self.bound.kinds[kind].block, member) in self.caches and key in text:
                raise Unsupported(
                    f"reading `{member}`, a cache in 8 bits, otherwise than attention"
                )
        return Function(name, text, self.arena, self.choices)

    def argument(self, position: int, type: Type) -> Value:
        if isinstance(type, ScalarType):
            name = self.fresh("x")
            held = HELD[type.dtype]
            text = elements.load(f"(({STORED[type.dtype]} *)a->in[{position}])", "0", type.dtype)
            self.head.append(f"const {held} {name} = {text}; (void){name};")
            return Scalar(name, type.dtype)
        if isinstance(type, TensorType):
            name = self.fresh("x")
            self.head.append(f"char *const {name} = a->in[{position}]; (void){name};")
            buffer = Buffer(name, type.dtype, constant=True)
            shape = tuple(type.shape)
            return Mem(buffer, shape, row_major(shape), type.dtype)  # type: ignore[arg-type]
        raise Unsupported(f"an entry argument of type {type}")

    def output(self, position: int, node: Node, type: Type) -> None:
        dtype = dtype_of(type)
        shape: tuple[Dim, ...] = tuple(shape_of(type))  # type: ignore[arg-type]
        if isinstance(node, Mem) and self.whole(node, shape) and node.buffer.output is None:
            node.buffer.output = position  # made where the caller wants it
            return
        name = self.fresh("y")
        self.head.append(f"char *const {name} = a->out[{position}]; (void){name};")
        target = Mem(Buffer(name, dtype), shape, row_major(shape), dtype)
        self.copy(node, target)

    def whole(self, mem: Mem, shape: tuple[Dim, ...]) -> bool:
        """Whether a value is all of a buffer of the arena."""
        buffer = mem.buffer
        return (
            buffer.number >= 0
            and not buffer.alias
            and buffer.last < 1 << 30
            and mem.shape == shape
            and mem.offset == Ix()
            and mem.contiguous()
            and buffer.size == volume(shape)
        )

    # --- Values ------------------------------------------------------------------------

    def value(self, frame: Frame, value: ir.Value) -> Value:
        return frame.env[value]

    def node(self, frame: Frame, value: ir.Value) -> Node:
        found = frame.env[value]
        while isinstance(found, Some):
            found = found.value
        if not isinstance(found, Node):
            raise Unsupported(f"a value of type {value.type} as an operand")
        return found

    def define(self, frame: Frame, value: ir.Value, node: Value) -> None:
        """Bind a result. What is used more than once, and not cheap, is made now."""
        if isinstance(node, Node) and not isinstance(node, (Mem, Scalar)) and node.shape:
            if (node.cost > CHEAP and frame.uses.get(value, 0) > 1) or (
                isinstance(node, Joined)
                and frame.uses.get(value, 0) > 1
                and not all(isinstance(part, Mem) for part in node.parts)
            ):
                node = self.memory(node)
        if isinstance(node, Node) and not isinstance(node, (Mem, Scalar)):
            self.pending.append((frame, value, node))
        frame.env[value] = node

    def memory(self, node: Node) -> Mem:
        """The node in memory, made if it is not."""
        if isinstance(node, Mem):
            return node
        made: Mem | None = getattr(node, "made", None)
        if made is None:
            made = self.new(node.shape, node.dtype)
            self.copy(node, made)
            node.made = made  # type: ignore[attr-defined]
            self.log.append(node)
        return made

    def packed(self, node: Node, axes: int | None = None) -> Mem:
        """In memory with the last `axes` axes (all without) contiguous."""
        mem = self.memory(node)
        if mem.contiguous(axes):
            return mem
        made = self.new(mem.shape, mem.dtype)
        self.copy(mem, made)
        return made

    def simple(self, node: Node) -> Node:
        """Fit to be read element by element inside an expression."""
        made = getattr(node, "made", None)
        if made is not None:
            return made
        return self.memory(node) if isinstance(node, Joined) else node

    def copy(self, node: Node, target: Mem) -> None:
        """Compute every element of `node` into `target`."""
        node = self.simple(node) if not isinstance(node, Joined) else node
        if isinstance(node, Joined):
            start = Dim.const(0)
            for part in node.parts:
                self.copy(part, narrow(target, node.axis, start, part.shape[node.axis]))
                start = start + part.shape[node.axis]
            return
        if isinstance(node, Mem) and same_place(node, target):
            return
        if node.shape != target.shape:
            raise Unsupported(f"a store of shape {node.shape} to {target.shape}")
        node, target = flat(node, target)
        axes = [axis for axis, extent in enumerate(target.shape) if extent.constant != 1]
        nest = Nest([target.shape[axis] for axis in axes] or [Dim.const(1)], self.covered)
        at = [Ix()] * len(target.shape)
        for var, axis in zip(nest.vars, axes, strict=False):
            at[axis] = Ix.of(var)
        value = nest.element(node, at)
        kept = tuple(target.strides[axis] for axis in axes) or (Dim.const(1),)
        nest.store(
            Mem(target.buffer, tuple(nest.extents), kept, target.dtype, target.offset), value
        )
        self.run_nest(nest)

    def run_nest(self, nest: Nest) -> None:
        text, arguments, outer = nest.function()
        name = self.nests.setdefault(text, f"nest_{len(self.nests)}")
        hazard = self.step(nest.reads, nest.writes)
        count = c_dim(volume(nest.extents[:outer]))
        total = c_dim(nest.work())
        call = ", ".join(["lo", "hi", *arguments])
        self.line(f"NEST({hazard}, {count}, {total}, {name}({call}));")

    def force(self, node: Node) -> Scalar:
        """A scalar that control flow needs, the same on every thread."""
        if isinstance(node, Scalar):
            return node
        if not node.buffers():
            nest = Nest([], self.covered)
            return self.held(
                self.scalar_call(nest, nest.element(node, [])[0], node.dtype), node.dtype
            )
        nest = Nest([], self.covered)
        text = nest.element(self.simple(node), [])[0]
        hazard = self.step(node.buffers(), ())
        self.line(f"step_begin(c, {hazard}, 1);")
        return self.held(self.scalar_call(nest, text, node.dtype), node.dtype)

    def scalar_call(self, nest: Nest, text: str, dtype: str) -> str:
        params = ", ".join(d for d, _, _ in nest.params.values()) or "void"
        body = f"({params}) {{\n" + "\n".join([*nest.scopes[0].lines, f"return {text};"]) + "\n}"
        body = f"{HELD[dtype]} {body}"
        name = self.nests.setdefault(body, f"nest_{len(self.nests)}")
        return f"{name}({', '.join(a for _, _, a in nest.params.values())})"

    def held(self, text: str, dtype: str) -> Scalar:
        name = self.fresh("s")
        self.line(f"const {HELD[dtype]} {name} = {text}; (void){name};")
        return Scalar(name, dtype)

    def at_start(self, make: Callable[[], Value]) -> Value:
        """Steps written at the entry's start, before anything that may not run every time."""
        saved, self.lines = self.lines, []
        state = (self.epoch, self.read, self.written, self.fence, self.touched, self.log)
        self.epoch, self.read, self.written, self.touched, self.log = 0, set(), set(), [], []
        self.fence = bool(self.early)
        made = make()
        self.early += self.lines
        self.lines = saved
        self.epoch, self.read, self.written, self.fence, self.touched, self.log = state
        # What is made early lives through the entry.
        for node in nodes_of(made):
            for buffer in node.buffers():
                buffer.first, buffer.last = 0, 1 << 30
        return made

    def sound(self, indices: Mem) -> bool:
        """Whether expert numbers can be trusted: they come from an order of the scores."""
        return indices.buffer in self.in_range

    def unchecked(self, callee: Instance) -> bool:
        """Whether the body has a run-time index that the entry's checks do not cover."""
        for op in callee.body.ops:
            if isinstance(op, ir.Grid):
                for node in ir.walk_expr(op.body):
                    if isinstance(node, ir.GRead):
                        for axis in node.axes:
                            if isinstance(axis, ir.GExpr) and id(axis) not in self.covered:
                                return True
        return False

    # --- Members ------------------------------------------------------------------------

    def member(self, frame: Frame, name: str) -> Mem:
        """A parameter, buffer or state of the block at hand."""
        assert frame.kind is not None and frame.place is not None
        kind = self.bound.kinds[frame.kind]
        member = kind.member(name)
        slot = frame.place + self.table.offset(frame.kind, name)
        assert isinstance(member.type, (TensorType, ScalarType))
        key = f"a->w[{outer_index(slot)}].data"
        self.places[key] = (frame.kind, name)
        buffer = self.members.get(key)
        if buffer is None:
            buffer = Buffer(key, member.type.dtype, constant=member.kind != "state")
            self.members[key] = buffer
        shape = tuple(shape_of(member.type))
        weight = f"&a->w[{outer_index(slot)}]"
        return Mem(
            buffer, shape, row_major(shape), member.type.dtype,  # type: ignore[arg-type]
            param=weight if member.kind != "state" else None,
            state=key if member.kind == "state" else None,
        )  # fmt: skip

    def cache8(self, mem: Mem) -> str | None:
        """The descriptor of a whole state that is kept in 8 bits; None for other memory."""
        if mem.state is None or not self.caches:
            return None
        kind, name = self.places[mem.state]
        if (self.bound.kinds[kind].block, name) not in self.caches:
            return None
        if mem.offset != Ix() or not mem.contiguous():
            raise Unsupported("a part of a cache in 8 bits")
        return f"&{mem.state.removesuffix('.data')}"

    def write_state(self, frame: Frame, name: str, node: Node) -> None:
        target = self.member(frame, name)
        if isinstance(node, Mem) and same_place(node, target):
            return
        self.before_write(target.buffer)
        if target.buffer in node.buffers():
            fresh = self.new(target.shape, target.dtype)
            self.copy(node, fresh)
            node = fresh
        self.copy(node, target)

    def before_write(self, buffer: Buffer) -> None:
        """Expressions not yet computed that read a state take its value as it was."""
        kept = []
        for frame, value, node in self.pending:
            if getattr(node, "made", None) is not None or not frame.left.get(value, 0):
                continue
            if buffer in node.buffers() and node.shape and not view_only(node):
                self.memory(node)
            else:
                kept.append((frame, value, node))
        self.pending = kept

    def make(self, frame: Frame, value: ir.Value) -> None:
        node = frame.env[value]
        if isinstance(node, Node) and not isinstance(node, (Mem, Scalar)):
            frame.env[value] = self.memory(node) if node.shape else self.force(node)

    def may_fail(self, op: ir.Op) -> bool:
        """Whether an operation reads at an index that the entry's checks do not cover."""
        if isinstance(op, ir.Slice):
            return id(op) not in self.covered and any(isinstance(i, ir.AtValue) for i in op.items)
        return isinstance(op, ir.Grid) and any(
            isinstance(axis, ir.GExpr) and id(axis) not in self.covered
            for node in ir.walk_expr(op.body)
            if isinstance(node, ir.GRead)
            for axis in node.axes
        )

    # --- Regions and calls -----------------------------------------------------------------

    def region(self, frame: Frame, region: ir.Region) -> None:
        from linnet.native.ops import HANDLERS

        for op in siblings_together(region.ops, self.bound.functions):
            if op.results and all(value in frame.env for value in op.results):
                continue
            fails = self.may_fail(op)
            used = any(frame.uses.get(value, 0) for value in op.results)
            if not op.results or used or fails or effect(op):
                handler = HANDLERS.get(type(op))
                if handler is None:
                    raise Unsupported(type(op).__name__)
                for value in op.operands():
                    frame.left[value] = frame.left.get(value, 1) - 1
                handler(self, frame, op)
                if fails:  # every element is computed, whichever of them are used
                    self.make(frame, op.result)

    def inline(
        self,
        instance: Instance,
        args: list[Value],
        bind: dict[str, Dim],
        place: Ix | None,
    ) -> Value:
        frame = Frame(instance, {}, bind, place, instance.kind, count_uses(instance.body))
        for value, arg in zip(instance.body.params, args, strict=True):
            self.define(frame, value, arg)
        self.region(frame, instance.body)
        (result,) = instance.body.results
        return frame.env[result]
