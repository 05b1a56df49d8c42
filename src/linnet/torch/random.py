"""Random weights: for trying a program, measuring and testing without a checkpoint.

Values come from one pool of normal numbers that is tiled over the tensors, so that billions
of parameters cost a copy, not a draw. The pool's length is prime: rows of a matrix differ.
"""

from __future__ import annotations

from math import prod
from zlib import crc32

import torch
from torch import Tensor

from linnet.ir.manifest import Parameter
from linnet.torch import dtypes

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
