"""Random expressions and a brute-force oracle for the prover.

An expression is a nested tuple, evaluated here by Python alone, so that no rule of the normal form
is trusted. Sizes at which a divisor is not positive are left out, as divisors are proven first.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

from linnet.dims import Dim, Fact

Expr = tuple


class Undefined(Exception):
    pass


def build(expr: Expr) -> Dim:
    match expr:
        case ("int", value):
            return Dim.const(value)
        case ("name", name):
            return Dim.name(name)
        case (op, a, b):
            left, right = build(a), build(b)
            if op == "+":
                return left + right
            if op == "-":
                return left - right
            if op == "*":
                return left * right
            if op == "/":
                return left // right
            if op == "%":
                return left % right
            return Dim.min(left, right) if op == "min" else Dim.max(left, right)
    raise AssertionError(expr)


def value(expr: Expr, sizes: dict[str, int]) -> int:
    match expr:
        case ("int", number):
            return number
        case ("name", name):
            return sizes[name]
        case (op, a, b):
            left, right = value(a, sizes), value(b, sizes)
            if op in ("/", "%") and right <= 0:
                raise Undefined
            if op == "+":
                return left + right
            if op == "-":
                return left - right
            if op == "*":
                return left * right
            if op == "/":
                return left // right
            if op == "%":
                return left % right
            return min(left, right) if op == "min" else max(left, right)
    raise AssertionError(expr)


def holds(comparison: tuple[str, Expr, Expr], sizes: dict[str, int]) -> bool:
    op, a, b = comparison
    left, right = value(a, sizes), value(b, sizes)
    return {
        "==": left == right,
        "!=": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[op]


def fact(comparison: tuple[str, Expr, Expr]) -> Fact:
    op, a, b = comparison
    return Fact(op, build(a), build(b))


def expression(rng: random.Random, names: list[str], depth: int) -> Expr:
    if depth == 0 or rng.random() < 0.2:
        if rng.random() < 0.3:
            return ("int", rng.choice([0, 1, 1, 2, 2, 3, 4, 6]))
        return ("name", rng.choice(names))
    op = rng.choice(["+", "+", "-", "-", "*", "*", "/", "/", "%", "min", "max"])
    return (op, expression(rng, names, depth - 1), expression(rng, names, depth - 1))


def assumption(rng: random.Random, names: list[str]) -> tuple[str, Expr, Expr]:
    """A clause of a kind that programs state, or any comparison."""
    kind = rng.randrange(8)
    name = ("name", rng.choice(names))
    other = ("name", rng.choice(names))
    if kind == 0:
        return (">", name, ("int", rng.choice([0, 0, 1, 2])))
    if kind == 1:
        return (
            "==",
            ("%", name, ("int", rng.choice([2, 3, 4, 6]))),
            ("int", rng.choice([0, 0, 1])),
        )
    if kind == 2:
        return ("==", ("%", name, other), ("int", 0))
    if kind == 3:
        return ("==", name, expression(rng, names, 2))
    if kind == 4:
        return (rng.choice(["<", "<="]), name, expression(rng, names, 1))
    if kind == 5:
        return ("==", ("*", ("int", rng.choice([2, 3, 4])), name), expression(rng, names, 2))
    op = rng.choice(["==", "==", "!=", "<", "<=", ">", ">="])
    return (op, expression(rng, names, 2), expression(rng, names, 2))


def goal(
    rng: random.Random, names: list[str], assumptions: list[tuple[str, Expr, Expr]]
) -> tuple[str, Expr, Expr]:
    """Often close to an assumption, or a regrouped expression, so that many are true."""
    kind = rng.randrange(6)
    op = rng.choice(["==", "==", "!=", "<", "<=", ">", ">="])
    if kind == 0 and assumptions:
        base = rng.choice(assumptions)
        factor = expression(rng, names, 1)
        wrap = rng.choice(["*", "+", "/", "%", "min", "max"])
        return (rng.choice([base[0], op]), (wrap, base[1], factor), (wrap, base[2], factor))
    if kind == 1:
        a = expression(rng, names, 2)
        k = ("name", rng.choice(names)) if rng.random() < 0.5 else ("int", rng.choice([2, 3, 4]))
        return rng.choice(
            [
                ("==", ("*", k, ("/", a, k)), a),
                ("==", ("/", ("*", k, a), k), a),
                ("==", ("+", ("/", a, k), ("/", a, k)), a),
                ("==", ("%", a, k), ("int", 0)),
                ("<", ("%", a, k), k),
                ("<=", ("/", a, k), a),
                (">", ("/", a, k), ("int", 0)),
            ]
        )
    if kind == 2:
        a, b = expression(rng, names, 2), expression(rng, names, 1)
        return rng.choice(
            [
                (op, ("-", ("+", a, b), b), a),
                (op, ("min", a, b), b),
                (op, ("max", a, b), ("min", a, b)),
                (op, ("/", ("+", a, b), ("int", 2)), a),
            ]
        )
    return (op, expression(rng, names, 2), expression(rng, names, 2))


def models(
    names: list[str], assumptions: list[tuple[str, Expr, Expr]], largest: int
) -> Iterator[dict[str, int]]:
    for sizes in itertools.product(range(largest + 1), repeat=len(names)):
        model = dict(zip(names, sizes, strict=True))
        try:
            if all(holds(assumed, model) for assumed in assumptions):
                yield model
        except Undefined:
            continue
