"""Text in and text out: tokenizers, chat templates, sampling, generation.

Nothing here imports torch. Logits come as numpy arrays, or as tensors that `.float().numpy()`
turns into one. Names are imported on first use, so that the package itself costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    "TextError": "errors",
    "Tokenizer": "tokenizer",
    "StreamDecoder": "tokenizer",
    "ChatTemplate": "template",
    "Sampling": "sampling",
    "SamplingState": "sampling",
    "sample": "sampling",
    "StopStrings": "stop",
    "Settings": "settings",
    "read_settings": "settings",
    "generate": "generation",
    "Delta": "generation",
    "Finished": "generation",
    "Conversation": "conversation",
    "TextModel": "open",
    "open_text": "open",
    "choose_context": "context",
    "Context": "context",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
