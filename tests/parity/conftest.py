"""Checkpoints and loaded models, made once a session.

`package` stands for each package of the founding architecture: the founding one as it is, and ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import oracle
import pytest
import torch

MAKERS = {
    "text": oracle.qwen_text,
    "vision": oracle.qwen_vision,
    "llama": oracle.llama_small,
}


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Models this small run faster on one thread, several times so beside other work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., oracle.Oracle]:
    """`checkpoint("text", dtype="bf16", Experts=5)` makes that checkpoint, or finds it again."""
    made: dict[object, oracle.Oracle] = {}

    def get(kind: str, **options: Any) -> oracle.Oracle:
        key = (kind, *sorted(options.items()))
        if key not in made:
            made[key] = MAKERS[kind](tmp_path_factory.mktemp(kind), **options)
        return made[key]

    return get


@pytest.fixture(scope="session", params=["founding", "ours"])
def package(request: pytest.FixtureRequest, models: Path) -> Path:
    if request.param == "founding":
        return request.getfixturevalue("founding_package")
    return models / "qwen3.6-35b-a3b"


@pytest.fixture(scope="session")
def load() -> Callable[..., Any]:
    """`load(package, oracle, Batch=2, numerics="exact")`, each distinct model once; its state is
    cleared each time."""
    import linnet

    loaded: dict[object, Any] = {}

    def get(
        package: Path,
        reference: oracle.Oracle,
        *,
        numerics: str = "fast",
        trainable: bool = False,
        cast: bool = False,
        **generics: int | str,
    ) -> Any:
        options = (numerics, trainable, cast, *sorted(generics.items()))
        key = (package, reference.folder, options)
        if key not in loaded:
            loaded[key] = linnet.load(
                package,
                weights=reference.folder,
                bindings=reference.bindings,
                generics={"Batch": 1, "MaxSeq": 256, **reference.generics, **generics},
                numerics=numerics,
                trainable=trainable,
                cast=cast,
            )
        loaded[key].reset_state()
        return loaded[key]

    return get
