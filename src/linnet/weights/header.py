"""A checkpoint of which only the headers are at hand: names, dtypes and shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any

from linnet.errors import WeightsError
from linnet.weights.importers import recipes
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

    def adapt(self, wanted: Iterable[str]) -> None:
        """As `Checkpoint.adapt`: offer what is there in another layout under the names wanted."""
        for name, recipe in recipes(wanted, self.tensors).items():
            for part in recipe.parts:
                del self.tensors[part]
            self.tensors[name] = recipe.info
