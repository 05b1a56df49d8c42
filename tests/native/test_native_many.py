"""Products of many rows: near the exact sum, and each row bit for bit what it is alone, however
long the rows are and whatever is fetched meanwhile."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from linnet.check.path import check_path
from linnet.ir.passes.pipeline import optimize
from linnet.ir.specialize import specialize
from linnet.native import compiler
from linnet.native.module import NativeModule
from linnet.torch import dtypes

if compiler.why_not() is not None:
    pytest.skip(compiler.why_not() or "", allow_module_level=True)

PROGRAM = """module many

use std.nn.decoding::{top_k}
use std.nn.linear::{linear}
use std.nn.moe::{linear_experts_shared}

pub block Many {
    param unused: Tensor[1; f32]? = none

    pub entry apply<N: Dim, I: Dim, O: Dim>(x: Tensor[N, I; TYPE], w: Tensor[O, I; TYPE]) -> Tensor[N, O; TYPE] {
        return linear(x, w)
    }
    pub entry offset<N: Dim, I: Dim, O: Dim>(
        x: Tensor[N, I; TYPE], w: Tensor[O, I; TYPE], b: Tensor[O; TYPE],
    ) -> Tensor[N, O; TYPE] {
        return linear(x, w, some(b))
    }
}

pub block Chosen {
    param experts: Tensor[6, 150, WIDE; TYPE]

    pub entry chosen<N: Dim>(
        x: Tensor[N, WIDE; TYPE], score: Tensor[N, 6; f32],
    ) -> Tensor[N, 2, 150; TYPE] {
        let (_, who) = top_k<2>(score)
        return linear_experts_shared(x, experts, who)
    }
}
"""
LEVELS = [
    name for name, (needs, _) in compiler.LEVELS.items() if set(needs) <= compiler.cpu_features()
]
# Rows, elements of a row, outputs: rows longer than what stays in the first-level cache, with and
# without a rest; rows in one tile, in uneven tiles, in several blocks; rows of nothing; rows that
# are copied, since they lie 4,096 bytes apart.
SIZES = [(5, 2048, 64), (16, 2080, 131), (23, 4096, 200), (7, 4111, 70), (200, 2049, 66),
         (6, 6181, 9), (400, 576, 192), (9, 31, 300),
         (3, 0, 9), (300, 0, 64), (390, 2048, 1030), (193, 320, 66)]  # fmt: skip
if "LINNET_TEST_SEED" in os.environ:
    _random = random.Random(int(os.environ["LINNET_TEST_SEED"]))
    SIZES = [
        (_random.randint(1, 420), _random.randint(1, 9000), _random.randint(1, 400))
        for _ in range(6)
    ]
TOLERANCE = {"bf16": 2.0**-8, "f16": 2.0**-10, "f32": 1e-5}


def compiled(folder: Path, name: str, dtype: str, wide: int = 1) -> Any:
    file = folder / "many.linnet"
    file.write_text(PROGRAM.replace("TYPE", dtype).replace("WIDE", str(wide)))
    program = check_path(file)
    root = next(b for b in program.blocks if b.endswith(f"::{name}"))
    return optimize(specialize(program, root, {}, None), "fast")


def close(found: torch.Tensor, exact: torch.Tensor, size: torch.Tensor, dtype: str) -> bool:
    """Rounded once, and sums in f32 whose error grows with the norms of what is multiplied."""
    bound = TOLERANCE[dtype] * exact.abs() + 1e-5 * size + 1e-30
    return bool(((found.double() - exact).abs() <= bound).all())


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", ["bf16", "f32", "f16"])
def test_rows_are_what_they_are_alone(
    dtype: str, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINNET_NATIVE_LEVEL", level)
    module = NativeModule(compiled(tmp_path, "Many", dtype), None, None, 2)
    g = torch.Generator().manual_seed(0)
    stored = dtypes.STORAGE[dtype]
    for n, wide, out in SIZES if dtype == "bf16" else SIZES[::3]:
        x, w, b = (torch.randn(s, generator=g).to(stored) for s in ((n, wide), (out, wide), (out,)))

        def linear(rows: torch.Tensor, *more: torch.Tensor) -> torch.Tensor:
            y = torch.zeros(rows.shape[0], out, dtype=stored)  # noqa: B023
            dims = {"N": rows.shape[0], "I": wide, "O": out}  # noqa: B023
            given = [t.data_ptr() for t in (rows, w, *more)]  # noqa: B023
            module.entries["offset" if more else "apply"](given, dims, [y.data_ptr()])
            return y

        y = linear(x)
        exact = x.double() @ w.double().T
        size = x.double().norm(dim=1)[:, None] * w.double().norm(dim=1)
        assert close(y, exact, size, dtype), (n, wide, out)
        assert torch.equal(linear(x, b), (y + b)), (n, wide, out, "offset")
        for first, count in (
            (0, 1),
            (n // 2, min(3, n - n // 2)),
            (0, min(5, n)),
            (n // 3, n - n // 3),
        ):
            part = x[first : first + count].contiguous()
            assert torch.equal(linear(part), y[first : first + count]), (n, wide, out, count)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("dtype", "wide"), [("bf16", 4128), ("bf16", 4096), ("f32", 4128)])
def test_experts_of_long_rows(
    dtype: str, wide: int, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LINNET_NATIVE_LEVEL", level)
    module = NativeModule(compiled(tmp_path, "Chosen", dtype, wide), None, None, 2)
    assert "k_experts" in {c.kernel for c in module.choices["chosen"]}
    g = torch.Generator().manual_seed(1)
    stored = dtypes.STORAGE[dtype]
    experts = torch.randn(6, 150, wide, generator=g).to(stored)
    module.bind("experts", experts.data_ptr())

    def chosen(x: torch.Tensor, score: torch.Tensor) -> torch.Tensor:
        y = torch.zeros(x.shape[0], 2, 150, dtype=stored)
        given = [x.data_ptr(), score.data_ptr()]
        module.entries["chosen"](given, {"N": x.shape[0]}, [y.data_ptr()])
        return y

    x = torch.randn(240, wide, generator=g).to(stored)
    score = torch.randn(240, 6, generator=g)
    score[:, 0] += 4  # nearly all rows, more than one block of them
    score[:, 5] -= 9  # none
    y = chosen(x, score)
    who = score.argsort(dim=1, descending=True)[:, :2]
    assert (who == 0).sum() > 192 and not (who == 5).any()
    for expert in range(6):
        row, slot = (who == expert).nonzero(as_tuple=True)
        exact = x[row].double() @ experts[expert].double().T
        size = x[row].double().norm(dim=1)[:, None] * experts[expert].double().norm(dim=1)
        assert close(y[row, slot], exact, size, dtype), expert
    for first, count in ((7, 1), (30, 9), (100, 60)):
        part = slice(first, first + count)
        assert torch.equal(chosen(x[part].contiguous(), score[part].contiguous()), y[part])
