"""Mapped weights brought in at load: the same bytes at the same addresses, in other pages."""

from __future__ import annotations

import mmap
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from linnet.errors import InputError, WeightsError
from linnet.weights import resident
from linnet.weights.checkpoint import Checkpoint, open_checkpoint
from linnet.weights.large import large_ranges
from linnet.weights.resident import PIECE, Brought, fits
from linnet.weights.room import PAGE, address_of, room

np = pytest.importorskip("numpy")
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the pages of Linux")
SIZE = 11 << 20  # of a tensor: no multiple of a large page's place in the file


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    from linnet.weights.safetensors import save

    pool = np.random.default_rng(0).integers(0, 255, 8 * SIZE, np.uint8).tobytes()
    save(
        tmp_path,
        [(f"t{i}", "u8", (SIZE,), pool[i * SIZE : (i + 1) * SIZE]) for i in range(8)],
        shard_bytes=4 * SIZE,
    )
    return tmp_path


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nothing lay in large pages."""
    monkeypatch.setattr(resident, "large_ranges", lambda start, stop: [])


def lent(checkpoint: Checkpoint) -> dict[str, memoryview]:
    return {name: checkpoint.read(name) for name in checkpoint.tensors}


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("free", [1 << 40, 12 * SIZE])
def test_bytes_and_addresses_stay(folder: Path, monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    """Also where memory is short, and the page cache lets go of what was copied."""
    monkeypatch.setattr(resident, "available_memory", lambda: free)
    monkeypatch.setattr(resident, "fits", lambda *_: True)
    before = {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}
    with open_checkpoint(folder) as checkpoint:
        held = lent(checkpoint)
        places = {name: address_of(view) for name, view in held.items()}
        found = checkpoint.bring_in(True)
        assert found.read >= 8 * SIZE - 4 * PAGE
        assert found.copied == found.read
        other = open_checkpoint(folder)
        for name, view in held.items():
            assert address_of(view) == places[name]
            assert view == other.read(name), name
        # What was copied is nothing that the file could give again.
        held["t1"][SIZE // 2] ^= 255
        for name in held:
            checkpoint.forget(name)
        assert held["t1"] != other.read("t1")
    assert {path.name: path.read_bytes() for path in folder.glob("*.safetensors")} == before


def test_only_what_was_handed_out(folder: Path) -> None:
    with open_checkpoint(folder) as checkpoint:
        assert checkpoint.bring_in(True) == Brought()
        checkpoint.read("t5")
        found = checkpoint.bring_in(True)
        assert SIZE - PAGE < found.read < SIZE + 2 * PAGE


def test_large_pages_stay_where_they_are(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resident, "large_ranges", lambda start, stop: [(start, stop)])
    with open_checkpoint(folder) as checkpoint:
        lent(checkpoint)
        found = checkpoint.bring_in(True)
        assert found.read and not found.copied


def test_pieces_cover_ranges_once(folder: Path) -> None:
    with open_checkpoint(folder) as checkpoint:
        lent(checkpoint)
        for source in checkpoint._sources:
            file, ranges = source.lent
            pieces = list(resident._pieces(file, [*ranges, *ranges]))
            assert all(p.start % PAGE == p.stop % PAGE == 0 for p in pieces)
            assert all(PAGE <= p.stop - p.start <= PIECE for p in pieces)
            assert all(a.stop <= b.start for a, b in pairwise(pieces))
            assert pieces[0].start >= file.address
            assert pieces[-1].stop <= file.address + file.size


def test_memory_decides(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resident, "available_memory", lambda: 1 << 30)
    monkeypatch.setattr(resident, "_large_pages", lambda: True)
    with open_checkpoint(folder) as checkpoint:
        lent(checkpoint)
        assert checkpoint.bring_in() == Brought()
        assert checkpoint.bring_in(False) == Brought()
        with pytest.raises(WeightsError, match=r"0\.1 GB of weights .* has 1\.1 GB left"):
            checkpoint.bring_in(True)
        monkeypatch.setattr(resident, "available_memory", lambda: 1 << 40)
        assert checkpoint.bring_in().read
        monkeypatch.setattr(resident, "_large_pages", lambda: False)
        assert checkpoint.bring_in() == Brought()


def test_the_environment_decides(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resident, "available_memory", lambda: 1 << 40)
    with open_checkpoint(folder) as checkpoint:
        lent(checkpoint)
        monkeypatch.setenv("LINNET_RESIDENT", "0")
        assert checkpoint.bring_in() == Brought()
        assert checkpoint.bring_in(True).read  # the argument goes first
        monkeypatch.setenv("LINNET_RESIDENT", "1")
        assert checkpoint.bring_in().read
        monkeypatch.setenv("LINNET_RESIDENT", "yes")
        with pytest.raises(InputError, match="LINNET_RESIDENT: expected 0 or 1, found 'yes'"):
            checkpoint.bring_in()


def test_what_fits() -> None:
    assert not fits(1, None, 1 << 34)
    assert fits(3 << 30, 4 << 30, 8 << 30)
    assert not fits((3 << 30) + 1, 4 << 30, 8 << 30)
    assert not fits(3 << 30, 4 << 30, 32 << 30)


CUT = """
import sys, os
from pathlib import Path
from linnet.errors import WeightsError
from linnet.weights import resident
from linnet.weights.checkpoint import open_checkpoint

resident.available_memory = lambda: 1 << 40
path = Path(sys.argv[1])
with open_checkpoint(path) as checkpoint:
    held = [checkpoint.read(name) for name in checkpoint.tensors]
    os.truncate(path, path.stat().st_size // 2)
    try:
        checkpoint.bring_in(True)
    except WeightsError as error:
        print(error)
"""


def test_a_file_cut_short_while_it_is_read(folder: Path) -> None:
    path = min(folder.glob("*.safetensors"))
    done = subprocess.run([sys.executable, "-c", CUT, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{path}: cannot be read to its end: cut short, or a bad disk\n"


def test_large_ranges_lie_within_what_was_asked() -> None:
    memory = room(16 * PAGE)
    memory[:] = bytes([1]) * len(memory)
    start = address_of(memory)
    stop = start + len(memory)
    found = large_ranges(start, stop)
    assert all(start <= a < b <= stop for a, b in found)
    assert all(b <= c for (_, b), (c, _) in pairwise(found))
    small = mmap.mmap(-1, 16 * mmap.PAGESIZE)
    at = address_of(memoryview(small))
    assert large_ranges(at, at + len(small)) == []


def test_what_a_load_would_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LINNET_RESIDENT", raising=False)
    monkeypatch.setattr(resident, "_large_pages", lambda: True)
    monkeypatch.setattr(resident, "available_memory", lambda: 20 << 30)
    monkeypatch.setattr(resident, "_total", lambda: 32 << 30)
    assert resident.outlook(17 << 30) == (True, "21.5 GB of memory are free")
    now, reason = resident.outlook(19 << 30)
    assert not now and reason == "21.5 GB of memory are free, and 2.1 GB of them are to stay so"
    assert resident.outlook(1 << 20) == (False, "they are few")
    monkeypatch.setenv("LINNET_RESIDENT", "1")
    assert resident.outlook(1 << 20)[0]
    monkeypatch.setenv("LINNET_RESIDENT", "0")
    assert resident.outlook(17 << 30) == (False, "LINNET_RESIDENT is 0")
