"""Native code compiled once for every size of a batch gives what code for one size gives."""

from __future__ import annotations

from typing import Any

import pytest
import serve_models
import torch

from linnet.errors import InputError
from linnet.native.compiler import why_not

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
    assert len({id(m.native.module) for m in made}) == 1
    assert made[0].native.module is not None and not made[0].native.refused


def test_a_size_that_the_code_needs_is_not_left_open() -> None:
    """Models whose other generics differ have code of their own."""
    model = serve_models.plain(64, backend="native")
    one = model.rebind({"Batch": 1, "MaxSeq": 32}, free=("Batch",))
    two = model.rebind({"Batch": 1, "MaxSeq": 48}, free=("Batch",))
    tokens = torch.randint(0, 256, (1, 9), generator=torch.Generator().manual_seed(2))
    assert torch.equal(one.prefill(tokens, pos=0), two.prefill(tokens, pos=0))
    assert one.native.module is not two.native.module
