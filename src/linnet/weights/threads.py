"""Work on a tensor in several threads: numpy lets others run while it computes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor


def threads() -> int:
    """`$LINNET_THREADS`, else `$OMP_NUM_THREADS`, else the processors of this process; at most 8,
    since each holds a part of its own."""
    for name in ("LINNET_THREADS", "OMP_NUM_THREADS"):
        text = os.environ.get(name, "")
        if text.isdecimal() and int(text) > 0:
            return min(int(text), 8)
    return min(8, os.cpu_count() or 1)


def each(work: Callable[[int], None], starts: Sequence[int]) -> None:
    """`work` at every start, in no order. Raises the first error in the order of the starts."""
    if len(starts) < 2 or threads() < 2:
        for start in starts:
            work(start)
        return
    with ThreadPoolExecutor(threads()) as pool:
        for _ in pool.map(work, starts):
            pass
