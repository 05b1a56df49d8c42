"""Index notation: comprehensions and reductions, guards, gathers, masks, ranks and one-hot sums."""

from __future__ import annotations

import re

from differences.statement import Statement
from differences.value import FLOATS, INTEGERS, NUMERIC, Value
from differences.writer import Writer

# The indices at hand and their extents.
Indices = dict[str, str]
WORD = re.compile(r"\b[a-z]\w*\b")


class Element:
    """A scalar expression over indices: its text, and whether it is exact."""

    def __init__(self, text: str, exact: bool = True):
        self.text, self.exact = text, exact


class GridWriter:
    def __init__(self, w: Writer, indices: Indices):
        self.w = w
        self.indices = indices
        self.reductions = 0
        self.guarded = False

    # --- Leaves -----------------------------------------------------------------

    def access(self, value: Value) -> str | None:
        """`value[…]` with an index, a number or an expression on each axis; None: it cannot."""
        w = self.w
        axes = []
        for position, dim in enumerate(value.dims):
            fitting = [i for i, extent in self.indices.items() if extent == dim]
            batch = w.rows and dim == "B"
            if batch and (position or not fitting):
                return None
            if fitting and (batch or w.chance(0.8)):
                axes.append(fitting[-1] if w.chance(0.6) else w.one(fitting))
                continue
            if w.floor(dim) > 0 and w.chance(0.4):
                axes.append(str(w.random.randrange(w.floor(dim))))
                continue
            at = self.index(dim)
            if at is None:
                return None
            axes.append(at)
        return f"{value.name}[{', '.join(axes)}]"

    def index(self, dim: str) -> str | None:
        """A run-time index into an axis of extent `dim`."""
        w = self.w
        source = w.pick(
            lambda v: (
                v.dtype in INTEGERS
                and len(v.dims) <= 1
                and all(d in self.indices.values() for d in v.dims)
            )
        )
        own = [i for i, extent in self.indices.items() if not (w.rows and extent == "B")]
        if source is not None and w.chance(0.6):
            text = source.name
            if source.dims:
                (extent,) = source.dims
                text += f"[{w.one([i for i, d in self.indices.items() if d == extent])}]"
            dtype = source.dtype
        elif own:
            i = w.one(own)
            dtype = w.one(("i64", "i32", "i64", "u8"))
            text = f"iota<{dtype}>({self.indices[i]})[{i}]"
            if w.chance(0.4):
                text = (
                    f"{w.one((1, 2, 3))} - {text}" if w.chance(0.3) else f"{text} + {w.one((1, 2))}"
                )
        else:
            return None
        if w.chance(0.03) or self.guarded:
            return text  # may be outside, which is an error everywhere (or behind a guard)
        if w.floor(dim) == 0 and not w.chance(0.15):
            return None
        wide = f"cast<i64>({text})"
        if w.floor(dim) > 0 and w.chance(0.15):
            return f"abs({wide} % ({dim}))"
        return f"min(max({wide}, 0), {dim} - 1)"

    def leaf(self, dtype: str, exact: bool) -> Element:
        w = self.w
        for _ in range(4):
            value = w.pick(
                lambda v: (
                    v.dtype == dtype
                    and (v.exact or not exact)
                    and (not v.dims or any(d in self.indices.values() for d in v.dims))
                )
            )
            if value is None:
                break
            text = self.access(value) if value.dims else value.name
            if text is not None:
                return Element(text, value.exact)
        own = [i for i, extent in self.indices.items() if not (w.rows and extent == "B")]
        if own and dtype != "bool" and w.chance(0.5):
            i = w.one(own)
            return Element(f"iota<{dtype}>({self.indices[i]})[{i}]")
        if w.chance(0.7):
            other = w.pick(lambda v: v.exact and len(v.dims) < 3)
            if other is not None:
                text = self.access(other) if other.dims else other.name
                if text is not None:
                    same = other.dtype == dtype
                    exact = same or not w.rounds(dtype, other)
                    return Element(text if same else f"cast<{dtype}>({text})", exact)
        return Element(w.typed(dtype, w.literal(dtype, small=True)))

    # --- Inner nodes --------------------------------------------------------------

    def element(self, dtype: str, depth: int, exact: bool = False) -> Element:
        """`exact`: only what is the same to the bit in all evaluators."""
        w = self.w
        if depth <= 0 or w.chance(0.15):
            return self.leaf(dtype, exact)
        if dtype == "bool":
            return self.truth(depth)
        kind = w.one(
            (
                "binary",
                "binary",
                "binary",
                "unary",
                "cast",
                "select",
                "if",
                "reduce",
                "reduce",
                "apply",
            )
        )
        if kind == "reduce" and self.reductions < 2:
            made = self.reduce(dtype, depth, exact)
            if made is not None:
                return made
        if kind == "unary":
            x = self.element(dtype, depth - 1, exact)
            rough = dtype in FLOATS and w.close and not exact and w.chance(0.6)
            op = w.one(("exp", "tanh", "sin", "sqrt", "log")) if rough else w.one(("-", "abs"))
            text = f"(-({x.text}))" if op == "-" else f"{op}({x.text})"
            return Element(text, x.exact and not rough)
        if kind == "cast":
            source = w.one(NUMERIC if dtype not in FLOATS or exact or w.chance(0.5) else FLOATS)
            x = self.element(source, depth - 1, exact or dtype not in FLOATS or source in INTEGERS)
            if source == dtype:
                return x
            rough = w.close and dtype in FLOATS and source in FLOATS
            if not (rough and exact):
                return Element(f"cast<{dtype}>({x.text})", x.exact and not rough)
            return x if source == dtype else self.leaf(dtype, exact)
        if kind in ("select", "if"):
            condition = self.truth(depth - 1)
            guarded = self.guarded
            a, b = self.element(dtype, depth - 1, exact), self.element(dtype, depth - 1, exact)
            self.guarded = guarded
            both = a.exact and b.exact
            if kind == "select":
                return Element(f"select({condition.text}, {a.text}, {b.text})", both)
            return Element(f"(if {condition.text} {{ {a.text} }} else {{ {b.text} }})", both)
        if kind == "apply" and not w.rows:
            helper = [h for h in getattr(w, "scalars", ()) if h[1] == dtype]
            if helper:
                name, _, params = w.one(helper)
                args = [self.element(p, depth - 1, True) for p in params]
                return Element(f"{name}({', '.join(a.text for a in args)})")
        a, b = self.element(dtype, depth - 1, exact), self.element(dtype, depth - 1, exact)
        ops = ["+", "-", "*", "min", "max"]
        if dtype in INTEGERS:
            ops += ["&", "|", "^", "shl", "shr", "/", "%"]
        elif not (w.close and exact):
            ops.append("/")
        op = w.one(ops)
        rough = w.close and dtype in FLOATS and op not in ("min", "max")
        if rough and exact:
            op, rough = w.one(("min", "max")), False
        right = b.text
        if op in ("/", "%") and dtype in INTEGERS:
            right = f"max(abs({right}), 1)" if w.chance(0.6) else f"({right} | 1)"
        if op in ("min", "max", "shl", "shr"):
            return Element(f"{op}({a.text}, {right})", a.exact and b.exact)
        return Element(f"({a.text} {op} ({right}))", a.exact and b.exact and not rough)

    def truth(self, depth: int) -> Element:
        """A condition; nothing inexact decides."""
        w = self.w
        kind = w.one(("compare", "compare", "leaf", "logic", "position", "any"))
        if kind == "logic" and depth > 0:
            a, b = self.truth(depth - 1), self.truth(depth - 1)
            return Element(f"({a.text} {w.one(('&&', '||', '&', '|', '^'))} {b.text})")
        own = [i for i, extent in self.indices.items() if not (w.rows and extent == "B")]
        if kind == "position" and own:
            i, j = w.one(own), w.one(own)
            left = f"iota<i64>({self.indices[i]})[{i}]"
            right = f"iota<i64>({self.indices[j]})[{j}]" if i != j else str(w.random.randint(0, 3))
            return Element(f"({left} {w.one(('<', '<=', '==', '>'))} {right})")
        if kind == "any" and self.reductions < 2 and depth > 0:
            made = self.reduce("bool", depth, True)
            if made is not None:
                return made
        if kind == "leaf":
            return Element(f"({self.leaf('bool', True).text})")
        dtype = w.one(("i32", "i64", "f32", "bf16", "u8", "i8", "u64", "f16"))
        a, b = self.element(dtype, depth - 1, True), self.element(dtype, depth - 1, True)
        return Element(f"({a.text} {w.one(('<', '<=', '==', '!=', '>', '>='))} {b.text})")

    def reduce(self, dtype: str, depth: int, exact: bool) -> Element | None:
        w = self.w
        value = w.tensor(lambda v: any(d not in ("B",) or not w.rows for d in v.dims))
        if value is None:
            return None
        fresh: Indices = {}
        for dim in value.dims:
            if w.rows and dim == "B":
                continue
            if dim not in self.indices.values() or w.chance(0.4):
                fresh[w.fresh("r")] = dim
            if len(fresh) == 2:
                break
        if not fresh:
            return None
        if dtype == "bool":
            kind = w.one(("any", "all"))
        elif dtype in INTEGERS or (w.close and not exact):
            kind = w.one(("sum", "sum", "sum", "prod", "max", "min"))
        else:
            kind = w.one(("max", "min"))
        outer = dict(self.indices)
        self.reductions += 1
        self.indices = {**outer, **fresh}
        body = self.truth(depth - 1) if dtype == "bool" else self.element(dtype, depth - 1, exact)
        text = body.text
        if dtype in NUMERIC and kind in ("sum", "prod") and w.chance(0.3):
            text = f"select({self.truth(0).text}, {text}, {0 if kind == 'sum' else 1})"
        text = use_all(text, fresh, dtype)
        self.indices = outer
        stated = ""
        if kind in ("sum", "prod") and w.chance(0.2):
            stated = f"<{dtype}>"
        rough = dtype in FLOATS and kind in ("sum", "prod")
        return Element(f"({kind}{stated}[{', '.join(fresh)}] {text})", body.exact and not rough)


