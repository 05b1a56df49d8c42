"""A diagram as JSON for the page's script, which lays it out again when rows open or sizes move.

A dimension is a number, a name, or a sum `[[coefficient, atom, …], …]` whose atoms are names or
`["/", p, q]`, `["<", p, q]` (minimum), `[">", p, q]` (maximum). A type is text, or
`["t", dimensions, dtype]`, or `["?", type]`; a pack of dimensions is a name with `*` in front.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from linnet.dims import Dim
from linnet.dims.dim import Atom
from linnet.ir.types import GenericArg, OptionalType, Pack, TensorType, Type
from linnet.nest.diagram.graph import Port, Row, Sheet
from linnet.source import Span

_SIGNS = {"floor": "/", "min": "<", "max": ">"}


def encode_dim(dim: Dim) -> Any:
    if dim.constant is not None:
        return dim.constant
    terms = []
    for monomial, coefficient in dim.terms:
        term: list[Any] = [coefficient]
        for atom, power in monomial:
            term += [_atom(atom)] * power
        terms.append(term)
    if len(terms) == 1 and terms[0][0] == 1 and len(terms[0]) == 2 and isinstance(terms[0][1], str):
        return terms[0][1]
    return terms


def _atom(atom: Atom) -> Any:
    if atom.kind == "name":
        return atom.name
    return [_SIGNS[atom.kind], *map(encode_dim, atom.args)]


def _shape(items: Iterable[Dim | Pack]) -> list[Any]:
    return [f"*{item.name}" if isinstance(item, Pack) else encode_dim(item) for item in items]


def encode_type(type: Type) -> Any:
    match type:
        case TensorType(shape, dtype):
            return ["t", _shape(shape), dtype]
        case OptionalType(inner):
            return ["?", encode_type(inner)]
    return str(type)


def _argument(argument: GenericArg) -> Any:
    if isinstance(argument, Dim):
        return encode_dim(argument)
    return ["s", _shape(argument)] if isinstance(argument, tuple) else argument


def _port(port: Port) -> list[Any]:
    return [port.name or "", encode_type(port.type)]


def encode_sheet(sheet: Sheet, link: Callable[[Span], str | None]) -> dict[str, Any]:
    return {
        "p": [_port(port) for port in sheet.params],
        "r": [_row(row, link) for row in sheet.rows],
        "w": [[wire.source, wire.port, wire.target] for wire in sheet.wires],
    }


def _row(row: Row, link: Callable[[Span], str | None]) -> dict[str, Any]:
    """Keys whose value is empty are left out."""
    found = {
        "k": row.kind,
        "l": row.label,
        "n": row.note if len(row.note) <= 200 else row.note[:199] + "…",
        "h": link(row.span) if row.span is not None else None,
        "o": [_port(port) for port in row.outs],
        "m": [[name, kind, encode_type(type)] for name, kind, type in row.members],
        "t": row.target,
        "b": {name: _argument(argument) for name, argument in row.bindings.items()},
        "x": encode_dim(row.repeat) if row.repeat is not None else None,
        "i": [[name, encode_sheet(inner, link)] for name, inner in row.inside],
    }
    return {key: value for key, value in found.items() if value not in (None, "", [], {})}
