"""`argmax`, `top_k` and `sort` of values that are no numbers: one answer under every policy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch

import linnet

PROGRAM = """\
module orders

use std.nn.decoding::{argmax, sort, top_k}

pub block Orders<T: Float> {
    pub entry largest<A: Dim, N: Dim>(x: Tensor[A, N; T]) -> Tensor[A; i32] {
        return argmax(x)
    }

    pub entry top<A: Dim, N: Dim>(x: Tensor[A, N; T]) -> (Tensor[A, 3; T], Tensor[A, 3; i64])
    where N >= 3 {
        return top_k<3>(x)
    }

    pub entry sorted<A: Dim, N: Dim>(x: Tensor[A, N; T]) -> (Tensor[A, N; T], Tensor[A, N; i64]) {
        return sort(x)
    }
}
"""
NAN, INF = math.nan, math.inf
ROWS = [
    [1.0, NAN, 3.0, 2.0, NAN],
    [NAN, 1.0, INF, -INF, 2.0],
    [NAN] * 5,
    [0.0, -0.0, 1.0, 1.0, -1.0],
]


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(
    ("numerics", "backend"),
    [("exact", None), ("equivalent", None), ("fast", "torch"), ("fast", "native")],
)
def test_a_nan_counts_as_the_least(
    numerics: str, backend: str | None, dtype: str, tmp_path: Path
) -> None:
    (tmp_path / "orders.linnet").write_text(PROGRAM)
    model: Any = linnet.load(
        tmp_path / "orders.linnet", numerics=numerics, backend=backend, generics={"T": dtype}
    )
    x = torch.tensor(ROWS).to(torch.float32 if dtype == "f32" else torch.bfloat16)
    assert model.largest(x).tolist() == [2, 2, 0, 2]
    order = torch.sort(x.nan_to_num(-INF, INF, -INF), stable=True, descending=True).indices
    for values, indices in (model.top(x), model.sorted(x)):
        expected = order[:, : indices.shape[1]]
        assert torch.equal(indices, expected)
        torch.testing.assert_close(values, x.gather(1, expected), equal_nan=True)