def use_all(text: str, indices: Indices, dtype: str) -> str:
    """Every index indexes something."""
    words = set(WORD.findall(text))
    for i, extent in indices.items():
        if i in words:
            continue
        if dtype == "bool":
            text = f"({text} && iota<i64>({extent})[{i}] >= 0)"
        else:
            text = f"select(iota<i32>({extent})[{i}] >= 0, {text}, {text})"
    return text


def comprehension(w: Writer) -> bool:
    """A tensor element by element."""
    source = w.tensor()
    if source is None:
        return False
    dims = [d for d in source.dims if w.chance(0.75)]
    if w.rows and "B" in source.dims:
        dims = ["B", *(d for d in dims if d != "B")]
    if not dims or w.chance(0.25):
        dims.append(w.any_dim())
    if len(dims) > 1 and w.chance(0.2) and not w.rows:
        w.random.shuffle(dims)
    dims = dims[:3]
    if not w.allowed(tuple(dims)):
        return False
    indices = {w.fresh("j"): dim for dim in dims}
    grid = GridWriter(w, dict(indices))
    dtype = w.one((source.dtype, source.dtype, "f32", "i64", "bool", w.one(NUMERIC)))
    made = grid.element(dtype, w.one((1, 2, 2, 3)))
    if dtype in FLOATS and w.close and made.exact is False and dtype == "bool":
        return False
    text = use_all(made.text, indices, dtype)
    if "B" in indices.values() and w.rows:
        (batch,) = (i for i, d in indices.items() if d == "B")
        if f"iota<i64>(B)[{batch}]" in text or f"iota<i32>(B)[{batch}]" in text:
            anchor = w.tensor(lambda v: v.dims == ("B",))
            if anchor is None:
                return False
            text = text.replace(
                f"iota<i64>(B)[{batch}] >= 0", f"{anchor.name}[{batch}] == {anchor.name}[{batch}]"
            )
            text = text.replace(
                f"iota<i32>(B)[{batch}] >= 0", f"{anchor.name}[{batch}] == {anchor.name}[{batch}]"
            )
    name = w.fresh()
    value = Value(name, dtype, tuple(dims), made.exact)
    w.statements.append(
        Statement(f"let {name}[{', '.join(indices)}] = {text}", (name,), types={name: value.type})
    )
    w.pool.append(value)
    return True


