"""Order along the last axis, ties to the lower index, with both ways of finding it."""

import pytest
import torch

from linnet.torch.kernels import order


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("rows", [1, 300])
@pytest.mark.parametrize("descending", [True, False])
def test_top_k(dtype, rows, descending):
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(-3, 4, (rows, 50), generator=generator).to(dtype)  # many ties
    x[:, 3], x[:, 7] = 0.0, -0.0
    x[:, 11], x[:, 12] = float("inf"), float("-inf")
    values, indices = order.top_k(x, 9, descending)
    full, places = torch.sort(x, stable=True, descending=descending)
    assert torch.equal(indices, places[:, :9]) and torch.equal(values, full[:, :9])
    rank = order.rank(x, descending, torch.int32)
    assert torch.equal(rank.gather(-1, places).long(), torch.arange(50).expand(rows, 50))
