"""Native code compiled once for every size of a batch gives what code for one size gives."""

from __future__ import annotations

from typing import Any

import pytest
import serve_models
import torch

from linnet.errors import InputError
from linnet.native.compiler import why_not
from linnet.torch.shared import call_at

pytestmark = pytest.mark.skipif(why_not() is not None, reason=str(why_not()))


@pytest.mark.parametrize("kind", ["hybrid", "plain"])
def test_one_library_serves_every_batch(kind: str) -> None:
    model = serve_models.KINDS[kind](64, backend="native")
    draw = torch.Generator().manual_seed(1)
    made: list[Any] = []
    for batch in (3, 1, 5):
        tokens = torch.randint(0, 256, (batch, 7), generator=draw)
        steps = torch.randint(0, 256, (batch, 1), generator=draw)
        open_ = model.rebind({"Batch": batch}, free=("Batch",))
        made.append(open_)
        given = open_.prefill(tokens, pos=0), open_.decode_rows(steps, torch.full((batch,), 7))
        with pytest.raises(InputError, match="expected 0 to 63"):
            open_.decode_rows(steps, torch.full((batch,), 64))
        if batch == 3:
            alone = model.rebind({"Batch": batch})
            assert torch.equal(alone.prefill(tokens, pos=0), given[0])
            assert torch.equal(alone.decode_rows(steps, torch.full((batch,), 7)), given[1])
            for path, state in alone.state.items():
                assert torch.equal(state, open_.state[path])
            assert alone.native.module is not open_.native.module
            assert alone.native.refused == open_.native.refused
    assert len({id(m.native.module) for m in made}) == 1
    assert made[0].native.module is not None


def test_fewer_rows_on_the_same_memory() -> None:
    """A step of the first rows is that of a model with so many."""
    model = serve_models.hybrid(64, backend="native")
    draw = torch.Generator().manual_seed(3)
    whole = model.rebind({"Batch": 4}, free=("Batch",))
    whole.prefill(torch.randint(0, 256, (4, 5), generator=draw), pos=0)
    some = model.rebind({"Batch": 2})
    for path, state in some.state.items():
        state.copy_(whole.state[path][:2])
    kept = {path: state[2:].clone() for path, state in whole.state.items()}
    steps = torch.randint(0, 256, (2, 1), generator=draw, dtype=torch.int32)
    positions = torch.tensor([5, 3], dtype=torch.int32)
    found = call_at(whole, "decode_rows", [steps, positions], {"Batch": 2})
    assert torch.equal(found, some.decode_rows(steps, positions))
    for path, state in whole.state.items():
        assert torch.equal(state[:2], some.state[path]) and torch.equal(state[2:], kept[path])


def test_a_size_that_the_code_needs_is_not_left_open() -> None:
    """Models whose other generics differ have code of their own."""
    model = serve_models.plain(64, backend="native")
    one = model.rebind({"Batch": 1, "MaxSeq": 32}, free=("Batch",))
    two = model.rebind({"Batch": 1, "MaxSeq": 48}, free=("Batch",))
    tokens = torch.randint(0, 256, (1, 9), generator=torch.Generator().manual_seed(2))
    assert torch.equal(one.prefill(tokens, pos=0), two.prefill(tokens, pos=0))
    assert one.native.module is not two.native.module


def test_what_cannot_be_left_open_has_code_of_its_own() -> None:
    """How many layers there are is a number in any code."""
    model = serve_models.plain(64, backend="native")
    closed = model.rebind({"MaxSeq": 40}, free=("Layers",))
    tokens = torch.randint(0, 256, (1, 9), generator=torch.Generator().manual_seed(4))
    assert torch.equal(closed.prefill(tokens, pos=0), model.rebind({}).prefill(tokens, pos=0))
    assert closed.native.module is not None and not closed.native.open


def test_a_fault_of_the_compiler_is_no_reason_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model = serve_models.plain(64, backend="native")

    def fails(bound: Any) -> None:
        raise AssertionError("a fault")

    monkeypatch.setattr("linnet.torch.shared._refuse_calls", fails)
    monkeypatch.setattr("linnet.torch.kept.kept.read", lambda key: None)
    with pytest.raises(AssertionError, match="a fault"):
        _ = model.rebind({"MaxSeq": 44}, free=("Batch",)).native.open
