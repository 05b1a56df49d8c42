"""Random programs give the same under the reference, on torch and as native code."""

from __future__ import annotations

from pathlib import Path

import pytest

from differences.program import program
from differences.run import Runner
from differences.shrink import shrink


def check(seed: int, folder: Path, entries: int, times: int, small: float = 40.0) -> Runner:
    """Run the program of a seed; a difference is shown on a program that has little else in it."""
    made = program(seed, entries)
    runner = Runner(made, folder)
    found = runner.run(times)
    if found:
        listed = "\n".join(map(str, found[:10]))
        pytest.fail(f"{listed}\n\n{shrink(made, found[0], folder, small)}", pytrace=False)
    return runner


@pytest.mark.parametrize("seed", range(1000, 1006))
def test_random_programs(seed: int, tmp_path: Path) -> None:
    runner = check(seed, tmp_path, entries=14, times=3)
    assert runner.calls == 42 and runner.errors < 30


def test_the_same_program_for_a_seed() -> None:
    assert program(7, 4).text() == program(7, 4).text() != program(8, 4).text()


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", range(300))
def test_many_random_programs(seed: int, tmp_path: Path) -> None:
    check(seed, tmp_path, entries=20, times=4, small=120.0)
