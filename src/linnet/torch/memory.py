"""How much memory a device has left."""

from __future__ import annotations

import torch


def free_memory(device: str | torch.device) -> int | None:
    """Bytes free on an accelerator; None for the CPU, or where torch does not say."""
    try:
        place = torch.device(device)
        if place.type != "cuda":
            return None
        free, _ = torch.cuda.mem_get_info(place)
    except (RuntimeError, AssertionError):  # no such device: loading says so
        return None
    return int(free)
