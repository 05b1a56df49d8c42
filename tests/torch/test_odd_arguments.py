"""What callers do to an entry: strange tensors, writes into what they gave and got."""

from __future__ import annotations

import pytest
import torch
from torch_programs import load_text

import linnet

TEXT = """
pub block Root<N: Dim> {
    state a: Tensor[N; f32]
    state b: Tensor[N; f32]
    pub entry swap(x: Tensor[N; f32]) -> (Tensor[N; f32], Tensor[N; f32]) {
        let old = a
        a = b + x
        b = old
        return (a, b)
    }
    pub entry get() -> Tensor[N; f32] { return a }
    pub entry put(x: Tensor[N; f32]) -> Tensor[N; f32] {
        a = x
        b = a
        return x
    }
}
"""


@pytest.fixture(params=["exact", "equivalent", "fast"])
def model(request, tmp_path):
    return load_text(tmp_path, TEXT, generics={"N": 3}, numerics=request.param)


def test_states_that_change_places(model):
    first = model.swap(torch.ones(3))
    second = model.swap(torch.full((3,), 5.0))
    assert [x[0].item() for x in first] == [1, 0]  # as they were, after the second call
    assert [x[0].item() for x in second] == [5, 1]
    assert model.state["a"].tolist() == [5] * 3 and model.state["b"].tolist() == [1] * 3


def test_results_and_arguments_are_not_the_states(model):
    x = torch.arange(3.0)
    model.put(x)
    x.fill_(7)
    model.get().fill_(9)
    assert model.get().tolist() == [0, 1, 2] and model.state["b"].tolist() == [0, 1, 2]


def test_tensors_without_values_in_a_row(model):
    for bad, kind in (
        (torch.zeros(3).to_sparse(), "sparse"),
        (torch.zeros(3, device="meta"), "meta"),
    ):
        with pytest.raises(linnet.InputError, match=f"`x`.*{kind}"):
            model.put(bad)
    assert model.put(torch._neg_view(torch.ones(3))).tolist() == [-1] * 3
    assert model.get().tolist() == [-1] * 3
