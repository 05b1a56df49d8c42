"""Checkpoints as transformers saves them by default, read through the package's own bindings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import oracle
import pytest
import torch

import linnet


@pytest.mark.parametrize("kind", ["text", "vision"])
def test_saved_by_default(
    package: Path, checkpoint: Callable[..., oracle.Oracle], tmp_path: Path, kind: str
) -> None:
    """Experts one by one, and for the text model alone another prefix: no bindings are given."""
    reference = checkpoint(kind)
    reference.model.save_pretrained(tmp_path, max_shard_size="200KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    model: Any = linnet.load(
        package,
        weights=tmp_path,
        generics={"Batch": 1, "MaxSeq": 32, **reference.generics},
        bindings=package / "bindings.json",
    )
    tokens = torch.arange(1, 20)[None]
    with torch.no_grad():
        want = reference.model(tokens).logits
    got = model.forward(tokens)
    assert (got - want).abs().max() <= 1e-4 * want.abs().max()


def test_an_expert_that_is_missing_is_named(
    package: Path, checkpoint: Callable[..., oracle.Oracle], tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    reference = checkpoint("text")
    reference.model.save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = {k: v.clone() for k, v in load_file(file).items()}
    del tensors["model.layers.1.mlp.experts.3.up_proj.weight"]
    save_file(tensors, file)
    with pytest.raises(linnet.WeightsError, match=r"layers\.1\.mlp\.experts"):
        linnet.load(
            package, weights=tmp_path, generics={"Batch": 1, "MaxSeq": 32, **reference.generics}
        )
