"""Integer expressions of index notation as sums: indices, run-time terms and a dimension.

`pos + iota(S)[i]` is one run-time term, the index `i` and nothing else. Casts between integer
dtypes are looked through: positions and their sums fit both (a run-time index that did
not would lie outside its axis, which is refused before anything runs).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from linnet.dims import Dim
from linnet.ir.passes.numbers import wrap
from linnet.ir.passes.tools import Defs, expr_key
from linnet.ir.program import GBinary, GCast, GDim, GExpr, GLit, GRead, GUnary, Idx, Iota
from linnet.ir.types import INTEGERS


@dataclass
class Linear:
    """`offset + sum of coefficient * index + sum of coefficient * term`."""

    offset: Dim = field(default_factory=lambda: Dim.const(0))
    indices: dict[Idx, int] = field(default_factory=dict)
    terms: dict[Hashable, tuple[GExpr, int]] = field(default_factory=dict)

    def add(self, other: Linear, sign: int = 1) -> Linear:
        result = Linear(self.offset + other.offset * sign, dict(self.indices), dict(self.terms))
        for index, coefficient in other.indices.items():
            total = result.indices.get(index, 0) + sign * coefficient
            result.indices[index] = total
            if not total:
                del result.indices[index]
        for key, (term, coefficient) in other.terms.items():
            total = (result.terms[key][1] if key in result.terms else 0) + sign * coefficient
            result.terms[key] = (term, total)
            if not total:
                del result.terms[key]
        return result


def _wide(node: GExpr) -> bool:
    """Whether positions and their sums do not wrap; narrow and unsigned types do."""
    return node.dtype in ("i32", "i64")


def _fits(index: Idx, dtype: str) -> bool:
    size = index.extent.constant if isinstance(index.extent, Dim) else None
    return size is not None and wrap(max(size - 1, 0), dtype) == max(size - 1, 0)


def linear(node: GExpr, defs: Defs) -> Linear:
    """The sum that an integer expression is; what is not understood is a term."""
    match node:
        case GLit(value) if not isinstance(value, float):
            return Linear(Dim.const(int(value)))
        case GDim(dim) if _wide(node) or dim.constant is not None:
            return Linear(dim)
        case GCast(x) if x.dtype in INTEGERS and node.dtype in ("i32", "i64"):
            return linear(x, defs)
        case GBinary("add", a, b) if _wide(node):
            return linear(a, defs).add(linear(b, defs))
        case GBinary("sub", a, b) if _wide(node):
            return linear(a, defs).add(linear(b, defs), -1)
        case GUnary("neg", x) if _wide(node):
            return Linear().add(linear(x, defs), -1)
        case GRead(value, (Idx() as index,)) if isinstance(defs.get(value), Iota):
            if _wide(node) or _fits(index, node.dtype):
                return Linear(indices={index: 1})
    return Linear(terms={expr_key(node, {}, lambda value: value): (node, 1)})
