"""Attention kernels over `[B, heads, positions, D]`, memory linear in the positions.

A causal mask arrives as a position (`Causal`), so that only the keys written so far are read,
and no mask is made for a single query. Where a tensor says what is seen it becomes an additive
mask of -1e30, which leaves a query that sees no key the mean of all values, as in the body.

Torch's `scaled_dot_product_attention` does the work, with the query heads of one key head as
rows of one product where there is one query each. On a CPU that multiplies bf16, a causal
prompt in bf16 runs as matrix products over blocks of queries instead, two to five times as
fast there; scores are then rounded to bf16 before the softmax, as the frameworks' eager
attention rounds them.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from linnet.torch.runtime import Causal

UNSEEN = -1e30
BLOCK = 1 << 22  # elements of a mask made at a time
QUERIES = 128  # queries of a block of products


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
    batch, heads, queries, width = q.shape
    grouped = heads != k.shape[1]
    if queries == 1 and grouped and not causal:
        rows = q.reshape(batch, k.shape[1], -1, width)
        y = F.scaled_dot_product_attention(rows, k, v, attn_mask=mask, scale=scale)
        return y.reshape(q.shape)
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
    if q.dtype == torch.bfloat16 and not q.is_cuda and not torch.is_grad_enabled():
        if queries >= 8 and end == offset + queries and _bf16_products():
            return _blocks(q, k, v, scale, offset)
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


@lru_cache(maxsize=1)
def _bf16_products() -> bool:
    """Whether this CPU has bf16 products (without, torch's are slower than f32)."""
    try:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):
        return False


def _blocks(q: Tensor, k: Tensor, v: Tensor, scale: float, offset: int) -> Tensor:
    """Causal, `K = offset + Q` keys: blocks of queries against the keys that they see."""
    batch, heads, queries, width = q.shape
    shared = k.shape[1]
    ratio = heads // shared
    k = k.reshape(batch * shared, -1, width).transpose(1, 2)
    v = v.reshape(batch * shared, -1, v.shape[-1])
    q = (q * scale).reshape(batch * shared, ratio, queries, width)
    out = q.new_empty(batch * shared, ratio, queries, v.shape[-1])
    for start in range(0, queries, QUERIES):
        stop = min(queries, start + QUERIES)
        size, last = stop - start, offset + stop
        rows = q[:, :, start:stop].reshape(batch * shared, ratio * size, width)
        scores = torch.bmm(rows, k[:, :, :last]).view(-1, size, last)
        scores[:, :, offset + start :].masked_fill_(_future(size), UNSEEN)
        share = torch.softmax(scores, -1).view(batch * shared, ratio * size, last)
        out[:, :, start:stop] = torch.bmm(share, v[:, :last]).view(-1, ratio, size, v.shape[-1])
    return out.view(batch, heads, queries, -1)


@lru_cache(maxsize=8)
def _future(size: int) -> Tensor:
    """True above the diagonal: the keys of a block that a query of it does not see."""
    with torch.inference_mode(False):
        return torch.ones(size, size, dtype=torch.bool).triu_(1)


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
    """`seen` `[Q, K]` or `[B, Q, K]`; queries are taken a few at a time.

    f16 holds no number that stands for unseen, so it is computed in f32.
    """
    if q.dtype == torch.float16:
        return _masked(q.float(), k.float(), v.float(), scale, seen).to(q.dtype)
    if seen.dim() == 3:
        seen = seen.unsqueeze(1)
    step = max(1, BLOCK // max(1, seen.shape[-1] * (seen.shape[0] if seen.dim() == 4 else 1)))
    parts = []
    for start in range(0, q.shape[2], step):
        part = seen[..., start : start + step, :]
        added = torch.zeros(part.shape, dtype=q.dtype, device=q.device)
        added.masked_fill_(~part, UNSEEN)
        parts.append(_attend(q[:, :, start : start + step], k, v, scale, added, False))
    return parts[0] if len(parts) == 1 else torch.cat(parts, 2)
