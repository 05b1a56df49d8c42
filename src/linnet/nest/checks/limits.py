"""A process with limits: what a package makes it do ends in time, in bounded memory."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from linnet.nest.checks.report import Step

_LINE = 1 << 20  # characters of one record
_RECORDS = 200
_BETWEEN = 60.0  # seconds by the clock outside steps: imports, on a busy machine


def run_limited(
    module: str, arguments: Sequence[str], *, seconds: float, memory: int
) -> Iterator[dict[str, Any]]:
    """Run `python -m module …`; the JSON records that it writes, a line each.

    Of a step with `"begins": true` the name is kept. A process that dies, or that is silent for
    too long, becomes a problem of the step that it was at. Each step has `seconds` of processor
    time, a limit that the child sets itself (`begin`), and half as much again by the clock, which
    holds on a busy machine too and for a step that waits; `memory` is in bytes.
    """
    home = Path(__file__).resolve().parents[3]
    environment = {
        **os.environ,
        "LINNET_NO_CACHE": "1",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "LINNET_CHECK_SECONDS": str(seconds),
        "LINNET_CHECK_MEMORY": str(memory),
    }
    step = "start"
    with tempfile.TemporaryFile() as errors:
        # The working folder is the tool's own: `-m` puts it on the path, and nothing of a
        # package may be imported.
        child = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            cwd=home, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=errors, start_new_session=True,
        )  # fmt: skip
        output = child.stdout
        assert output is not None
        timer = _Timer(child, _BETWEEN)
        try:
            for number, line in enumerate(iter(lambda: output.readline(_LINE), b"")):
                timer.restart(_BETWEEN)
                try:
                    record = json.loads(line)
                except ValueError:
                    record = None
                if not isinstance(record, dict) or number > _RECORDS:
                    break
                if record.get("begins"):
                    step = str(record.get("step"))
                    timer.restart(1.5 * seconds)
                    continue
                step = "end"
                yield record
            code = child.wait()
        finally:
            timer.cancel()
            _kill(child)
            output.close()
        if code == 0:
            return
        errors.seek(max(0, errors.tell() - 2000))
        said = errors.read().decode("utf-8", "replace").strip().splitlines()
        yield {"step": step, "problems": [_why(code, timer.fired, seconds, memory, said)]}


def _why(code: int, silent: bool, seconds: float, memory: int, said: list[str]) -> str:
    name = signal.Signals(-code).name if -code in signal.valid_signals() else str(code)
    if name == "SIGXCPU" or silent:
        return f"stopped after {seconds:g} seconds: it does not end, or is far too slow"
    last = said[-1] if said else ""
    if name == "SIGKILL" or "MemoryError" in last or "memory" in last.lower():
        return f"it needs more than {memory / 1e9:.1f} GB of memory"
    return f"the process ended with {name}{f': {last}' if last else ''}"


class _Timer:
    """Kills a process that writes nothing for `seconds`."""

    def __init__(self, child: subprocess.Popen[bytes], seconds: float):
        self.child, self.seconds, self.fired = child, seconds, False
        self.timer = self.start()

    def start(self) -> threading.Timer:
        timer = threading.Timer(self.seconds, self.fire)
        timer.daemon = True
        timer.start()
        return timer

    def restart(self, seconds: float) -> None:
        self.timer.cancel()
        self.seconds = seconds
        self.timer = self.start()

    def fire(self) -> None:
        self.fired = True
        _kill(self.child)

    def cancel(self) -> None:
        self.timer.cancel()


def _kill(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            child.kill()
        child.wait()


# --- In the child ------------------------------------------------------------------------


def restrict() -> None:
    """Bound this process's memory, and write no core files. Where the system has no such
    limits (Windows), the parent's clock alone counts."""
    try:
        import resource
    except ImportError:
        return
    memory = int(os.environ.get("LINNET_CHECK_MEMORY", "0"))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def begin(step: str) -> None:
    """Say what comes now, and give it its own processor time."""
    _write({"step": step, "begins": True})
    try:
        import resource
    except ImportError:
        return
    seconds = float(os.environ.get("LINNET_CHECK_SECONDS", "8"))
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = int(used.ru_utime + used.ru_stime + seconds) + 1
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, hard))


def finish(step: Step) -> None:
    _write(
        {
            "step": step.name,
            "detail": step.detail,
            "problems": step.problems,
            "notes": step.notes,
            "skipped": step.skipped,
            "figures": step.figures,
        }
    )


def _write(record: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()
