"""The error of this room."""

from __future__ import annotations

from linnet.errors import Error


class TextError(Error):
    """A tokenizer, a chat template or a generation setting cannot be used."""
