"""The C of a program's entries, and what a module must know of it besides."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from linnet.dims.dim import DimTooLarge
from linnet.native.emit import Emitter
from linnet.native.frame import Function
from linnet.native.node import Unsupported

if TYPE_CHECKING:
    from linnet.ir.bound import Bound
    from linnet.native.table import Table

PARTS = 4  # translation units, compiled at the same time
HEAD = '#include "runtime.h"\n#include "kernels.h"\n'


@dataclass
class Code:
    """`refused` are the entries that this backend does not compile, and why; `packable` the
    parameters that kernels for packed weights read; `dense` the members, as (kind, name), that
    must be bound dense. `parts` are translation units; none where the library was kept."""

    functions: dict[str, Function] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    packable: set[str] = field(default_factory=set)
    dense: set[tuple[str, str]] = field(default_factory=set)
    parts: list[str] = field(default_factory=list)


def emit(
    bound: Bound,
    table: Table,
    entries: Iterable[str],
    covered: dict[str, frozenset[int]],
    caches: frozenset[tuple[str, str]],
) -> Code:
    """Write the entries named of an optimized program (see `NativeModule` for the arguments)."""
    made = Code()
    nests: dict[str, str] = {}
    for name in entries:
        instance = bound.functions[bound.entries[name]]
        emitter = Emitter(bound, table, instance, nests, covered.get(name, frozenset()), caches)
        try:
            function = emitter.run(f"entry_{len(made.functions)}")
        except (Unsupported, DimTooLarge) as reason:
            made.refused[name] = f"{reason} is not compiled here"
            continue
        made.functions[name] = function
        made.packable |= emitter.packable
        # A weight's memory stands in the text only where it is read as dense elements.
        made.dense |= {place for key, place in emitter.places.items() if key in function.text}
    made.parts = parts(nests, made.functions)
    return made


def parts(nests: dict[str, str], functions: dict[str, Function]) -> list[str]:
    """Translation units: the nests spread over them, then the entries."""
    bodies: list[list[str]] = [[] for _ in range(PARTS)]
    heads: list[str] = []
    loads = [0] * PARTS
    for text, name in nests.items():
        scalar = not text.startswith("(")
        result, rest = ("void", text) if not scalar else text.split(" ", 1)
        least = loads.index(min(loads))
        loads[least] += len(text)
        bodies[least].append(f"{result} {name}{rest}\n")
        heads.append(f"{result} {name}{rest[: rest.index(') {') + 1]};\n")
    entries = "".join(function.text for function in functions.values())
    return [HEAD + "".join(body) for body in bodies] + [HEAD + "".join(heads) + entries]
