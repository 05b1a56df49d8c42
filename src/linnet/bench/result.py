"""What a run of one engine gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import Any


@dataclass(frozen=True)
class Job:
    """What is measured: a prompt, and tokens after it one by one, `repeat` times after a first
    time that warms up. `batch` sequences at once; either length may be 0."""

    prompt: int
    tokens: int
    batch: int
    repeat: int
    threads: int
    dtype: str
    vocabulary: int


@dataclass
class Run:
    """Wall-clock seconds of one engine: of each prompt, of each token (for all sequences of the
    batch together), of loading and of the first call; and the most memory that was resident."""

    engine: str
    version: str
    dtype: str
    prompt: list[float] = field(default_factory=list)
    token: list[float] = field(default_factory=list)
    load: float | None = None
    first: float | None = None
    peak: int | None = None
    # Ours alone: operations of a prompt's products, bytes that a token reads and writes.
    prompt_operations: int | None = None
    token_bytes: int | None = None

    @property
    def prompt_median(self) -> float | None:
        return median(self.prompt) if self.prompt else None

    @property
    def token_median(self) -> float | None:
        return median(self.token) if self.token else None

    def document(self, job: Job) -> dict[str, Any]:
        """As JSON: seconds, bytes, tokens and operations a second."""
        found: dict[str, Any] = {
            "engine": self.engine, "version": self.version, "dtype": self.dtype,
            "load_seconds": self.load, "first_call_seconds": self.first,
            "peak_memory_bytes": self.peak,
        }  # fmt: skip
        prompt, token = self.prompt_median, self.token_median
        if prompt is not None:
            found["prompt"] = {
                "seconds": prompt, "all_seconds": self.prompt,
                "tokens_per_second": job.batch * job.prompt / prompt,
                "operations": self.prompt_operations,
            }  # fmt: skip
        if token is not None:
            found["token"] = {
                "seconds": token, "all_seconds": self.token,
                "tokens_per_second": job.batch / token, "bytes": self.token_bytes,
            }  # fmt: skip
        return found
