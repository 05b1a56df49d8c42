"""Loops, branches, matches, tuples, structs, enums, optionals."""

from __future__ import annotations

from differences.statement import Statement
from differences.value import FLOATS, NUMERIC, Value, type_text
from differences.writer import Writer

STRUCTS = (
    "struct Pair { first: f32, second: Tensor[3; i32] }\nenum Mode { Plain, Twice, Negative }\n"
)


def keep(w: Writer, head: str, *values: Value) -> None:
    """A `let` whose right side is written already."""
    w.statements.append(
        Statement(head, tuple(v.name for v in values), types={v.name: v.type for v in values})
    )
    w.pool += values


def step(w: Writer, value: Value, name: str) -> tuple[str, bool]:
    """A value of the same type out of `name` and of what else is in scope."""
    text, exact = w.like(value.dtype, value.dims, exact=value.exact)
    if value.dtype == "bool":
        return f"{name} {w.one(('^', '&', '|'))} {text}", exact
    if value.dtype in FLOATS and w.close and value.exact:
        return f"{w.one(('max', 'min'))}({name}, {text})", exact
    op = w.one(("+", "-", "*", "max", "min"))
    if op in ("max", "min"):
        return f"{op}({name}, {text})", exact
    right = f"({text})" if text.startswith("-") else text
    if op == "*" and value.dtype in FLOATS:
        right = f"min(max({right}, -2.0), 2.0)"
    return f"{name} {op} {right}", exact


def carried(w: Writer) -> Value | None:
    return w.pick(lambda v: v.dtype in NUMERIC or v.dtype == "bool")


def inside(w: Writer, count: int) -> None:
    from differences.routine import write

    write(w, count)


def bounds(w: Writer) -> tuple[str, str]:
    """`a..b` of a loop, and how often it runs."""
    if w.chance(0.4):
        a = w.random.randint(0, 2)
        b = a + w.random.randint(0, 3)
        return f"{a}..{b}", str(b - a)
    dim = w.any_dim()
    return f"0..{dim}", dim


def loop(w: Writer) -> bool:
    start = carried(w)
    if start is None or w.depth > 1:
        return False
    name, counter = w.fresh("x"), w.fresh("n")
    fixed = w.chance(0.3)
    inexact = not start.exact or (w.close and start.dtype in FLOATS)
    value = Value(name, start.dtype, start.dims, not inexact)
    stated = f"var {name} = {start.name}"
    w.statements.append(Statement(stated, (name,), types={name: value.type}))
    w.pool.append(value)
    over, _ = bounds(w)
    if fixed:
        over = f"0..{w.random.randint(0, 3)}"
    with w.nested() as body:
        if not fixed:
            w.pool.append(Value(counter, "i64"))
        else:
            w.pool.append(Value(counter, "i64"))
        inside(w, w.random.randint(0, 2))
        text, _ = step(w, value, name)
    head = f"{'static ' if fixed else ''}for {counter} in {over} {{"
    w.statements.append(Statement(head, (), list(body), f"{name} = {text}"))
    return True


def stacked(w: Writer) -> bool:
    if w.depth > 1:
        return False
    over, times = bounds(w)
    if w.rows:
        return False  # a new first axis
    counter = w.fresh("n")
    variable: Value | None = None
    start = carried(w)
    if start is not None and w.chance(0.4):
        variable = Value(
            w.fresh("x"), start.dtype, start.dims,
            start.exact and not (w.close and start.dtype in FLOATS),
        )  # fmt: skip
        w.statements.append(
            Statement(
                f"var {variable.name} = {start.name}",
                (variable.name,),
                types={variable.name: variable.type},
            )
        )
        w.pool.append(variable)
    last = ""
    with w.nested() as body:
        w.pool.append(Value(counter, "i64"))
        inside(w, w.random.randint(1, 3))
        found = [w.pick(lambda v: len(v.dims) < 3) for _ in range(w.one((1, 1, 2)))]
        kept = [v for v in found if v is not None]
        if variable is not None:
            text, _ = step(w, variable, variable.name)
            last = f"{variable.name} = {text}\n"
    if not kept:
        return False
    names = ", ".join(v.name for v in kept)
    last += f"yield {names if len(kept) == 1 else f'({names})'}"
    made = [Value(w.fresh(), v.dtype, (times, *v.dims), v.exact) for v in kept]
    names = ", ".join(v.name for v in made)
    head = f"let {names if len(made) == 1 else f'({names})'} = for {counter} in {over} {{"
    w.statements.append(
        Statement(
            head,
            tuple(v.name for v in made),
            list(body),
            last,
            types={v.name: v.type for v in made},
        )
    )
    w.pool += made
    return True


