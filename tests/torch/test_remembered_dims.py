"""What an entry remembers of a set of dimensions is told apart from every other set."""

from __future__ import annotations

import pytest
import torch
from torch_programs import load_text

import linnet

TEXT = """
pub block Root {
    pub entry pick<A: Dim, B: Dim>(
        x: Tensor[B; f32], y: Tensor[A; f32], at: i64
    ) -> Tensor[A; f32] {
        let picked[a] = y[a] * x[at]
        return picked
    }
}
"""


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_dimensions_by_keyword_and_by_shape(tmp_path, monkeypatch, backend):
    monkeypatch.setenv("LINNET_BACKEND", backend)
    model = load_text(tmp_path, TEXT)
    two, five = torch.ones(2), torch.ones(5)
    for _ in range(2):
        assert model.pick(five, two, 4).shape == (2,)
        assert model.pick(two, five, 1, A=5).shape == (5,)
        assert model.pick(two, five, 1, A=5, B=2).shape == (5,)
        assert model.pick(five, two, 4, B=5).shape == (2,)
        with pytest.raises(linnet.InputError, match=r"`at`: 4 is out of range.*0 to 1"):
            model.pick(two, five, 4, A=5)
        with pytest.raises(linnet.InputError, match="expected shape"):
            model.pick(two, five, 1, A=2)


@pytest.mark.parametrize("backend", ["native", "torch"])
def test_lists_of_integers_are_held_to_their_dtype(tmp_path, monkeypatch, backend):
    monkeypatch.setenv("LINNET_BACKEND", backend)
    text = """
    pub block Root {
        pub entry twice<N: Dim>(x: Tensor[N; u8]) -> Tensor[N; u8] { return x + x }
    }
    """
    model = load_text(tmp_path, text)
    assert model.twice([1, 2, 100]).tolist() == [2, 4, 200]
    assert model.twice([]).shape == (0,)
    for bad in ([1, 256], [-1], [2**70], [1.0], [True], [[1]], [1, [2]], ["1"], [None]):
        with pytest.raises(linnet.InputError, match="`x`"):
            model.twice(bad)
