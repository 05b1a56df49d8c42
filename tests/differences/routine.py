"""Routines put together from productions: functions, entries, methods."""

from __future__ import annotations

from collections.abc import Callable

from differences import control, elementwise, grids, kernels, shapes
from differences.statement import Statement
from differences.value import DTYPES, FLOATS, INTEGERS, Value
from differences.writer import Writer

Production = Callable[[Writer], bool]
PRODUCTIONS: list[tuple[Production, int]] = [
    (elementwise.unary, 4), (elementwise.binary, 12), (elementwise.compare, 5),
    (elementwise.logic, 1), (elementwise.choose, 5), (elementwise.convert, 7),
    (shapes.reshape, 4), (shapes.permute, 3), (shapes.spread, 2), (shapes.concat, 3),
    (shapes.cut, 6), (shapes.count, 2), (shapes.fill, 2), (shapes.running, 2),
    (grids.comprehension, 12), (grids.total, 3), (grids.ranks, 1), (grids.one_hot, 2),
    (grids.gather, 2), (grids.product, 3), (control.loop, 3), (control.stacked, 2),
    (control.repeated, 2), (control.branch, 3), (control.optional, 2), (control.variant, 2),
    (control.tuple_, 1), (control.record, 1),
]  # fmt: skip
KERNELS: list[tuple[Production, int]] = [(one, 3) for one in kernels.PRODUCTIONS]


def write(w: Writer, count: int) -> None:
    """About `count` more statements."""
    table = [
        *PRODUCTIONS,
        *(KERNELS if w.close else kernels_exact()),
        *((one, 4) for one in w.library),
    ]
    makers = [one for one, _ in table]
    weights = [weight for _, weight in table]
    for _ in range(count):
        for _ in range(6):
            (make,) = w.random.choices(makers, weights)
            before = len(w.statements), len(w.pool)
            if make(w):
                break
            # What was half written is dropped, with the names that it gave.
            del w.statements[before[0] :]
            del w.pool[before[1] :]


def kernels_exact() -> list[tuple[Production, int]]:
    return [(one, 1) for one in kernels.EXACT]


def some_type(w: Writer, rank: tuple[int, ...] = (0, 1, 1, 2, 2, 3)) -> tuple[str, tuple[str, ...]]:
    dims = [w.any_dim() for _ in range(w.one(rank))]
    weighted = ("f32", "f32", "bf16", "f16", "f64", "i32", "i32", "i64", *INTEGERS, "bool")
    if w.close:
        weighted = ("f32", "f32", "f32", "bf16", "bf16", "f16", "f64", "i32", "i64", "bool", "u8")
    return w.one(weighted), tuple(dims)


def parameters(w: Writer, count: int, stem: str = "a") -> list[Value]:
    """Values that are given from outside, in scope from now on."""
    made = []
    for i in range(count):
        dtype, dims = some_type(w)
        if w.rows and i < 2:
            dims = ("B", *dims[:2])
        made.append(Value(f"{stem}{i}", dtype, dims))
    w.pool += made
    return made


def results(w: Writer, given: list[Value], most: int) -> list[Value]:
    """Values to return: new ones first, every one of a name of its own."""
    names = {v.name for v in given}
    fresh = [v for v in w.pool if v.name not in names and (not w.rows or w.batched(v))]
    if not fresh:
        fresh = [v for v in w.pool if not w.rows or w.batched(v)]
    w.random.shuffle(fresh)
    fresh.sort(key=lambda v: v.name not in {u.name for u in w.pool[-8:]})
    return fresh[: w.random.randint(1, most)]


__all__ = [
    "DTYPES",
    "FLOATS",
    "INTEGERS",
    "PRODUCTIONS",
    "Statement",
    "parameters",
    "results",
    "write",
]
