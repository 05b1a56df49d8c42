"""Where a token's time goes, as a process of its own: in kernels, in loop nests, outside both.

    LINNET_NATIVE_CFLAGS=-DLINNET_PROFILE python -m common.profile '{"model": …, "tokens": 32, …}'

Prints JSON: seconds of the median call, and the shares of thread 0's time. Waiting for the other
threads stands in the step that waits.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import statistics
import sys
import time
from typing import Any

STEP = re.compile(r"STEP\((\d+), (\w+)\(")


def profile(job: dict[str, Any]) -> dict[str, float]:
    os.environ["LINNET_NO_CACHE"] = "1"  # the C is needed, which is not kept
    import linnet

    model: Any = linnet.load(job["model"], weights=job.get("weights"), generics=job["generics"])
    prompt = [[(100 + 37 * i) % 40000 for i in range(job["prompt"])]]
    model.prefill(prompt, pos=0)
    model.decode([[5]], pos=job["prompt"])
    module = model.native.module
    if module is None:
        raise SystemExit(f"the native backend does not run {job['model']}: {model.native.reason}")
    spent = (ctypes.c_double * 8192).in_dll(module.library, "profile_time")
    ctypes.memset(spent, 0, ctypes.sizeof(spent))
    calls = []
    for i in range(job["tokens"]):
        start = time.perf_counter()
        model.decode([[(991 * i) % 40000]], pos=job["prompt"] + 1 + i)
        calls.append(time.perf_counter() - start)
    kinds = {int(n): name for n, name in STEP.findall(module.code.functions["decode"].text)}
    total = sum(calls)
    kernels = sum(spent[n] for n, name in kinds.items() if name.startswith("k_"))
    nests = sum(spent[n] for n, name in kinds.items() if not name.startswith("k_"))
    return {
        "seconds": statistics.median(calls),
        "kernels": kernels / total,
        "nests": nests / total,
        "outside": 1 - (kernels + nests) / total,
    }


if __name__ == "__main__":
    print(json.dumps(profile(json.loads(sys.argv[1]))))
