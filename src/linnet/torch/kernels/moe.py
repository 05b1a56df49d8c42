"""Linear maps of chosen experts: rows sorted by expert, each expert's weights read once.

With few rows only the chosen experts' weights are touched, without a copy of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakValueDictionary

import torch
import torch.nn.functional as F
from torch import Tensor


@dataclass
class Route:
    """Slots (`row * K + k`) in order of their expert, and how many each expert has."""

    experts: Tensor
    order: Tensor  # [R * K] slots sorted by expert
    back: Tensor  # [R * K] where each slot went
    segments: list[tuple[int, int, int]]  # expert, start, stop


# The expert ops of one layer share their choice: the last few are kept while their `experts`
# tensors live.
_routes: dict[int, tuple[WeakValueDictionary[str, Tensor], Route]] = {}


def route(experts: Tensor) -> Route:
    known = _routes.get(id(experts))
    if known is not None and known[0].get("experts") is experts:
        return known[1]
    flat = experts.reshape(-1)
    chosen, order = torch.sort(flat, stable=True)
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order), device=order.device)
    ids, counts = torch.unique_consecutive(chosen, return_counts=True)
    segments, start = [], 0
    for expert, count in zip(ids.tolist(), counts.tolist(), strict=True):
        segments.append((expert, start, start + count))
        start += count
    made = Route(flat, order, back, segments)
    keep: WeakValueDictionary[str, Tensor] = WeakValueDictionary()
    keep["experts"] = experts
    if len(_routes) > 4:
        _routes.clear()
    _routes[id(experts)] = (keep, made)
    return made


def _few(experts: Tensor) -> bool:
    return experts.shape[0] == 1


def _by_expert(x: Tensor, weight: Tensor, way: Route) -> Tensor:
    """Sorted rows `[N, In]` through their experts: `[N, Out]`."""
    parts = [F.linear(x[a:b], weight[e]) for e, a, b in way.segments]
    return torch.cat(parts) if parts else x.new_empty(0, weight.shape[1])


def linear_experts(x: Tensor, weight: Tensor, experts: Tensor) -> Tensor:
    """`x` `[R, K, In]`, `weight` `[E, Out, In]`, `experts` `[R, K]`; `[R, K, Out]`."""
    rows, slots = experts.shape
    if _few(experts):
        parts = [F.linear(x[:, i], weight[e]) for i, e in enumerate(experts[0].tolist())]
        return torch.stack(parts, 1) if parts else x.new_empty(rows, 0, weight.shape[1])
    way = route(experts)
    y = _by_expert(x.reshape(rows * slots, -1)[way.order], weight, way)
    return y[way.back].view(rows, slots, -1)


def linear_experts_shared(x: Tensor, weight: Tensor, experts: Tensor) -> Tensor:
    """`x` `[R, In]`, one row for all of its experts; `[R, K, Out]`."""
    rows, slots = experts.shape
    if _few(experts):
        parts = [F.linear(x, weight[e]) for e in experts[0].tolist()]
        return torch.stack(parts, 1) if parts else x.new_empty(rows, 0, weight.shape[1])
    way = route(experts)
    y = _by_expert(x[way.order // slots] if slots else x[:0], weight, way)
    return y[way.back].view(rows, slots, weight.shape[1])


def combine_experts(x: Tensor, weight: Tensor, experts: Tensor, weights: Tensor) -> Tensor:
    """`x` `[R, K, In]`, `weights` `[R, K]`; `[R, Out]`, the slots added up in f32 at least."""
    y = linear_experts(x, weight, experts)
    wide = torch.promote_types(y.dtype, torch.float32)
    share = weights.to(wide).unsqueeze(-1)
    slots = y.shape[1]
    if torch.is_grad_enabled() or slots == 0 or y.shape[0] == 1:
        return (y.to(wide) * share).sum(1).to(x.dtype)
    # Slot by slot: nothing larger than the result is made.
    total = y[:, 0].to(wide) * share[:, 0]
    for slot in range(1, slots):
        total.addcmul_(y[:, slot].to(wide), share[:, slot])
    return total.to(x.dtype)


def combine_experts_f32(x: Tensor, weight: Tensor, experts: Tensor, weights: Tensor) -> Tensor:
    """`combine_experts` whose products are not rounded before they are added."""
    rows, slots = experts.shape
    out = torch.zeros(rows, weight.shape[1], dtype=torch.float32, device=x.device)
    way = route(experts)
    flat = x.reshape(rows * slots, -1)
    share = weights.reshape(-1).float()
    for e, a, b in way.segments:
        chosen = way.order[a:b]
        y = F.linear(flat[chosen].float(), weight[e].float()) * share[chosen].unsqueeze(-1)
        out = out.index_add(0, chosen // slots, y)
    return out.to(x.dtype)
