"""How far rounding may carry a result: the reference with every rounding moved a little.

Other orders of addition and other exponentials differ in last bits. Which difference of a result
that explains depends on the program; so the program is run again with random errors of about the
size of a rounding in each of its operations, and what that moves is what may differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from linnet.torch import dtypes, elementwise
from linnet.torch.evaluate import Frame

EXACT = frozenset({"neg", "abs", "not"})
ROUNDS = frozenset({"add", "sub", "mul", "div"})


@contextmanager
def noise(seed: int) -> Iterator[None]:
    """Within it the reference evaluator rounds each float operation at random."""
    generator = torch.Generator().manual_seed(seed)
    unary, binary, reduce, cast = (
        elementwise.unary, elementwise.binary, elementwise.reduce, dtypes.cast
    )  # fmt: skip
    running = Frame.cumsum

    def moved(x: Tensor, scale: float = 1.0) -> Tensor:
        if not x.is_floating_point() or not x.numel():
            return x
        eps = torch.finfo(x.dtype).eps * scale
        wide = torch.float64 if x.dtype is torch.float64 else torch.float32
        shift = torch.rand(x.shape, generator=generator, dtype=wide) * 2 - 1
        return (x.to(wide) * (1 + eps * shift)).to(x.dtype)

    def noisy_unary(op: str, x: Tensor, dtype: str) -> Tensor:
        y = unary(op, x, dtype)
        return y if op in EXACT else moved(y, 1.5)

    def noisy_binary(op: str, a: Tensor, b: Tensor, dtype: str, where: object = None) -> Tensor:
        y = binary(op, a, b, dtype, where)
        return moved(y) if op in ROUNDS else y

    def noisy_reduce(kind: str, x: Tensor, axes: list[int], dtype: str) -> Tensor:
        if kind in ("sum", "prod"):
            return moved(reduce(kind, moved(x, 2.0), axes, dtype))
        return reduce(kind, x, axes, dtype)

    def noisy_cast(x: Tensor, source: str, target: str) -> Tensor:
        y = cast(x, source, target)
        both = source in dtypes.FLOATS and target in dtypes.FLOATS
        return moved(y) if both and source != target and target != "f64" else y

    def noisy_cumsum(self: Frame, op: Any) -> list[Any]:
        x = self.env[op.x]
        self.env[op.x] = moved(x, 2.0)
        try:
            return [moved(y) for y in running(self, op)]
        finally:
            self.env[op.x] = x

    elementwise.unary, elementwise.binary, elementwise.reduce = (
        noisy_unary,
        noisy_binary,
        noisy_reduce,
    )
    dtypes.cast, Frame.cumsum = noisy_cast, noisy_cumsum  # type: ignore[method-assign]
    try:
        yield
    finally:
        elementwise.unary, elementwise.binary, elementwise.reduce = unary, binary, reduce
        dtypes.cast, Frame.cumsum = cast, running  # type: ignore[method-assign]
