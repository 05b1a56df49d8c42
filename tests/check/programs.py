"""Small programs with what the checker must say of them written beside the line.

A table of cases is one text. `-- name` begins a program; `## a.b` in it begins another module
(the first is `lib.linnet`, or a file that stands alone where there is only one). A module that
does not begin with `module` gets that line, on the line of its heading.

    // error: E2202           on the line that earns it
    // error: E1201 E2103     several
    // warning: W1002         warnings are compared only where a program marks one, or in
                              programs whose name ends in `!`
    // says: some text        part of the message, a note, a label or the help of a finding here
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from linnet.check import check_package
from linnet.check.checker import Checked
from linnet.diagnostics.diagnostic import Diagnostic
from linnet.package import open_package

MARK = re.compile(r"//\s*(error|warning):\s*([EW\d ,]+)")
SAYS = re.compile(r"//.*\bsays: (.*?)\s*$")
Finding = tuple[str, int, str]  # file, line, code


@dataclass
class Program:
    name: str
    modules: dict[str, str]  # "a/b.linnet" to text

    def check(self, folder: Path) -> Checked:
        if len(self.modules) == 1:
            path = folder / "program.linnet"
            path.write_text(self.modules["lib.linnet"], encoding="utf-8")
            return check_package(open_package(path))
        (folder / "linnet.toml").write_text(
            '[package]\nname = "program"\nversion = "0.1.0"\nlanguage = "0.1"\n', encoding="utf-8"
        )
        for name, text in self.modules.items():
            file = folder / "src" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        return check_package(open_package(folder))

    def lines(self) -> list[tuple[str, int, str]]:
        found = []
        for name, text in self.modules.items():
            shown = "program.linnet" if len(self.modules) == 1 else name
            found += [(shown, i, line) for i, line in enumerate(text.split("\n"), start=1)]
        return found


def findings(diagnostics: list[Diagnostic], warnings: bool = True) -> list[Finding]:
    found = []
    for item in diagnostics:
        if item.severity == "error" or warnings:
            path = item.span.source.path
            name = path.rpartition("/src/")[2] if "/src/" in path else Path(path).name
            found.append((name, item.span.source.position(item.span.start)[0], item.code))
    return sorted(found)


def words(item: Diagnostic) -> str:
    """Everything that a finding says."""
    labels = [item.label, *item.related]
    parts = [item.message, *(label.message for label in labels), *item.notes, item.help or ""]
    return "\n".join(parts)


def read(text: str) -> list[Program]:
    programs = []
    for part in re.split(r"^-- ", text, flags=re.MULTILINE)[1:]:
        name, _, body = part.partition("\n")
        pieces = re.split(r"^## (.*)\n", body, flags=re.MULTILINE)
        modules = {"lib.linnet": pieces[0]}
        for path, piece in zip(pieces[1::2], pieces[2::2], strict=True):
            modules[path.strip().replace(".", "/") + ".linnet"] = piece
        for key, piece in modules.items():
            if not piece.startswith("module"):
                modules[key] = "module test\n" + piece
        programs.append(Program(name.strip(), modules))
    return programs


def run(program: Program) -> Checked:
    """Check a program and compare what is found with what is written in it."""
    lines = program.lines()
    expected: list[Finding] = []
    for file, number, line in lines:
        for _, codes in MARK.findall(line):
            expected += [(file, number, code) for code in re.findall(r"[EW]\d{4}", codes)]
    warnings = program.name.endswith("!") or any(code[0] == "W" for _, _, code in expected)
    with tempfile.TemporaryDirectory() as folder:
        checked = program.check(Path(folder))
    found = findings(checked.diagnostics, warnings)
    shown = "\n".join(f"{d.span}: {d.code} {d.message}" for d in checked.diagnostics)
    assert found == sorted(expected), f"\n{shown}"
    assert checked.ok == all(code[0] == "W" for _, _, code in expected)
    for file, number, line in lines:
        if (match := SAYS.search(line)) is not None:
            texts = [words(d) for d in checked.diagnostics if at(d, file, number)]
            assert any(match[1] in text for text in texts), (match[1], texts)
    if checked.program is not None:
        verify(checked)
    return checked


def at(item: Diagnostic, file: str, line: int) -> bool:
    return findings([item])[0][:2] == (file, line)


def verify(checked: Checked) -> None:
    """What the checker hands on is well-formed."""
    from linnet.ir.verify import verify_program

    assert checked.program is not None
    verify_program(checked.program)


def cases(text: str) -> Callable[..., object]:
    programs = read(text)
    names = [program.name for program in programs]
    assert len(set(names)) == len(names), [n for n in names if names.count(n) > 1]
    return pytest.mark.parametrize("program", programs, ids=names)
