"""What the bodies compute, against torch."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from linnet import InputError

USES = """
use std.nn.activations::{relu, sigmoid, silu, gelu, gelu_erf}
use std.nn.attention::{
    attention, attention_rows, causal_mask, grouped_attention, grouped_attention_rows,
    sink_attention,
}
use std.nn.cache::{write_at, write_rows, write_slot, write_slots, write_span}
use std.nn.embedding::{embedding}
use std.nn.linear::{linear}
use std.nn.mlp::{swiglu}
use std.nn.moe::{combine_experts, linear_experts, linear_experts_shared}
use std.nn.norm::{batch_norm, group_norm, layer_norm, rms_norm}
use std.nn.recurrent::{causal_conv, gated_delta_rule, gated_delta_step}
use std.nn.rope::{rope, rope_rows}
use std.nn.softmax::{softmax}
"""

ENTRIES = """
pub entry relu_of<A: Dim, B: Dim>(x: Tensor[A, B; f32]) -> Tensor[A, B; f32] { return relu(x) }
pub entry sigmoid_of<A: Dim, B: Dim>(x: Tensor[A, B; f32]) -> Tensor[A, B; f32] {
    return sigmoid(x)
}
pub entry silu_of<A: Dim, B: Dim>(x: Tensor[A, B; f32]) -> Tensor[A, B; f32] { return silu(x) }
pub entry silu_bf16<A: Dim>(x: Tensor[A; bf16]) -> Tensor[A; bf16] { return silu(x) }
pub entry gelu_of<A: Dim, B: Dim>(x: Tensor[A, B; f32]) -> Tensor[A, B; f32] { return gelu(x) }
pub entry gelu_erf_of<A: Dim, B: Dim>(x: Tensor[A, B; f32]) -> Tensor[A, B; f32] {
    return gelu_erf(x)
}
pub entry softmax_of<A: Dim, B: Dim>(x: Tensor[A, B; f32]) -> Tensor[A, B; f32] {
    return softmax(x)
}
pub entry linear_plain<A: Dim, I: Dim, O: Dim>(
    x: Tensor[A, I; f32], w: Tensor[O, I; f32],
) -> Tensor[A, O; f32] { return linear(x, w) }
pub entry linear_bias<A: Dim, I: Dim, O: Dim>(
    x: Tensor[A, I; bf16], w: Tensor[O, I; bf16], b: Tensor[O; bf16],
) -> Tensor[A, O; bf16] { return linear(x, w, some(b)) }
pub entry embed<A: Dim, B: Dim, V: Dim, H: Dim>(
    ids: Tensor[A, B; i32], table: Tensor[V, H; f32],
) -> Tensor[A, B, H; f32] { return embedding(ids, table) }
pub entry rms<A: Dim, H: Dim>(x: Tensor[A, H; f32], w: Tensor[H; f32]) -> Tensor[A, H; f32] {
    return rms_norm(x, w)
}
pub entry layer<A: Dim, H: Dim>(
    x: Tensor[A, H; f32], w: Tensor[H; f32], b: Tensor[H; f32],
) -> Tensor[A, H; f32] { return layer_norm(x, w, some(b), eps = 1e-3) }
pub entry batch<B: Dim, C: Dim, H: Dim, W: Dim>(
    x: Tensor[B, C, H, W; f32], m: Tensor[C; f32], v: Tensor[C; f32], w: Tensor[C; f32],
    b: Tensor[C; f32],
) -> Tensor[B, C, H, W; f32] { return batch_norm(x, m, v, w, b) }
pub entry group<B: Dim, H: Dim, W: Dim>(
    x: Tensor[B, 6, H, W; f32], w: Tensor[6; f32], b: Tensor[6; f32],
) -> Tensor[B, 6, H, W; f32] { return group_norm<B, 6, H, W, 3, f32>(x, w, b) }
pub entry feed<A: Dim, H: Dim, I: Dim>(
    x: Tensor[A, H; f32], g: Tensor[I, H; f32], u: Tensor[I, H; f32], d: Tensor[H, I; f32],
) -> Tensor[A, H; f32] { return swiglu(x, g, u, d) }
pub entry turn<B: Dim, N: Dim, S: Dim>(
    x: Tensor[B, N, S, 6; f32], c: Tensor[S, 6; f32], s: Tensor[S, 6; f32],
) -> Tensor[B, N, S, 6; f32] { return rope(x, c, s) }
pub entry turn_rows<B: Dim, N: Dim, S: Dim>(
    x: Tensor[B, N, S, 6; f32], c: Tensor[B, S, 6; f32], s: Tensor[B, S, 6; f32],
) -> Tensor[B, N, S, 6; f32] { return rope_rows(x, c, s) }
pub entry causal<Q: Dim, K: Dim>(q: Tensor[Q; f32], k: Tensor[K; f32]) -> Tensor[Q, K; bool] {
    return causal_mask<Q, K>()
}
pub entry attend<B: Dim, H: Dim, Q: Dim, K: Dim, D: Dim>(
    q: Tensor[B, H, Q, D; f32], k: Tensor[B, H, K, D; f32], v: Tensor[B, H, K, D; f32],
    scale: f32, mask: Tensor[Q, K; bool],
) -> Tensor[B, H, Q, D; f32] { return attention(q, k, v, scale, some(mask)) }
pub entry attend_rows<B: Dim, H: Dim, Q: Dim, K: Dim, D: Dim>(
    q: Tensor[B, H, Q, D; f32], k: Tensor[B, H, K, D; f32], v: Tensor[B, H, K, D; f32],
    scale: f32, mask: Tensor[B, Q, K; bool],
) -> Tensor[B, H, Q, D; f32] { return attention_rows(q, k, v, scale, mask) }
pub entry grouped<B: Dim, Q: Dim, K: Dim, D: Dim>(
    q: Tensor[B, 6, Q, D; f32], k: Tensor[B, 2, K, D; f32], v: Tensor[B, 2, K, D; f32],
    scale: f32,
) -> Tensor[B, 6, Q, D; f32] { return grouped_attention(q, k, v, scale) }
pub entry grouped_rows<B: Dim, Q: Dim, K: Dim, D: Dim>(
    q: Tensor[B, 6, Q, D; f32], k: Tensor[B, 2, K, D; f32], v: Tensor[B, 2, K, D; f32],
    scale: f32, mask: Tensor[B, Q, K; bool],
) -> Tensor[B, 6, Q, D; f32] { return grouped_attention_rows(q, k, v, scale, mask) }
pub entry sinks<B: Dim, Q: Dim, K: Dim, D: Dim>(
    q: Tensor[B, 6, Q, D; f32], k: Tensor[B, 2, K, D; f32], v: Tensor[B, 2, K, D; f32],
    s: Tensor[6; f32], scale: f32, mask: Tensor[B, Q, K; bool],
) -> Tensor[B, 6, Q, D; f32] { return sink_attention(q, k, v, s, scale, mask) }
pub entry at<B: Dim, H: Dim, S: Dim, D: Dim>(
    c: Tensor[B, H, S, D; f32], v: Tensor[B, H, 1, D; f32], p: i32,
) -> Tensor[B, H, S, D; f32] { return write_at(c, v, p) }
pub entry span<B: Dim, H: Dim, S: Dim, D: Dim>(
    c: Tensor[B, H, S, D; f32], v: Tensor[B, H, 3, D; f32], p: i32,
) -> Tensor[B, H, S, D; f32] { return write_span(c, v, p) }
pub entry rows<B: Dim, H: Dim, S: Dim, D: Dim>(
    c: Tensor[B, H, S, D; f32], v: Tensor[B, H, 1, D; f32], p: Tensor[B; i32],
) -> Tensor[B, H, S, D; f32] { return write_rows(c, v, p) }
pub entry slots<B: Dim, H: Dim, S: Dim, D: Dim>(
    c: Tensor[B, H, S, D; f32], v: Tensor[2, H, 3, D; f32], s: Tensor[2; i32], p: i32,
) -> Tensor[B, H, S, D; f32] { return write_slots(c, v, s, p) }
pub entry slot<B: Dim, H: Dim, S: Dim, D: Dim>(
    c: Tensor[B, H, S, D; f32], v: Tensor[1, H, 3, D; f32], s: i32, p: i32,
) -> Tensor[B, H, S, D; f32] { return write_slot(c, v, s, p) }
pub entry experts<R: Dim, K: Dim, E: Dim, I: Dim, O: Dim>(
    x: Tensor[R, K, I; f32], w: Tensor[E, O, I; f32], e: Tensor[R, K; i64],
) -> Tensor[R, K, O; f32] { return linear_experts(x, w, e) }
pub entry shared<R: Dim, K: Dim, E: Dim, I: Dim, O: Dim>(
    x: Tensor[R, I; f32], w: Tensor[E, O, I; f32], e: Tensor[R, K; i64],
) -> Tensor[R, K, O; f32] { return linear_experts_shared(x, w, e) }
pub entry combined<R: Dim, K: Dim, E: Dim, I: Dim, O: Dim>(
    x: Tensor[R, K, I; f32], w: Tensor[E, O, I; f32], e: Tensor[R, K; i64], s: Tensor[R, K; f32],
) -> Tensor[R, O; f32] { return combine_experts(x, w, e, s) }
pub entry conv<B: Dim, C: Dim>(
    x: Tensor[B, 5, C; f32], h: Tensor[B, 2, C; f32], t: Tensor[C, 3; f32],
) -> Tensor[B, 5, C; f32] { return causal_conv(x, h, t) }
pub entry rule<B: Dim, D: Dim>(
    q: Tensor[B, 5, 2, 3; f32], k: Tensor[B, 5, 2, 3; f32], v: Tensor[B, 5, 4, D; f32],
    decay: Tensor[B, 5, 4; f32], beta: Tensor[B, 5, 4; f32], initial: Tensor[B, 4, 3, D; f32],
    scale: f32,
) -> Tensor[B, 8, 4, D; f32] { return gated_delta_rule(q, k, v, decay, beta, initial, scale) }
pub entry step<B: Dim, D: Dim>(
    q: Tensor[B, 2, 3; f32], k: Tensor[B, 2, 3; f32], v: Tensor[B, 4, D; f32],
    decay: Tensor[B, 4; f32], beta: Tensor[B, 4; f32], initial: Tensor[B, 4, 3, D; f32],
    scale: f32,
) -> Tensor[B, 4, 4, D; f32] { return gated_delta_step(q, k, v, decay, beta, initial, scale) }
"""


@pytest.fixture(scope="module")
def run(bodies):
    return bodies(USES, ENTRIES)


def random(*shape: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale


def same(ours: torch.Tensor, theirs: torch.Tensor, limit: float = 2e-6) -> None:
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    torch.testing.assert_close(ours, theirs, rtol=limit, atol=limit)


def test_activations(run):
    x = torch.cat([random(5, 40, scale=4.0), torch.tensor([[-100.0, -20.0, 0.0, 20.0] * 10])])
    same(run("relu_of", x), F.relu(x))
    same(run("sigmoid_of", x), torch.sigmoid(x))
    same(run("silu_of", x), F.silu(x))
    same(run("gelu_of", x), F.gelu(x, approximate="tanh"))
    same(run("gelu_erf_of", x), F.gelu(x), 1e-6)
    # Rounded once: not further from the truth than half a unit in the last place.
    narrow = random(1000, scale=3.0).bfloat16()
    same(run("silu_bf16", narrow), F.silu(narrow.float()).bfloat16(), 0)


def test_softmax_is_stable(run):
    x = torch.cat([random(4, 9), torch.full((1, 9), 1e4), random(1, 9, scale=300.0)])
    same(run("softmax_of", x), torch.softmax(x, -1))


def test_linear(run):
    x, w, b = random(4, 6), random(5, 6, seed=1), random(5, seed=2)
    same(run("linear_plain", x, w), F.linear(x, w))
    x, w, b = (t.bfloat16() for t in (x, w, b))
    same(run("linear_bias", x, w, b), F.linear(x.float(), w.float()).bfloat16() + b, 0)


def test_embedding(run):
    ids = torch.tensor([[0, 4, 2], [4, 4, 1]], dtype=torch.int32)
    table = random(5, 3)
    same(run("embed", ids, table), table[ids.long()])
    for bad in (5, -1):
        with pytest.raises(InputError):
            run("embed", torch.full_like(ids, bad), table)


def test_norms(run):
    x, w, b = random(5, 8, scale=3.0), random(8, seed=1), random(8, seed=2)
    same(run("rms", x, w), F.rms_norm(x, (8,), w, 1e-5))
    same(run("layer", x, w, b), F.layer_norm(x, (8,), w, b, 1e-3))
    x, w, b = random(2, 6, 3, 4) + 1, random(6, seed=1), random(6, seed=2)
    mean, variance = random(6, seed=3), random(6, seed=4).abs() + 0.1
    same(run("batch", x, mean, variance, w, b), F.batch_norm(x, mean, variance, w, b), 1e-5)
    same(run("group", x, w, b), F.group_norm(x, 3, w, b), 5e-6)


def test_swiglu(run):
    x, g, u, d = random(4, 6), random(5, 6, seed=1), random(5, 6, seed=2), random(6, 5, seed=3)
    same(run("feed", x, g, u, d), F.linear(F.silu(F.linear(x, g)) * F.linear(x, u), d), 1e-5)


def test_rope_turns_pairs_of_halves(run):
    x, angle = random(2, 3, 4, 6), random(4, 3, seed=1)
    c, s = (torch.cat([f(angle)] * 2, -1) for f in (torch.cos, torch.sin))
    pairs = torch.complex(x[..., :3], x[..., 3:]) * torch.polar(torch.ones_like(angle), angle)
    expected = torch.cat([pairs.real, pairs.imag], -1)
    same(run("turn", x, c, s), expected)
    tables = torch.stack([c, c.roll(1, 0)]), torch.stack([s, s.roll(1, 0)])
    turned = run("turn_rows", x, *tables)
    same(turned[0], expected[0])
    same(turned[1], run("turn", x[1:], tables[0][1], tables[1][1])[0])


@pytest.mark.parametrize(("queries", "keys"), [(4, 4), (1, 5), (3, 7), (5, 3)])
def test_causal_mask(run, queries, keys):
    expected = [[k <= q + keys - queries for k in range(keys)] for q in range(queries)]
    assert run("causal", torch.zeros(queries), torch.zeros(keys)).tolist() == expected


def test_attention(run):
    q, k, v = random(2, 6, 3, 4), random(2, 2, 5, 4, seed=1), random(2, 2, 5, 4, seed=2)
    wide_k, wide_v = k.repeat_interleave(3, 1), v.repeat_interleave(3, 1)
    mask = torch.ones(3, 5, dtype=torch.bool).tril(2)
    by_row = torch.stack([mask, torch.ones_like(mask).tril(0)])

    def expected(seen: torch.Tensor | None) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, wide_k, wide_v, seen, scale=0.4)

    same(run("grouped", q, k, v, 0.4), expected(None))
    same(run("grouped_rows", q, k, v, 0.4, by_row), expected(by_row[:, None]))
    same(run("attend", q, wide_k, wide_v, 0.4, mask), expected(mask))
    same(run("attend_rows", q, wide_k, wide_v, 0.4, by_row), expected(by_row[:, None]))


def test_a_query_that_sees_nothing_gives_the_mean(run):
    q, k, v = random(1, 2, 2, 4), random(1, 2, 3, 4, seed=1), random(1, 2, 3, 4, seed=2)
    out = run("attend", q, k, v, 1.0, torch.tensor([[False] * 3, [True] * 3]))
    same(out[:, :, 0], v.mean(2))


def test_sinks_take_their_share(run):
    q, k, v = random(1, 6, 3, 4), random(1, 2, 5, 4, seed=1), random(1, 2, 5, 4, seed=2)
    mask = torch.ones(1, 3, 5, dtype=torch.bool).tril(2)
    s = random(6, seed=3)
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k.repeat_interleave(3, 1)) * 0.5
    scores = scores.masked_fill(~mask[:, None], -1e30)
    both = torch.cat([scores, s.view(1, 6, 1, 1).expand(1, 6, 3, 1)], -1).softmax(-1)
    expected = torch.einsum("bhqk,bhkd->bhqd", both[..., :5], v.repeat_interleave(3, 1))
    same(run("sinks", q, k, v, s, 0.5, mask), expected)
    same(
        run("sinks", q, k, v, torch.full((6,), -1e9), 0.5, mask),
        run("grouped_rows", q, k, v, 0.5, mask),
    )


def test_cache_writes(run):
    cache = random(3, 2, 5, 4)
    one, three = random(3, 2, 1, 4, seed=1), random(3, 2, 3, 4, seed=2)
    for at in range(5):
        expected = cache.clone()
        expected[:, :, at] = one[:, :, 0]
        same(run("at", cache, one, at), expected, 0)
    for at in range(3):
        expected = cache.clone()
        expected[:, :, at : at + 3] = three
        same(run("span", cache, three, at), expected, 0)
    expected = cache.clone()
    for row, at in enumerate([4, 0, 2]):
        expected[row, :, at] = one[row, :, 0]
    same(run("rows", cache, one, torch.tensor([4, 0, 2], dtype=torch.int32)), expected, 0)
    for slots in ([0, 1], [2, 0], [1, 2]):
        expected = cache.clone()
        expected[slots, :, 1:4] = three[:2]
        named = torch.tensor(slots, dtype=torch.int32)
        same(run("slots", cache, three[:2], named, 1), expected, 0)
    expected = cache.clone()
    expected[2, :, 2:5] = three[0]
    same(run("slot", cache, three[:1], 2, 2), expected, 0)


@pytest.mark.parametrize(
    ("entry", "rows", "wrong"),
    [
        ("at", (3, 1), [(-1,), (5,)]),
        ("span", (3, 3), [(-1,), (3,), (5,), (2**31 - 1,)]),
        ("rows", (3, 1), [([0, 5, 0],), ([-1, 0, 0],)]),
        ("slots", (2, 3), [([0, 3], 0), ([1, 1], 0), ([-1, 0], 0), ([0, 1], 3), ([0, 1], -1)]),
        ("slot", (1, 3), [(3, 0), (-1, 0), (0, 3)]),
    ],
)
def test_a_write_outside_the_cache_is_an_error(run, entry, rows, wrong):
    cache, value = random(3, 2, 5, 4), random(rows[0], 2, rows[1], 4)
    for places in wrong:
        given = [torch.tensor(p, dtype=torch.int32) if isinstance(p, list) else p for p in places]
        with pytest.raises(InputError):
            run(entry, cache, value, *given)


def test_experts(run):
    x, w = random(4, 2, 3), random(5, 6, 3, seed=1)
    chosen = torch.tensor([[0, 4], [4, 4], [2, 1], [3, 0]])
    weights = random(4, 2, seed=2)
    each = torch.einsum("rki,rkoi->rko", x, w[chosen])
    same(run("experts", x, w, chosen), each)
    same(run("shared", x[:, 0], w, chosen), torch.einsum("ri,rkoi->rko", x[:, 0], w[chosen]))
    same(run("combined", x, w, chosen, weights), (each * weights[..., None]).sum(1), 5e-6)


def test_causal_conv_continues_its_history(run):
    x, history, taps = random(2, 5, 4), random(2, 2, 4, seed=1), random(4, 3, seed=2)
    padded = torch.cat([history, x], 1).transpose(1, 2)
    expected = F.conv1d(padded, taps[:, None], groups=4).transpose(1, 2)
    same(run("conv", x, history, taps), expected, 5e-6)


def delta(q, k, v, decay, beta, state, scale):
    """The rule as `model.md` words it, for one batch element and head at a time."""
    batch, tokens, heads, _ = v.shape
    share = heads // q.shape[2]
    out = torch.zeros_like(v)
    state = state.clone()
    for b in range(batch):
        for h in range(heads):
            memory = state[b, h]
            for t in range(tokens):
                key, query = k[b, t, h // share], q[b, t, h // share]
                memory = memory * math.exp(decay[b, t, h])
                memory = memory + torch.outer(key, beta[b, t, h] * (v[b, t, h] - memory.T @ key))
                out[b, t, h] = scale * memory.T @ query
            state[b, h] = memory
    return torch.cat([out, state.permute(0, 2, 1, 3)], 1)


def test_gated_delta_rule(run):
    q, k = random(2, 5, 2, 3), random(2, 5, 2, 3, seed=1, scale=0.6)
    v, initial = random(2, 5, 4, 7, seed=2), random(2, 4, 3, 7, seed=3)
    decay, beta = -random(2, 5, 4, seed=4).abs(), torch.sigmoid(random(2, 5, 4, seed=5))
    decay[:, 3], beta[:, 3] = 0.0, 0.0
    expected = delta(q, k, v, decay, beta, initial, 0.5)
    same(run("rule", q, k, v, decay, beta, initial, 0.5), expected, 1e-5)
    state = initial
    for t in range(5):
        given = (q[:, t], k[:, t], v[:, t], decay[:, t], beta[:, t])
        out = run("step", *given, state, 0.5)
        same(out[:, 0], expected[:, t], 1e-5)
        before, state = state, out[:, 1:].permute(0, 2, 1, 3)
        if t == 3:
            same(state, before, 0)
    same(state.permute(0, 2, 1, 3), expected[:, 5:], 1e-5)
