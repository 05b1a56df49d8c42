"""What `import linnet` offers by itself."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import linnet


def test_check_is_a_function_whatever_was_imported_first() -> None:
    import linnet.check.checker
    from linnet import check
    from linnet.check import check_package

    assert linnet.check is check and callable(check) and callable(check_package)


def test_check_returns_the_program(tmp_path: Path) -> None:
    path = tmp_path / "a.linnet"
    path.write_text("module a\n\npub fn f(x: i32) -> i32 {\n    return x + 1\n}\n")
    program = linnet.check(path)
    assert [function.name for function in program.functions.values()] == ["f"]


def test_a_program_is_shown_on_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.linnet").write_text(
        "module a\npub block B {\n    pub entry f(x: f32) -> f32 { return x }\n}\n"
    )
    assert repr(linnet.check(tmp_path / "a.linnet")) == "<linnet program: B; functions: 1>"


def test_check_raises_with_every_finding(tmp_path: Path) -> None:
    path = tmp_path / "a.linnet"
    path.write_text("module a\n\npub fn f(x: i32) -> i32 {\n    return y + z\n}\n")
    with pytest.raises(linnet.CheckError, match=r"2 errors\n\nerror\[E1201\]") as caught:
        linnet.check(path)
    assert [one.code for one in caught.value.diagnostics] == ["E1201", "E1201"]
    assert isinstance(caught.value, linnet.Error)


def test_what_is_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'chek'"):
        linnet.chek  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(linnet.PackageError):
        linnet.check("no/such/folder")


def test_the_import_is_light() -> None:
    code = "import sys, linnet; print([n for n in ('linnet.check', 'numpy') if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr
