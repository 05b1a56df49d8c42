"""The state of one sequence outside the batch: every state's row, up to a position.

A snapshot shares what does not change: the positions of a prefix stand in segments, which many
snapshots may hold; the recurrent states are whole. Snapshots are never written again, so a fork
is the same object used twice.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from linnet.serve.layout import Layout, copy_all

Segment = tuple[Tensor, ...]  # positions of each positional state of one row


@dataclass(frozen=True)
class Snapshot:
    """`position` tokens of a text: their segments in order (with how many positions each has),
    the recurrent states after the last, and the logits `[Vocab] f32` after it where known."""

    position: int
    segments: tuple[tuple[int, Segment], ...]
    recurrent: Segment
    logits: Tensor | None = None

    def restore(self, layout: Layout, states: dict[str, Tensor], row: int) -> None:
        """Puts the state into one row of live states. Positions after it are left as they are:
        they are written before they are read."""
        at = 0
        for length, segment in self.segments:
            end = min(at + length, self.position)
            copy_all(
                layout.span(states, row, at, end),
                [
                    part.narrow(axis, 0, end - at)
                    for part, axis in zip(segment, layout.positional.values(), strict=True)
                ],
            )
            at = end
        copy_all(layout.moving(states, row), list(self.recurrent))


def snapshot(
    layout: Layout,
    states: dict[str, Tensor],
    row: int,
    position: int,
    logits: Tensor | None = None,
    start: int = 0,
) -> Snapshot:
    """Copies of one row's state at `position`; with `start`, of positions from there on only."""
    segment = tuple(t.clone() for t in layout.span(states, row, start, position))
    recurrent = tuple(t.clone() for t in layout.moving(states, row))
    return Snapshot(position, ((position - start, segment),), recurrent, logits)


def move(
    layout: Layout,
    source: dict[str, Tensor],
    row: int,
    to: dict[str, Tensor],
    to_row: int,
    position: int,
) -> None:
    """Copies one row's state of `position` tokens into another row."""
    copy_all(layout.span(to, to_row, 0, position), layout.span(source, row, 0, position))
    copy_all(layout.moving(to, to_row), layout.moving(source, row))
