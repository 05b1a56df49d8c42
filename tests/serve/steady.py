"""A pace that tests set."""

from __future__ import annotations

from linnet.serve.pace import Pace


class Steady(Pace):
    """Chunks of a set size, whatever the clock says."""

    def __init__(self, tokens: int):
        super().__init__()
        self.tokens = tokens

    def fits(self, room: float, first: bool = True, position: int = 0) -> int:
        return self.tokens if first else 0

    def whole(self, room: float, first: bool = True) -> int:
        return self.tokens if first else 0
