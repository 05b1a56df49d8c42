"""How long a context fits the memory there is."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from linnet.errors import InputError

# Left free for activations, the allocator and everything else that runs.
_RESERVE = 512 << 20
_SHARE = 0.8
_STEP = 256
# Below this a context is of no use: it is taken although it may not fit, and said.
_LEAST = 1024


@dataclass(frozen=True)
class Context:
    """A context length chosen or given: `length` tokens of at most `most`; `state` and `free`
    are bytes; `fits` says whether the memory holds it."""

    length: int
    most: int | None
    state: int
    free: int | None
    fits: bool

    def __str__(self) -> str:
        of = f" of {self.most}" if self.most is not None and self.most != self.length else ""
        free = "" if self.free is None else f", {_bytes(self.free)} free"
        warning = "" if self.fits else "; this may not fit"
        return f"context {self.length}{of} tokens: state takes {_bytes(self.state)}{free}{warning}"


def choose_context(
    state_bytes: Callable[[int], int],
    most: int | None,
    *,
    wanted: int | None = None,
    weights: int = 0,
    free: int | None = None,
) -> Context:
    """The longest context that fits the memory, or the one that was asked for.

    `state_bytes(MaxSeq)` are the bytes of the model's state at that many positions (linear in
    it); `most` is the model's own maximum; `wanted` is what the user asked for; `weights` are
    bytes still to be loaded; `free` is the memory there is, by default this machine's. Raises
    `InputError` where `wanted` is not a length the model has.
    """
    if free is None:
        free = available_memory()
    if wanted is not None and wanted <= 0:
        raise InputError(f"max-seq is {wanted}; expected an integer above 0")
    if wanted is not None and most is not None and wanted > most:
        raise InputError(f"max-seq is {wanted}; the model was made for at most {most} tokens")
    room = None if free is None else int((free - weights - _RESERVE) * _SHARE)
    if wanted is not None:
        state = state_bytes(wanted)
        return Context(wanted, most, state, free, room is None or state <= room)
    ceiling = most if most is not None else 8192
    if room is None:
        length = min(ceiling, 8192)
        return Context(length, most, state_bytes(length), free, True)
    length = _longest(state_bytes, ceiling, room)
    state = state_bytes(length)
    return Context(length, most, state, free, state <= room)


def _longest(state_bytes: Callable[[int], int], ceiling: int, room: int) -> int:
    if ceiling <= _STEP or state_bytes(ceiling) <= room:
        return ceiling
    low, high = _STEP, min(2 * _STEP, ceiling)
    # State is linear in the context: two points give the line.
    slope = (state_bytes(high) - state_bytes(low)) / (high - low) if high > low else 0
    if slope <= 0:  # the state does not grow: what it takes, it takes at any length
        return ceiling
    length = int(low + (room - state_bytes(low)) / slope) // _STEP * _STEP
    return max(min(length, ceiling), min(_LEAST, ceiling))


def available_memory() -> int | None:
    """Bytes this process may still take, or None where the system does not say.

    The least of what the machine has available and what is left of each control group's limit;
    file pages that a group could give back count as free.
    """
    found = [v for v in (_meminfo(), *_cgroups()) if v is not None]
    if found:
        return max(0, min(found))
    try:  # not Linux
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (ValueError, OSError, AttributeError):
        return None


def _meminfo() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _cgroups(
    root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")
) -> list[int]:
    """What is left of each limit on the way from this process's group to the root."""
    left: list[int] = []
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return left
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":  # version 2
            base, limit, used = root, "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            base, limit, used = root / "memory", "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        group = base / path.strip("/")
        while True:
            at = _number(group / limit)
            now = _number(group / used)
            if at is not None and now is not None and at < 1 << 60:
                left.append(at - now + _reclaimable(group / "memory.stat"))
            if group == base or base not in group.parents:
                break
            group = group.parent
    return left


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # "max": no limit
        return None


def _reclaimable(path: Path) -> int:
    try:
        rows = dict(line.split() for line in path.read_text().splitlines())
        return int(rows.get("total_inactive_file", rows.get("inactive_file", 0)))
    except (OSError, ValueError):
        return 0


def _bytes(n: int) -> str:
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n >= size:
            value = n / size
            return f"{value:.0f} {unit}" if value >= 10 else f"{value:.1f} {unit}"
    return f"{n} B"
