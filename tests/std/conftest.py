"""Runs ops of the standard library as their bodies say, on torch tensors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch


class Bodies:
    """The entries of a block without members, each run by the reference evaluator."""

    def __init__(self, path: Path):
        import linnet
        from linnet.ir.specialize import specialize
        from linnet.torch.evaluate import Evaluator

        self.bound = specialize(linnet.check(path), "crate::Ops", {}, None)
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
def bodies(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], Bodies]:
    """`bodies(uses, entries)` checks the entries and gives a way to call them."""
    folder = tmp_path_factory.mktemp("std")

    def get(uses: str, entries: str) -> Bodies:
        path = folder / "ops.linnet"
        path.write_text(f"module ops\n{uses}\npub block Ops {{{entries}}}\n")
        return Bodies(path)

    return get
