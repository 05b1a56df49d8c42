"""What plain loops reach on this machine at this moment: the measure of the table's aims.

`kernels_reach.c` lies beside the checkout, in `../shared/peers`, or where `--peers-dir` says. It
prints the rates at which two threads multiply a bf16 and a 4-bit matrix with one row, and read.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PEERS = ROOT.parent / "shared" / "peers"
LINE = re.compile(r"(bf16 gemv|int4 gemv|read) best ([0-9.]+) GB/s")
KEYS = {"bf16 gemv": "bf16", "int4 gemv": "int4", "read": "read"}


class Reach:
    """Rates in GB/s as they are now, and `matrix`, operations a second."""

    def __init__(self, folder: Path = PEERS):
        source = folder / "kernels_reach.c"
        self.place = tempfile.TemporaryDirectory(prefix="reach-")
        self.program: Path | None = Path(self.place.name) / "reach"
        command = ["cc", "-O3", "-march=native", "-fopenmp", str(source), "-o", str(self.program)]
        if not source.is_file() or subprocess.run(command, check=False).returncode:
            print(f"no reach: {source} is not there, or cc does not compile it", file=sys.stderr)
            self.program = None

    def measure(self) -> dict[str, float]:
        """The rates of the loops; empty where they are not there."""
        if self.program is None:
            return {}
        done = subprocess.run([str(self.program)], capture_output=True, text=True, check=True)
        return {KEYS[name]: float(rate) for name, rate in LINE.findall(done.stdout)}

    def matrix(self, threads: int) -> float:
        """Operations a second of torch's bf16 product of squares of 2048, in a process of its
        own: the matrix rate that prompts are held against."""
        code = (
            "import time, torch\n"
            f"torch.set_num_threads({threads})\n"
            "a = torch.randn(2048, 2048, dtype=torch.bfloat16)\n"
            "best = 9e9\n"
            "for _ in range(12):\n"
            "    t = time.perf_counter(); a @ a; best = min(best, time.perf_counter() - t)\n"
            "print(2 * 2048**3 / best)\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        return float(done.stdout)


def told(rates: dict[str, float]) -> str:
    """A line that says what was found."""
    parts = [f"{name} {rate:.1f} GB/s" for name, rate in rates.items() if name != "matrix"]
    if "matrix" in rates:
        parts.append(f"bf16 product {rates['matrix'] / 1e12:.2f} TFLOP/s")
    return "reach: " + (", ".join(parts) or "not measured")
