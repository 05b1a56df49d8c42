"""Random numbers, few bits, convolutions, pages and shards, against what defines them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

# Written by jax 0.10.2 (`jax.random`, partitionable Threefry) for three keys.
RANDOM = json.loads((Path(__file__).parent / "data" / "random.json").read_text())


@pytest.fixture(scope="module")
def draws(bodies: Any) -> Any:
    return bodies(
        "use std.random",
        """
    pub entry keys(key: Tensor[2; i64]) -> Tensor[3, 2; i64] { return random.split<3>(key) }
    pub entry folded(key: Tensor[2; i64], data: i32) -> Tensor[2; i64] {
        return random.fold_in(key, data)
    }
    pub entry words(key: Tensor[2; i64]) -> Tensor[7; i64] { return random.bits<7>(key) }
    pub entry unit(key: Tensor[2; i64]) -> Tensor[7; f32] { return random.uniform<7, f32>(key) }
    pub entry bell(key: Tensor[2; i64]) -> Tensor[7; f32] { return random.normal<7, f32>(key) }
    pub entry many(key: Tensor[2; i64]) -> Tensor[4096; f32] {
        return random.normal<4096, f32>(key)
    }
    pub entry pick(key: Tensor[2; i64], logits: Tensor[3, 5; f32]) -> Tensor[3; i32] {
        return random.categorical(key, logits)
    }
""",
    )


@pytest.mark.parametrize("seed", list(RANDOM))
def test_random_is_jax_random(draws: Any, seed: str) -> None:
    want = RANDOM[seed]
    key = torch.tensor(want["key"])
    assert draws("keys", key).tolist() == want["split"]
    assert draws("folded", key, 12345).tolist() == want["fold_in"]
    assert draws("words", key).tolist() == want["bits"]
    assert [x.hex() for x in draws("unit", key).double().tolist()] == want["uniform"]
    np.testing.assert_allclose(draws("bell", key).numpy(), want["normal"], rtol=2e-5, atol=1e-6)
    logits = torch.arange(15.0).reshape(3, 5) * 0.3
    assert draws("pick", key, logits).tolist() == want["categorical"]


def test_normal_has_its_moments(draws: Any) -> None:
    x = draws("many", torch.tensor([1, 2]))
    assert abs(x.mean()) < 0.05 and abs(x.std() - 1) < 0.05 and x.abs().max() < 6


@pytest.fixture(scope="module")
def few_bits(bodies: Any) -> Any:
    return bodies(
        "use std.quant",
        """
    pub entry eight<R: Dim, N: Dim>(q: Tensor[R, N; i8], s: Tensor[R; f32]) -> Tensor[R, N; f32] {
        return quant.dequantize_int8<[R], N, f32>(q, s)
    }
    pub entry nibbles<R: Dim, H: Dim>(p: Tensor[R, H; i8]) -> Tensor[R, 2 * H; i8] {
        return quant.unpack_int4(p)
    }
    pub entry groups<R: Dim, G: Dim, P: Dim>(
        p: Tensor[R, G, P; u8], s: Tensor[R, G; f32], z: Tensor[R, G; f32]
    ) -> Tensor[R, G * (2 * P); f32] {
        return quant.dequantize_groups(p, s, z)
    }
    pub entry fp8(x: Tensor[256; u8]) -> Tensor[256; f32] { return quant.decode_fp8<[256], f32>(x) }
    pub entry mxfp4<R: Dim, P: Dim>(
        p: Tensor[R, P; u8], s: Tensor[R; u8]
    ) -> Tensor[R, P, 2; f32] {
        return quant.decode_mxfp4<[R], P, f32>(p, s)
    }
