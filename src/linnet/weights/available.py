"""How much memory this process may still take."""

from __future__ import annotations

import os
from pathlib import Path


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
