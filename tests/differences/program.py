"""A whole random program: functions, a block that is repeated, a root with members and entries."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from differences import control, kernels
from differences.routine import parameters, results, some_type, write
from differences.statement import Routine, Statement
from differences.value import DTYPES, FLOATS, INTEGERS, NUMERIC, WIDENED, Value
from differences.writer import Writer


@dataclass
class Entry:
    name: str
    routine: Routine
    params: list[Value]
    least: dict[str, int]  # of its own dimensions
    close: bool
    rows: bool


@dataclass
class Program:
    """`members` of the root and of its cells; `generics` are the root's, as bound."""

    seed: int
    functions: list[Routine]
    cell: list[str]
    cell_methods: list[Routine]
    members: list[Value]
    states: list[Value]
    entries: list[Entry]
    generics: dict[str, int] = field(default_factory=dict)

    def text(self) -> str:
        parts = [f"module sample{kernels.IMPORTS}\n{control.STRUCTS}"]
        parts += [function.text(0) + "\n" for function in self.functions]
        if self.cell:
            lines = ["block Cell<N: Dim>", "where N > 0 {", *(f"    {line}" for line in self.cell)]
            parts.append("\n".join([*lines, *(m.text(4) for m in self.cell_methods), "}\n"]))
        lines = ["pub block Root<N: Dim>", "where N > 1 {"]
        lines += [f"    param {m.name}: {m.type}" for m in self.members]
        lines += [f"    state {s.name}: {s.type}" for s in self.states]
        if self.cell:
            lines.append("    sub cells: [Cell<N>; 3]")
        lines += [entry.routine.text(4) + "\n" for entry in self.entries]
        return "\n".join([*parts, *lines, "}\n"])


def generics_text(least: dict[str, int]) -> str:
    return f"<{', '.join(f'{name}: Dim' for name in least)}>" if least else ""


def promises(least: dict[str, int]) -> list[str]:
    return [f"{name} > {low - 1}" for name, low in least.items() if low > 0]


def params_text(params: list[Value]) -> str:
    return ", ".join(f"{p.name}: {p.type}" for p in params)


def substituted(dim: str, bound: dict[str, str]) -> str:
    def swap(match: re.Match[str]) -> str:
        found = bound[match.group()]
        return found if found.isalnum() or dim == match.group() else f"({found})"

    return re.sub(r"\b[A-Z]\w*\b", swap, dim)


# --- Functions ----------------------------------------------------------------------------


def function(random: Random, name: str, close: bool) -> tuple[Routine, Callable[[Writer], bool]]:
    """A generic function, and the production that calls it."""
    least = {n: random.choice((0, 1, 1)) for n in ("P", "Q")[: random.choice((1, 2))]}
    w = Writer(random, dict(least), close)
    params = []
    for i in range(random.randint(1, 3)):
        dtype, _ = some_type(w)
        dims = tuple(random.choice(list(least)) for _ in range(random.choice((0, 1, 2))))
        params.append(Value(f"a{i}", dtype, dims))
    for dim in least:
        if not any(dim in p.dims for p in params):
            params.append(Value(f"a{len(params)}", random.choice(("f32", "i32", "bf16")), (dim,)))
    w.pool += params
    write(w, random.randint(1, 4))
    made = results(w, params, 2)
    head = f"{random.choice(('fn', 'op'))} {name}{generics_text(least)}({params_text(params)})"
    routine = Routine(
        head, [(v.name, v.type, v.exact) for v in made], promises(least), w.statements
    )

    def call(w: Writer) -> bool:
        if w.rows or (close and not w.close):
            return False
        bound: dict[str, str] = {}
        args = []
        for param in params:

            def fits(v: Value, param: Value = param) -> bool:
                if v.dtype != param.dtype or len(v.dims) != len(param.dims) or not v.exact:
                    return False
                tried = dict(bound)
                for mine, theirs in zip(param.dims, v.dims):
                    if tried.setdefault(mine, theirs) != theirs:
                        return False
                    if w.floor(theirs) < least[mine]:
                        return False
                return True

            found = w.pick(fits)
            if found is None:
                if param.dims and not all(d in bound for d in param.dims):
                    return False
                text, exact = w.like(param.dtype, tuple(bound[d] for d in param.dims), exact=True)
                if not exact:
                    return False
                args.append(text)
                continue
            args.append(found.name)
            bound.update(zip(param.dims, found.dims))
        values = []
        for v in made:
            dims = tuple(substituted(d, bound) for d in v.dims)
            if len(dims) > 4:
                return False
            values.append(Value(w.fresh(), v.dtype, dims, v.exact))
        names = ", ".join(v.name for v in values)
        whole = names if len(values) == 1 else f"({names})"
        control.keep(w, f"let {whole} = {name}({', '.join(args)})", *values)
        return True

    return routine, call


def scalar_function(random: Random, name: str) -> tuple[Routine, tuple[str, str, list[str]]]:
    """A function of scalars, for use inside index notation too."""
    w = Writer(random, {}, False)
    params = []
    for i in range(random.randint(1, 3)):
        params.append(
            Value(f"a{i}", random.choice(("i32", "i64", "f32", "u8", "bool", "bf16", "i8")))
        )
    w.pool += params
    w.library = []
    write(w, random.randint(1, 4))
    scalars = [v for v in w.pool if not v.dims and v not in params] or [params[0]]
    chosen = random.choice(scalars)
    routine = Routine(
        f"fn {name}({params_text(params)})", [(chosen.name, chosen.type, True)], [], w.statements
    )
    return routine, (name, chosen.dtype, [p.dtype for p in params])


# --- Blocks ----------------------------------------------------------------------------------


