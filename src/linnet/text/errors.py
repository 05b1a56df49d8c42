"""The error of this room."""

from __future__ import annotations

from importlib import import_module

from linnet.errors import Error, how_to_install


class TextError(Error):
    """A tokenizer, a chat template or a generation setting cannot be used."""


def require(package: str) -> None:
    """Raises `TextError` with the way out where a package that text needs is not installed."""
    try:
        import_module(package)
    except ImportError as e:
        raise TextError(
            f"text needs the package {package} ({e}); install it with: {how_to_install('text')}"
        ) from None
