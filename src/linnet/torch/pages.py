"""Tensors for states: zero, each of some size on large pages of its own."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import torch
from torch import Tensor

from linnet.weights.available import available_memory
from linnet.weights.room import LARGE, PAGE, address_of, room


def blank(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Zeros `shape`. Raises RuntimeError where memory lacks."""
    count = prod(shape)
    size = count * dtype.itemsize
    if device.type != "cpu" or size < PAGE:
        return torch.zeros(shape, dtype=dtype, device=device)
    check_room(size)
    try:
        memory = room(max(LARGE, size + PAGE))
    except (OSError, MemoryError) as error:
        raise RuntimeError(f"no memory for {size} bytes") from error
    start = -address_of(memory) % PAGE
    made = torch.frombuffer(memory, dtype=dtype, count=count, offset=start)
    return made.view(tuple(shape)).zero_()  # touched now: what does not fit shows here


def check_room(size: int) -> None:
    """Raises RuntimeError where fewer bytes are free: a system that promises more than it has
    would end the process when they are written."""
    free = available_memory()
    if free is not None and size > free:
        raise RuntimeError(f"no memory for {size} bytes, {free} are free")
