"""What of this process's memory is read to ask tensors where their elements are.

A token's weights push it out of the caches between two calls. Asking then waits for one line
after another; fetched all at once they come in together.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence

from torch import Tensor

LINE = 64
# Of the C++ objects behind a tensor and its storage: what is read lies within these many bytes.
TENSOR, STORAGE = 192, 64


def touched(tensors: Sequence[Tensor]) -> array[int]:
    """The lines, as addresses. Only ever fetched: one that means something else by now, or is
    missing, costs time at most."""
    spans = [(id(tensors), sys.getsizeof(tensors))]
    for tensor in tensors:
        spans.append((id(tensor), sys.getsizeof(tensor)))
        spans.append((getattr(tensor, "_cdata", 0), TENSOR))
        spans.append((getattr(tensor.untyped_storage(), "_cdata", 0), STORAGE))
    lines = {
        line
        for start, size in spans
        if start
        for line in range(start // LINE * LINE, start + size, LINE)
    }
    return array("Q", sorted(lines))
