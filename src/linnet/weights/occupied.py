"""What a model is going to take before it is loaded: its weights in whatever form, its states."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from linnet.ir.memory import held, in_checkpoint, storage
from linnet.ir.program import Program
from linnet.ir.specialize import bind_root
from linnet.weights.packed import BITS, BLOCKS

Values = Mapping[str, "int | str"]


def weight_bytes(
    program: Program,
    root: str,
    generics: Values,
    bindings: Mapping[str, str],
    weights: Any,
    quantize: str | None = None,
    embedding: int = 8,
) -> int:
    """Bytes of the weights once loaded: as declared, as they are packed on load, or as the files
    `weights` (None: random ones) hold them packed. Raises BindError, and WeightsError for files
    that cannot be read."""
    generics = _values(program, root, generics)
    stored = in_checkpoint(storage(program, root), bindings)
    if quantize in BITS:
        return held(stored, generics, frozenset(), BITS[quantize], embedding)["weights"]
    if weights is not None:
        from linnet.weights.checkpoint import open_checkpoint

        as_stored = {*BITS, *BLOCKS} if quantize == "stored" else {*BITS}
        with open_checkpoint(weights) as checkpoint:
            infos = [info for info in checkpoint.tensors.values() if info.alias is None]
            if any(info.dtype in as_stored for info in infos):
                return sum(info.nbytes for info in infos)
    return held(stored, generics, frozenset())["weights"]


def state_bytes(
    program: Program, root: str, generics: Values, cache: str | None = None
) -> Callable[[int], int]:
    """The bytes of all states as a function of `MaxSeq`; `cache` "int8" keeps keys and values
    in 8 bits. Raises BindError."""
    generics = _values(program, root, generics)
    stored = [s for s in storage(program, root) if s.kind == "state"]

    def at(length: int) -> int:
        bound = {**generics, "MaxSeq": length}
        parts = held(stored, bound, frozenset(), cache=8 if cache else 0)
        return sum(parts.values())

    return at


def _values(program: Program, root: str, generics: Values) -> dict[str, int | str]:
    """All generics of the root, defaults filled in."""
    bound = bind_root(program, root, dict(generics))
    texts = {name: str(value) for name, value in bound.items()}
    return {name: int(text) if text.isdecimal() else text for name, text in texts.items()}
