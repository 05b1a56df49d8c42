"""The slice of the founding model in 4 bits, with random weights: written in seconds.

Every packed tensor gets the bits that llama.cpp's Q4_0 gives it, embedding and head included.
The bytes are random and the scales all equal, so that no tensor has to be rounded.

    python -m common.slice GROUPS FOLDER      # from within bench/
"""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MODEL = "qwen3.6-35b-a3b"
SCALE = 0.003


def write_slice(groups: int, folder: Path) -> Path:
    """A folder that loads as it lies, of `groups` times four layers; kept where it is there."""
    if folder.is_dir():
        return folder
    import numpy as np

    from linnet.check.path import check_path
    from linnet.ir.manifest import manifest, root_block
    from linnet.nest.card import read_card
    from linnet.torch.random import random_outputs
    from linnet.weights.bindings import read_bindings
    from linnet.weights.choice import Choice
    from linnet.weights.folder import write_folder
    from linnet.weights.packed import Packed, group_of, sizes

    path = ROOT / "models" / MODEL
    card, program = read_card(path), check_path(path)
    root = root_block(program, card.root)
    generics = {**card.generics, "Groups": groups, "MaxSeq": 1}
    listed = [p for p in manifest(program, root, generics) if p.kind != "state"]
    choice = Choice(program, root, generics, "int4", 4)
    pool = np.random.default_rng(0).integers(0, 256, (1 << 20) + 7, dtype=np.uint8)

    def packed(kind: str, shape: tuple[int, ...]) -> Any:
        each, scales = sizes(kind, shape)
        rows = prod(shape[:-1])
        group = group_of(shape[-1])
        assert group is not None
        data = np.resize(pool, rows * each)
        scale = np.full(rows * scales, SCALE, np.float32)
        flat = memoryview(data).cast("B"), memoryview(scale).cast("B")
        return Packed(kind, shape, group, *flat)

    outputs = [
        replace(o, make=partial(packed, o.kind, o.shape)) if o.kind else o
        for o in random_outputs(listed, choice, read_bindings(card.weights.bindings), 0)
    ]
    about = {"linnet.model": MODEL, "linnet.source": f"random bytes, {groups} groups"}
    write_folder(folder, outputs, about)
    return folder


if __name__ == "__main__":
    write_slice(int(sys.argv[1]), Path(sys.argv[2]))
