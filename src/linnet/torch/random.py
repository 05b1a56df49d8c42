"""Random weights: for trying a program, measuring and testing without a checkpoint.

Values come from one pool of normal numbers that is tiled over the tensors, so that billions
of parameters cost a copy, not a draw. The pool's length is prime: rows of a matrix differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import prod
from typing import TYPE_CHECKING, Any
from zlib import crc32

import torch
from torch import Tensor

from linnet.ir.manifest import Parameter
from linnet.torch import dtypes
from linnet.weights.room import in_large_pages

if TYPE_CHECKING:
    from linnet.weights.choice import Choice
    from linnet.weights.folder import Output

POOL = 1_048_573


class RandomWeights:
    """`make(parameter)` gives a tensor; equal seeds give equal tensors.

    Vectors called `weight` lie around one, other vectors around zero; matrices and stacks of
    them have a deviation of 1 / sqrt(their last axis), at most 0.05.
    """

    def __init__(self, seed: int, device: torch.device):
        self.device = device
        self.generator = torch.Generator().manual_seed(seed)
        self.pool = torch.randn(POOL, generator=self.generator).to(device)
        self.cast: dict[tuple[torch.dtype, float], Tensor] = {}

    def make(self, parameter: Parameter) -> Tensor:
        shape, dtype = parameter.shape, dtypes.STORAGE[parameter.dtype]
        size = prod(shape)
        if parameter.dtype not in dtypes.FLOATS:
            return self.integers(parameter)
        if len(shape) <= 1:
            start = 1.0 if parameter.path.rpartition(".")[2] == "weight" else 0.0
            source = (self.pool * 0.1 + start).to(dtype)
        else:
            scale = min(0.05, max(1, shape[-1]) ** -0.5)
            key = (dtype, scale)
            if key not in self.cast:
                self.cast[key] = (self.pool * scale).to(dtype)
            source = self.cast[key]
        tensor = torch.empty(size, dtype=dtype, device=self.device)
        if tensor.device.type == "cpu":
            in_large_pages(tensor.data_ptr(), tensor.nbytes)
        at = crc32(parameter.path.encode()) % POOL
        filled = 0
        while filled < size:
            part = min(size - filled, POOL - at)
            tensor[filled : filled + part] = source[at : at + part]
            filled, at = filled + part, 0
        return tensor.view(shape)

    def integers(self, parameter: Parameter) -> Tensor:
        """The whole range of an integer dtype, at most 16 bits of it; bools evenly."""
        low, high = dtypes.limits(parameter.dtype)
        low, high = max(low, -(2**15)), min(high, 2**15 - 1)
        drawn = torch.randint(low, high + 1, parameter.shape, generator=self.generator)
        carrier = dtypes.cast(drawn, "i64", parameter.dtype)
        return dtypes.from_carrier(carrier, parameter.dtype).to(self.device)


def random_outputs(
    listed: Iterable[Parameter], choice: Choice, names: Mapping[str, str], seed: int
) -> list[Output]:
    """Random weights to be written under a checkpoint's names, each made when its turn comes."""
    from linnet.torch.load import _array, _raw
    from linnet.weights.folder import Output
    from linnet.weights.quantize import quantize_values

    source = RandomWeights(seed, torch.device("cpu"))
    tied: dict[str, list[Parameter]] = {}
    for parameter in listed:
        if not parameter.optional:
            tied.setdefault(names.get(parameter.path, parameter.path), []).append(parameter)

    def output(name: str, parameters: list[Parameter]) -> Output:
        parameter = parameters[0]
        kind = choice.format([p.path for p in parameters], parameter.shape, parameter.dtype)

        def make() -> Any:
            tensor = source.make(parameter)
            if kind is None:
                return _raw(tensor, parameter.dtype)()
            return quantize_values(_array(tensor), parameter.shape, kind)

        return Output(name, parameter.dtype, parameter.shape, kind, make)

    return [output(name, parameters) for name, parameters in tied.items()]
