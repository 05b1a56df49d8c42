"""Bytes as people read them, in decimal units."""

from __future__ import annotations


def tenths(count: float) -> str:
    """To a tenth of the unit: `69.3 GB`, `1.0 kB`, `999 B`."""
    return _in_units(count, ".1f")


def figures(count: float) -> str:
    """To three figures: `269 MB`, `2.47 GB`, `999 B`."""
    return _in_units(count, ".3g")


def _in_units(count: float, form: str) -> str:
    shown, unit = f"{count:.0f}", "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if float(shown) < 1000:  # what rounds to 1000 is 1 of the next
            break
        count /= 1000
        shown, unit = format(count, form), larger
    return f"{shown} {unit}"
