"""Productions that work element by element: arithmetic, comparisons, choices, casts."""

from __future__ import annotations

from differences.value import DTYPES, FLOATS, INTEGERS, NUMERIC
from differences.writer import Writer

# Torch takes square roots from a library that is an ulp off for some.
ROUGH = ("sqrt", "exp", "log", "rsqrt", "sin", "cos", "tanh")


def unary(w: Writer) -> bool:
    x = w.pick(lambda v: v.dtype in NUMERIC)
    if x is None:
        return False
    if x.dtype in FLOATS:
        options = ["neg", "abs"] + (list(ROUGH) if w.close else [])
        op = w.one(options)
    else:
        op = w.one(("neg", "abs"))
    text = f"-{x.name}" if op == "neg" else f"{op}({x.name})"
    exact = x.exact and (op in ("neg", "abs") or not w.close)
    return w.let(text, x.dtype, x.dims, exact) is not None


def binary(w: Writer) -> bool:
    x = w.pick(lambda v: v.dtype in NUMERIC)
    if x is None:
        return False
    y, dims, exact = w.partner(x)
    ops = ["+", "-", "*", "+", "-", "*", "min", "max", "/"]
    if x.dtype in INTEGERS:
        ops += ["&", "|", "^", "shl", "shr", "%", "/"]
    elif x.exact and exact and not w.close:
        ops.append("%")
    op = w.one(ops)
    exact = exact and x.exact and (x.dtype in INTEGERS or not w.close or op in ("min", "max"))
    a, b = (x.name, y) if w.chance(0.6) else (y, x.name)
    if op in ("/", "%") and x.dtype in INTEGERS:
        if not w.chance(0.03):  # which may be zero, an error everywhere
            b = w.one((f"max(abs({b}), 1)", f"select({b} == 0, 1, {b})", f"({b} | 1)"))
    if op in ("min", "max", "shl", "shr"):
        text = f"{op}({a}, {b})"
    else:
        text = f"{a} {op} {b if not b.startswith('-') else f'({b})'}"
    return w.let(text, x.dtype, dims, exact) is not None


def compare(w: Writer) -> bool:
    x = w.pick(lambda v: v.exact)
    if x is None:
        return False
    y, dims, exact = w.partner(x)
    if not exact:
        return False
    if x.dtype == "bool":
        op = w.one(("==", "!=", "&", "|", "^"))
    else:
        op = w.one(("==", "!=", "<", "<=", ">", ">="))
    return w.let(f"{x.name} {op} {y}", "bool", dims) is not None


def logic(w: Writer) -> bool:
    x = w.pick(lambda v: v.dtype == "bool" and not v.dims)
    y = w.pick(lambda v: v.dtype == "bool" and not v.dims)
    if x is None or y is None:
        return False
    return w.let(w.one((f"{x.name} && !{y.name}", f"!{x.name} || {y.name}")), "bool") is not None


def choose(w: Writer) -> bool:
    condition = w.pick(lambda v: v.dtype == "bool")
    if condition is None:
        return False
    x = w.pick(lambda v: w.broadcast(condition.dims, v.dims) is not None)
    if x is None:
        return False
    y, dims, exact = w.partner(x)
    whole = w.broadcast(condition.dims, dims)
    if whole is None:
        return False
    a, b = (x.name, y) if w.chance(0.5) else (y, x.name)
    return (
        w.let(f"select({condition.name}, {a}, {b})", x.dtype, whole, x.exact and exact) is not None
    )


def convert(w: Writer) -> bool:
    x = w.pick()
    if x is None:
        return False
    target = w.one(DTYPES if x.exact else FLOATS)
    if not x.exact and target not in FLOATS:
        return False
    exact = x.exact and not w.rounds(target, x)
    if w.close and x.dtype in INTEGERS and target in FLOATS:
        exact = x.exact
    return w.let(f"cast<{target}>({x.name})", target, x.dims, exact) is not None
