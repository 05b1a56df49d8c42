"""Kernels for layers of one torch call or two: linear, embedding, activations, norms."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x` `[.., In]`, `weight` `[Out, In]`; torch accumulates bf16 and f16 in f32."""
    return F.linear(x, weight, bias)


def embedding(ids: Tensor, table: Tensor) -> Tensor:
    """`ids` of any integer dtype, `table` `[V, H]`."""
    return F.embedding(ids, table)


def softmax(x: Tensor) -> Tensor:
    """Over the last axis; torch computes bf16 and f16 in f32 inside and rounds once."""
    return torch.softmax(x, -1)


def swiglu(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """`down (silu(gate x) * up x)`, the weights `[Inner, H]`, `[Inner, H]`, `[H, Inner]`."""
    return F.linear(F.silu(F.linear(x, gate)).mul_(F.linear(x, up)), down)


def swiglu_new(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """`swiglu` without writing in place, for gradients."""
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


def gelu_tanh(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def gelu_erf(x: Tensor) -> Tensor:
    return F.gelu(x)


def rms_norm(x: Tensor, weight: Tensor, eps: float | Tensor = 1e-5) -> Tensor:
    """Statistics in f32, rounded to the dtype, then scaled."""
    wide = x.float()
    level = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * level).to(x.dtype) * weight


def layer_norm(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, eps: float | Tensor = 1e-5
) -> Tensor:
    """Torch's own: statistics in f32 inside, rounded once."""
    return F.layer_norm(x, (x.shape[-1],), weight, bias, float(eps))
