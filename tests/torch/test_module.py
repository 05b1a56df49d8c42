"""A loaded model: arguments, states, traces, saving, gradients."""

from __future__ import annotations

import numpy
import pytest
import torch
from torch_programs import load_text

import linnet

COUNTER = """
use std.nn.cache::{write_at, write_slots}
use std.nn.linear::{Linear}
block Cell<H: Dim, Batch: Dim, MaxSeq: Dim> where Batch > 0, MaxSeq > 0, H > 0 {
    param scale: Tensor[H; f32]
    param shift: Tensor[H; f32]? = none
    state cache: Tensor[Batch, 1, MaxSeq, H; f32]
    state calls: Tensor[1; i32]
    pub fn step(x: Tensor[Batch, H; f32], pos: i32) -> Tensor[Batch, H; f32] {
        let scaled = x * scale
        let moved = match shift {
            some(s) => scaled + s
            none => scaled
        }
        cache = write_at(cache, reshape(moved, [Batch, 1, 1, H]), pos)
        calls = calls + 1
        let seen[b, h] = sum[s] cache[b, 0, s, h]
        return seen
    }
    pub fn put<M: Dim>(x: Tensor[M, 1, 1, H; f32], slots: Tensor[M; i32]) -> i32 where M > 0 {
        cache = write_slots(cache, x, slots, 0)
        return calls[0]
    }
}
pub block Model<H: Dim, Batch: Dim, MaxSeq: Dim> where Batch > 0, MaxSeq > 0, H > 0 {
    sub cells: [Cell<H, Batch, MaxSeq>; 2]
    sub out: Linear<H, H, f32>
    pub entry step(x: Tensor[Batch, H; f32], pos: i32) -> Tensor[Batch, H; f32] {
        var y = x
        static for cell in cells {
            y = cell.step(y, pos)
        }
        let mixed = out.forward(y)
        return mixed
    }
    pub entry put<M: Dim>(x: Tensor[M, 1, 1, H; f32], slots: Tensor[M; i32]) -> i32 where M > 0 {
        return cells[0].put(x, slots)
    }
    pub entry peek(where_at: Tensor[2; i32]) -> Tensor[2; i32] {
        let found[i] = cells_at()[where_at[i] % 3]
        return found
    }
    fn cells_at() -> Tensor[3; i32] {
        return iota<i32>(3)
    }
}
"""
SIZES = {"H": 3, "Batch": 2, "MaxSeq": 5}


@pytest.fixture(params=["exact", "equivalent", "fast"])
def model(request, tmp_path):
    return load_text(
        tmp_path, COUNTER, generics=SIZES, weights="random", numerics=request.param, root="Model"
    )


def state_of(model):
    return {path: tensor.clone() for path, tensor in model.state.items()}


