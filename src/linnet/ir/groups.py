"""How many elements of a row share a scale when a tensor is kept in few bits.

The bytes that `linnet memory` predicts and the bytes that `linnet.weights` writes follow from
the same rule, this one.
"""

from __future__ import annotations

GROUPS = (128, 64, 32)  # by preference; a group divides the row
SCALE_BITS = 32  # of a group's scale, f32


def group_of(width: int) -> int | None:
    """The elements that share a scale in rows of `width`; None where no group divides them."""
    return next((group for group in GROUPS if width and width % group == 0), None)


def packed_bits(bits: int, width: int) -> float | None:
    """Bits of an element with its share of the scale; None where rows of `width` stay dense."""
    group = group_of(width)
    return None if group is None else bits + SCALE_BITS / group
