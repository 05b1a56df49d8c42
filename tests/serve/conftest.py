"""Engines on tiny models."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import serve_models
import torch
from steady import Steady

from linnet.serve import Engine


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(params=["hybrid", "plain"])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def model(kind: str) -> Any:
    return serve_models.KINDS[kind]()


@pytest.fixture
def serve(model: Any) -> Iterator[Callable[..., Engine]]:
    """`serve(rows=4, chunk=16)`: a started engine, closed after the test."""
    started: list[Engine] = []

    def start(chunk: int = 32, text: Any = None, of: Any = None, **options: Any) -> Engine:
        engine = Engine(of or model, text, pace=Steady(chunk), **options)
        engine.start()
        started.append(engine)
        return engine

    yield start
    for engine in started:
        engine.close()