def assign(states: list[Value]) -> Callable[[Writer], bool]:
    def production(w: Writer) -> bool:
        if w.rows or not states:
            return False
        state = w.one(states)
        if not state.exact and not w.close:
            return False
        if w.chance(0.4) and state.dtype in NUMERIC:
            text, exact = control.step(w, state, state.name)
        else:
            text, exact = w.like(state.dtype, state.dims, exact=state.exact)
        if state.exact and not exact:
            return False
        w.statements.append(Statement(f"{state.name} = {text}"))
        return True

    return production


def member_dtype(random: Random) -> str:
    plain = [d for d in DTYPES if d not in WIDENED]
    return random.choice(("f32", "f32", "bf16", "i32", *plain))


def cell(random: Random) -> tuple[list[str], list[Routine], Callable[[Writer], bool]]:
    """A block with a weight and states; its method; and the production that runs all of them."""
    dtype = random.choice(("f32", "i32", "bf16", "i64"))
    weight = Value("weight", random.choice(("f32", "bf16", "i32")), ("N",))
    states = [
        Value("held", dtype, ("N",)),
        Value("times", "i64", ("1",) if random.random() < 0.8 else ()),
    ]
    w = Writer(random, {"N": 1, "A": 0}, False)
    x = Value("a0", dtype, ("A", "N"))
    w.pool += [weight, *states, x]
    w.library = [assign(states)] * 3
    write(w, random.randint(2, 5))
    text, _ = control.step(w, x, "a0")
    w.statements.append(Statement(f"let out = {text}", ("out",), types={"out": x.type}))
    w.statements.append(Statement("times = times + 1"))
    method = Routine(
        f"pub fn step<A: Dim>(a0: {x.type})", [("out", x.type, True)], [], w.statements
    )

    def production(w: Writer) -> bool:
        if w.rows or w.depth:
            return False
        start = w.tensor(
            lambda v: v.dtype == dtype and len(v.dims) == 2 and v.dims[1] == "N" and v.exact
        )
        if start is None:
            dim = w.any_dim()
            text, exact = w.like(dtype, (dim, "N"), exact=True)
            made = w.let(text, dtype, (dim, "N"), exact)
            if made is None or not exact:
                return False
            start = made
        name = w.fresh("x")
        w.statements.append(
            Statement(f"var {name} = {start.name}", (name,), types={name: start.type})
        )
        w.pool.append(Value(name, dtype, start.dims))
        if w.chance(0.7):
            head, body = "static for one in cells {", f"{name} = one.step({name})"
            w.statements.append(Statement(head, (), [], body))
        else:
            w.statements.append(Statement(f"{name} = cells[{w.random.randrange(3)}].step({name})"))
        return True

    lines = [f"param {weight.name}: {weight.type}", *(f"state {s.name}: {s.type}" for s in states)]
    return lines, [method], production


def entry(random: Random, name: str, kind: str, members: list[Value], states: list[Value],
          library: list[Callable[[Writer], bool]], scalars: list[object], size: int) -> Entry:  # fmt: skip
    """`kind`: "bits" (the same everywhere), "close" or "rows"."""
    own = {n: random.choice((0, 0, 1, 1, 2)) for n in ("A", "C", "D")[: random.choice((1, 2, 3))]}
    rows = kind == "rows"
    if rows:
        own = {"B": 0, **dict.fromkeys(own, 1)}
    least = {**own, "N": 2}
    w = Writer(random, least, kind != "bits", rows)
    writes = not rows and random.random() < 0.5
    w.library = [*library, *([assign(states)] * writes)]
    w.scalars = scalars  # type: ignore[attr-defined]
    params = parameters(w, random.randint(2, 4))
    w.pool += members
    if not rows:
        w.pool += [s for s in states if s.exact or w.close]
    write(w, size)
    made = results(w, [*params, *members], 4)
    head = f"pub entry {name}{generics_text(own)}({params_text(params)})"
    routine = Routine(head, [(v.name, v.type, v.exact) for v in made], promises(own), w.statements)
    return Entry(name, routine, params, own, w.close, rows)


KINDS = ("bits", "bits", "close", "close", "rows")


def program(seed: int, entries: int = 20, size: int = 9) -> Program:
    """The program of a seed: `entries` of about `size` statements each."""
    random = Random(seed)
    # The native backend leaves entries that read a scalar member to torch: most programs have none.
    plain = random.random() < 0.8
    functions, library, scalars = [], [], []
    for i in range(3):
        routine, call = function(random, f"f{i}", close=random.random() < 0.4)
        functions.append(routine)
        library.append(call)
    for i in range(3):
        routine, helper = scalar_function(random, f"g{i}")
        functions.append(routine)
        scalars.append(helper)
    lines, methods, run_cells = cell(random)
    library.append(run_cells)
    members = []
    for i in range(4):
        dims = tuple(
            random.choice(("N", "N", "3", "4"))
            for _ in range(random.choice((1, 2) if plain else (0, 1, 2)))
        )
        members.append(Value(f"m{i}", member_dtype(random), dims))
    states = [Value("sf", "f32", ("N",), False), Value("sh", "bf16", ("2", "N"), False)]
    for i in range(3):
        dims = tuple(
            random.choice(("N", "2", "3"))
            for _ in range(random.choice((1, 2) if plain else (0, 1, 2)))
        )
        states.append(Value(f"s{i}", member_dtype(random), dims))
    made = [
        entry(random, f"e{i}", random.choice(KINDS), members, states, library, scalars,
              random.randint(max(1, size // 2), size))
        for i in range(entries)
    ]  # fmt: skip
    return Program(
        seed, functions, lines, methods, members, states, made, {"N": random.choice((2, 3, 5, 17))}
    )


__all__ = ["FLOATS", "INTEGERS", "Entry", "Program", "program"]
