"""Productions that move elements: reshape, permute, slices, concat, iota, cumsum."""

from __future__ import annotations

from differences.value import FLOATS, INTEGERS, NUMERIC, Value, product
from differences.writer import Writer


def reshape(w: Writer) -> bool:
    x = w.tensor()
    if x is None:
        return False
    lead = x.dims[:1] if w.batched(x) else ()
    rest = x.dims[len(lead) :]
    how = w.one(("flat", "ones", "drop", "split", "same"))
    if how == "flat":
        dims: tuple[str, ...] = (product(rest),)
    elif how == "ones":
        at = w.random.randint(0, len(rest))
        dims = (*rest[:at], "1", *rest[at:])
    elif how == "drop":
        dims = tuple(d for d in rest if d != "1") or ("1",)
    elif how == "split":
        made: list[str] = []
        for d in rest:
            if d.isdigit() and int(d) in (4, 6, 8, 12):
                made += ["2", str(int(d) // 2)]
            else:
                made.append(d)
        dims = tuple(made) or ("1",)
    else:
        plain = [d for d in rest if d.isalnum()]
        dims = (product(plain), *(d for d in rest if not d.isalnum())) if plain else rest
    if not rest:
        dims = ("1",)
    dims = (*lead, *dims)
    return w.let(f"reshape({x.name}, [{', '.join(dims)}])", x.dtype, dims, x.exact) is not None


def permute(w: Writer) -> bool:
    x = w.tensor(lambda v: len(v.dims) > 1)
    if x is None:
        return False
    axes = list(range(len(x.dims)))
    fixed = axes[:1] if w.batched(x) else []
    rest = axes[len(fixed) :]
    w.random.shuffle(rest)
    order = fixed + rest
    dims = tuple(x.dims[a] for a in order)
    text = f"permute({x.name}, [{', '.join(map(str, order))}])"
    return w.let(text, x.dtype, dims, x.exact) is not None


def spread(w: Writer) -> bool:
    x = w.pick()
    if x is None:
        return False
    dims = tuple(w.any_dim() if d == "1" and w.chance(0.7) else d for d in x.dims)
    if len(dims) < 3 and not w.batched(x):
        dims = (w.any_dim(), *dims)
    if not dims:
        return False
    return w.let(f"broadcast_to({x.name}, [{', '.join(dims)}])", x.dtype, dims, x.exact) is not None


def concat(w: Writer) -> bool:
    x = w.tensor()
    if x is None:
        return False
    axis = w.random.randrange(len(x.dims))
    if w.batched(x) and axis == 0:
        return False

    def fits(v: Value) -> bool:
        return (
            v.dtype == x.dtype
            and len(v.dims) == len(x.dims)
            and all(p == q for i, (p, q) in enumerate(zip(v.dims, x.dims)) if i != axis)
        )

    parts = [x]
    for _ in range(w.one((1, 1, 2))):
        other = w.pick(fits)
        if other is not None:
            parts.append(other)
    w.random.shuffle(parts)
    sizes = [p.dims[axis] for p in parts]
    if all(s.isdigit() for s in sizes):
        total = str(sum(map(int, sizes)))
    else:
        total = " + ".join(s if s.isalnum() else f"({s})" for s in sizes)
    dims = (*x.dims[:axis], total, *x.dims[axis + 1 :])
    written = axis if w.chance(0.7) else axis - len(x.dims)
    text = f"concat({', '.join(p.name for p in parts)}, axis = {written})"
    return w.let(text, x.dtype, dims, all(p.exact for p in parts)) is not None


def cut(w: Writer) -> bool:
    """Slices and indices, known and read at run time."""
    x = w.tensor()
    if x is None:
        return False
    items, dims = [], []
    for axis, dim in enumerate(x.dims):
        floor = w.floor(dim)
        if w.batched(x) and axis == 0:
            items.append(":")
            dims.append(dim)
            continue
        kind = w.one(("keep", "keep", "at", "range", "step", "value", "end"))
        if kind == "at" and floor > 0:
            items.append(str(w.random.randrange(floor)))
        elif kind == "range" and floor > 0:
            a = w.random.randint(0, floor)
            b = w.random.randint(a, floor)
            items.append(f"{a}:{b}")
            dims.append(str(b - a))
        elif kind == "end" and floor > 1 and not dim.isdigit() and dim.isalnum():
            a = w.random.randint(0, floor - 1)
            items.append(f"{a}:")
            dims.append(f"{dim} - {a}" if a else dim)
        elif kind == "step" and dim.isdigit():
            step = w.one((2, 3))
            a = w.random.randint(0, min(1, floor))
            items.append(f"{a}::{step}")
            dims.append(str((floor - a + step - 1) // step))
        elif (
            kind == "value"
            and (floor > 0 or w.chance(0.2))
            and (index := w.pick(lambda v: v.dtype in INTEGERS and not v.dims))
        ):
            items.append(index_of(w, index, dim))
        else:
            items.append(":")
            dims.append(dim)
    if all(item == ":" for item in items):
        return False
    return w.let(f"{x.name}[{', '.join(items)}]", x.dtype, tuple(dims), x.exact) is not None


def index_of(w: Writer, index: Value, dim: str) -> str:
    """An index kept in its axis, mostly."""
    if w.chance(0.04):
        return index.name
    wide = f"cast<i64>({index.name})"
    if w.floor(dim) > 0 and w.chance(0.15):
        return f"abs({wide} % ({dim}))"
    return f"min(max({wide}, 0), {dim} - 1)"


def count(w: Writer) -> bool:
    dim = w.any_dim()
    dtype = w.one(NUMERIC)
    return w.let(f"iota<{dtype}>({dim})", dtype, (dim,)) is not None


def fill(w: Writer) -> bool:
    dims = tuple(w.any_dim() for _ in range(w.one((1, 1, 2))))
    dtype = w.one(("bool", *NUMERIC))
    scalar = w.pick(lambda v: v.dtype == dtype and not v.dims)
    text = scalar.name if scalar is not None and w.chance(0.7) else None
    exact = scalar.exact if text is not None and scalar is not None else True
    return w.let(w.filled(dtype, dims, text), dtype, dims, exact) is not None


def running(w: Writer) -> bool:
    x = w.tensor(lambda v: v.dtype in INTEGERS or (w.close and v.dtype in FLOATS))
    if x is None:
        return False
    axis = w.random.randrange(len(x.dims))
    if w.batched(x) and axis == 0:
        return False
    exact = x.exact and x.dtype in INTEGERS
    return w.let(f"cumsum({x.name}, axis = {axis})", x.dtype, x.dims, exact) is not None
