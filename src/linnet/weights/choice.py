"""Which parameters are kept in few bits, and in how many."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from math import prod

from linnet.errors import InputError
from linnet.ir.memory import packing, storage
from linnet.ir.program import Program
from linnet.weights.packed import BITS, BLOCKS, group_of

# "stored": what a file holds packed runs as it is, and nothing else is packed.
FORMATS = (*BITS, "stored")


class Choice:
    """The formats of a model's parameters under `quantize`, one of FORMATS or None.

    A parameter may be packed when only operations that read packed weights read it. Routers,
    gates, norms, convolutions and narrow projections stay in their dtype; embeddings, and heads
    of an embedding's shape, keep 8 bits unless `embedding` says 4.
    """

    def __init__(
        self,
        program: Program,
        root: str,
        generics: Mapping[str, object],
        quantize: str | None,
        embedding: int = 8,
    ):
        if quantize is not None and quantize not in FORMATS:
            raise InputError(f"quantize: expected one of {', '.join(FORMATS)}, found {quantize!r}")
        self.quantize = quantize
        self._kept: dict[str, str] = {}
        self._may: set[str] = set()
        if root:
            sizes = {n: int(str(v)) for n, v in generics.items() if str(v).isdecimal()}
            stored = storage(program, root)
            self._may = {s.path for s in stored if s.packs is not None and s.kind == "param"}
            if quantize in BITS:
                self._kept = packing(stored, sizes)
        self._eight = f"int{embedding}" if quantize == "int4" else quantize

    def may(self, paths: Collection[str]) -> bool:
        """Whether all of these parameters, tied to one tensor, may be packed."""
        return all(pattern(path) in self._may for path in paths)

    def format(self, paths: Collection[str], shape: tuple[int, ...], dtype: str) -> str | None:
        """The format to bring a dense tensor into; None leaves it as it is."""
        if self.quantize not in BITS or not self.may(paths) or dtype not in ("f32", "f16", "bf16"):
            return None
        if len(shape) < 2 or not prod(shape) or group_of(shape[-1]) is None:
            return None
        kept = {self._kept.get(pattern(path), "dense") for path in paths}
        if "dense" in kept:
            return None
        return self._eight if "eight" in kept else self.quantize

    def keeps(self, paths: Collection[str], kind: str, dtype: str) -> bool:
        """Whether a tensor that a file holds in format `kind` is used as it lies there."""
        if not self.may(paths) or dtype not in ("f32", "f16", "bf16"):
            return False
        return kind in BITS or (kind in BLOCKS and self.quantize == "stored")


def pattern(path: str) -> str:
    """A parameter's path with `*` for positions in arrays, as `storage` writes it."""
    return re.sub(r"(?<=\.)\d+(?=\.)", "*", path)
