"""A checkpoint of which only the headers are at hand: names, dtypes and shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from linnet.errors import WeightsError
from linnet.weights.importer_file import Rule
from linnet.weights.importers import Recipe, declared, recipes
from linnet.weights.safetensors import FORMAT_DTYPES
from linnet.weights.tensor_info import TensorInfo


class Headers:
    """What a plan reads of a checkpoint: `tensors` by name."""

    def __init__(self, tensors: dict[str, TensorInfo]):
        self.tensors = tensors

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Headers:
        """From file name → tensor name → [dtype as the format writes it, shape].

        Raises `WeightsError` for what is no header, and for a tensor that stands twice.
        """
        tensors: dict[str, TensorInfo] = {}
        for file, entries in document.items():
            for name, (dtype, shape) in entries.items():
                if dtype not in FORMAT_DTYPES:
                    raise WeightsError(f"{file}: tensor `{name}`: unknown dtype {dtype!r}")
                if not all(type(size) is int and size >= 0 for size in shape):
                    raise WeightsError(f"{file}: tensor `{name}`: shape is {shape!r}")
                if name in tensors:
                    raise WeightsError(
                        f"tensor `{name}` stands twice: in {tensors[name].file} and in {file}"
                    )
                own, bits = FORMAT_DTYPES[dtype]
                size = prod(shape) * bits // 8
                tensors[name] = TensorInfo(name, own, tuple(shape), size, Path(file))
        return cls(tensors)

    def adapt(self, wanted: Iterable[str], rules: Sequence[Rule] = ()) -> None:
        """As `Checkpoint.adapt`: offer what is there in another layout under the names wanted."""
        wanted = list(wanted)
        made = declared(rules, wanted, self.tensors)
        self._offer(made)
        stored = {name: info for name, info in self.tensors.items() if name not in made}
        self._offer(recipes([name for name in wanted if name not in self.tensors], stored))

    def _offer(self, made: dict[str, Recipe]) -> None:
        for recipe in made.values():
            for part in recipe.parts:
                self.tensors.pop(part, None)
        self.tensors |= {name: recipe.info for name, recipe in made.items()}
