"""The largest of each row, as torch finds it."""

from __future__ import annotations

import ctypes
import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from linnet.native import compiler
from linnet.native.choose import Largest

pytestmark = pytest.mark.skipif(compiler.why_not() is not None, reason=str(compiler.why_not()))


@pytest.fixture(scope="module")
def largest() -> Largest:
    module: Any = SimpleNamespace(path=compiler.build(["int nothing;"]))
    return Largest(module)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("width", [1, 7, 255, 256, 257, 2048, 49152])
def test_as_torch_finds_it(largest: Largest, dtype: torch.dtype, width: int) -> None:
    random = np.random.default_rng(width)
    name = {torch.bfloat16: "bf16", torch.float32: "f32"}[dtype]
    for scale in np.array([0.01, 1.0, 1e30], np.float32):
        values = random.standard_normal((9, width)).astype(np.float32) * scale
        values[1] = np.round(values[1])  # many that are equal
        values[2] = -np.abs(values[2]) - 1
        values[3] = -np.inf
        values[4, random.integers(width)] = np.inf
        values[5] = random.choice(np.array([0.0, -0.0], np.float32), width)
        values[6] = np.where(random.random(width) < 0.5, -0.0, -1.0)
        values[7, random.integers(width)] = np.nan
        values[8] = -np.abs(values[8])
        values[8, random.integers(width)] = np.copysign(np.nan, -1)
        x = torch.from_numpy(values).to(dtype)
        found = largest.find(x.data_ptr(), name, *x.shape)
        assert found is not None
        top, at = found
        wide = x.float().numpy()
        for row in range(9):
            if np.isnan(wide[row]).any():
                assert row >= 7
                assert math.isnan(top[row])
            else:
                assert (top[row], at[row]) == (wide[row].max(), wide[row].argmax())


def test_types_that_it_does_not_know(largest: Largest) -> None:
    x = (ctypes.c_uint16 * 4)()
    assert largest.find(ctypes.addressof(x), "f16", 1, 4) is None
    assert largest.find(ctypes.addressof(x), "bf16", 0, 4) is None
