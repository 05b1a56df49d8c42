"""Attention on the native backend: head widths that fill no vector, every kind of mask, and rows
that depend on nothing but themselves and the keys that they see."""

from __future__ import annotations

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

PROGRAM = """module attending

use std.nn.attention::{causal_mask, grouped_attention, grouped_attention_rows}

pub block Attending {
    param unused: Tensor[1; f32]? = none

    pub entry causal<B: Dim, G: Dim, R: Dim, Q: Dim, K: Dim, D: Dim>(
        q: Tensor[B, G * R, Q, D; TYPE], k: Tensor[B, G, K, D; TYPE], v: Tensor[B, G, K, D; TYPE],
    ) -> Tensor[B, G * R, Q, D; TYPE]
    where G > 0 {
        return grouped_attention(q, k, v, 0.3, some(causal_mask<Q, K>()))
    }
    pub entry whole<B: Dim, G: Dim, R: Dim, Q: Dim, K: Dim, D: Dim>(
        q: Tensor[B, G * R, Q, D; TYPE], k: Tensor[B, G, K, D; TYPE], v: Tensor[B, G, K, D; TYPE],
    ) -> Tensor[B, G * R, Q, D; TYPE]
    where G > 0 {
        return grouped_attention(q, k, v, -0.3)
    }
    pub entry upto<B: Dim, G: Dim, R: Dim, K: Dim, D: Dim>(
        q: Tensor[B, G * R, 1, D; TYPE], k: Tensor[B, G, K, D; TYPE], v: Tensor[B, G, K, D; TYPE],
        position: Tensor[B; i32],
    ) -> Tensor[B, G * R, 1, D; TYPE]
    where G > 0 {
        let seen[b, s] = iota<i32>(K)[s] <= position[b]
        return grouped_attention_rows(q, k, v, 0.3, reshape(seen, [B, 1, K]))
    }
    pub entry mixed<B: Dim, G: Dim, R: Dim, Q: Dim, K: Dim, D: Dim>(
        q: Tensor[B, G * R, Q, D; TYPE], k: Tensor[B, G, K, D; TYPE], v: Tensor[B, G, K, D; TYPE],
        mask: Tensor[B, Q, K; bool],
    ) -> Tensor[B, G * R, Q, D; TYPE]
    where G > 0 {
        return grouped_attention_rows(q, k, v, 0.3, mask)
    }
}
"""
# Batch, key heads, query heads of each, queries, keys, width.
SIZES = [
    (2, 1, 1, 1, 1, 1), (1, 2, 3, 1, 130, 64), (2, 1, 2, 5, 69, 33), (1, 1, 8, 2, 193, 256),
    (1, 2, 5, 37, 101, 48), (1, 1, 50, 3, 65, 7), (2, 3, 1, 64, 64, 80), (1, 1, 3, 20, 84, 96),
]  # fmt: skip
LEVELS = [
    name for name, (needs, _) in compiler.LEVELS.items() if set(needs) <= compiler.cpu_features()
]


class Attending:
    """One program's native entries and its evaluator."""

    def __init__(self, folder: Any, dtype: str):
        file = folder / f"attending_{dtype}.linnet"
        file.write_text(PROGRAM.replace("TYPE", dtype))
        program = check_path(file)
        root = next(b for b in program.blocks if b.endswith("::Attending"))
        self.dtype = dtypes.STORAGE[dtype]
        self.plain = specialize(program, root, {}, None)
        self.root, _ = block.build(self.plain)
        self.optimized = optimize(self.plain, "fast")

    def native(self) -> None:
        covered = {
            n: analyze(self.optimized, i).unchecked for n, i in self.optimized.entries.items()
        }
        self.module = NativeModule(self.optimized, None, covered, 2)
        assert not self.module.refused
        kernels = {c.kernel for e in self.module.entries.values() for c in e.function.choices}
        assert "k_attention" in kernels

    def dims(self, q: torch.Tensor, k: torch.Tensor) -> dict[str, int]:
        b, heads, queries, width = q.shape
        return {"B": b, "G": k.shape[1], "R": heads // k.shape[1], "Q": queries, "K": k.shape[2],
                "D": width}  # fmt: skip

    def __call__(self, name: str, *args: torch.Tensor) -> torch.Tensor:
        out = torch.full_like(args[0], 9)
        entry = self.module.entries[name]
        dims = {n: d for n, d in self.dims(args[0], args[1]).items() if n in entry.instance.dims}
        kept = [a.contiguous() for a in args]
        entry([a.data_ptr() for a in kept], dims, [out.data_ptr()])
        return out

    def body(self, name: str, *args: torch.Tensor) -> torch.Tensor:
        dims = self.dims(args[0], args[1])
        used = {n: dims[n] for n in self.module.entries[name].instance.dims}
        return Evaluator(self.plain).run(self.plain.entries[name], self.root, list(args), used)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    made: dict[str, Attending] = {}
    folder = tmp_path_factory.mktemp("attending")

    def one(dtype: str) -> Attending:
        if dtype not in made:
            made[dtype] = Attending(folder, dtype)
        made[dtype].native()
        return made[dtype]

    return one


