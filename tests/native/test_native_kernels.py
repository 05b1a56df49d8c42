"""The native backend against the evaluator: each op's kernel and its body, on random inputs.

The same program runs at every instruction set that this machine has, `plain` among them, and with
one thread and with three, which must not change a bit.
"""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
import torch

from linnet.check.path import check_path
from linnet.ir.passes.pipeline import optimize
from linnet.ir.specialize import specialize
from linnet.native import compiler
from linnet.native.module import NativeModule
from linnet.torch import block, dtypes
from linnet.torch.evaluate import Evaluator
from linnet.torch.ranges import analyze

if compiler.why_not() is not None:
    pytest.skip(compiler.why_not() or "", allow_module_level=True)

PROGRAM = """module kernels

use std.nn.activations::{gelu, silu}
use std.nn.attention::{causal_mask, grouped_attention, grouped_attention_rows}
use std.nn.embedding::{embedding}
use std.nn.linear::{linear}
use std.nn.norm::{layer_norm, rms_norm}
use std.nn.recurrent::{causal_conv, gated_delta_rule, gated_delta_step}
use std.nn.rope::{rope}
use std.nn.softmax::{softmax}

pub block Kernels {
    param unused: Tensor[1; f32]? = none

    pub entry dense<N: Dim, I: Dim, O: Dim>(x: Tensor[N, I; TYPE], w: Tensor[O, I; TYPE]) -> Tensor[N, O; TYPE] {
        return linear(x, w)
    }
    pub entry offset<N: Dim, I: Dim, O: Dim>(
        x: Tensor[N, I; TYPE], w: Tensor[O, I; TYPE], b: Tensor[O; TYPE],
    ) -> Tensor[N, O; TYPE] {
        return linear(x, w, some(b))
    }
    pub entry chain<N: Dim, I: Dim>(x: Tensor[N, I; TYPE], y: Tensor[I; TYPE]) -> Tensor[N, I; TYPE] {
        return silu(x) * y + gelu(x)
    }
    pub entry share<N: Dim, I: Dim>(x: Tensor[N, I; TYPE]) -> Tensor[N, I; TYPE] {
        return softmax(x)
    }
    pub entry norms<N: Dim, I: Dim>(x: Tensor[N, I; TYPE], y: Tensor[I; TYPE]) -> Tensor[N, I; TYPE] {
        return layer_norm(rms_norm(x, y), y)
    }
    pub entry conv<B: Dim, S: Dim, C: Dim>(
        x: Tensor[B, S, C; TYPE], h: Tensor[B, 3, C; TYPE], t: Tensor[C, 4; TYPE],
    ) -> Tensor[B, S, C; f32]
    where S > 0 {
        return causal_conv(x, h, t)
    }
    pub entry rule<B: Dim, S: Dim>(
        q: Tensor[B, S, 2, 16; TYPE], k: Tensor[B, S, 2, 16; TYPE], v: Tensor[B, S, 4, 24; TYPE],
        decay: Tensor[B, S, 4; f32], beta: Tensor[B, S, 4; f32], i: Tensor[B, 4, 16, 24; f32],
    ) -> Tensor[B, S + 16, 4, 24; f32]
    where S > 0 {
        return gated_delta_rule(q, k, v, decay, beta, i, 0.3)
    }
    pub entry step<B: Dim>(
        q: Tensor[B, 2, 16; TYPE], k: Tensor[B, 2, 16; TYPE], v: Tensor[B, 4, 24; TYPE],
        decay: Tensor[B, 4; f32], beta: Tensor[B, 4; f32], i: Tensor[B, 4, 16, 24; f32],
    ) -> Tensor[B, 1 + 16, 4, 24; f32] {
        return gated_delta_step(q, k, v, decay, beta, i, 0.3)
    }
    pub entry attend<B: Dim, S: Dim>(
        q: Tensor[B, 4, S, 16; TYPE], k: Tensor[B, 2, S, 16; TYPE], v: Tensor[B, 2, S, 16; TYPE],
    ) -> Tensor[B, 4, S, 16; TYPE] {
        return grouped_attention(q, k, v, 0.25, some(causal_mask<S, S>()))
    }
    pub entry attend_all<B: Dim, S: Dim>(
        q: Tensor[B, 4, S, 16; TYPE], k: Tensor[B, 2, 9, 16; TYPE], v: Tensor[B, 2, 9, 16; TYPE],
    ) -> Tensor[B, 4, S, 16; TYPE] {
        return grouped_attention(q, k, v, 0.25)
    }
    pub entry attend_some<B: Dim, S: Dim>(
        q: Tensor[B, 4, S, 16; TYPE], k: Tensor[B, 2, 70, 16; TYPE], v: Tensor[B, 2, 70, 16; TYPE],
        limit: Tensor[B, S; TYPE],
    ) -> Tensor[B, 4, S, 16; TYPE] {
        let seen[b, i, j] = cast<f32>(iota<i32>(70)[j] * 5 % 31) < cast<f32>(limit[b, i]) * 8.0
        return grouped_attention_rows(q, k, v, 0.25, seen)
    }
    pub entry turn<B: Dim, S: Dim>(
        x: Tensor[B, 4, S, 16; TYPE], c: Tensor[S, 16; TYPE], s: Tensor[S, 16; TYPE],
    ) -> Tensor[B, 4, S, 16; TYPE] {
        return rope(x, c, s)
    }
    pub entry look<B: Dim, S: Dim>(t: Tensor[B, S; i32], w: Tensor[50, 8; TYPE]) -> Tensor[B, S, 8; TYPE] {
        return embedding(t, w)
    }
    pub entry angles<S: Dim>(t: Tensor[S; i32]) -> Tensor[S, 8; f32] {
        let exponent = cast<f64>(iota<i64>(4) * 2) / cast<f64>(8)
        let frequency = cast<f32>(exp(-exponent * 16.1))
        let angle[s, i] = cast<f32>(t[s]) * 4000.0 * frequency[i]
        let both = concat(angle, angle, axis = -1)
        return sin(both) + cos(both)
    }
    pub entry loops<S: Dim>(x: Tensor[S, 8; TYPE]) -> Tensor[S, 8; TYPE] {
        var total = fill<TYPE>([8], 0.0)
        let rows = for i in 0..S {
            total = total + x[i]
            yield total * 0.5
        }
        return rows + total
    }
    pub entry mixed<S: Dim>(x: Tensor[S, 8; TYPE]) -> Tensor[S; i64] {
        let best[s] = max[n] x[s, n]
        let count[s] = sum<i64>[n] select(x[s, n] == best[s], iota<i64>(8)[n] + 1, 0)
        return cumsum(count, axis = 0) * 3 / 2 % 1000
    }
}
"""
SIZES = [
    {"N": 1, "I": 17, "O": 5, "B": 2, "S": 7, "C": 5},
    {"N": 5, "I": 64, "O": 64, "B": 1, "S": 70, "C": 40},
    {"N": 40, "I": 33, "O": 90, "B": 2, "S": 130, "C": 700},
]
# `make fuzz` runs this file again and again with sizes of its own.
if "LINNET_TEST_SEED" in os.environ:
    _random = random.Random(int(os.environ["LINNET_TEST_SEED"]))
    SIZES = [
        {"N": _random.randint(1, 300), "I": _random.randint(1, 400), "O": _random.randint(1, 300),
         "B": _random.randint(1, 3), "S": _random.randint(1, 200), "C": _random.randint(1, 1500)}
        for _ in range(4)
    ]  # fmt: skip