def total(w: Writer) -> bool:
    """A reduction to a scalar."""
    if w.rows:
        return False
    grid = GridWriter(w, {})
    dtype = w.one(("i32", "i64", "f32", "u8", "bool", "bf16", "u64"))
    made = grid.reduce(dtype, 2, exact=False)
    return made is not None and w.let(made.text, dtype, (), made.exact) is not None


# --- Idioms -------------------------------------------------------------------------


def ranks(w: Writer) -> bool:
    """How many elements outrank each, ties to the lower index; then the values in that order."""
    x = w.tensor(lambda v: v.dtype in NUMERIC and v.exact and len(v.dims) <= 2)
    if x is not None and x.dtype in FLOATS:  # what is no number has no place in an order
        x = w.let(f"select({x.name} == {x.name}, {x.name}, 0.0)", x.dtype, x.dims)
    if x is None or (x.dims[-1] == "B" and w.rows):
        return False
    n = x.dims[-1]
    lead = [w.fresh("j")] if len(x.dims) > 1 else []
    a, b = w.fresh("j"), w.fresh("r")
    at, other = ", ".join([*lead, a]), ", ".join([*lead, b])
    rank = w.fresh()
    place = w.fresh("t")
    beats = (
        f"{x.name}[{other}] > {x.name}[{at}] || "
        f"({x.name}[{other}] == {x.name}[{at}] && {place}[{b}] < {place}[{a}])"
    )
    w.statements.append(
        Statement(f"let {place} = iota<i32>({n})", (place,), types={place: f"Tensor[{n}; i32]"})
    )
    w.statements.append(
        Statement(
            f"let {rank}[{at}] = sum<i32>[{b}] select({beats}, 1, 0)",
            (rank,),
            types={rank: f"Tensor[{', '.join(x.dims)}; i32]"},
        )
    )
    w.pool.append(Value(rank, "i32", x.dims))
    if w.chance(0.5) or x.dtype not in NUMERIC:
        return True
    k = w.one((n, n, "2", "3"))
    made, c = w.fresh(), w.fresh("j")
    out = ", ".join([*lead, c])
    dims = (*x.dims[:-1], k)
    w.statements.append(
        Statement(
            f"let {made}[{out}] = sum[{b}] select({rank}[{other}] == iota<i32>({k})[{c}], {x.name}[{other}], 0)",
            (made,),
            types={made: f"Tensor[{', '.join(dims)}; {x.dtype}]"},
        )
    )
    w.pool.append(Value(made, x.dtype, dims, x.dtype in INTEGERS or not w.close))
    return True


