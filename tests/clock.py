"""Time that a test may hold a bound against: this thread's own, whatever else runs."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


def seconds(work: Callable[[], object], tries: int = 1) -> float:
    """The least processor time of the calling thread that `work` took in `tries` runs, in seconds.

    Other threads of the process do not count, nor does the collector: it walks everything that
    earlier tests left alive, which has nothing to do with the work.
    """
    best = float("inf")
    was_on = gc.isenabled()
    gc.disable()
    try:
        for _ in range(tries):
            start = time.thread_time()
            work()
            best = min(best, time.thread_time() - start)
    finally:
        if was_on:
            gc.enable()
    return best
