"""The gated delta rule and the short convolution before it.

The rule over a prompt runs by chunks (Yang, Kautz and Hatamizadeh, "Gated Delta Networks",
arXiv 2412.06464; the UT transform of "Parallelizing Linear Transformers with the Delta Rule",
arXiv 2406.06484). With `G` the running sum of `decay` in a chunk and `S` the state before it,
the corrections `u_t` that the tokens write satisfy

    (I + A) U = diag(beta) V - diag(beta exp(G)) K S,
    A[t, j] = beta_t exp(G_t - G_j) k_t.k_j   for j < t,

a triangular system that does not depend on `S` but for its right side, so that it is solved
for all chunks at once. Then, chunk after chunk,

    O  = diag(exp(G)) Q S + (tril(Q K^T) * exp(G_t - G_j)) U,
    S' = exp(G_C) S + (diag(exp(G_C - G)) K)^T U.

Differences of `G` are taken before `exp`, so nothing overflows where the body does not.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK = 64


def gated_delta_rule_parts(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor, initial: Tensor,
    scale: float | Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Outputs `[B, S, Hv, Dv]` and the final state `[B, Hv, Dk, Dv]`, f32."""
    batch, length, key_heads, key_dim = q.shape
    heads, value_dim = v.shape[2], v.shape[3]
    size = min(CHUNK, length)
    count = -(-length // size)
    shared = heads // key_heads

    def chunks(x: Tensor) -> Tensor:  # [B, S, heads, …] to [B, heads, count, size, …]
        x = x.float().transpose(1, 2)
        spare = count * size - length
        if spare:
            x = F.pad(x, (0, 0, 0, spare) if x.dim() == 4 else (0, spare))
        return x.unflatten(2, (count, size))

    queries, keys, values = chunks(q) * scale, chunks(k), chunks(v)
    rates = chunks(beta).unsqueeze(-1)
    total = chunks(decay).cumsum(-1)  # [B, Hv, count, size]
    growth = total.exp().unsqueeze(-1)
    lower = torch.ones(size, size, dtype=torch.bool, device=q.device).tril()
    between = (total.unsqueeze(-1) - total.unsqueeze(-2)).masked_fill(~lower, float("-inf")).exp()

    def per_value_head(x: Tensor) -> Tensor:
        return x if shared == 1 else x.repeat_interleave(shared, 1)

    transposed = keys.transpose(-1, -2)
    overlap = per_value_head(keys @ transposed) * between * rates
    scores = per_value_head(queries @ transposed) * between
    queries, keys = per_value_head(queries), per_value_head(keys)
    # The unit diagonal of I + A is implied; the solver reads below it only.
    right = torch.cat((rates * values, rates * growth * keys), -1)
    solved = torch.linalg.solve_triangular(overlap, right, upper=False, unitriangular=True)
    fresh, read = solved.split((value_dim, key_dim), -1)
    queries = queries * growth
    last = total[..., -1:]
    keys = (keys * (last - total).exp().unsqueeze(-1)).transpose(-1, -2)
    fade = last.exp().unsqueeze(-1)
    state = initial.float()
    outputs = []
    for c in range(count):
        change = fresh[:, :, c] - read[:, :, c] @ state
        outputs.append(queries[:, :, c] @ state + scores[:, :, c] @ change)
        state = fade[:, :, c] * state + keys[:, :, c] @ change
    told = outputs[0] if count == 1 else torch.cat(outputs, 2)
    return told[:, :, :length].transpose(1, 2), state


def gated_delta_rule(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor, initial: Tensor,
    scale: float | Tensor,
) -> Tensor:  # fmt: skip
    """As the op: `[B, S + Dk, Hv, Dv]`, outputs and then the final state's rows."""
    outputs, state = gated_delta_rule_parts(q, k, v, decay, beta, initial, scale)
    return torch.cat((outputs, state.transpose(1, 2)), 1)


def gated_delta_step_parts(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor, initial: Tensor,
    scale: float | Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """One token: output `[B, 1, Hv, Dv]` and the new state `[B, Hv, Dk, Dv]`."""
    return _step(q, k, v, decay, beta, initial.clone(), scale, False)


def gated_delta_step_in_place(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor, initial: Tensor,
    scale: float | Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`gated_delta_step_parts`, the state given becoming the new one."""
    return _step(q, k, v, decay, beta, initial, scale, True)


def _step(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor, state: Tensor,
    scale: float | Tensor, in_place: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """With `f = exp(decay)`: what is read is `f k^T S`, and `q^T S' = f q^T S + (q.k) change`,
    so one product `[k; q] S` serves both."""
    batch, heads, key_dim, value_dim = state.shape
    shared = heads // q.shape[1]
    pair = torch.stack((k, q), 2).float()
    if shared > 1:
        pair = pair.repeat_interleave(shared, 1)
    fade = decay.exp().unsqueeze(-1).unsqueeze(-1)
    seen = torch.matmul(pair, state).mul(fade)  # [B, Hv, 2, Dv]
    key = pair[:, :, 0]
    change = (v.float() - seen[:, :, 0]) * beta.unsqueeze(-1)
    alike = (pair[:, :, 1] * key).sum(-1, keepdim=True)
    output = (seen[:, :, 1] + alike * change) * scale
    if in_place:
        state.mul_(fade)
        flat = state.view(batch * heads, key_dim, value_dim)
        flat.baddbmm_(key.reshape(-1, key_dim, 1), change.reshape(-1, 1, value_dim))
    else:
        state = state * fade + key.unsqueeze(-1) * change.unsqueeze(-2)
    return output.unsqueeze(1), state


def gated_delta_step(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor, initial: Tensor,
    scale: float | Tensor,
) -> Tensor:  # fmt: skip
    """As the op: `[B, 1 + Dk, Hv, Dv]`."""
    output, state = gated_delta_step_parts(q, k, v, decay, beta, initial, scale)
    return torch.cat((output, state.transpose(1, 2)), 1)


def causal_conv(x: Tensor, history: Tensor, taps: Tensor) -> Tensor:
    """`x` `[B, S, C]` after `history` `[B, W - 1, C]`, `taps` `[C, W]`; f32 `[B, S, C]`."""
    length, width = x.shape[1], taps.shape[1]
    padded = torch.cat((history, x), 1).float()
    weight = taps.t().float()
    if length == 1:
        return (padded * weight).sum(1, keepdim=True)
    y = padded[:, :length] * weight[0]
    for j in range(1, width):
        y = torch.addcmul(y, padded[:, j : j + length], weight[j])
    return y
