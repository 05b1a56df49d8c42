"""Serving a decoder to many at once: requests, continuous batching, prefix reuse.

    with Engine(model, text, rows=8) as engine:
        print(engine.run(Request(tokens, max_tokens=64)).choices[0].text)

Names are imported on first use, so that the package itself costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "Engine": "engine",
    "open_engine": "open",
    "Request": "request",
    "Constraint": "request",
    "Handle": "handle",
    "Observer": "observer",
    "Prefilled": "events",
    "Delta": "events",
    "Finished": "events",
    "Done": "events",
    "Failed": "events",
    "Event": "events",
    "TokenLogprob": "events",
    "Usage": "events",
    "Choice": "events",
    "Completion": "events",
    "ServeError": "errors",
    "ContextExceeded": "errors",
    "QueueFull": "errors",
    "Unavailable": "errors",
    "RequestFailed": "errors",
}

__all__ = [*_HOMES, "Sampling"]


def __getattr__(name: str) -> Any:
    if name == "Sampling":
        return import_module("linnet.text.sampling").Sampling
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
