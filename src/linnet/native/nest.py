"""One loop nest as a C function: elements of nodes computed and stored.

Loops have scopes, from the outermost in. Every intermediate becomes a C variable in the innermost
scope whose loop it depends on, so that what is the same for a whole row is computed once a row; a
reduction is a loop of its own in such a scope. Pointers, sizes and scalars are parameters in
order of use: equal nests come out as equal text and are compiled once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from linnet.dims import Dim
from linnet.ir import program as ir
from linnet.ir.types import FLOATS
from linnet.native import elements
from linnet.native.elements import HELD, STORED, c_dim
from linnet.native.node import (
    Buffer,
    Comprehension,
    Counted,
    Ix,
    Mem,
    Node,
    Operand,
    Scalar,
    Unsupported,
)

NONE: frozenset[str] = frozenset()
SLOW = re.compile(r"\b(m_|exp|log|sin|cos|tanh)")


@dataclass(eq=False)
class Scope:
    var: str | None
    lines: list[str] = field(default_factory=list)
    memo: dict[object, Operand] = field(default_factory=dict)
    heavy: bool = False  # holds a reduction
    work: Dim = field(default_factory=lambda: Dim.const(1))  # operations of one turn


class Nest:
    """`covered`: run-time indices (by identity) that the entry's checks keep in range."""

    def __init__(self, extents: Sequence[Dim], covered: frozenset[int]):
        self.covered = covered
        self.extents = list(extents)
        self.vars = [f"v{i}" for i in range(len(extents))]
        self.chain = [Scope(None)] + [Scope(var) for var in self.vars]
        self.scopes = list(self.chain)
        self.params: dict[object, tuple[str, str, str]] = {}  # key → (declaration, name, argument)
        self.counts: dict[str, int] = {}
        self.deps: dict[str, frozenset[str]] = {}
        self.reads: set[Buffer] = set()
        self.writes: set[Buffer] = set()
        self.open: list[Comprehension] = []
        self.wanted: Operand | None = None  # where the element at hand is wanted; None: everywhere
        for var in self.vars:
            self.deps[var] = frozenset((var,))

    # --- Names and parameters ------------------------------------------------

    def fresh(self, stem: str) -> str:
        number = self.counts.get(stem, 0)
        self.counts[stem] = number + 1
        return f"{stem}{number}"

    def param(self, key: object, type: str, stem: str, argument: str) -> str:
        known = self.params.get(key)
        if known is None:
            name = self.fresh(stem)
            known = self.params[key] = (f"{type}{name}", name, argument)
        return known[1]

    def dim(self, dim: Dim) -> str:
        if dim.constant is not None:
            return c_dim(dim)
        return self.param(dim, "const long ", "d", c_dim(dim))

    def scalar(self, node: Scalar) -> str:
        if node.value is not None:
            return node.text
        held = HELD[node.dtype]
        return self.param(("scalar", node.text), f"const {held} ", "s", node.text)

    def pointer(self, mem: Mem, writes: bool = False) -> str:
        offset = outer_index(mem.offset)
        base = f"(({STORED[mem.dtype]} *){mem.buffer.name})"
        argument = base if offset == "0" else f"{base} + {offset}"
        key = (mem.buffer, mem.offset, mem.dtype)
        (self.writes if writes else self.reads).update(mem.buffer.roots)
        return self.param(key, f"{STORED[mem.dtype]} *__restrict ", "p", argument)

    def index(self, ix: Ix) -> Operand:
        parts, deps = [], NONE
        for name, coefficient in ix.terms:
            if name in self.deps:
                deps = deps | self.deps[name]
            else:
                name = self.param(("index", name), "const long ", "i", name)
            if coefficient.constant == 1:
                parts.append(name)
            elif coefficient.constant == -1:
                parts.append(f"-{name}")
            else:
                parts.append(f"{name} * {self.dim(coefficient)}")
        if ix.const.constant != 0 or not parts:
            parts.append(self.dim(ix.const))
        return " + ".join(parts), deps

    # --- Scopes ---------------------------------------------------------------

    def place(self, deps: frozenset[str]) -> int:
        for depth in range(len(self.chain) - 1, 0, -1):
            if self.chain[depth].var in deps:
                return depth
        return 0

    def temp(self, type: str, text: str, deps: frozenset[str]) -> str:
        name = self.fresh("t")
        scope = self.chain[self.place(deps)]
        scope.lines.append(f"const {type} {name} = {text};")
        scope.work = scope.work + (12 if SLOW.search(text) else 1)
        self.deps[name] = deps
        return name

    def recall(self, key: object) -> Operand | None:
        for scope in reversed(self.chain):
            if key in scope.memo:
                return scope.memo[key]
        return None

    def keep(self, key: object, type: str, made: Operand) -> Operand:
        text, deps = made
        if not text.isidentifier() and not text.replace(".", "").rstrip("fL").isdigit():
            text = self.temp(type, text, deps)
        self.chain[self.place(deps)].memo[key] = (text, deps)
        return text, deps

    # --- Elements ---------------------------------------------------------------

    def element(self, node: Node, at: Sequence[Ix]) -> Operand:
        key = (id(node), tuple(at), self.wanted)
        known = self.recall(key)
        if known is None:
            known = self.keep(key, HELD[node.dtype], node.element(self, at))
        return known

    def load(self, mem: Mem, at: Sequence[Ix]) -> Operand:
        where = Ix()
        for ix, stride in zip(at, mem.strides, strict=True):
            where = where + ix * stride
        pointer = self.pointer(mem)
        text, deps = self.index(where)
        return elements.load(pointer, text, mem.dtype), deps

    def expression(
        self, owner: Comprehension, node: ir.GExpr, env: dict[ir.Idx, Ix], wide: bool
    ) -> Operand:
        """A scalar expression of a grid. `wide`: bf16 and f16 results stay f32."""
        match node:
            case ir.GLit(value, dtype):
                return elements.literal(value, dtype), NONE
            case ir.GDim(dim, dtype):
                dim = dim.substitute(owner.bind)
                if dim.constant is not None:
                    return elements.literal(dim.constant, dtype), NONE
                return elements.cast(f"(int64_t){self.dim(dim)}", "i64", dtype), NONE
            case ir.GRead(value, axes):
                at = [self.axis(owner, node, n, axis, env) for n, axis in enumerate(axes)]
                return self.element(owner.read[value], at)
            case ir.GReduce():
                return self.reduction(owner, node, env, wide)
            case ir.GUnary(op, x, dtype):
                text, deps = self.expression(owner, x, env, wide)
                text = elements.unary(op, text, x.dtype, wide)
            case ir.GCast(x, dtype):
                text, deps = self.expression(owner, x, env, wide)
                text = elements.cast(
                    text,
                    x.dtype,
                    "f32"
                    if wide and dtype in elements.NARROW and x.dtype in FLOATS and x.dtype != "f64"
                    else dtype,
                )
            case ir.GBinary(op, a, b, dtype):
                left, d1 = self.expression(owner, a, env, wide)
                right, d2 = self.expression(owner, b, env, wide)
                text, deps = elements.binary(op, left, right, a.dtype, wide), d1 | d2
            case ir.GSelect(condition, a, b, dtype, lazy):
                chosen = self.expression(owner, condition, env, wide)
                parts = [chosen]
                for branch, sign in ((a, ""), (b, "!")):
                    outer = self.wanted
                    if lazy:
                        self.wanted = self.also(outer, f"{sign}({chosen[0]})", chosen[1])
                    parts.append(self.expression(owner, branch, env, wide))
                    self.wanted = outer
                text = "(({}) ? ({}) : ({}))".format(*(t for t, _ in parts))
                deps = frozenset().union(*(d for _, d in parts))
            case _:
                raise Unsupported(f"{type(node).__name__} in index notation")
        return self.temp(HELD[dtype], text, deps), deps

    def also(self, outer: Operand | None, text: str, deps: frozenset[str]) -> Operand:
        """A condition within another, as a variable of its own."""
        if outer is not None:
            text, deps = f"{outer[0]} && {text}", outer[1] | deps
        return self.temp("int", text, deps), deps

    def axis(
        self,
        owner: Comprehension,
        read: ir.GRead,
        number: int,
        axis: ir.Axis,
        env: dict[ir.Idx, Ix],
    ) -> Ix:
        if isinstance(axis, ir.Idx):
            return env[axis]
        if isinstance(axis, Dim):
            return Ix.of(axis.substitute(owner.bind))
        form = self.linear(owner, axis, env)
        if form is not None:
            return form
        text, deps = self.expression(owner, axis, env, False)
        if id(axis) not in self.covered:
            extent = self.dim(owner.read[read.value].shape[number])
            error = self.param("error", "int64_t *", "e", "&a->error")
            if self.wanted is None:
                text = f"clamp_index({text}, {extent}, {error})"
            else:
                text = f"clamp_wanted({self.wanted[0]}, {text}, {extent}, {error})"
                deps = deps | self.wanted[1]
        return Ix.of(self.temp("long", text, deps))

    def linear(self, owner: Comprehension, node: ir.GExpr, env: dict[ir.Idx, Ix]) -> Ix | None:
        """An index expression that is a linear form of indices: in range by the type rules
        wherever the entry's checks cover it, which is asked of the caller."""
        if id(node) not in self.covered:
            return None
        wide = node.dtype in ("i32", "i64")  # narrow and unsigned sums wrap
        if not wide and not isinstance(node, (ir.GLit, ir.GRead)):
            return None
        match node:
            case ir.GLit(value, _):
                return Ix.of(int(value))
            case ir.GDim(dim, _):
                return Ix.of(dim.substitute(owner.bind))
            case ir.GRead(value, (ir.Idx() as index,)):
                source = owner.read[value]
                if isinstance(source, Counted) and (wide or source.fits()):
                    return env[index] + source.start
            case ir.GCast(x, _):
                return self._part(owner, x, env)
            case ir.GBinary("add" | "sub" as op, a, b, _):
                left, right = self._part(owner, a, env), self._part(owner, b, env)
                if left is not None and right is not None:
                    return left + (right if op == "add" else right * -1)
        return None

    def _part(self, owner: Comprehension, node: ir.GExpr, env: dict[ir.Idx, Ix]) -> Ix | None:
        covered, self.covered = self.covered, self.covered | {id(node)}
        try:
            return self.linear(owner, node, env)
        finally:
            self.covered = covered

    # --- Reductions --------------------------------------------------------------

    def reduction(
        self, owner: Comprehension, node: ir.GReduce, env: dict[ir.Idx, Ix], wide: bool
    ) -> Operand:
        # Where it is wanted is asked for wrong indices within it.
        deps = NONE if self.wanted is None else self.wanted[1]
        for index in used(node):
            if index in env:
                deps = deps | self.index(env[index])[1]
        key = (
            id(node),
            id(owner),
            tuple(env[i] for i in used(node) if i in env),
            wide,
            self.wanted,
        )
        known = self.recall(key)
        if known is not None:
            return known
        depth = self.place(deps)
        saved = self.chain
        chain = saved[: depth + 1]
        inner = dict(env)
        opened: list[tuple[Scope, str, str]] = []
        for index in node.indices:
            extent = index.extent
            assert isinstance(extent, Dim)
            var = self.fresh("r")
            self.deps[var] = frozenset((var,))
            scope = Scope(var)
            chain = [*chain, scope]
            opened.append((scope, var, self.dim(extent.substitute(owner.bind))))
            inner[index] = Ix.of(var)
        self.chain = chain
        narrow = node.body.dtype in elements.NARROW
        text, _ = self.expression(owner, node.body, inner, wide or (narrow and not node.stated))
        self.chain = saved
        dtype = node.accumulate if node.kind in ("sum", "prod") else node.dtype
        held = HELD[dtype]
        name = self.fresh("a")
        start, step, clause = {
            "sum": ("0", f"{name} + ({text})", "+"),
            "prod": ("1", f"{name} * ({text})", "*"),
            "max": (elements.lowest(dtype), elements.binary("max", name, text, dtype), "max"),
            "min": (elements.highest(dtype), elements.binary("min", name, text, dtype), "min"),
            "any": ("0", f"{name} | ({text})", "|"),
            "all": ("1", f"{name} & ({text})", "&"),
        }[node.kind]
        lines = saved[depth].lines
        saved[depth].heavy = True
        work, turns = Dim.const(1), Dim.const(1)
        for (scope, _, _), index in zip(opened, node.indices, strict=True):
            assert isinstance(index.extent, Dim)
            turns = turns * index.extent.substitute(owner.bind)
            work = work + turns * scope.work
        saved[depth].work = saved[depth].work + work
        lines.append(f"{held} {name} = {start};")
        for position, (scope, var, size) in enumerate(opened):
            if (
                position == len(opened) - 1
                and clause in "+*|&"
                and not any("for (" in line for line in scope.lines)
            ):
                lines.append(f"#pragma omp simd reduction({clause} : {name})")
            lines.append(f"for (long {var} = 0; {var} < {size}; {var}++) {{")
            lines.extend(scope.lines)
        step = f"({held})({step})"
        lines.append(f"{name} = {step};" if clause not in "+*|&" else f"{name} {clause}= {text};")
        lines.append("}" * len(opened))
        result = name
        if dtype != node.dtype and not (wide and node.dtype in elements.NARROW):
            result = self.temp(HELD[node.dtype], elements.cast(name, dtype, node.dtype), deps)
        self.deps[name] = deps
        saved[depth].memo[key] = (result, deps)
        return result, deps

    # --- The whole ----------------------------------------------------------------

    def store(self, target: Mem, value: Operand) -> None:
        where = Ix()
        for var, stride in zip(self.vars, target.strides, strict=True):
            where = where + Ix.of(var) * stride
        pointer = self.pointer(target, writes=True)
        text, _ = self.index(where)
        line = f"{pointer}[{text}] = {elements.store(value[0], target.dtype)};"
        self.chain[-1].lines.append(line)

    def work(self) -> Dim:
        """About how many operations the whole takes."""
        total, turns = self.scopes[0].work, Dim.const(1)
        for extent, scope in zip(self.extents, self.scopes[1:], strict=True):
            turns = turns * extent
            total = total + turns * scope.work
        return total

    def function(self) -> tuple[str, list[str], int]:
        """The C function from its parameter list on, the arguments of a call, and how many
        of the outer loops its positions count."""
        outer = len(self.vars) - 1
        for position in range(len(self.vars) - 1):
            if self.scopes[position + 1].heavy:
                outer = position + 1
                break
        lines = list(self.scopes[0].lines)
        outer = max(outer, 1) if self.vars else 0
        if len(self.vars) == 1:
            lines += [
                "#pragma GCC ivdep",
                "for (long v0 = lo; v0 < hi; v0++) {",
                *self.scopes[1].lines,
                "}",
            ]
        elif self.vars:
            lines.append("for (long at = lo; at < hi; at++) {")
            rest = "at"
            for position in range(outer - 1, -1, -1):
                if position == 0:
                    lines.append(f"const long v0 = {rest};")
                else:
                    extent = self.dim(self.extents[position])
                    name = self.fresh("q")
                    lines.append(f"const long v{position} = {rest} % {extent};")
                    lines.append(f"const long {name} = {rest} / {extent};")
                    rest = name
            for scope in self.scopes[1 : outer + 1]:
                lines += scope.lines
            for position in range(outer, len(self.vars)):
                if position == len(self.vars) - 1:
                    lines.append("#pragma GCC ivdep")
                extent = self.dim(self.extents[position])
                lines.append(
                    f"for (long v{position} = 0; v{position} < {extent}; v{position}++) {{"
                )
                lines += self.scopes[position + 1].lines
            lines.append("}" * (len(self.vars) - outer) + "}")
        alias = bool(self.reads & self.writes)
        params = [declaration for declaration, _, _ in self.params.values()]
        if alias:
            params = [text.replace("__restrict ", "") for text in params]
            lines = [line for line in lines if not line.startswith("#pragma GCC ivdep")]
        head = ", ".join(["long lo", "long hi", *params])
        text = f"({head}) {{\n" + "\n".join(lines) + "\n}"
        return text, [argument for _, _, argument in self.params.values()], outer


def used(node: ir.GExpr) -> list[ir.Idx]:
    """Indices that an expression reads with, those bound inside it included."""
    found: dict[ir.Idx, None] = {}
    for part in ir.walk_expr(node):
        if isinstance(part, ir.GRead):
            for axis in part.axes:
                if isinstance(axis, ir.Idx):
                    found[axis] = None
    return list(found)


def outer_index(ix: Ix) -> str:
    """An index outside nests, over variables of the entry's own function."""
    parts = [f"(long){name} * ({c_dim(coefficient)})" for name, coefficient in ix.terms]
    if ix.const.constant != 0 or not parts:
        parts.append(c_dim(ix.const))
    return " + ".join(parts)
