"""Writes into a cache `[B, H, S, D]`. The plain names write in place; `…_new` return a copy.

Positions and slots are in range and slots distinct: an entry's checks, or the generated
code, have seen to it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from linnet.torch.caches import opened


def write_at(cache: Tensor, value: Tensor, at: int) -> Tensor:
    """`value` `[B, H, 1, D]` at position `at` of every row."""
    held, value = opened(cache, value)
    held.narrow(2, at, 1).copy_(value)
    return cache


def write_span(cache: Tensor, value: Tensor, at: int) -> Tensor:
    """`value` `[B, H, N, D]` from position `at` of every row."""
    held, value = opened(cache, value)
    held.narrow(2, at, value.shape[2]).copy_(value)
    return cache


def write_rows(cache: Tensor, value: Tensor, at: Tensor) -> Tensor:
    """`value` `[B, H, 1, D]`, row `b` at `at[b]`."""
    rows = torch.arange(cache.shape[0], device=cache.device)
    held, value = opened(cache, value)
    held[rows, :, at] = value.select(2, 0)
    return cache


def write_slots(cache: Tensor, value: Tensor, slots: Tensor, at: int) -> Tensor:
    """`value` `[M, H, N, D]`, row `m` into row `slots[m]` from position `at`."""
    held, value = opened(cache, value)
    held.narrow(2, at, value.shape[2])[slots] = value
    return cache


def write_slot(cache: Tensor, value: Tensor, slot: int, at: int) -> Tensor:
    """`value` `[1, H, N, D]` into row `slot` from position `at`."""
    held, value = opened(cache, value)
    held.narrow(0, slot, 1).narrow(2, at, value.shape[2]).copy_(value)
    return cache


def write_tokens(cache: Tensor, value: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
    """`value` `[1, H, P, D]`, token `p` into row `rows[p]` at `positions[p]`."""
    held, value = opened(cache, value)
    held[rows, :, positions] = value[0].transpose(0, 1)
    return cache


def write_at_new(cache: Tensor, value: Tensor, at: int) -> Tensor:
    return write_at(cache.clone(), value, at)


def write_span_new(cache: Tensor, value: Tensor, at: int) -> Tensor:
    return write_span(cache.clone(), value, at)


def write_rows_new(cache: Tensor, value: Tensor, at: Tensor) -> Tensor:
    return write_rows(cache.clone(), value, at)


def write_slots_new(cache: Tensor, value: Tensor, slots: Tensor, at: int) -> Tensor:
    return write_slots(cache.clone(), value, slots, at)


def write_slot_new(cache: Tensor, value: Tensor, slot: int, at: int) -> Tensor:
    return write_slot(cache.clone(), value, slot, at)


def write_tokens_new(cache: Tensor, value: Tensor, rows: Tensor, positions: Tensor) -> Tensor:
    return write_tokens(cache.clone(), value, rows, positions)


IN_PLACE = {
    f.__name__: f for f in (write_at, write_span, write_rows, write_slots, write_slot, write_tokens)
}
FUNCTIONAL = {
    f.__name__.removesuffix("_new"): f
    for f in (
        write_at_new, write_span_new, write_rows_new, write_slots_new, write_slot_new,
        write_tokens_new,
    )
}  # fmt: skip
