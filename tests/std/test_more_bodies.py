"""Linear algebra, decoding and losses, against torch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from linnet import InputError

USES = """
use std.linalg::{batched_matmul, dot, matmul, outer, transpose}
use std.nn.decoding::{argmax, sort, top_k}
use std.nn.loss::{
    cross_entropy, entropy, linear_cross_entropy, linear_token_log_probs, log_softmax,
    token_log_probs,
}
"""

ENTRIES = """
pub entry dot_of<N: Dim>(a: Tensor[N; f32], b: Tensor[N; f32]) -> f32 { return dot(a, b) }
pub entry dot_integers<N: Dim>(a: Tensor[N; i32], b: Tensor[N; i32]) -> i32 { return dot(a, b) }
pub entry outer_of<M: Dim, N: Dim>(a: Tensor[M; f32], b: Tensor[N; f32]) -> Tensor[M, N; f32] {
    return outer(a, b)
}
pub entry product<M: Dim, K: Dim, N: Dim>(
    a: Tensor[M, K; f32], b: Tensor[K, N; f32],
) -> Tensor[M, N; f32] { return matmul(a, b) }
pub entry products<A: Dim, B: Dim, M: Dim, K: Dim, N: Dim>(
    a: Tensor[A, B, M, K; f32], b: Tensor[A, B, K, N; f32],
) -> Tensor[A, B, M, N; f32] { return batched_matmul(a, b) }
pub entry turned<M: Dim, N: Dim>(x: Tensor[M, N; bool]) -> Tensor[N, M; bool] {
    return transpose(x)
}
pub entry largest<A: Dim, N: Dim>(x: Tensor[A, N; f32]) -> Tensor[A; i32] { return argmax(x) }
pub entry top<A: Dim, N: Dim>(x: Tensor[A, N; f32]) -> (Tensor[A, 3; f32], Tensor[A, 3; i64])
where N >= 3 { return top_k<3>(x) }
pub entry sorted<A: Dim, N: Dim>(x: Tensor[A, N; f32]) -> (Tensor[A, N; f32], Tensor[A, N; i64]) {
    return sort(x)
}
pub entry logs<N: Dim, V: Dim>(x: Tensor[N, V; f32]) -> Tensor[N, V; f32] {
    return log_softmax(x)
}
pub entry chosen<N: Dim, V: Dim>(x: Tensor[N, V; f32], t: Tensor[N; i64]) -> Tensor[N; f32] {
    return token_log_probs(x, t)
}
pub entry loss<N: Dim, V: Dim>(x: Tensor[N, V; f32], t: Tensor[N; i64], w: Tensor[N; f32]) -> f32 {
    return cross_entropy(x, t, w)
}
pub entry head<N: Dim, H: Dim, V: Dim>(
    h: Tensor[N, H; f32], e: Tensor[V, H; f32], t: Tensor[N; i64], w: Tensor[N; f32],
) -> (Tensor[N; f32], f32) {
    return (linear_token_log_probs(h, e, t), linear_cross_entropy(h, e, t, w))
}
pub entry spread<N: Dim, V: Dim>(x: Tensor[N, V; f32]) -> Tensor[N; f32] { return entropy(x) }
"""


@pytest.fixture(scope="module")
def run(bodies):
    return bodies(USES, ENTRIES)


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def same(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=5e-6, atol=5e-6)


def test_linear_algebra(run):
    a, b = random(5), random(5, seed=1)
    same(run("dot_of", a, b), a @ b)
    same(run("outer_of", a, b), torch.outer(a, b))
    x = torch.tensor([2**30, 3, -1], dtype=torch.int32)
    assert run("dot_integers", x, x).item() == 10  # 2**60 wraps to 0 in 32 bits
    a, b = random(2, 3, 4, 5), random(2, 3, 5, 6, seed=1)
    same(run("product", a[0, 0], b[0, 0]), a[0, 0] @ b[0, 0])
    same(run("products", a, b), a @ b)
    mask = random(3, 4) > 0
    assert torch.equal(run("turned", mask), mask.T)


def test_choices_prefer_the_lower_index(run):
    x = torch.tensor(
        [[1.0, 3.0, 3.0, 2.0, 3.0], [0.0] * 5, [-5.0, -4.0, -3.0, -2.0, -1.0], [9.0, 1, 1, 9, 2]]
    )
    assert run("largest", x).tolist() == [1, 0, 4, 0]
    values, indices = run("top", x)
    order = torch.sort(x, dim=-1, descending=True, stable=True)
    assert torch.equal(indices, order.indices[:, :3]) and torch.equal(values, order.values[:, :3])
    values, indices = run("sorted", x)
    assert torch.equal(indices, order.indices) and torch.equal(values, order.values)


def test_losses(run):
    x, targets = random(6, 9) * 30, torch.tensor([0, 8, 3, 3, 5, 1])
    weights = random(6, seed=2).abs()
    expected = F.log_softmax(x, -1)
    same(run("logs", x), expected)
    picked = expected[torch.arange(6), targets]
    same(run("chosen", x, targets), picked)
    same(run("loss", x, targets, weights), -(weights * picked).sum())
    hidden, table = random(6, 4, seed=3), random(9, 4, seed=4)
    each, total = run("head", hidden, table, targets, weights)
    picked = F.log_softmax(hidden @ table.T, -1)[torch.arange(6), targets]
    same(each, picked)
    same(total, -(weights * picked).sum())
    same(run("spread", x / 30), torch.distributions.Categorical(logits=x / 30).entropy())
    with pytest.raises(InputError):
        run("chosen", x, torch.full_like(targets, 9))