def test_states_are_kept_between_calls(model):
    x = torch.ones(2, 3)
    scale = model.state_dict()["cells.0.scale"]
    model.step(x, 0)
    model.step(x, pos=torch.tensor(4))
    cache = model.state["cells.0.cache"]
    assert torch.allclose(cache[:, 0, [0, 4]], scale.expand(2, 2, 3))
    assert cache[:, 0, 1:4].abs().max() == 0
    assert model.state["cells.1.calls"].tolist() == [2]
    model.reset_state()
    assert all(not t.any() for t in model.state.values())
    model.state["cells.0.calls"] = [7]
    model.state["cells.0.cache"][0, 0, 1] = 2.0
    assert model.put(torch.ones(1, 1, 1, 3), [1]).item() == 7
    assert model.state["cells.0.cache"][0, 0, 1].tolist() == [2.0] * 3
    assert model.state["cells.0.cache"][1, 0, 0].tolist() == [1.0] * 3


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda m: m.step(torch.ones(2, 3), 5), "`pos`: 5 .*0 to 4"),
        (lambda m: m.step(torch.ones(2, 3), -1), "`pos`: -1 .*0 to 4"),
        (lambda m: m.step(torch.ones(2, 3), 2**40), "`pos`: .* does not fit i32"),
        (lambda m: m.step(torch.ones(2, 3), 1.5), "`pos`: expected a scalar of i32"),
        (lambda m: m.step(torch.ones(2, 4), 0), r"`x`: expected shape \[2, 3\], found \[2, 4\]"),
        (lambda m: m.step(torch.ones(3), 0), r"`x`: expected shape"),
        (lambda m: m.step(torch.ones(2, 3).double(), 0), "`x`: expected elements of f32, found f64"),
        (lambda m: m.step("text", 0), "`x`: expected a tensor"),
        (lambda m: m.step(torch.ones(2, 3)), "needs a value for `pos`"),
        (lambda m: m.step(torch.ones(2, 3), 0, 1), "takes 2 arguments"),
        (lambda m: m.step(torch.ones(2, 3), 0, pos=0), "`pos` is given twice"),
        (lambda m: m.step(torch.ones(2, 3), position=0), "no argument `position`"),
        (lambda m: m.put(torch.ones(2, 1, 1, 3), [1, 1]), "`slots`: 1 is named twice"),
        (lambda m: m.put(torch.ones(2, 1, 1, 3), [0, 2]), "`slots`: 2 .*0 to 1"),
        (lambda m: m.put(torch.ones(2, 1, 1, 3), [0]), "`slots`: expected shape"),
        (lambda m: m.put(torch.ones(0, 1, 1, 3), []), "`M > 0`"),
    ],
)  # fmt: skip
def test_wrong_arguments(model, call, text):
    model.step(torch.ones(2, 3), 1)
    before = state_of(model)
    with pytest.raises(linnet.InputError, match=text):
        call(model)
    assert all(torch.equal(before[path], tensor) for path, tensor in model.state.items())


def test_more_than_a_state_holds(tmp_path):
    text = """
use std.nn.cache::{write_span}
pub block Model {
    state seen: Tensor[1, 1, 5, 2; f32]
    pub entry put<S: Dim>(x: Tensor[1, 1, S, 2; f32], pos: i32) -> i32 where S > 0 {
        seen = write_span(seen, x, pos)
        return pos
    }
}
"""
    model = load_text(tmp_path, text, weights="random")
    with pytest.raises(linnet.InputError, match="`pos`: no value fits `put` at S = 6"):
        model.put(torch.ones(1, 1, 6, 2), 0)


def test_an_index_found_wrong_while_running(model):
    """No condition on the argument follows from `% 3` of a negative number."""
    assert model.peek([4, 2]).tolist() == [1, 2]
    with pytest.raises(linnet.InputError, match="-1"):
        model.peek([-1, 0])


def test_inputs_of_many_kinds(model):
    want = model.step(torch.ones(2, 3), 0)
    model.reset_state()
    for x, pos in (([[1.0] * 3] * 2, 0), (numpy.ones((2, 3), "float32"), numpy.int64(0))):
        assert torch.equal(model.step(x, pos), want)
        model.reset_state()
    got = model.step(torch.ones(2, 3, dtype=torch.bfloat16), 0)  # narrower: exact
    assert torch.equal(got, want)
    got += 1  # an ordinary tensor, of the caller's own


def test_manifest_and_names(model):
    paths = [p.path for p in model.manifest]
    assert paths[0] == "cells.0.scale" and "cells.0.shift" not in paths
    assert [n for n, _ in model.named_parameters()] == [
        "cells.0.scale", "cells.1.scale", "out.weight"
    ]  # fmt: skip
    assert set(model.state) == {
        "cells.0.cache", "cells.0.calls", "cells.1.cache", "cells.1.calls"
    }  # fmt: skip
    with pytest.raises(AttributeError, match="no entry or attribute `walk`"):
        model.walk  # noqa: B018
    assert model.generics == SIZES


