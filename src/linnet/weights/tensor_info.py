"""What a checkpoint says of one tensor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """A stored tensor: `nbytes` are those of the stored form.

    `dtype` is one of ours (`bf16`, `f32`, …) or, for forms that no program declares, the
    file's own name in small letters (`f8_e4m3`, `q4_1`). `importer` marks a source that
    converts on read to whatever float dtype is asked for. `alias` names the tensor whose
    bytes these are, where a format leaves a tied tensor out.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    file: Path
    importer: bool = False
    alias: str | None = None