def one_hot(w: Writer) -> bool:
    """A table's rows by a sum over matching positions: a gather that checks nothing."""
    table = w.tensor(lambda v: v.dtype in NUMERIC and not w.batched(v))
    ids = w.tensor(lambda v: v.dtype in INTEGERS and len(v.dims) == 1)
    if table is None or ids is None or len(table.dims) > 2:
        return False
    n = table.dims[0]
    if w.rows and n == "B":
        return False
    i, r = w.fresh("j"), w.fresh("r")
    rest = [w.fresh("j")] if len(table.dims) > 1 else []
    made = w.fresh()
    out, read = ", ".join([i, *rest]), ", ".join([r, *rest])
    dims = (*ids.dims, *table.dims[1:])
    if not w.allowed(dims):
        return False
    w.statements.append(
        Statement(
            f"let {made}[{out}] = sum[{r}] select(iota<{ids.dtype}>({n})[{r}] == {ids.name}[{i}], {table.name}[{read}], 0)",
            (made,),
            types={made: f"Tensor[{', '.join(dims)}; {table.dtype}]"},
        )
    )
    w.pool.append(Value(made, table.dtype, dims, table.dtype in INTEGERS))
    return True


def gather(w: Writer) -> bool:
    """Rows of a table by run-time numbers: in range mostly, an error otherwise."""
    table = w.tensor(lambda v: not w.batched(v) and len(v.dims) <= 2)
    ids = w.tensor(lambda v: v.dtype in INTEGERS and len(v.dims) <= 2)
    if table is None or ids is None:
        return False
    n = table.dims[0]
    outs = [w.fresh("j") for _ in ids.dims]
    rest = [w.fresh("j") for _ in table.dims[1:]]
    at = f"{ids.name}[{', '.join(outs)}]"
    if not w.chance(0.25):
        if w.floor(n) == 0 and not w.chance(0.1):
            return False
        at = f"min(max(cast<i64>({at}), 0), {n} - 1)"
    dims = (*ids.dims, *table.dims[1:])
    if not w.allowed(dims):
        return False
    made = w.fresh()
    w.statements.append(
        Statement(
            f"let {made}[{', '.join([*outs, *rest])}] = {table.name}[{', '.join([at, *rest])}]",
            (made,),
            types={made: f"Tensor[{', '.join(dims)}; {table.dtype}]"},
        )
    )
    w.pool.append(Value(made, table.dtype, dims, table.exact))
    return True


def product(w: Writer) -> bool:
    """A sum of products, in any order of its axes."""
    x = w.tensor(lambda v: v.dtype in NUMERIC and len(v.dims) >= 1)
    if x is None or (x.dtype in FLOATS and not w.close):
        return False
    y = w.tensor(
        lambda v: (
            v.dtype == x.dtype
            and not w.batched(v)
            and any(d in x.dims and not (w.rows and d == "B") for d in v.dims)
        )
    )
    if y is None:
        return False
    shared = w.one([d for d in y.dims if d in x.dims and not (w.rows and d == "B")])
    r = w.fresh("r")
    outs: Indices = {}

    def axes(value: Value) -> str:
        made, done = [], False
        for d in value.dims:
            if d == shared and not done:
                made.append(r)
                done = True
            else:
                i = w.fresh("j")
                outs[i] = d
                made.append(i)
        return f"{value.name}[{', '.join(made)}]"

    a, b = axes(x), axes(y)
    if len(outs) > 4:
        return False
    order = list(outs)
    if not w.rows and w.chance(0.4):
        w.random.shuffle(order)
    dims = tuple(outs[i] for i in order)
    if not w.allowed(dims):
        return False
    text = f"sum[{r}] {a} * {b}"
    if not order:
        return w.let(f"({text})", x.dtype, (), x.dtype in INTEGERS) is not None
    made = w.fresh()
    w.statements.append(
        Statement(
            f"let {made}[{', '.join(order)}] = {text}",
            (made,),
            types={made: f"Tensor[{', '.join(dims)}; {x.dtype}]"},
        )
    )
    w.pool.append(Value(made, x.dtype, dims, x.dtype in INTEGERS))
    return True
