"""From a command to the first word of its answer: a new process each time, files in the page cache.

    python bench/first_token.py [--llama PYTHON] [--model NAME] [--rounds N]

Ours is `linnet generate`; the peer is a script of a few lines that gives llama-cpp-python the same
GGUF file, context, threads and prompt. Both write the first piece of text as it comes. The figures
are medians of the wall-clock time from starting the process to the first byte of its answer; what
of it goes into importing torch is measured beside it. Code compiled earlier is in the cache, as it
is from the second time on; `--cold` empties the cache before each round instead.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROMPT = "Once upon a time, in a small house by the sea, there lived"
PEER = """
import sys
from llama_cpp import Llama
model = Llama(sys.argv[1], n_ctx=int(sys.argv[2]), n_threads=int(sys.argv[3]), verbose=False)
for piece in model.create_completion(sys.argv[4], max_tokens=8, temperature=0.0, stream=True):
    sys.stdout.write(piece["choices"][0]["text"])
    sys.stdout.flush()
"""


def first_byte(command: list[str], environment: dict[str, str]) -> float:
    """Seconds from starting a process to its first byte on standard output."""
    start = time.perf_counter()
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
        env=environment,
    )  # fmt: skip
    assert child.stdout is not None
    got = os.read(child.stdout.fileno(), 1)
    seconds = time.perf_counter() - start
    _, said = child.communicate()
    if not got or child.returncode:
        raise SystemExit(f"{command[0]}: {said.decode(errors='replace').strip()}")
    return seconds


def weights_of(name: str) -> Path:
    from linnet.nest.card import read_card
    from linnet.nest.zoo import find_model, find_weights

    found = find_weights(read_card(find_model(name)))
    path = found[0] if isinstance(found, list) else found
    if path.suffix != ".gguf":
        raise SystemExit(f"{path}: the peer reads GGUF files alone")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--llama", help="a Python with llama-cpp-python")
    parser.add_argument("--context", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cold", action="store_true", help="compile anew each time")
    args = parser.parse_args()
    threads = len(os.sched_getaffinity(0))
    ours = [
        sys.executable, "-m", "linnet", "generate", "--max-new", "8", "--temperature", "0",
        "--quiet", "--max-seq", str(args.context), args.model, PROMPT,
    ]  # fmt: skip
    commands = {
        "linnet": ours,
        "linnet, weights as stored": [*ours[:-2], "--quantize", "stored", *ours[-2:]],
        "of it, import torch": [sys.executable, "-c", "import torch; print(1, flush=True)"],
    }
    if args.llama:
        numbers = (str(args.context), str(threads))
        commands["llama.cpp"] = [
            args.llama, "-c", PEER, str(weights_of(args.model)), *numbers, PROMPT,
        ]  # fmt: skip
    times: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(args.rounds + (not args.cold)):
        for name, command in commands.items():
            with tempfile.TemporaryDirectory() as empty:
                environment = dict(os.environ)
                if args.cold:
                    environment["XDG_CACHE_HOME"] = empty
                seconds = first_byte(command, environment)
            if number or args.cold:  # the first round fills the caches
                times[name].append(seconds)
    for name, found in times.items():
        print(f"{name:<28}{statistics.median(found):6.2f} s  ({min(found):.2f} … {max(found):.2f})")
    if "llama.cpp" in times:
        ratio = statistics.median(times["linnet"]) / statistics.median(times["llama.cpp"])
        print(f"linnet / llama.cpp: {ratio:.2f}")


if __name__ == "__main__":
    main()
