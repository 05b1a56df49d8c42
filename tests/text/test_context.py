"""A context that fits the memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from linnet.errors import InputError
from linnet.text.context import choose_context
from linnet.weights.available import _cgroups, available_memory

GB = 10**9


def state(length: int) -> int:
    return 1_000_000 + 20_000 * length


def test_the_whole_context_where_it_fits() -> None:
    c = choose_context(state, 8192, free=21 * GB)
    assert (c.length, c.fits) == (8192, True)
    assert str(c) == "context 8192 tokens: state takes 165 MB, 21 GB free"


@pytest.mark.parametrize("free", [2 * GB, 3 * GB, 5 * GB])
def test_as_much_as_fits(free: int) -> None:
    c = choose_context(state, 262144, free=free)
    assert c.fits and c.length % 256 == 0 and c.length < 262144
    assert c.state <= 0.8 * free < state(c.length + 256) + 0.8 * (512 << 20) + 1
    assert f"context {c.length} of 262144 tokens" in str(c)


def test_weights_take_their_part() -> None:
    with_weights = choose_context(state, 262144, free=5 * GB, weights=2 * GB)
    assert with_weights.length < choose_context(state, 262144, free=5 * GB).length


def test_too_little_memory_is_said() -> None:
    c = choose_context(state, 262144, free=GB // 4, weights=GB)
    assert (c.length, c.fits) == (1024, False)
    assert "this may not fit" in str(c)


def test_a_state_that_does_not_grow() -> None:
    assert choose_context(lambda n: 5 * GB, 262144, free=GB).length == 262144


def test_asked_for() -> None:
    assert choose_context(state, 8192, wanted=100, free=GB).length == 100
    assert not choose_context(state, 262144, wanted=262144, free=GB).fits
    with pytest.raises(InputError, match=r"max-seq is 9000; .* at most 8192"):
        choose_context(state, 8192, wanted=9000, free=GB)
    with pytest.raises(InputError, match="max-seq is 0"):
        choose_context(state, 8192, wanted=0, free=GB)


def test_control_groups(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("0::/a/b\n")
    group = tmp_path / "cgroup" / "a" / "b"
    group.mkdir(parents=True)
    (group / "memory.max").write_text("max\n")
    (group / "memory.current").write_text("5\n")
    (group.parent / "memory.max").write_text("1000\n")
    (group.parent / "memory.current").write_text("700\n")
    (group.parent / "memory.stat").write_text("anon 500\ninactive_file 100\n")
    assert _cgroups(tmp_path / "cgroup", own) == [400]


def test_this_machine_has_memory() -> None:
    free = available_memory()
    assert free is None or free > 0
