"""`linnet check --watch`: it checks again when something changes, and Ctrl-C ends it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from linnet.cli.watching import stamps


def test_what_is_watched(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "linnet.toml").write_text("")
    lib = tmp_path / "src" / "lib.linnet"
    lib.write_text("module m\n")
    (tmp_path / "src" / "other.linnet").write_text("module o\n")
    assert len(stamps([str(lib)])) == 3  # the whole package
    before = stamps([str(tmp_path)])
    os.utime(lib, (1, 1))
    assert stamps([str(tmp_path)]) != before
    lib.unlink()
    assert len(stamps([str(tmp_path)])) == 2


def test_it_checks_again_and_ends(tmp_path: Path) -> None:
    file = tmp_path / "a.linnet"
    file.write_text("module a\n\nconst A = 1\n")
    process = subprocess.Popen(
        [sys.executable, "-m", "linnet", "check", "--watch", str(file)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "checked 1 file, no errors\n"
        assert "waiting for changes" in process.stdout.readline()
        time.sleep(0.05)
        file.write_text("module a\n\nconst A = B + 1\n")
        line = process.stdout.readline()
        assert "E1201" in line
        while "waiting" not in line:
            line = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        rest, _ = process.communicate(timeout=20)
    finally:
        process.kill()
    assert "Traceback" not in rest
    assert process.returncode == 1  # the last check had an error
