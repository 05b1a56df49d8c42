"""`linnet.toml`: every mistake is a finding E5001 on its line."""

from __future__ import annotations

from pathlib import Path

import pytest

from linnet.package import ManifestError, read_manifest

HEAD = '[package]\nname = "p"\nversion = "1"\nlanguage = "0.1"\n'


def findings(tmp_path: Path, text: str | bytes) -> list[tuple[int, str]]:
    path = tmp_path / "linnet.toml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(ManifestError) as caught:
        read_manifest(path)
    assert "linnet.toml:" in str(caught.value) and "[E5001]" in str(caught.value)
    assert {d.code for d in caught.value.diagnostics} == {"E5001"}
    return [(d.span.source.position(d.span.start)[0], d.message) for d in caught.value.diagnostics]


def test_a_manifest(tmp_path: Path) -> None:
    path = tmp_path / "linnet.toml"
    path.write_text(HEAD + 'license = "MIT"\n[dependencies]\nx = { path = "../x" }\n')
    manifest = read_manifest(path)
    assert (manifest.name, manifest.version, manifest.language) == ("p", "1", "0.1")
    assert manifest.dependencies == {"x": "../x"}
    path.write_text(HEAD + '[dependencies.x]\npath = "y"\n')
    assert read_manifest(path).dependencies == {"x": "y"}


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "no `[package]` table"),
        ("package = 3\n", 1, "`package` is not a table"),
        ("[package\n", 1, "not valid TOML"),
        (HEAD + "x = [1,\n", 5, "not valid TOML"),
        (HEAD + 'name = "q"\n', 5, "not valid TOML"),
        ("a=" + "[" * 100_000, 1, ""),
        (b'[package]\nname = "\xff"\n', 2, "not UTF-8 text"),
        (HEAD + "[dependancies]\n", 5, "unknown table `dependancies`"),
        (HEAD + "verison = 1\n", 5, "unknown key `verison` in `[package]`"),
        ('[package]\nversion = "1"\nlanguage = "0.1"\n', 1, "`[package]` has no `name`"),
        (HEAD.replace('"p"', "3"), 2, "`name` is a number, expected a text in quotes"),
        (HEAD.replace('"p"', '"a b"'), 2, '"a b" cannot be a package\'s name'),
        (HEAD.replace('"0.1"', '"9"'), 4, 'the package asks for language "9", this version '
         'reads "0.1"'),
        (HEAD + "dependencies = 1\n", 5, "unknown key `dependencies` in `[package]`"),
        (HEAD + '[dependencies]\nstd = { path = "x" }\n', 6, "`std` cannot be the key of a "
         "dependency"),
        (HEAD + '[dependencies]\n"a-b" = { path = "x" }\n', 6, "`a-b` cannot be the key of a "
         "dependency"),
        (HEAD + '[dependencies]\nx = "1.0"\n', 6, "`x` is a text"),
        (HEAD + "[dependencies]\nx = { }\n", 6, "`x` has no `path`"),
        (HEAD + '[dependencies]\nx = { path = "/x" }\n', 6, "the path of `x` is not relative to "
         "the manifest"),
        (HEAD + '[dependencies]\nx = { path = "x", git = "y" }\n', 6, "unknown key `git` in `x`"),
    ],
)  # fmt: skip
def test_mistakes(tmp_path: Path, text: str | bytes, line: int, message: str) -> None:
    ((at, found),) = findings(tmp_path, text)
    assert at == line and found.startswith(message)


def test_all_mistakes_are_reported(tmp_path: Path) -> None:
    found = findings(tmp_path, '[package]\nname = ""\nversion = 1\n[dependencies]\nx = 1\n')
    assert [line for line, _ in found] == [2, 3, 1, 5]
