"""Attention over caches in 8 bits: every instruction set against the torch backend's arithmetic,
and one order of addition however queries and threads are shared out."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import linnet
from linnet.native.compiler import LEVELS, cpu_features, why_not

if why_not():
    pytest.skip(why_not() or "", allow_module_level=True)

SIZES = {
    "Vocab": 64, "H": 64, "Inner": 64, "Heads": 4, "KvHeads": 2, "HeadDim": 40, "Layers": 2,
    "Batch": 1, "MaxSeq": 3000, "T": "f32",
}  # fmt: skip
AVAILABLE = [name for name, (needs, _) in LEVELS.items() if set(needs) <= cpu_features()]


def small(**options: Any) -> Any:
    sizes = {**SIZES, **options.pop("generics", {})}
    return linnet.load(
        "smollm2-135m-instruct", weights="random", generics=sizes, cache="int8", **options
    )


def text(length: int) -> torch.Tensor:
    return (torch.arange(length) * 37 % 61).view(1, length)


@pytest.mark.parametrize(
    ("level", "heads"),
    [*((level, (4, 2, 40)) for level in AVAILABLE), (AVAILABLE[0], (6, 1, 24)),
     (AVAILABLE[0], (2, 2, 64)), (AVAILABLE[0], (30, 1, 16))],
)  # fmt: skip
def test_levels(level: str, heads: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINNET_NATIVE_LEVEL", level)
    sizes = dict(zip(("Heads", "KvHeads", "HeadDim"), heads, strict=True))
    native, other = (small(generics=sizes, backend=b) for b in ("native", "torch"))
    for model in (native, other):
        model.out = [model.prefill(text(70), 0), model.decode([[3]], 70)]
        model.out += [model.decode_rows([[4]], torch.tensor([71]))]
    for a, b in zip(native.out, other.out, strict=True):
        assert torch.allclose(a, b, atol=0.02 * float(b.std()))


def test_spans_are_joined_in_one_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """2,050 positions are three spans: alone shared by the threads, in a prompt one by one."""
    found = []
    for threads in ("1", "2", "3"):
        monkeypatch.setenv("LINNET_THREADS", threads)
        model = small()
        whole = model.prefill(text(2051), 0)
        model.reset_state()
        model.prefill(text(2050), 0)
        found += [whole, model.decode(text(2051)[:, 2050:], 2050)]
    # The layers before and after are bitwise equal for any number of rows, and so is attention.
    assert all(torch.equal(found[0], other) for other in found[1:])


def test_rows_at_positions_of_their_own() -> None:
    model = small(generics={"Batch": 3})
    alone = model.rebind({"Batch": 1})
    ends = [5, 1500, 2999]
    rows = []
    for row, end in enumerate(ends):
        alone.reset_state()
        alone.prefill(text(end), 0)
        for path, tensor in model.held_state().items():
            tensor[row] = alone.held_state()[path][0]
        rows.append(alone.decode_rows([[row]], torch.tensor([end])))
    together = model.decode_rows([[0], [1], [2]], torch.tensor(ends))
    assert torch.equal(together, torch.cat(rows))
