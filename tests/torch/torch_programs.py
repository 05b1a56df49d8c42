"""Programs written into a folder and loaded, for the tests of this backend."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import linnet


def load_text(folder: Path, text: str, name: str = "sample", **options: Any) -> Any:
    """Write a stand-alone file and load it; entries outside a block need no weights."""
    file = folder / f"{name}.linnet"
    file.write_text(f"module {name}\n{text}")
    return linnet.load(file, **options)
