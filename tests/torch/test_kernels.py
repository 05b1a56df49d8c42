"""Every kernel against its body: the same entry in `exact` and in the faster policies.

Inputs are random over the op's whole domain: several ranks of batch, grouped heads, empty and
partial masks, lengths around the chunk size, every row choosing any expert. The body in `exact`
rounds as its own statements say; the bounds are those of the dtype.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch
from torch_programs import load_text

from linnet.torch.kernels.table import rows

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "f64": torch.float64}
# Relative to the largest value: a few roundings of the dtype.
BOUNDS = {"f32": 2e-5, "bf16": 2e-2, "f16": 3e-3, "f64": 1e-6}
SIZES = [1, 2, 3, 63, 64, 65, 130]

LINEAR = """
use std.nn.linear::{{linear}}
pub entry run<B: Dim, S: Dim, In: Dim, Out: Dim>(
    x: Tensor[B, S, In; {T}], weight: Tensor[Out, In; {T}], bias: Tensor[Out; {T}]
) -> (Tensor[B, S, Out; {T}], Tensor[B, S, Out; {T}]) {{
    return (linear(x, weight), linear(x, weight, some(bias)))
}}
"""
EMBEDDING = """
use std.nn.embedding::{{embedding}}
pub entry run<B: Dim, S: Dim, V: Dim, H: Dim>(
    ids: Tensor[B, S; i32], table: Tensor[V, H; {T}]
) -> Tensor[B, S, H; {T}] {{
    return embedding(ids, table)
}}
"""
ACTIVATIONS = """
use std.nn.activations::{{gelu, gelu_erf, relu, sigmoid, silu}}
pub entry run<B: Dim, S: Dim>(x: Tensor[B, S; {T}]) -> (
    Tensor[B, S; {T}], Tensor[B, S; {T}], Tensor[B, S; {T}], Tensor[B, S; {T}], Tensor[B, S; {T}]
) {{
    return (sigmoid(x), silu(x), relu(x), gelu(x), gelu_erf(x))
}}
"""
SOFTMAX = """
use std.nn.softmax::{{softmax}}
pub entry run<B: Dim, S: Dim>(x: Tensor[B, S; {T}]) -> Tensor[B, S; {T}] {{
    return softmax(x)
}}
"""
NORMS = """
use std.nn.norm::{{layer_norm, rms_norm}}
pub entry run<B: Dim, S: Dim, H: Dim>(
    x: Tensor[B, S, H; {T}], weight: Tensor[H; {T}], bias: Tensor[H; {T}]
) -> (Tensor[B, S, H; {T}], Tensor[B, S, H; {T}], Tensor[B, S, H; {T}]) {{
    return (
        rms_norm(x, weight, 1e-6),
        layer_norm(x, weight, some(bias), 1e-6),
        layer_norm(x, weight),
    )
}}
"""
SWIGLU = """
use std.nn.mlp::{{swiglu}}
pub entry run<R: Dim, H: Dim, Inner: Dim>(
    x: Tensor[R, H; {T}], gate: Tensor[Inner, H; {T}], up: Tensor[Inner, H; {T}],
    down: Tensor[H, Inner; {T}]
) -> Tensor[R, H; {T}] {{
    return swiglu(x, gate, up, down)
}}
"""
ATTENTION = """
use std.nn.attention::{{attention, attention_rows, causal_mask, grouped_attention}}
use std.nn.attention::{{grouped_attention_rows}}
pub entry masked<B: Dim, H: Dim, Hk: Dim, Q: Dim, K: Dim, D: Dim>(
    q: Tensor[B, H, Q, D; {T}], k: Tensor[B, Hk, K, D; {T}], v: Tensor[B, Hk, K, D; {T}],
    scale: f32, mask: Tensor[Q, K; bool], rows: Tensor[B, Q, K; bool]
) -> (Tensor[B, H, Q, D; {T}], Tensor[B, H, Q, D; {T}], Tensor[B, H, Q, D; {T}])
where Hk > 0, H % Hk == 0
{{
    return (
        grouped_attention(q, k, v, scale),
        grouped_attention(q, k, v, scale, some(mask)),
        grouped_attention_rows(q, k, v, scale, rows),
    )
}}
pub entry plain<B: Dim, H: Dim, Q: Dim, K: Dim, D: Dim>(
    q: Tensor[B, H, Q, D; {T}], k: Tensor[B, H, K, D; {T}], v: Tensor[B, H, K, D; {T}],
    scale: f32, mask: Tensor[Q, K; bool], rows: Tensor[B, Q, K; bool]
) -> (Tensor[B, H, Q, D; {T}], Tensor[B, H, Q, D; {T}])
{{
    return (attention(q, k, v, scale, some(mask)), attention_rows(q, k, v, scale, rows))
}}
pub entry causal<B: Dim, H: Dim, Hk: Dim, Q: Dim, K: Dim, D: Dim>(
    q: Tensor[B, H, Q, D; {T}], k: Tensor[B, Hk, K, D; {T}], v: Tensor[B, Hk, K, D; {T}],
    scale: f32, pos: i32
) -> (Tensor[B, H, Q, D; {T}], Tensor[B, H, Q, D; {T}])
where Hk > 0, H % Hk == 0
{{
    let keys = iota<i32>(K)
    let queries = iota<i32>(Q)
    let seen[i, s] = keys[s] <= pos + queries[i]
    return (
        grouped_attention(q, k, v, scale, some(seen)),
        grouped_attention(q, k, v, scale, some(causal_mask<Q, K>())),
    )
}}
pub entry by_row<B: Dim, H: Dim, Hk: Dim, K: Dim, D: Dim>(
    q: Tensor[B, H, 1, D; {T}], k: Tensor[B, Hk, K, D; {T}], v: Tensor[B, Hk, K, D; {T}],
    scale: f32, at: Tensor[B; i32]
) -> Tensor[B, H, 1, D; {T}]
where Hk > 0, H % Hk == 0
{{
    let keys = iota<i32>(K)
    let seen[b, s] = keys[s] <= at[b]
    return grouped_attention_rows(q, k, v, scale, reshape(seen, [B, 1, K]))
}}
"""
CONV = """
use std.nn.recurrent::{{causal_conv}}
pub entry run<B: Dim, S: Dim, C: Dim, W: Dim>(
    x: Tensor[B, S, C; {T}], history: Tensor[B, W - 1, C; {T}], taps: Tensor[C, W; {T}]
) -> Tensor[B, S, C; f32] where W > 0, S > 0 {{
    return causal_conv(x, history, taps)
}}
"""
DELTA = """
use std.nn.recurrent::{{gated_delta_rule, gated_delta_step}}
pub entry run<B: Dim, S: Dim, Hk: Dim, Hv: Dim, Dk: Dim, Dv: Dim>(
    q: Tensor[B, S, Hk, Dk; {T}], k: Tensor[B, S, Hk, Dk; {T}], v: Tensor[B, S, Hv, Dv; {T}],
    decay: Tensor[B, S, Hv; f32], beta: Tensor[B, S, Hv; f32],
    initial: Tensor[B, Hv, Dk, Dv; f32], scale: f32
) -> Tensor[B, S + Dk, Hv, Dv; f32] where Hk > 0, Dk > 0, S > 0, Hv % Hk == 0 {{
    return gated_delta_rule(q, k, v, decay, beta, initial, scale)
}}
pub entry parts<B: Dim, S: Dim, Hk: Dim, Hv: Dim, Dk: Dim, Dv: Dim>(
    q: Tensor[B, S, Hk, Dk; {T}], k: Tensor[B, S, Hk, Dk; {T}], v: Tensor[B, S, Hv, Dv; {T}],
    decay: Tensor[B, S, Hv; f32], beta: Tensor[B, S, Hv; f32],
    initial: Tensor[B, Hv, Dk, Dv; f32], scale: f32
) -> (Tensor[B, S, Hv, Dv; f32], Tensor[B, Dk, Hv, Dv; f32])
where Hk > 0, Dk > 0, S > 0, Hv % Hk == 0 {{
    let ruled = gated_delta_rule(q, k, v, decay, beta, initial, scale)
    return (ruled[:, 0:S], ruled[:, S:S + Dk])
}}
pub entry step<B: Dim, Hk: Dim, Hv: Dim, Dk: Dim, Dv: Dim>(
    q: Tensor[B, Hk, Dk; {T}], k: Tensor[B, Hk, Dk; {T}], v: Tensor[B, Hv, Dv; {T}],
    decay: Tensor[B, Hv; f32], beta: Tensor[B, Hv; f32],
    initial: Tensor[B, Hv, Dk, Dv; f32], scale: f32
) -> Tensor[B, 1 + Dk, Hv, Dv; f32] where Hk > 0, Dk > 0, Hv % Hk == 0 {{
    return gated_delta_step(q, k, v, decay, beta, initial, scale)
}}
"""
EXPERTS = """
use std.nn.moe::{{combine_experts, linear_experts, linear_experts_shared}}
pub entry run<R: Dim, K: Dim, E: Dim, In: Dim, Out: Dim>(
    x: Tensor[R, In; {T}], xs: Tensor[R, K, In; {T}], weight: Tensor[E, Out, In; {T}],
    experts: Tensor[R, K; i64], weights: Tensor[R, K; {T}]
) -> (Tensor[R, K, Out; {T}], Tensor[R, K, Out; {T}], Tensor[R, Out; {T}]) where E > 0, K > 0 {{
    return (
        linear_experts(xs, weight, experts),
        linear_experts_shared(x, weight, experts),
        combine_experts(xs, weight, experts, weights),
    )
}}
"""


@pytest.fixture(scope="module")
def compare(tmp_path_factory):
    """`compare(text, dtype, entry, *args)`: exact against equivalent and fast."""
    made: dict[tuple[str, str], dict[str, object]] = {}

    def one(text: str, dtype: str, entry: str, *args: object, bound: float = 1.0) -> None:
        key = (text, dtype)
        if key not in made:
            folder = tmp_path_factory.mktemp("kernel")
            body = text.format(T=dtype)
            made[key] = {n: load_text(folder, body, numerics=n) for n in
                         ("exact", "equivalent", "fast")}  # fmt: skip
        results = {n: getattr(m, entry)(*args) for n, m in made[key].items()}
        want = results.pop("exact")
        for policy, got in results.items():
            pairs = zip(want, got, strict=True) if isinstance(want, tuple) else [(want, got)]
            for position, (a, b) in enumerate(pairs):
                assert a.shape == b.shape and a.dtype == b.dtype
                if a.numel():
                    gap = (a.double() - b.double()).abs().max()
                    scale = a.double().abs().max().clamp_min(1e-2)
                    assert gap <= bound * BOUNDS[dtype] * scale, (policy, position, gap / scale)

    return one


def normal(seed: int, dtype: str, *shape: int, scale: float = 1.0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(shape, generator=generator) * scale).to(DTYPES[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1, 8, 5), (2, 3, 17, 4), (0, 3, 4, 4), (2, 1, 0, 3)])
def test_linear(compare, dtype, shape):
    b, s, i, o = shape
    x, w, bias = normal(1, dtype, b, s, i), normal(2, dtype, o, i), normal(3, dtype, o)
    compare(LINEAR, dtype, "run", x, w, bias)


@pytest.mark.parametrize("dtype", DTYPES)
def test_embedding(compare, dtype):
    ids = torch.randint(0, 11, (3, 5), dtype=torch.int32)
    compare(EMBEDDING, dtype, "run", ids, normal(1, dtype, 11, 6))


@pytest.mark.parametrize("dtype", DTYPES)
def test_activations(compare, dtype):
    x = torch.cat((normal(1, dtype, 4, 40, scale=4.0), normal(2, dtype, 4, 1) * 0), 1)
    compare(ACTIVATIONS, dtype, "run", x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax(compare, dtype):
    for width in (1, 2, 33):
        compare(SOFTMAX, dtype, "run", normal(width, dtype, 5, width, scale=8.0))


@pytest.mark.parametrize("dtype", DTYPES)
def test_rms_norm(compare, dtype):
    for width in (1, 7, 64):
        x, w, b = (normal(4, dtype, 2, 3, width), normal(5, dtype, width), normal(6, dtype, width))
        compare(NORMS, dtype, "run", x, w, b)


test_layer_norm = test_rms_norm


@pytest.mark.parametrize("dtype", DTYPES)
def test_swiglu(compare, dtype):
    args = [normal(i, dtype, *s, scale=0.4) for i, s in
            enumerate([(5, 24), (40, 24), (40, 24), (24, 40)])]  # fmt: skip
    compare(SWIGLU, dtype, "run", *args)


def heads(seed, dtype, b, h, hk, q, k, d):
    return (
        normal(seed, dtype, b, h, q, d), normal(seed + 1, dtype, b, hk, k, d),
        normal(seed + 2, dtype, b, hk, k, d),
    )  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 4, 2, 3, 5, 8), (1, 6, 1, 1, 9, 16), (2, 3, 3, 40, 40, 8),
                                   (1, 2, 1, 2, 1, 4), (1, 2, 2, 2, 0, 4), (0, 2, 1, 2, 3, 4)])  # fmt: skip
def test_attention(compare, dtype, shape):
    b, h, hk, q, k, d = shape
    qkv = heads(7, dtype, *shape)
    generator = torch.Generator().manual_seed(8)
    mask = torch.rand(q, k, generator=generator) < 0.5  # some rows see nothing
    rows = torch.rand(b, q, k, generator=generator) < 0.5
    scale = d**-0.5
    compare(ATTENTION, dtype, "masked", *qkv, scale, mask, rows)
    same = (qkv[0], *(x.repeat_interleave(h // hk, 1) for x in qkv[1:]))
    compare(ATTENTION, dtype, "plain", *same, scale, mask, rows)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 4, 2, 1, 9, 8), (1, 6, 2, 5, 9, 16), (2, 4, 2, 150, 150, 8),
                                   (1, 4, 2, 140, 200, 8), (1, 2, 1, 9, 5, 4)])  # fmt: skip
def test_attention_causal(compare, dtype, shape):
    q, k, d = shape[3:]
    qkv = heads(9, dtype, *shape)
    for pos in {0, 1, max(0, k - q), -2}:
        compare(ATTENTION, dtype, "causal", *qkv, d**-0.5, pos)
    if q == 1:
        for at in ([0, k - 1], [3, 3], [-1, 4]):
            compare(ATTENTION, dtype, "by_row", *qkv, d**-0.5, at)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 2, 4])
def test_causal_conv(compare, dtype, width):
    for length in (1, 2, 7):
        x, history = normal(1, dtype, 2, length, 5), normal(2, dtype, 2, width - 1, 5)
        compare(CONV, dtype, "run", x, history, normal(3, dtype, 5, width))


def delta(dtype, b, s, hk, hv, dk, dv, strong=False):
    unit = torch.nn.functional.normalize
    q, k = (unit(normal(i, "f32", b, s, hk, dk), dim=-1).to(DTYPES[dtype]) for i in (1, 2))
    decay = -torch.rand(b, s, hv, generator=torch.Generator().manual_seed(3)) * (
        30 if strong else 2
    )
    beta = torch.rand(b, s, hv, generator=torch.Generator().manual_seed(4))
    return (
        q, k, normal(5, dtype, b, s, hv, dv), decay, beta, normal(6, "f32", b, hv, dk, dv), dk**-0.5
    )  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", SIZES)
def test_gated_delta_rule(compare, dtype, length):
    # Everything inside is f32, so the bound is f32's whatever the dtype of what comes in.
    bound = 5 * BOUNDS["f32"] / BOUNDS[dtype]
    compare(DELTA, dtype, "run", *delta(dtype, 2, length, 2, 4, 8, 6), bound=bound)
    compare(DELTA, dtype, "parts", *delta(dtype, 1, length, 1, 3, 4, 8, True), bound=bound)


def test_gated_delta_rule_leaves_the_state(compare):
    """Decay and beta zero: every output reads the initial state, which stays."""
    q, k, v, decay, beta, initial, scale = delta("f32", 1, 70, 2, 2, 4, 4)
    args = (q, k, v, decay * 0, beta * 0, initial, scale)
    compare(DELTA, "f32", "parts", *args)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gated_delta_step(compare, dtype):
    bound = 5 * BOUNDS["f32"] / BOUNDS[dtype]
    for shape in ((2, 2, 4, 8, 6), (1, 1, 1, 4, 4), (3, 2, 2, 5, 3)):
        b, hk, hv, dk, dv = shape
        q, k, v, decay, beta, initial, scale = delta(dtype, b, 1, hk, hv, dk, dv)
        args = (q[:, 0], k[:, 0], v[:, 0], decay[:, 0], beta[:, 0], initial, scale)
        compare(DELTA, dtype, "step", *args, bound=bound)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape", [(1, 2, 4, 6, 5), (7, 3, 4, 6, 5), (20, 1, 3, 8, 8), (4, 3, 1, 4, 4)]
)
def test_experts(compare, dtype, shape):
    r, k, e, i, o = shape
    experts = torch.randint(0, e, (r, k), generator=torch.Generator().manual_seed(5))
    compare(EXPERTS, dtype, "run", normal(1, dtype, r, i), normal(2, dtype, r, k, i),
            normal(3, dtype, e, o, i), experts, normal(4, dtype, r, k).abs())  # fmt: skip


def test_every_row_names_a_test_here():
    names = {n.name for n in ast.parse(Path(__file__).read_text()).body
             if isinstance(n, ast.FunctionDef)} | {"test_layer_norm"}  # fmt: skip
    for kernels in rows().values():
        for kernel in kernels:
            assert kernel.test in names, kernel
