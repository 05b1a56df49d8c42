"""Operations of products with weights, counted from the program."""

from __future__ import annotations

from pathlib import Path

import pytest

from linnet.check.path import check_path
from linnet.ir.cost import product_operations
from linnet.ir.manifest import root_block
from linnet.ir.specialize import specialize

SOURCE = """module stack

use std.nn.linear::{Linear}
use std.nn.softmax::{softmax}

block Layer<H: Dim> {
    sub up: Linear<H, 2 * H, f32>
    sub down: Linear<2 * H, H, f32>

    pub fn forward<S: Dim>(x: Tensor[S, H; f32]) -> Tensor[S, H; f32] {
        return down.forward(up.forward(x))
    }
}

pub block Stack<H: Dim, Layers: Dim> {
    sub layers: [Layer<H>; Layers]
    param mix: Tensor[H, H; f32]

    pub entry forward<S: Dim>(x: Tensor[S, H; f32]) -> Tensor[S, H; f32] {
        var y = x
        static for layer in layers { y = layer.forward(y) }
        let mixed[s, o] = sum[i] softmax(y)[s, i] * mix[o, i]
        return mixed
    }
}
"""


def test_loops_calls_and_sums(tmp_path: Path) -> None:
    file = tmp_path / "stack.linnet"
    file.write_text(SOURCE)
    program = check_path(file)
    bound = specialize(program, root_block(program, None), {"H": 8, "Layers": 3})
    one = 2 * 5 * (2 * 8 * 16)
    assert product_operations(bound, "forward", {"S": 5}) == 3 * one + 2 * 5 * 8 * 8


def test_only_the_chosen_experts_count(models: Path) -> None:
    folder = models / "qwen3.6-35b-a3b"
    program = check_path(folder)
    generics: dict[str, int | str] = {
        "Vocab": 100, "H": 8, "Groups": 1, "HeadDim": 8, "Heads": 2, "KvHeads": 1, "KeyHeads": 1,
        "KeyDim": 4, "ValueHeads": 2, "ValueDim": 4, "Width": 4, "Conv": 16, "TopK": 2,
        "Experts": 6, "ExpertInner": 4, "SharedInner": 4, "Batch": 1, "MaxSeq": 16, "T": "bf16",
    }  # fmt: skip
    bound = specialize(program, root_block(program, "Model"), generics)
    linear = (16 + 8 + 2 * 2) * 8 + 8 * 8  # qkv, z, a and b; out
    full = (2 * 16 + 8 + 8) * 8 + 16 * 8
    mixture = 2 * (2 * 4 * 8 + 8 * 4) + 3 * 4 * 8 + 6 * 8 + 8
    layers = 3 * linear + full + 4 * mixture
    head = 100 * 8
    found = product_operations(bound, "decode", {})
    # The sums of squares of norms come on top: at these sizes a few percent.
    assert 0 <= found - 2 * (layers + head) <= 0.08 * found
    grown = product_operations(bound, "prefill", {"S": 10}) - 2 * head
    assert grown / 10 == pytest.approx(found - 2 * head, rel=0.02)  # one row has the last norm
