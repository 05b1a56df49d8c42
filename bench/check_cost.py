"""What the language tools cost: a check from a cold process, with warm caches, of one edited
package, `--version`, and how the time grows with the source.

    python bench/check_cost.py [--rounds N]

Each figure is the least of several processes, timed from start to end, with Python's compiled
files in place, as an installation has them. "cpu" is what the processes used, which is steadier on
a shared machine. The package checked is the founding one where `../shared` lies beside the
checkout, and the zoo's otherwise.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SEED = ROOT.parent / "shared" / "seed" / "qwen3.6-35b-a3b"
ZOO = ROOT / "models" / "qwen3.6-35b-a3b"
COMMON = ROOT / "models" / "common"


def measure(
    command: list[str], environment: dict[str, str], rounds: int, before: object = None
) -> tuple[float, float]:
    """The least wall-clock and CPU milliseconds of a command."""
    wall = cpu = float("inf")
    for _ in range(rounds):
        if callable(before):
            before()
        start_cpu, start = _children(), time.perf_counter()
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
        wall = min(wall, time.perf_counter() - start)
        cpu = min(cpu, _children() - start_cpu)
    return wall * 1000, cpu * 1000


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description="measure the cost of the language tools")
    parser.add_argument("--rounds", type=int, default=10)
    rounds = parser.parse_args().rounds
    package = SEED if SEED.is_dir() else ZOO
    lines = sum(len(p.read_text().splitlines()) for p in package.rglob("*.linnet"))
    print(f"{package.name}, {lines} lines\n")
    with tempfile.TemporaryDirectory() as name:
        room = Path(name)
        cache = room / "cache"
        environment = os.environ | {
            "XDG_CACHE_HOME": str(cache),
            "PYTHONPYCACHEPREFIX": str(room / "compiled"),
            "PYTHONDONTWRITEBYTECODE": "",
            "LINNET_NO_CACHE": "",
        }
        linnet = [sys.executable, "-m", "linnet"]
        check = [*linnet, "check", str(package)]
        subprocess.run(check, env=environment, stdout=subprocess.DEVNULL, check=True)

        def row(what: str, limit: int | None, figures: tuple[float, float]) -> None:
            wall, cpu = figures
            bound = f"{limit:>6} ms" if limit else " " * 9
            print(f"{what:<44}{wall:>8.0f} ms{cpu:>8.0f} ms {bound}")

        print(f"{'':<44}{'wall':>11}{'cpu':>11} {'limit':>9}")
        row("python -c pass", None, measure([sys.executable, "-c", "pass"], environment, rounds))
        row("linnet --version", 40, measure([*linnet, "--version"], environment, rounds))

        def forget() -> None:
            shutil.rmtree(cache, ignore_errors=True)

        row("check, cold: no cache", 150, measure(check, environment, rounds, forget))
        subprocess.run(check, env=environment, stdout=subprocess.DEVNULL, check=True)
        row("check, warm: nothing has changed", 70, measure(check, environment, rounds))

        copy = room / "edited" / package.name
        shutil.copytree(package, copy)
        shutil.copytree(COMMON, room / "edited" / "common")
        file = next(copy.rglob("lib.linnet"))
        text = file.read_text()

        def edit() -> None:
            file.write_text(f"{text}// {time.time_ns()}\n")

        command = [*linnet, "check", str(copy)]
        row("check, warm: one file edited", None, measure(command, environment, rounds, edit))

        print("\nlines        check        a line")
        body = (COMMON / "qwen3_5" / "src" / "delta_net.linnet").read_text()
        body = body[body.index("pub block") :]
        norms = (COMMON / "qwen3_5" / "src" / "norms.linnet").read_text()
        for copies in (12, 48, 96):
            folder = room / f"large{copies}"
            (folder / "src").mkdir(parents=True)
            (folder / "linnet.toml").write_text(
                '[package]\nname = "large"\nversion = "1.0.0"\nlanguage = "0.1"\n'
            )
            (folder / "src" / "norms.linnet").write_text(norms)
            head = (
                (COMMON / "qwen3_5" / "src" / "delta_net.linnet").read_text().split("pub block")[0]
            )
            whole = head + "\n".join(
                body.replace("block DeltaNet", f"block DeltaNet{n}") for n in range(copies)
            )
            (folder / "src" / "lib.linnet").write_text(whole)
            lines = whole.count("\n")
            _, cpu = measure([*linnet, "check", str(folder)], environment, 1, forget)
            print(f"{lines:>6}{cpu:>10.0f} ms{cpu / lines * 1000:>10.0f} µs")


if __name__ == "__main__":
    main()
