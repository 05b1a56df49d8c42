"""The cache of checked packages: recalled while nothing has changed, never believed otherwise."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from linnet.cli.check import check_paths
from linnet.package import cache, open_package

GOOD = "module m\n\npub fn f(x: f32) -> f32 {\n    return x\n}\n"
BAD = "module m\n\npub fn f(x: f32) -> f32 {\n    return y\n}\n"


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(cache.OFF, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "linnet"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "package"
    (folder / "src").mkdir(parents=True)
    (folder / "linnet.toml").write_text(
        '[package]\nname = "p"\nversion = "1.0.0"\nlanguage = "0.1"\n'
    )
    (folder / "src" / "lib.linnet").write_text(GOOD)
    return folder


def found(path: Path) -> int:
    return check_paths([str(path)]).count("error")


def test_a_clean_package_is_recalled(package: Path, place: Path) -> None:
    assert cache.recall(str(package)) is None
    assert found(package) == 0
    assert cache.recall(str(package)) == [str(package / "src" / "lib.linnet")]
    report = check_paths([str(package)])
    assert (report.diagnostics, len(report.files)) == ([], 1)


def test_a_change_is_seen(package: Path) -> None:
    found(package)
    lib = package / "src" / "lib.linnet"
    stamp = lib.stat()
    lib.write_text(BAD)  # as long as the good one, and given its time
    os.utime(lib, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert found(package) == 1
    assert found(package) == 1  # what has errors is never kept
    lib.write_text(GOOD)
    assert found(package) == 0


def test_a_new_module_is_seen(package: Path) -> None:
    found(package)
    (package / "src" / "more").mkdir()
    (package / "src" / "more" / "new.linnet").write_text(BAD)
    assert found(package) == 1


def test_a_manifest_that_changes_or_appears_is_seen(package: Path) -> None:
    found(package)
    (package / "linnet.toml").write_text("[package]\n")
    assert found(package) > 0
    alone = package / "alone.linnet"
    alone.write_text(GOOD)
    found(alone)
    assert cache.recall(str(alone)) is not None
    (package.parent / "linnet.toml").write_text("")
    assert cache.recall(str(alone)) is None


def test_dependencies_are_part_of_it(package: Path, tmp_path: Path) -> None:
    other = tmp_path / "user"
    (other / "src").mkdir(parents=True)
    (other / "linnet.toml").write_text(
        '[package]\nname = "u"\nversion = "1.0.0"\nlanguage = "0.1"\n'
        '[dependencies]\np = { path = "../package" }\n'
    )
    (other / "src" / "lib.linnet").write_text(
        "module u\n\nuse p::{f}\n\npub fn g(x: f32) -> f32 {\n    return f(x)\n}\n"
    )
    assert found(other) == 0
    assert cache.recall(str(other)) is not None
    _, proven = cache.proven(open_package(other).dependencies["p"])
    assert proven == {"p::f"}
    (package / "src" / "lib.linnet").write_text(BAD)
    assert found(other) == 1


def test_a_link_that_leads_elsewhere_is_seen(package: Path, tmp_path: Path) -> None:
    found(package)
    outside = tmp_path / "outside.linnet"
    outside.write_text(GOOD)
    lib = package / "src" / "lib.linnet"
    lib.unlink()
    lib.symlink_to(outside)
    report = check_paths([str(package)])
    assert report.failures  # out of the package


@pytest.mark.parametrize("how", ["cut", "flipped", "empty", "stale", "foreign"])
def test_damaged_entries_are_ignored(package: Path, place: Path, how: str) -> None:
    found(package)
    for entry in place.iterdir():
        data = entry.read_bytes()
        if how == "cut":
            data = data[: len(data) // 2]
        elif how == "flipped":
            data = data[:40] + bytes([data[40] ^ 1]) + data[41:]
        elif how == "empty":
            data = b""
        elif how == "foreign":
            data = bytes(range(256)) * 10
        else:  # as an older version of the tool would have left it
            head = data.rpartition(b"\nend ")[0].replace(cache.signature().encode(), b"0" * 64)
            data = head + b"\nend " + cache.digest(head).encode()
        entry.write_bytes(data)
    assert cache.recall(str(package)) is None
    assert found(package) == 0
    assert cache.recall(str(package)) is not None


def test_no_place_to_write(package: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert found(package) == 0
    monkeypatch.setenv(cache.OFF, "1")
    assert cache.folder() is None
    assert found(package) == 0


def test_entries_are_shared(package: Path, place: Path) -> None:
    """Many at once: no entry is ever half there, and nothing temporary stays."""
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(5):
                assert found(package) == 0
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert not [entry for entry in place.iterdir() if entry.name.startswith(".")]


def test_old_entries_go(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "MAX_KEPT", 3)
    for number in range(6):
        cache.prove(f"bodies-{number}", ["a::b"])
    assert len(list(place.iterdir())) == 3
