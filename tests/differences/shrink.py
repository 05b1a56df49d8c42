"""A failing program made small: what can go while the same evaluators still differ."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

from differences.program import Program
from differences.run import Difference, Runner
from differences.statement import Statement

Test = Callable[[Program], Difference | None]


def still(difference: Difference, folder: Path, times: int) -> Test:
    """Whether a program shows a difference of the same kind between the same evaluators."""

    def test(program: Program) -> Difference | None:
        backend = difference.backend
        backends = ("torch",) if backend == "torch" else ("native",)
        try:
            runner = Runner(program, folder, backends)
            found = runner.run(times)
        except Exception:  # what the checker refuses, or what fails otherwise, is another matter
            return None
        return next((d for d in found if d.backend == backend and d.what == difference.what), None)

    return test


def shrink(program: Program, difference: Difference, folder: Path, seconds: float = 60.0) -> str:
    """The text of a smaller program and what it shows."""
    test = still(difference, folder, difference.call + 1)
    end = time.monotonic() + seconds
    small = _alone(program, difference.entry)
    last = test(small)
    if last is None:  # it needs what other entries left in the states
        small, last = deepcopy(program), difference
    improved = True
    while improved and time.monotonic() < end:
        improved = False
        for candidate in _smaller(small):
            if time.monotonic() > end:
                break
            found = test(candidate)
            if found is not None:
                small, last, improved = candidate, found, True
                break
    return f"{small.text()}\n// seed {program.seed}, {last}\n"


def _alone(program: Program, entry: str) -> Program:
    made = deepcopy(program)
    made.entries = [e for e in made.entries if e.name == entry]
    return made


def _smaller(program: Program) -> Iterator[Program]:
    """Programs with less in them, those with much less first."""
    for i in range(len(program.entries)):
        if len(program.entries) > 1:
            made = deepcopy(program)
            del made.entries[i]
            yield made
    if program.cell and "cells" not in "".join(e.routine.text(0) for e in program.entries):
        made = deepcopy(program)
        made.cell, made.cell_methods = [], []
        yield made
    body = "".join(e.routine.text(0) for e in program.entries)
    body += "".join(m.text(0) for m in program.cell_methods)
    for i, function in enumerate(program.functions):
        name = re.search(r"(?:fn|op) (\w+)", function.head)
        others = "".join(f.text(0) for f in program.functions if f is not function)
        if name is not None and not re.search(rf"\b{name.group(1)}\b", body + others):
            made = deepcopy(program)
            del made.functions[i]
            yield made
    for e, entry in enumerate(program.entries):
        if len(entry.routine.results) > 1:
            for i in range(len(entry.routine.results)):
                made = deepcopy(program)
                del made.entries[e].routine.results[i]
                yield made
    for r, routine in enumerate(_routines(program)):
        for path in _places(routine.body):
            made = deepcopy(program)
            if _drop(_routines(made)[r].body, path):
                yield made
        for path in _places(routine.body):
            for text in _plain(_at(routine.body, path)):
                made = deepcopy(program)
                body_, i = _within(_routines(made)[r].body, path)
                body_[i] = replace(body_[i], head=text, body=None, last="")
                yield made


def _routines(program: Program) -> list:  # type: ignore[type-arg]
    return [e.routine for e in program.entries] + program.cell_methods + program.functions


def _places(body: list[Statement], at: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Every statement, the last ones first."""
    for i in range(len(body) - 1, -1, -1):
        yield (*at, i)
        inner = body[i].body
        if inner:
            yield from _places(inner, (*at, i))


def _within(body: list[Statement], path: tuple[int, ...]) -> tuple[list[Statement], int]:
    for step in path[:-1]:
        inner = body[step].body
        assert inner is not None
        body = inner
    return body, path[-1]


def _at(body: list[Statement], path: tuple[int, ...]) -> Statement:
    inside, i = _within(body, path)
    return inside[i]


def _drop(body: list[Statement], path: tuple[int, ...]) -> bool:
    inside, i = _within(body, path)
    if inside[i].keep and any(inside[i].defines[0] in s.head for s in inside[i + 1 :]):
        return False
    del inside[i]
    return True


def _plain(statement: Statement) -> Iterator[str]:
    """What defines the same names in a simpler way."""
    if len(statement.defines) != 1 or (
        "fill<" in statement.head[:24] and "[1]" not in statement.head
    ):
        return
    (name,) = statement.defines
    type = statement.types.get(name, "")
    match = re.fullmatch(r"Tensor\[(.*); (\w+)\]", type)
    word = "var" if statement.head.startswith("var ") else "let"
    if match is not None:
        dims, dtype = match.groups()
        value = {"bool": "true"}.get(dtype, "1" if dtype[0] in "iu" else "1.0")
        yield f"{word} {name} = fill<{dtype}>([{dims}], {value})"
        if dtype != "bool" and ", " not in dims:
            yield f"{word} {name} = iota<{dtype}>({dims})"
    elif type in ("i32", "i64", "u8", "i8"):
        yield f"{word} {name}: {type} = 1"
    elif type == "bool":
        yield f"{word} {name} = true"