def numbers(sizes: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> list[torch.Tensor]:
    b, g, r, q, k, d = sizes
    random = torch.Generator().manual_seed(seed)
    shapes = [(b, g * r, q, d), (b, g, k, d), (b, g, k, d)]
    return [torch.randn(s, generator=random).to(dtype) for s in shapes]


def mask_of(sizes: tuple[int, ...]) -> torch.Tensor:
    b, _, _, q, k, _ = sizes
    mask = torch.rand((b, q, k), generator=torch.Generator().manual_seed(3)) < 0.4
    mask[0, 0] = False  # sees nothing: the mean of all values
    return mask


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_attention_of_any_width_equals_its_body(
    dtype: str, level: str, programs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINNET_NATIVE_LEVEL", level)
    attend = programs(dtype)
    most = {"bf16": 2**-7, "f32": 4e-6}[dtype]
    for sizes in SIZES:
        q, k, v = numbers(sizes, attend.dtype)
        cases: list[tuple[Any, ...]] = [("causal", q, k, v), ("whole", q, k, v)]
        cases.append(("mixed", q, k, v, mask_of(sizes)))
        places = torch.arange(sizes[0], dtype=torch.int32) % sizes[4]
        cases += [("upto", q[:, :, :1], k, v, sizes[4] - 1 - places)]
        for name, *args in cases:
            got, wanted = attend(name, *args), attend.body(name, *args)
            gap = (got.double() - wanted.double()).abs().max() / wanted.double().abs().max()
            assert gap <= most, (name, sizes, gap)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_a_row_of_attention_depends_on_what_it_sees_alone(
    dtype: str, level: str, programs: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINNET_NATIVE_LEVEL", level)
    attend = programs(dtype)
    for sizes in SIZES:
        q, k, v = numbers(sizes, attend.dtype, 1)
        heads, queries, keys = q.shape[1], sizes[3], sizes[4]
        together = attend("causal", q, k, v)
        for i in range(0, queries, 7):  # one query by itself, the keys after it gone
            first = keys - queries + i + 1
            alone = attend("causal", q[:, :, i : i + 1], k[:, :, :first], v[:, :, :first])
            assert torch.equal(alone, together[:, :, i : i + 1]), (sizes, i)
            last = torch.full((sizes[0],), first - 1, dtype=torch.int32)
            by_place = attend("upto", q[:, :, i : i + 1], k, v, last)
            assert torch.equal(by_place, alone), (sizes, i, "by position")
            odd = k.clone(), v.clone()
            for x in odd:
                x[:, :, first:] = float("nan")
            beside = attend("upto", q[:, :, i : i + 1], *odd, last)
            assert torch.equal(beside, alone), (sizes, i, "other keys")
        each = heads // sizes[1]
        for g in range(sizes[1]):  # one head of a group, one sequence
            one = q[:1, g * each : g * each + 1], k[:1, g : g + 1], v[:1, g : g + 1]
            assert torch.equal(attend("causal", *one), together[:1, g * each : g * each + 1])
        mask = mask_of(sizes)
        some = attend("mixed", q, k, v, mask)
        for i in range(0, queries, 5):
            got = attend("mixed", q[:, :, i : i + 1], k, v, mask[:, i : i + 1])
            assert torch.equal(got, some[:, :, i : i + 1]), (sizes, i, "mixed")
        if queries > 1:  # what only the last query sees
            k[:, :, -1], v[:, :, -1] = float("inf"), float("nan")
            assert torch.equal(attend("causal", q, k, v)[:, :, :-1], together[:, :, :-1]), sizes
