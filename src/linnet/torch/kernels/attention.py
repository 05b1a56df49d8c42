"""Attention kernels over `[B, heads, positions, D]`, memory linear in the positions.

The softmax of `softmax(scale * q k^T) v` is torch's `scaled_dot_product_attention`. A causal
mask arrives as a position (`Causal`), so that only the keys written so far are read, and no
mask is made for a single query. Where a tensor says what is seen it becomes an additive mask
of -1e30, which leaves a query that sees no key the mean of all values, as in the body.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.torch.runtime import Causal

UNSEEN = -1e30
BLOCK = 1 << 22  # elements of a mask made at a time


def grouped_attention(
    q: Tensor, k: Tensor, v: Tensor, scale: float | Tensor, mask: Tensor | Causal | None = None
) -> Tensor:
    """In the dtype given. `q` `[B, H, Q, D]`, `k` and `v` `[B, Hk, K, D]`; `mask` `[Q, K]` or
    `[B, Q, K]`, or a causal position (one, or one for each row). Result as `q`."""
    if isinstance(scale, Tensor):
        scale = float(scale)
    if k.shape[2] == 0 or q.numel() == 0:
        return torch.zeros_like(q)
    if isinstance(mask, Causal):
        return _causal(q, k, v, scale, mask.offset)
    if mask is None:
        return _attend(q, k, v, scale, None, False)
    return _masked(q, k, v, scale, mask)


def grouped_attention_f32(
    q: Tensor, k: Tensor, v: Tensor, scale: float | Tensor, mask: Tensor | Causal | None = None
) -> Tensor:
    """`grouped_attention` with scores, softmax and the weighted sum in f32."""
    if isinstance(mask, Causal) and not isinstance(mask.offset, Tensor):
        seen = max(1, mask.offset + q.shape[2]) if mask.offset >= 0 else k.shape[2]
        k, v = k[:, :, :seen], v[:, :, :seen]
    return grouped_attention(q.float(), k.float(), v.float(), scale, mask).to(q.dtype)


def _attend(
    q: Tensor, k: Tensor, v: Tensor, scale: float, mask: Tensor | None, causal: bool
) -> Tensor:
    grouped = q.shape[1] != k.shape[1]
    return F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=grouped
    )


def _causal(q: Tensor, k: Tensor, v: Tensor, scale: float, offset: int | Tensor) -> Tensor:
    queries, keys = q.shape[2], k.shape[2]
    if isinstance(offset, Tensor):
        return _causal_rows(q, k, v, scale, offset)
    if offset < 0:  # some query sees no key: the mean over every key, so none may be left out
        rows = torch.arange(queries, device=q.device).unsqueeze(-1)
        seen = torch.arange(keys, device=q.device) <= rows + offset
        return _masked(q, k, v, scale, seen)
    end = min(keys, offset + queries)
    if end < keys:
        k, v = k.narrow(2, 0, end), v.narrow(2, 0, end)
    if queries == 1:
        return _attend(q, k, v, scale, None, False)
    if offset == 0 and end == queries:
        return _attend(q, k, v, scale, None, True)
    # Torch's causal flag aligns to the first key; a later start takes masks of a few queries.
    step = max(1, BLOCK // end)
    parts = []
    for start in range(0, queries, step):
        stop = min(queries, start + step)
        last = min(keys, offset + stop)
        rows = torch.arange(start, stop, device=q.device).unsqueeze(-1)
        seen = torch.arange(last, device=q.device) <= rows + offset
        parts.append(
            _attend(q[:, :, start:stop], k[:, :, :last], v[:, :, :last], scale, seen, False)
        )
    return parts[0] if len(parts) == 1 else torch.cat(parts, 2)


def _causal_rows(q: Tensor, k: Tensor, v: Tensor, scale: float, offset: Tensor) -> Tensor:
    queries, keys = q.shape[2], k.shape[2]
    low, high = (int(x) for x in torch.aminmax(offset))
    if low < 0:
        end = keys
    else:
        end = min(keys, high + queries)
    if low == high and low >= 0:
        return _causal(q, k, v, scale, low)
    k, v = k[:, :, :end], v[:, :, :end]
    rows = torch.arange(queries, device=q.device).unsqueeze(-1) + offset.reshape(-1, 1, 1)
    seen = torch.arange(end, device=q.device) <= rows
    return _masked(q, k, v, scale, seen)


def _masked(q: Tensor, k: Tensor, v: Tensor, scale: float, seen: Tensor) -> Tensor:
    """`seen` `[Q, K]` or `[B, Q, K]`; queries are taken a few at a time."""
    if seen.dim() == 3:
        seen = seen.unsqueeze(1)
    step = max(1, BLOCK // max(1, seen.shape[-1] * (seen.shape[0] if seen.dim() == 4 else 1)))
    parts = []
    for start in range(0, q.shape[2], step):
        part = seen[..., start : start + step, :]
        added = torch.zeros(part.shape, dtype=q.dtype, device=q.device)
        added.masked_fill_(~part, max(UNSEEN, torch.finfo(q.dtype).min))
        parts.append(_attend(q[:, :, start : start + step], k, v, scale, added, False))
    return parts[0] if len(parts) == 1 else torch.cat(parts, 2)
