"""Bytes as people read them."""

from __future__ import annotations

from linnet.weights.amounts import figures, tenths

COUNTS = (0, 999, 1000, 999_960, 21_000_000_000, 69_345_000_000, 5 * 10**12, 3 * 10**15)


def test_to_a_tenth() -> None:
    assert [tenths(count) for count in COUNTS] == [
        *("0 B", "999 B", "1.0 kB", "1.0 MB", "21.0 GB", "69.3 GB", "5.0 TB", "3000.0 TB"),
    ]


def test_to_three_figures() -> None:
    assert [figures(count) for count in COUNTS[:-1]] == [
        *("0 B", "999 B", "1 kB", "1 MB", "21 GB", "69.3 GB", "5 TB"),
    ]