""",
    )


def test_eight_and_four_bits(few_bits: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    q = torch.randint(-128, 128, (3, 6), generator=generator, dtype=torch.int8)
    s = torch.rand(3, generator=generator)
    assert torch.equal(few_bits("eight", q, s), q.float() * s[:, None])
    every = torch.arange(-128, 128, dtype=torch.int8).reshape(2, 128)
    got = few_bits("nibbles", every)
    low = ((every.int() & 15) ^ 8) - 8
    high = every.int() >> 4
    assert torch.equal(got.int(), torch.stack([low, high], -1).reshape(2, 256))


def test_groups(few_bits: Any) -> None:
    generator = torch.Generator().manual_seed(1)
    p = torch.randint(0, 256, (2, 3, 4), generator=generator, dtype=torch.uint8)
    s, z = torch.rand(2, 3, generator=generator), torch.rand(2, 3, generator=generator) * 15
    q = torch.stack([p & 15, p >> 4], -1).reshape(2, 3, 8).float()
    want = ((q - z[..., None]) * s[..., None]).reshape(2, 24)
    assert torch.equal(few_bits("groups", p, s, z), want)


def test_every_fp8(few_bits: Any) -> None:
    every = torch.arange(256, dtype=torch.uint8)
    want = every.view(torch.float8_e4m3fn).float()
    got = few_bits("fp8", every)
    assert torch.equal(torch.isnan(got), torch.isnan(want))
    assert torch.equal(got[~torch.isnan(want)], want[~torch.isnan(want)])


def test_every_mxfp4(few_bits: Any) -> None:
    every = torch.arange(256, dtype=torch.uint8).expand(5, 256).contiguous()
    scale = torch.tensor([127, 130, 100, 1, 254], dtype=torch.uint8)
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
    both = torch.stack([values[(every & 15).long()], values[(every >> 4).long()]], -1).double()
    factor = 2.0 ** (scale.double() - 127)
    want = (both * factor[:, None, None]).float()
    assert torch.equal(few_bits("mxfp4", every, scale), want)


@pytest.mark.parametrize(("stride", "pad", "kernel"), [(1, 0, 3), (2, 1, 3), (3, 2, 4), (4, 0, 4)])
def test_conv2d(bodies: Any, stride: int, pad: int, kernel: int) -> None:
    run = bodies(
        "use std.nn.conv::{conv2d}\nuse std.nn.pool::{max_pool2d}",
        f"""
    pub entry conv(
        x: Tensor[2, 3, 9, 11; f32], w: Tensor[4, 3, {kernel}, {kernel}; f32], b: Tensor[4; f32]
    ) -> Tensor[2, 4, (9 + {2 * pad - kernel}) / {stride} + 1, (11 + {2 * pad - kernel}) / {stride} + 1; f32] {{
        return conv2d<2, 3, 4, 9, 11, {kernel}, {stride}, {pad}, f32>(x, w, some(b))
    }}
    pub entry pool(
        x: Tensor[2, 3, 9, 11; f32]
    ) -> Tensor[2, 3, (9 + {2 * pad - kernel}) / {stride} + 1, (11 + {2 * pad - kernel}) / {stride} + 1; f32] {{
        return max_pool2d<2, 3, 9, 11, {kernel}, {stride}, {pad}, f32>(x)
    }}
""",
    )
    torch.manual_seed(0)
    x, w, b = torch.randn(2, 3, 9, 11), torch.randn(4, 3, kernel, kernel), torch.randn(4)
    want = F.conv2d(x, w, b, stride=stride, padding=pad)
    torch.testing.assert_close(run("conv", x, w, b), want, rtol=1e-5, atol=1e-5)
    if pad <= kernel // 2:
        assert torch.equal(run("pool", x), F.max_pool2d(x, kernel, stride, pad))


def test_other_convolutions_and_pools(bodies: Any) -> None:
    run = bodies(
        "use std.nn.conv::{conv1d, conv2d_rect}\nuse std.nn.pool::{global_average_pool2d}\n"
        "use std.nn.resize::{upsample_nearest2d}",
        """
    pub entry line(x: Tensor[2, 3, 17; f32], w: Tensor[5, 3, 3; f32]) -> Tensor[2, 5, 9; f32] {
        return conv1d<2, 3, 5, 17, 3, 2, 1, f32>(x, w)
    }
    pub entry rect(
        x: Tensor[1, 2, 8, 9; f32], w: Tensor[3, 2, 1, 4; f32]
    ) -> Tensor[1, 3, 8, 5; f32] {
        return conv2d_rect<1, 2, 3, 8, 9, 1, 4, 1, 2, 0, 2, f32>(x, w)
    }
    pub entry mean(x: Tensor[1, 2, 8, 9; f32]) -> Tensor[1, 2; f32] {
        return global_average_pool2d(x)
    }
    pub entry larger(x: Tensor[1, 2, 8, 9; f32]) -> Tensor[1, 2, 24, 27; f32] {
        return upsample_nearest2d<1, 2, 8, 9, 3, f32>(x)
    }
