"""Sorted order along the last axis, ties to the lower index."""

from __future__ import annotations

import torch
from torch import Tensor


def rank(x: Tensor, descending: bool, dtype: torch.dtype) -> Tensor:
    """The position of each element in sorted order."""
    order = torch.sort(x, stable=True, descending=descending).indices
    places = torch.arange(x.shape[-1], device=x.device).expand_as(order)
    return torch.empty_like(order).scatter_(-1, order, places).to(dtype)


def top_k(x: Tensor, k: int, descending: bool) -> tuple[Tensor, Tensor]:
    """The first `k` values and their indices (i64)."""
    if x.dtype in _KEYS and x.numel() > SMALL and descending:
        indices = _by_keys(x, k)
        return x.gather(-1, indices), indices
    values, order = torch.sort(x, stable=True, descending=descending)
    return values[..., :k], order[..., :k]


SMALL = 2048  # elements up to which one stable sort is quicker
_KEYS = {
    torch.bfloat16: (torch.int16, torch.int32),
    torch.float16: (torch.int16, torch.int32),
    torch.float32: (torch.int32, torch.int64),
}


def _by_keys(x: Tensor, k: int) -> Tensor:
    """Indices of the largest, through integer keys that no two elements share.

    A float's bits, those below the sign flipped where it is negative, order as the float does;
    the position, reversed, breaks ties. Adding zero makes one of the two zeros.
    """
    bits, wide = _KEYS[x.dtype]
    width = torch.iinfo(bits).bits
    raw = (x + 0.0).view(bits).to(wide)
    ordered = torch.where(raw < 0, raw ^ torch.iinfo(bits).max, raw)
    reach = x.shape[-1]
    if reach > 1 << width:
        return torch.sort(x, stable=True, descending=True).indices[..., :k]
    places = torch.arange(reach - 1, -1, -1, dtype=wide, device=x.device)
    keys = ordered * (1 << width) + places
    return reach - 1 - (torch.topk(keys, k).values & ((1 << width) - 1)).long()
