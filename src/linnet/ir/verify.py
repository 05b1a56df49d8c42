"""The verifier: scoping, types, index notation, and for each operation its row of `rules.py`.

`verify_program` checks bodies as the checker makes them, `verify_instance` after
specialization and after every pass. Dimensions are equal after normalization, or by the facts
in scope (an op body may rest on `Conv == 2 * K + V`).
"""

from __future__ import annotations

from collections.abc import Iterable

from linnet.dims import Dim, Facts
from linnet.ir.bound import Bound, Instance
from linnet.ir.program import (
    Function,
    GApply,
    GBinary,
    GCast,
    GExpr,
    GRead,
    GReduce,
    GSelect,
    GUnary,
    Idx,
    Op,
    Program,
    Region,
    Value,
)
from linnet.ir.rules import COMPARISONS, RULES
from linnet.ir.types import (
    OptionalType,
    Pack,
    Shape,
    StructType,
    TensorType,
    TupleType,
    Type,
    dtype_of,
    shape_of,
)


class Invalid(AssertionError):
    """A rule is broken; the message names the function, the operation and the rule."""


def verify_program(program: Program) -> None:
    for function in program.functions.values():
        block = program.blocks.get(function.block or "")
        facts = Facts((*function.where, *(block.where if block else ())))
        problems = Verifier(facts, program=program).run(function)
        _raise(function.id, problems)


def verify_instance(instance: Instance, bound: Bound) -> None:
    _raise(instance.id, Verifier(instance.facts(), bound=bound).run(instance))


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
            self.need(
                self.same(param.type, type), "parameter {} is {}, not {}", name, param.type, type
            )
        self.region(function.body, scope)
        self.op = None
        for result in function.body.results:
            self.need(self.same(result.type, function.result), "result is {}", result.type)
        return self.problems

    def need(self, holds: object, rule: str, *about: object) -> None:
        if not holds:
            where = ""
            if self.op is not None:
                names = ", ".join(map(repr, self.op.results))
                where = f"{type(self.op).__name__} [{names}]: "
            self.problems.append(where + (rule.format(*about) if about else rule))

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
                one = isinstance(a, Dim) and self.facts.equal(a, Dim.const(1))
                if not one and not self.equal(a, b):
                    return False
        return True

    # --- regions ---------------------------------------------------------------------------

    def region(self, region: Region, above: set[Value]) -> None:
        scope = set(above)
        scope.update(region.params)
        for op in region.ops:
            self.op = op
            for value in op.operands():
                self.need(value in scope, "{!r} is used before it is defined", value)
            for result in op.results:
                self.need(result not in scope, "{!r} is defined twice", result)
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
            self.need(result in scope, "the region's result {!r} is not in scope", result)

    def results(self, op: Op, wanted: int) -> None:
        self.need(len(op.results) == wanted, "has {} results, not {}", len(op.results), wanted)

    def branches(self, op: Op, regions: list[Region]) -> None:
        for region in regions:
            self.need(len(region.results) == len(op.results), "a branch gives another count")
            for got, wanted in zip(region.results, op.results, strict=False):
                self.need(self.same(got.type, wanted.type), "a branch gives {}", got.type)

    # --- index notation -----------------------------------------------------------------------

    def expr(self, node: GExpr, scope: set[Idx]) -> None:
        match node:
            case GRead(value, axes, dtype):
                self.need(dtype_of(value.type) == dtype, "reads {!r} as {}", value, dtype)
                shape = shape_of(value.type)
                self.access(axes, shape, value, scope)
            case GUnary(_, x):
                self.need(x.dtype == node.dtype, "a unary changes the dtype")
                self.expr(x, scope)
            case GCast(x):
                self.expr(x, scope)
            case GBinary(op, a, b):
                self.need(a.dtype == b.dtype, "{} of {} and {}", op, a.dtype, b.dtype)
                self.need(node.dtype == ("bool" if op in COMPARISONS else a.dtype), "{} dtype", op)
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
                self.need(callee in known, "calls {}, which does not exist", callee)
                for arg in args:
                    self.expr(arg, scope)

    def access(self, axes: Iterable[object], shape: Shape, value: Value, scope: set[Idx]) -> None:
        """Every axis is indexed, several by one pack of indices."""
        position = 0
        for axis in axes:
            taken = 1
            if isinstance(axis, Idx):
                self.need(axis in scope, "index {} is not bound", axis.name)
                own = axis.extent if isinstance(axis.extent, tuple) else (axis.extent,)
                taken = len(own)
                over = shape[position : position + taken]
                self.need(self.same_shape(own, over), "index {} over {}", axis.name, over)
            elif position < len(shape):
                self.axis(axis, shape[position], scope)
            position += taken
        self.need(position == len(shape), "{} axes for {!r}", position, value)

    def axis(self, axis: object, extent: Dim | Pack, scope: set[Idx]) -> None:
        if isinstance(axis, Dim):
            if not isinstance(extent, Pack):
                self.need(self.facts.holds("<", axis, extent), "index {} within {}", axis, extent)
        elif isinstance(axis, GExpr):
            self.expr(axis, scope)
