"""Large grids are evaluated in windows; the windows change nothing."""

from __future__ import annotations

import pytest
import torch
from torch_programs import load_text

from linnet.torch import emit_grid, grid

TEXT = """
pub entry f<M: Dim, N: Dim, K: Dim>(
    a: Tensor[M, K; f32], b: Tensor[K, N; f32], at: Tensor[M, N; i32], t: Tensor[7, N; f32]
) -> (Tensor[M, N; f32], Tensor[M, N; f32], Tensor[N, M; f32], Tensor[M; i32]) {
    let product[m, n] = sum[k] a[m, k] * b[k, n]
    let picked[m, n] = t[at[m, n], n] + (max[k] a[m, k])
    let branch[n, m] = if at[m, n] > 3 { t[at[m, n] - 4, n] } else { a[m, 0] * b[0, n] }
    let beaten[m] = sum<i32>[j, k] cast<i32>(a[j, k] > a[m, k] && t[0, 0] < a[m, k])
    return (product, picked, branch, beaten)
}
"""


def arguments():
    generator = torch.Generator().manual_seed(3)
    a, b = torch.randn(9, 5, generator=generator), torch.randn(5, 6, generator=generator)
    return (
        a, b, torch.randint(0, 7, (9, 6), generator=generator), torch.randn(7, 6, generator=generator)
    )  # fmt: skip


def load(tmp_path, numerics):
    text = TEXT.replace("i32]) {", "i32]) where K > 0, N > 0 {")
    return load_text(tmp_path, text, numerics=numerics)


@pytest.mark.parametrize("limit", [1, 7, 40, 300])
def test_windows(tmp_path, monkeypatch, limit):
    want = load(tmp_path, "exact").f(*arguments())
    monkeypatch.setattr(grid, "LIMIT", limit)
    for x, y in zip(load(tmp_path, "exact").f(*arguments()), want, strict=True):
        assert torch.allclose(x, y, atol=1e-6)  # torch adds in an order that follows the layout


def test_generated_code_leaves_large_grids_to_windows(tmp_path, monkeypatch):
    want = load(tmp_path, "exact").f(*arguments())
    whole = load(tmp_path, "fast")
    monkeypatch.setattr(emit_grid, "LARGEST", 10)
    parts = load(tmp_path, "fast")
    for model in (whole, parts):
        for x, y in zip(model.f(*arguments()), want, strict=True):
            assert torch.allclose(x, y, atol=1e-5)
    from linnet.torch.inspect import code

    assert "grid" in code(parts, "f")


def test_an_empty_axis(tmp_path):
    a, b, at, t = arguments()
    for numerics in ("exact", "fast"):
        got = load(tmp_path, numerics).f(a[:0], b, at[:0], t)
        assert [x.shape[-1] for x in got] == [6, 6, 0, 0]
