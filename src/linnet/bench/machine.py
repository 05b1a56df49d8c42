"""The machine's limits, measured in a process of its own: its memory is not the model's.

`python -m linnet.bench.machine THREADS DTYPE` prints them as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing, suppress
from dataclasses import dataclass, field

from linnet.errors import BackendError

AROUND = 2  # measurements around our own run


@dataclass
class Machine:
    """Rates measured before and after each engine. Ours comes first, so the first two are those
    around it: the better one counts, since what a busy machine loses it loses for the model too."""

    threads: int
    dtype: str
    by: str = ""  # what measured it
    read: list[float] = field(default_factory=list)  # bytes a second
    products: list[float] = field(default_factory=list)  # operations a second

    def measure(self) -> None:
        """Measure once more. Raises BackendError where the process fails."""
        command = [sys.executable, "-m", "linnet.bench.machine", str(self.threads), self.dtype]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        try:
            found = json.loads(done.stdout)
        except json.JSONDecodeError:
            detail = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
            raise BackendError(f"the machine's rates cannot be measured: {detail[0]}") from None
        self.by = found["by"]
        self.read.append(found["read"])
        self.products.append(found["products"])

    @property
    def read_rate(self) -> float:
        return max(self.read[:AROUND])

    @property
    def product_rate(self) -> float:
        return max(self.products[:AROUND])


def rates(threads: int, dtype: str) -> dict[str, float | str]:
    """Bytes read and operations a second, now."""
    from linnet.native.compiler import why_not

    if why_not() is None:
        from linnet.native.compiler import level
        from linnet.native.rates import Rates

        with (
            suppress(BackendError, OSError),
            closing(Rates(threads)) as native,
        ):  # a compiler that fails
            return {
                "by": f"C loops, {level()}",
                "read": native.read(),
                "products": native.products(dtype),
            }
    from linnet.torch.rates import product_rate, read_rate

    return {"by": "torch", "read": read_rate(threads), "products": product_rate(threads, dtype)}


if __name__ == "__main__":
    print(json.dumps(rates(int(sys.argv[1]), sys.argv[2])))