LEVELS = [
    name for name, (needs, _) in compiler.LEVELS.items() if set(needs) <= compiler.cpu_features()
]


@pytest.fixture(scope="module")
def bound(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made: dict[str, Any] = {}

    def one(dtype: str) -> Any:
        if dtype not in made:
            file = tmp_path_factory.mktemp(dtype) / "kernels.linnet"
            file.write_text(PROGRAM.replace("TYPE", dtype))
            program = check_path(file)
            root = next(b for b in program.blocks if b.endswith("::Kernels"))
            plain = specialize(program, root, {}, None)
            made[dtype] = plain, optimize(plain, "fast")
        return made[dtype]

    return one


def native(optimized: Any, threads: int) -> NativeModule:
    covered = {n: analyze(optimized, i).unchecked for n, i in optimized.entries.items()}
    module = NativeModule(optimized, None, covered, threads)
    assert not module.refused
    return module


def argument(name: str, type: Any, dims: dict[str, int], random: torch.Generator) -> torch.Tensor:
    extents = [d.evaluate(dims) for d in type.shape]
    if type.dtype == "i32":
        return torch.randint(0, 50, extents, generator=random, dtype=torch.int32)
    x = torch.randn(extents, generator=random)
    if name == "decay":
        x = -x.abs()
    if name == "beta":
        x = x.sigmoid()
    if name in ("q", "k"):
        x = x / x.norm(dim=-1, keepdim=True)
    return x.to(dtypes.STORAGE[type.dtype])


def call(entry: Any, args: list[torch.Tensor], dims: dict[str, int]) -> torch.Tensor:
    (type,) = entry.results
    out = torch.zeros([d.evaluate(dims) for d in type.shape], dtype=dtypes.STORAGE[type.dtype])
    entry([a.data_ptr() for a in args], dims, [out.data_ptr()])
    return out


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_every_op_equals_its_body(
    dtype: str, level: str, bound: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if dtype == "f16" and level != LEVELS[0]:
        pytest.skip("one level is enough for f16")
    monkeypatch.setenv("LINNET_NATIVE_LEVEL", level)
    plain, optimized = bound(dtype)
    modules = [native(optimized, 1), native(optimized, 3)]
    evaluator = Evaluator(plain)
    root, _ = block.build(plain)
    numbers = torch.Generator().manual_seed(1)
    rough = {"f32": 2e-6, "bf16": 2**-7, "f16": 2**-10}[dtype]
    for sizes in SIZES:
        for name in optimized.entries:
            entry = modules[0].entries[name]
            dims = {n: sizes[n] for n in entry.instance.dims}
            args = [argument(n, t, dims, numbers) for n, t in entry.params]
            expected = evaluator.run(plain.entries[name], root, args, dims)
            results = [call(module.entries[name], args, dims) for module in modules]
            assert torch.equal(results[0], results[1]), (name, dims, "threads")
            scale = expected.double().abs().max().clamp_min(1)
            gap = (results[0].double() - expected.double()).abs().max() / scale
            assert gap <= rough * (4 if name in ("norms", "rule", "chain") else 2), (
                name,
                dims,
                gap,
            )
