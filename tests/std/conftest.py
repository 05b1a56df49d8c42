"""Runs ops of the standard library as their bodies say, on torch tensors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch


class Bodies:
    """The stand-alone entries of one source text, each run by the reference evaluator."""

    def __init__(self, path: Path):
        import linnet
        from linnet.ir.specialize import specialize
        from linnet.torch.evaluate import Evaluator

        self.bound = specialize(linnet.check(path), "", {}, None)
        self.evaluator = Evaluator(self.bound)

    def __call__(self, entry: str, *args: Any, **dims: int) -> Any:
        from linnet.dims import Dim
        from linnet.ir.types import ScalarType, TensorType

        instance = self.bound.functions[self.bound.entries[entry]]
        values = []
        for value, (name, type) in zip(args, instance.params, strict=True):
            if isinstance(type, TensorType):
                for dim, size in zip(type.shape, value.shape, strict=True):
                    assert isinstance(dim, Dim), name
                    (known,) = dim.names() or ("",)
                    if known and dim == Dim.name(known):
                        assert dims.setdefault(known, size) == size, (name, known)
            elif isinstance(type, ScalarType):
                value = torch.as_tensor(value, dtype=getattr(torch, SCALARS[type.dtype]))
            values.append(value)
        with torch.no_grad():
            return self.evaluator.run(instance.id, None, values, dims)


SCALARS = {"f32": "float32", "i32": "int32", "i64": "int64", "bool": "bool"}


@pytest.fixture(scope="session")
def bodies(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Bodies]:
    """`bodies(text)` checks entries and gives a way to call them; `module` and braces included."""
    folder = tmp_path_factory.mktemp("std")
    made: dict[str, Bodies] = {}

    def get(text: str) -> Bodies:
        if text not in made:
            path = folder / f"entries{len(made)}.linnet"
            path.write_text("module entries\n" + text)
            made[text] = Bodies(path)
        return made[text]

    return get
