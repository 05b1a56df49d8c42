"""Dimensions: integer polynomials over names, quotients, minima and maxima, and proofs about them.

`Dim` is a size, `Fact` a comparison of two, `Facts` a set of assumptions that proves others.
"""

from linnet.dims.dim import Dim, DimTooLarge
from linnet.dims.fact import Fact, Proof, parse_fact
from linnet.dims.facts import Facts
from linnet.dims.text import parse_dim

__all__ = ["Dim", "DimTooLarge", "Fact", "Facts", "Proof", "parse_dim", "parse_fact"]
