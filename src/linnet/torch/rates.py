"""What a machine can do by torch's own kernels, where there is no C compiler."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

READ = 64 << 20  # elements of 8 bytes
SIDE = 1024


def read_rate(threads: int) -> float:
    """Bytes a second read from memory by a sum."""
    torch.set_num_threads(threads)
    values = torch.ones(READ, dtype=torch.int64)
    return READ * 8 / _best(lambda: values.sum())


def product_rate(threads: int, dtype: str) -> float:
    """Operations a second of a product of square matrices."""
    torch.set_num_threads(threads)
    a = torch.ones(SIDE, SIDE, dtype=torch.bfloat16 if dtype == "bf16" else torch.float32)
    return 2 * SIDE**3 / _best(lambda: a @ a)


def _best(run: Callable[[], object], times: int = 8) -> float:
    best = float("inf")
    for _ in range(times):
        start = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - start)
    return best