""",
    )
    torch.manual_seed(1)
    x, w = torch.randn(2, 3, 17), torch.randn(5, 3, 3)
    torch.testing.assert_close(run("line", x, w), F.conv1d(x, w, stride=2, padding=1))
    x, w = torch.randn(1, 2, 8, 9), torch.randn(3, 2, 1, 4)
    want = F.conv2d(x, w, stride=(1, 2), padding=(0, 2))
    torch.testing.assert_close(run("rect", x, w), want)
    torch.testing.assert_close(run("mean", x), x.mean((2, 3)))
    assert torch.equal(run("larger", x), F.interpolate(x, scale_factor=3.0, mode="nearest"))


def test_pages_are_a_cache(bodies: Any) -> None:
    run = bodies(
        "use std.nn.attention::{grouped_attention_rows, paged_attention}\n"
        "use std.nn.cache::{write_tokens}",
        """
    pub entry paged(
        q: Tensor[2, 4, 1, 8; f32], k: Tensor[1, 2, 12, 8; f32], v: Tensor[1, 2, 12, 8; f32],
        table: Tensor[2, 3; i32], positions: Tensor[2; i32]
    ) -> Tensor[2, 4, 1, 8; f32] {
        return paged_attention<2, 4, 2, 12, 3, 3, 8, f32>(q, k, v, table, positions, 0.3)
    }
    pub entry write<P: Dim>(
        cache: Tensor[2, 3, 5, 4; f32], value: Tensor[1, 3, P, 4; f32],
        rows: Tensor[P; i32], positions: Tensor[P; i32]
    ) -> Tensor[2, 3, 5, 4; f32] where P > 0 {
        return write_tokens(cache, value, rows, positions)
    }
""",
    )
    torch.manual_seed(2)
    q = torch.randn(2, 4, 1, 8)
    k, v = torch.randn(1, 2, 12, 8), torch.randn(1, 2, 12, 8)
    # Entries of the table behind the last position are no pages at all.
    table = torch.tensor([[3, 0, -7], [1, 99, 99]], dtype=torch.int32)
    positions = torch.tensor([4, 2], dtype=torch.int32)
    got = run("paged", q, k, v, table, positions)
    for row in range(2):
        places = [int(table[row, s // 3]) * 3 + s % 3 for s in range(int(positions[row]) + 1)]
        keys = k[0, :, places].repeat_interleave(2, 0)
        values = v[0, :, places].repeat_interleave(2, 0)
        share = (0.3 * q[row] @ keys.transpose(1, 2)).softmax(-1)
        torch.testing.assert_close(got[row], share @ values)
    cache, value = torch.randn(2, 3, 5, 4), torch.randn(1, 3, 3, 4)
    rows = torch.tensor([1, 0, 1], dtype=torch.int32)
    at = torch.tensor([4, 0, 2], dtype=torch.int32)
    want = cache.clone()
    for p in range(3):
        want[rows[p], :, at[p]] = value[0, :, p]
    assert torch.equal(run("write", cache, value, rows, at), want)


def test_one_shard_is_the_whole(bodies: Any) -> None:
    run = bodies(
        "use std.nn.loss::{linear_cross_entropy, split_cross_entropy, split_token_log_probs}",
        """
    pub entry split(
        h: Tensor[4, 6; f32], w: Tensor[9, 6; f32], t: Tensor[4; i64], by: Tensor[4; f32]
    ) -> f32 { return split_cross_entropy(h, w, t, by) }
    pub entry whole(
        h: Tensor[4, 6; f32], w: Tensor[9, 6; f32], t: Tensor[4; i64], by: Tensor[4; f32]
    ) -> f32 { return linear_cross_entropy(h, w, t, by) }
    pub entry tokens(
        h: Tensor[4, 6; f32], w: Tensor[9, 6; f32], t: Tensor[4; i64]
    ) -> Tensor[4; f32] { return split_token_log_probs(h, w, t) }
""",
    )
    torch.manual_seed(3)
    h, w = torch.randn(4, 6), torch.randn(9, 6)
    targets, by = torch.tensor([0, 8, 3, 3]), torch.rand(4)
    assert torch.equal(run("split", h, w, targets, by), run("whole", h, w, targets, by))
    want = F.log_softmax(h @ w.T, -1).gather(1, targets[:, None])[:, 0]
    torch.testing.assert_close(run("tokens", h, w, targets), want)
