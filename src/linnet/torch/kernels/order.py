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
    values, order = torch.sort(x, stable=True, descending=descending)
    return values[..., :k], order[..., :k]