def test_trace(model):
    model.step(torch.ones(2, 3), 0)
    before = state_of(model)
    trace = model.trace("step", torch.ones(2, 3), 1)
    assert all(torch.equal(before[path], tensor) for path, tensor in model.state.items())
    scale = model.state_dict()["cells.0.scale"]
    assert torch.allclose(trace["cells.0.moved"], scale.expand(2, 3))
    assert torch.allclose(trace["cells.0"], trace["cells.0.seen"])
    assert torch.allclose(trace["mixed"], trace.result) and torch.equal(
        trace["out"], trace["mixed"]
    )
    only = model.trace("step", torch.ones(2, 3), 1, names=["seen", "cells.1"])
    assert set(only.values) == {"cells.0.seen", "cells.1.seen", "cells.1"}
    with pytest.raises(linnet.InputError, match="`nothing`"):
        model.trace("step", torch.ones(2, 3), 1, names=["nothing"])
    with pytest.raises(linnet.InputError, match="no entry `walk`"):
        model.trace("walk")


def test_save_and_load(model, tmp_path):
    model.save(tmp_path / "weights")
    again = linnet.load(
        tmp_path / "sample.linnet", root="Model", weights=tmp_path / "weights", generics=SIZES,
        numerics=model.numerics,
    )  # fmt: skip
    x = torch.randn(2, 3)
    assert torch.equal(again.step(x, 0), model.step(x, 0))
    assert again.present == frozenset()


def test_policies_and_devices_are_named(tmp_path):
    with pytest.raises(linnet.InputError, match="exact, equivalent, fast"):
        load_text(tmp_path, COUNTER, numerics="quick")
    with pytest.raises(linnet.BackendError, match="nowhere"):
        load_text(tmp_path, COUNTER, device="nowhere")
    with pytest.raises(linnet.WeightsError, match="random"):
        load_text(tmp_path, COUNTER, root="Model", generics=SIZES)
    with pytest.raises(linnet.BindError, match="MaxSeq"):
        load_text(tmp_path, COUNTER, root="Model", generics={"H": 3, "Batch": 2}, weights="random")


@pytest.mark.parametrize("numerics", ["exact", "fast"])
def test_gradients_pass_through_states(tmp_path, numerics):
    """Two steps: the second reads what the first wrote."""
    model = load_text(
        tmp_path, COUNTER, root="Model", generics=SIZES, weights="random", trainable=True,
        numerics=numerics,
    )  # fmt: skip
    x = torch.ones(2, 3)
    model.step(x, 0)
    loss = model.step(x, 1).sum()
    loss.backward()
    grad = dict(model.named_parameters())["cells.0.scale"].grad
    weight = model.state_dict()["out.weight"].detach()
    scale = model.state_dict()["cells.1.scale"].detach()
    # seen = s0 after one step and 2 s0 after two; the second cell adds both up.
    want = 2 * 3 * scale * weight.sum(0)
    assert torch.allclose(grad, want, rtol=1e-4)
    model.reset_state()
    with torch.no_grad():
        assert not model.step(x, 0).requires_grad


def test_tied_weights_are_one_tensor(tmp_path):
    from safetensors.torch import save_file

    text = """
    use std.nn.embedding::{Embedding}
    use std.nn.linear::{Linear}
    pub block Model<V: Dim, H: Dim> {
        sub table: Embedding<V, H, f32>
        sub head: Linear<H, V, f32>
        pub entry f<B: Dim>(ids: Tensor[B; i32]) -> Tensor[B, V; f32] {
            return head.forward(table.forward(ids))
        }
    }
    """
    shared = torch.randn(5, 4)
    save_file({"w": shared, "other": torch.zeros(2)}, tmp_path / "model.safetensors")
    names = {"table.weight": "w", "head.weight": "w"}
    model = load_text(
        tmp_path, text, generics={"V": 5, "H": 4}, weights=tmp_path, bindings=names
    )  # fmt: skip
    assert len(list(model.named_parameters())) == 1
    assert model.unused_tensors == ("other",)
    assert torch.allclose(model.f([1, 4]), shared[[1, 4]] @ shared.t(), atol=1e-6)
    model.save(tmp_path / "out")
    assert len(list((tmp_path / "out").iterdir())) == 1
