"""`linnet check` on files and packages of a few lines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from linnet.cli.main import main

GOOD = """\
module good

pub fn double<N: Dim>(x: Tensor[N; f32]) -> Tensor[N; f32] {
    return x + x
}
"""
BAD = """\
module bad

pub fn f<N: Dim, M: Dim>(x: Tensor[N; f32], y: Tensor[M; f32]) -> Tensor[N; f32] {
    return x + y
}
"""
WARNED = """\
module warned

pub fn f<N: Dim>(x: Tensor[N; f32]) -> Tensor[N; f32] {
    let unused = x + x
    return x
}
"""


def write(folder: Path, **files: str) -> dict[str, str]:
    paths = {}
    for name, text in files.items():
        path = folder / f"{name}.linnet"
        path.write_text(text, encoding="utf-8")
        paths[name] = str(path)
    return paths


def package(folder: Path, name: str, text: str) -> Path:
    (folder / name / "src").mkdir(parents=True)
    manifest = f'[package]\nname = "{name}"\nversion = "0.1.0"\nlanguage = "0.1"\n'
    (folder / name / "linnet.toml").write_text(manifest)
    (folder / name / "src" / "lib.linnet").write_text(text)
    return folder / name


def test_a_file_without_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", write(tmp_path, good=GOOD)["good"]]) == 0
    assert capsys.readouterr() == ("checked 1 file, no errors\n", "")


def test_an_error_is_drawn_on_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path, bad=BAD)["bad"]
    assert main(["check", path]) == 1
    out, err = capsys.readouterr()
    assert not out
    assert "error[E2207]: " in err and f"--> {path}:4:" in err and "^" in err
    assert err.endswith("checked 1 file: 1 error\n")


def test_concise(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, bad=BAD)["bad"]
    assert main(["check", "--output", "concise", path]) == 1
    out, err = capsys.readouterr()
    assert out.startswith(f"{path}:4:") and ": error[E2207]: " in out
    assert out.count("\n") == 1 and not err


def test_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = write(tmp_path, bad=BAD, good=GOOD)
    assert main(["check", "--json", *paths.values()]) == 1
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert not err and found["version"] == 1
    assert found["summary"] == {"errors": 1, "warnings": 0, "files": 2}
    (finding,) = found["diagnostics"]
    assert finding["code"] == "E2207" and finding["location"]["start"]["line"] == 4


def test_strict_makes_warnings_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path, warned=WARNED)["warned"]
    assert main(["check", path]) == 0
    out, err = capsys.readouterr()
    assert "warning[W1002]" in err and out == "checked 1 file: 1 warning\n"
    assert main(["check", "--strict", path]) == 1


def test_several_paths_are_all_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = write(tmp_path, bad=BAD, good=GOOD)
    missing = str(tmp_path / "missing.linnet")
    assert main(["check", missing, paths["bad"], paths["bad"], paths["good"]]) == 1
    err = capsys.readouterr().err
    assert err.count("error[E2207]") == 1
    assert "error: " in err and "missing.linnet" in err
    assert err.endswith("checked 2 files: 2 errors\n")


def test_a_folder_of_packages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package(tmp_path, "one", GOOD)
    package(tmp_path, "two", GOOD)
    assert main(["check", str(tmp_path)]) == 0
    assert capsys.readouterr().out == "checked 2 files, no errors\n"


def test_a_folder_of_packages_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package(tmp_path, "one", GOOD.replace("good", "one"))
    write(tmp_path, bad=BAD, good=GOOD)
    assert main(["check", "--json", str(tmp_path)]) == 1
    summary = json.loads(capsys.readouterr().out)["summary"]
    assert summary["files"] == 3 and summary["errors"] > 0


def test_the_sources_of_a_package_are_that_package(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = package(tmp_path, "one", GOOD.replace("good", "one"))
    (folder / "src" / "more.linnet").write_text(GOOD.replace("good", "one.more"))
    assert main(["check", str(folder / "src")]) == 0
    assert capsys.readouterr().out == "checked 2 files, no errors\n"


def test_lint_of_clean_files_speaks_of_lint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["lint", write(tmp_path, good=GOOD)["good"]]) == 0
    assert capsys.readouterr().out == "checked 1 file, nothing to improve\n"


def test_an_empty_folder_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(tmp_path)]) == 1
    assert str(tmp_path) in capsys.readouterr().err


def test_a_file_that_is_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a.linnet"
    path.write_bytes(b"\xff\xfe\x00 module")
    assert main(["check", str(path)]) == 1
    err = capsys.readouterr().err
    assert "a.linnet" in err and "internal error" not in err


def test_a_package_without_a_readable_manifest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = package(tmp_path, "broken", GOOD)
    (folder / "linnet.toml").write_text("[package\n")
    assert main(["check", str(folder)]) == 1
    err = capsys.readouterr().err
    assert "linnet.toml" in err and "internal error" not in err


def test_no_path_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check"]) == 2
    assert "PATH" in capsys.readouterr().err