def repeated(w: Writer) -> bool:
    """A `while` that ends by a count, or sooner."""
    start = carried(w)
    if start is None or w.depth > 1:
        return False
    name, counter = w.fresh("x"), w.fresh("n")
    inexact = not start.exact or (w.close and start.dtype in FLOATS)
    value = Value(name, start.dtype, start.dims, not inexact)
    w.statements.append(Statement(f"var {name} = {start.name}", (name,), types={name: value.type}))
    w.statements.append(
        Statement(f"var {counter}: i32 = 0", (counter,), keep=True, types={counter: "i32"})
    )
    w.pool += [value, Value(counter, "i32")]
    condition = f"{counter} < {w.random.randint(0, 4)}"
    flag = w.pick(lambda v: v.dtype == "bool" and not v.dims)
    if flag is not None and w.chance(0.4):
        condition += f" && {w.one(('', '!'))}{flag.name}"
    with w.nested() as body:
        inside(w, w.random.randint(0, 2))
        text, _ = step(w, value, name)
    w.statements.append(
        Statement(
            f"while {condition} {{", (), list(body), f"{name} = {text}\n{counter} = {counter} + 1"
        )
    )
    return True


def branch(w: Writer) -> bool:
    condition = w.pick(lambda v: v.dtype == "bool" and not v.dims)
    x = w.pick()
    if condition is None or x is None:
        return False
    text, exact = w.like(x.dtype, x.dims)
    index = w.pick(lambda v: v.dtype in ("i32", "i64", "u8") and not v.dims)
    table = w.tensor(lambda v: len(v.dims) == 1 and v.dtype == x.dtype)
    if index is not None and table is not None and not x.dims and w.chance(0.5):
        n = table.dims[0]
        guard = (
            f"{index.name} >= 0 && {index.name} < {n if not n.isdigit() or int(n) < 256 else 255}"
        )
        text = f"if {guard} {{ {table.name}[{index.name}] }} else {{ {text} }}"
        exact = exact and table.exact
    return (
        w.let(
            f"if {condition.name} {{ {x.name} }} else {{ {text} }}",
            x.dtype,
            x.dims,
            x.exact and exact,
        )
        is not None
    )


def optional(w: Writer) -> bool:
    condition = w.pick(lambda v: v.dtype == "bool" and not v.dims)
    x = w.pick()
    if x is None:
        return False
    name, inner = w.fresh("o"), w.fresh("p")
    if condition is not None and w.chance(0.5):
        value = f"if {condition.name} {{ some({x.name}) }} else {{ none }}"
    else:
        value = w.one((f"some({x.name})", "none"))
    kind = type_text(x.dtype, x.dims)
    w.statements.append(
        Statement(f"let {name}: {kind}? = {value}", (name,), types={name: f"{kind}?"})
    )
    text, exact = w.like(x.dtype, x.dims)
    if x.dtype in FLOATS and w.close:
        found = f"-{inner}"
    elif x.dtype == "bool":
        found = f"{inner} ^ true"
    else:
        found = w.one((inner, f"{inner} + {inner}"))
    made = f"match {name} {{ some({inner}) => {found}, none => {text} }}"
    return w.let(made, x.dtype, x.dims, x.exact and exact) is not None


def variant(w: Writer) -> bool:
    condition = w.pick(lambda v: v.dtype == "bool" and not v.dims)
    x = w.pick(lambda v: v.dtype in NUMERIC)
    if x is None:
        return False
    name = w.fresh("mode")
    value = f"Mode.{w.one(('Plain', 'Twice', 'Negative'))}"
    if condition is not None:
        value = f"if {condition.name} {{ {value} }} else {{ Mode.{w.one(('Plain', 'Twice'))} }}"
    w.statements.append(Statement(f"let {name} = {value}", (name,), types={name: "Mode"}))
    if w.chance(0.2):
        return w.let(f"{name} == Mode.Twice", "bool") is not None
    arms = (
        f"Mode.Plain => {x.name}, Mode.Twice => max({x.name}, {x.name}), Mode.Negative => -{x.name}"
    )
    return w.let(f"match {name} {{ {arms} }}", x.dtype, x.dims, x.exact) is not None


def tuple_(w: Writer) -> bool:
    a, b = w.pick(), w.pick()
    if a is None or b is None:
        return False
    whole, p, q = w.fresh("z"), w.fresh(), w.fresh()
    kind = f"({a.type}, {b.type})"
    w.statements.append(
        Statement(f"let {whole} = ({a.name}, {b.name})", (whole,), types={whole: kind})
    )
    keep(
        w, f"let ({p}, {q}) = {whole}",
        Value(p, a.dtype, a.dims, a.exact), Value(q, b.dtype, b.dims, b.exact),
    )  # fmt: skip
    return True


def record(w: Writer) -> bool:
    if w.rows:
        return False
    a = w.pick(lambda v: v.dtype == "f32" and not v.dims and v.exact)
    if a is None:
        return False
    text, exact = w.like("i32", ("3",), exact=True)
    name = w.fresh("rec")
    w.statements.append(
        Statement(
            f"let {name} = Pair(second = {text}, first = {a.name})", (name,), types={name: "Pair"}
        )
    )
    if w.chance(0.5):
        return w.let(f"{name}.second", "i32", ("3",), exact) is not None
    return w.let(f"{name}.first", "f32", (), a.exact) is not None
