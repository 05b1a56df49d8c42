"""Markdown pages whose fenced programs are tests: the language reference and the pages of codes.

Every block fenced as ```linnet is a program. Its comments state what the checker says of it:

    // error: E2202         on the line that earns it; several codes may follow one another
    // warning: W1002       warnings count only in programs that mark one
    // error: E2202 says: text   and what a finding of this line says
    // type: Tensor[B; f32] the type of what the `let` or `var` of this line declares
    // value: [1, 2]        what the entry of this line gives; its header stands on one line

A comment that stands alone on its line speaks of the next one. `// file: src/a.linnet` begins a
file of a package; without one the program is a single file. A file without a `module` line gets
one, in front of its first line.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from linnet.check import check_package
from linnet.check.body import Body, Float, Int, Operand
from linnet.check.checker import Checked
from linnet.diagnostics.diagnostic import Diagnostic
from linnet.errors import PackageError
from linnet.ir.program import Value
from linnet.lint import lint_package
from linnet.package import open_package
from linnet.source import Span

MANIFEST = '[package]\nname = "example"\nversion = "0.1.0"\nlanguage = "0.1"\n'
MARK = re.compile(r"(error|warning|type|says|value): (.*?) *(?=says:|$)")
COMMENT = re.compile(r"(?://|#)\s*((?:error|warning|type|says|value): .*)$")
FILE = re.compile(r"^// file: (\S+)\n", re.MULTILINE)
FENCE = re.compile(r"^```linnet\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
Finding = tuple[str, int, str]  # file, line, code


@dataclass
class Program:
    """One fenced program: where it stands, and its files."""

    page: Path
    line: int
    heading: str
    text: str
    files: dict[str, str] = field(default_factory=dict)

    @property
    def alone(self) -> bool:
        return list(self.files) == ["example.linnet"]

    def marks(self) -> Iterator[tuple[str, int, str, str]]:
        """File, line, what is stated, and its text."""
        for name, text in self.files.items():
            for number, line in enumerate(text.split("\n"), start=1):
                alone = line.lstrip().startswith("#" if name.endswith(".toml") else "//")
                comment = COMMENT.search(line)
                for kind, value in MARK.findall(comment[1]) if comment else ():
                    yield name, number + alone, kind, value

    def expected(self) -> list[Finding]:
        return sorted(
            (name, line, code)
            for name, line, kind, value in self.marks()
            if kind in ("error", "warning")
            for code in re.findall(r"[EW]\d{4}", value)
        )

    def values(self) -> dict[str, tuple[str, str]]:
        """The entries with a stated value: their result types and the values."""
        found = {}
        for name, line, kind, value in self.marks():
            if kind == "value":
                text = self.files[name].split("\n")[line - 1]
                header = re.search(r"entry (\w+)\(\) -> (.*?) \{", text)
                assert header, f"{self.page}:{self.line}: no entry on line {line}"
                found[header[1]] = (header[2], value)
        return found

    @property
    def valid(self) -> bool:
        return not any(code[0] == "E" for _, _, code in self.expected())

    def write(self, folder: Path) -> Path:
        """Write the files; the path to check."""
        if self.alone:
            path = folder / "example.linnet"
            path.write_bytes(self.files["example.linnet"].encode())
            return path
        root = folder / "example"
        for name, text in {"linnet.toml": MANIFEST, **self.files}.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
        return root


def programs(page: Path) -> list[Program]:
    text = page.read_text(encoding="utf-8")
    found = []
    for block in FENCE.finditer(text):
        headings = HEADING.findall(text[: block.start()])
        line = text.count("\n", 0, block.start()) + 2
        program = Program(page, line, headings[-1] if headings else "", block[1])
        pieces = FILE.split(block[1])
        if len(pieces) == 1:
            program.files["example.linnet"] = with_module(block[1])
        for name, piece in zip(pieces[1::2], pieces[2::2], strict=True):
            program.files[name] = with_module(piece) if name.endswith(".linnet") else piece
        found.append(program)
    return found


def with_module(text: str) -> str:
    return text if re.search(r"^module\b|E1102", text, re.MULTILINE) else f"module example {text}"


def name_of(program: Program) -> str:
    return f"{program.page.stem}-{program.line}"


@contextmanager
def recorded() -> Iterator[dict[tuple[str, int], list[str]]]:
    """While open: the type of everything that bodies declare, by file and line."""
    types: dict[tuple[str, int], list[str]] = {}
    declare = Body.declare

    def record(self, name: str, operand: Operand, span: Span, **more):  # type: ignore[no-untyped-def]
        line = span.source.position(span.start)[0]
        known = {Int: "i64", Float: "f64"}.get(type(operand))
        shown = str(operand.type) if isinstance(operand, Value) else known or "a block"
        types.setdefault((span.source.path, line), []).append(shown)
        return declare(self, name, operand, span, **more)

    Body.declare = record  # type: ignore[method-assign]
    try:
        yield types
    finally:
        Body.declare = declare  # type: ignore[method-assign]


def check(path: Path) -> tuple[Checked | None, list[Diagnostic]]:
    try:
        checked = check_package(open_package(path))
    except PackageError as error:
        return None, getattr(error, "diagnostics", [])
    return checked, checked.diagnostics


def run(program: Program, folder: Path) -> Checked | None:
    """Check a program and compare what is found with what it states."""
    path = program.write(folder)
    root = path if path.is_dir() else folder
    where = f"{program.page}:{program.line}"

    def file_of(source: str) -> str:
        return os.path.relpath(os.path.realpath(source), os.path.realpath(root))

    with recorded() as types:
        checked, diagnostics = check(path)
    expected = program.expected()
    if any(code.startswith("W2") for _, _, code in expected):
        diagnostics = lint_package(open_package(path))
    warned = any(code[0] == "W" for _, _, code in expected)
    found = []
    said: dict[tuple[str, int], str] = {}
    for one in diagnostics:
        key = (file_of(one.span.source.path), one.span.source.position(one.span.start)[0])
        said[key] = f"{said.get(key, '')}\n{words(one)}"
        if one.severity == "error" or warned:
            found.append((*key, one.code))
    shown = "\n".join(f"{one.span}: {one.code} {one.message}" for one in diagnostics)
    assert sorted(found) == expected, f"{where}\n{shown}"
    assert (checked is not None and checked.ok) == program.valid, where
    by_file = {(file_of(file), line): names for (file, line), names in types.items()}
    for name, line, kind, value in program.marks():
        if kind == "says":
            text = said.get((name, line), "")
            assert value in text, f"{where}: line {line} says {text!r}, not {value!r}"
        elif kind == "type":
            names = by_file.get((name, line), [])
            wanted = [part.strip() for part in value.split(" | ")]
            assert names == wanted, f"{where}: line {line} declares {names}, not {wanted}"
    return checked


def words(item: Diagnostic) -> str:
    labels = [item.label, *item.related]
    return "\n".join([item.message, *(one.message for one in labels), *item.notes, item.help or ""])
