"""The gated delta rule and the short convolution before it.

The rule over a prompt runs by chunks (Yang, Kautz and Hatamizadeh, "Gated Delta Networks",
arXiv 2412.06464). With `G` the running sum of `decay` in a chunk and `S` the state before it,
the corrections `u_t` that the tokens write satisfy

    (I + A) U = diag(beta) (V - diag(exp(G)) K S),
    A[t, j] = beta_t exp(G_t - G_j) k_t.k_j   for j < t,

a unit triangular system. With its solution

    O  = diag(exp(G)) Q S + (tril(Q K^T) * exp(G_t - G_j)) U,
    S' = exp(G_C) S + K^T diag(exp(G_C - G)) U.

Differences of `G` are taken before `exp`, so nothing overflows where the body does not. Chunks
follow one another, so what is made for one stays in the cache and memory does not grow with
the prompt.
"""

from __future__ import annotations

import torch
from torch import Tensor

CHUNK = 64
BLOCK = 1 << 18  # elements of a convolution worked on at a time: they stay in the cache


def gated_delta_rule_parts(
    q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor, initial: Tensor,
    scale: float | Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Outputs `[B, S, Hv, Dv]` and the final state `[B, Hv, Dk, Dv]`, f32."""
    batch, length, key_heads, key_dim = q.shape
    heads, value_dim = v.shape[2], v.shape[3]
    shared, count = heads // key_heads, batch * heads
    state = initial.float().reshape(count, key_dim, value_dim)
    outputs = []
    for start in range(0, length, CHUNK):
        size = min(CHUNK, length - start)
        part = slice(start, start + size)
        # Keys over queries: one product with the state and one with the keys serve both.
        pair = torch.stack((k[:, part], q[:, part]), 1).float()  # [B, 2, size, Hk, Dk]
        pair = pair.permute(0, 3, 1, 2, 4).reshape(batch * key_heads, 2 * size, key_dim)
        inner = torch.bmm(pair, pair[:, :size].transpose(1, 2))
        if shared > 1:
            pair, inner = (x.repeat_interleave(shared, 0) for x in (pair, inner))
        value = v[:, part].float().transpose(1, 2).reshape(count, size, value_dim)
        rate = beta[:, part].float().transpose(1, 2).reshape(count, size, 1)
        total = decay[:, part].float().transpose(1, 2).reshape(count, size).cumsum(-1)
        growth = total.exp().unsqueeze(-1)
        below = torch.ones(size, size, dtype=torch.bool, device=q.device).tril()
        between = total.unsqueeze(-1) - total.unsqueeze(-2)
        between = between.masked_fill(~below, float("-inf")).exp()
        seen = torch.bmm(pair, state)
        right = rate * (value - growth * seen[:, :size])
        # The unit diagonal is implied: the solver reads below it only.
        overlap = inner[:, :size] * between * rate
        change = torch.linalg.solve_triangular(overlap, right, upper=False, unitriangular=True)
        told = torch.baddbmm(growth * seen[:, size:], inner[:, size:] * between, change)
        outputs.append((told * scale).view(batch, heads, size, value_dim).transpose(1, 2))
        last = total[:, -1:]
        kept = change * (last - total).exp().unsqueeze(-1)
        state = torch.baddbmm(
            state * last.exp().unsqueeze(-1), pair[:, :size].transpose(1, 2), kept
        )
    told = outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1)
    return told, state.view(batch, heads, key_dim, value_dim)


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
    padded = torch.cat((history, x), 1)
    weight = taps.t().float()
    if length == 1:
        return (padded.float() * weight).sum(1, keepdim=True)
    if torch.is_grad_enabled():
        wide = padded.float()
        y = wide[:, :length] * weight[0]
        for j in range(1, width):
            y = torch.addcmul(y, wide[:, j : j + length], weight[j])
        return y
    weight = weight.contiguous()
    out = torch.empty(x.shape, dtype=torch.float32, device=x.device)
    step = max(1, BLOCK // max(1, x.shape[2] * x.shape[0])) if x.device.type == "cpu" else length
    for start in range(0, length, step):
        size = min(step, length - start)
        wide = padded[:, start : start + size + width - 1].float()
        part = out[:, start : start + size]
        torch.mul(wide[:, :size], weight[0], out=part)
        for j in range(1, width):
            part.addcmul_(wide[:, j : j + size], weight[j])
    return out
