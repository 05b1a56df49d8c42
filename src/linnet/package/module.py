"""One module's file: read, decoded and parsed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from linnet.diagnostics.diagnostic import Diagnostic, Label
from linnet.package.files import MAX_SOURCE, read_bounded
from linnet.record import dataclass, field
from linnet.source import Source, Span
from linnet.syntax.parser import parse
from linnet.syntax.tree import Tree

if TYPE_CHECKING:
    from linnet.package.package import Package


@dataclass(eq=False)
class ModuleFile:
    """`id` is "std.nn.linear", "crate" (lib.linnet), "crate.attention"; `path` the
    segments after the package; `diagnostics` what the lexer and parser found."""

    id: str
    package: Package = field(repr=False)
    path: tuple[str, ...]
    tree: Tree = field(repr=False)
    diagnostics: list[Diagnostic] = field(repr=False)

    @property
    def source(self) -> Source:
        return self.tree.source


def read_source(path: Path) -> tuple[Source, list[Diagnostic]]:
    """A file's text. Bytes that are not UTF-8 are one E1001 and stand as U+FFFD."""
    data = read_bounded(path, MAX_SOURCE)
    try:
        return Source(str(path), data.decode("utf-8")), []
    except UnicodeDecodeError as error:
        source = Source(str(path), data.decode("utf-8", "replace"))
        at = len(data[: error.start].decode("utf-8"))
        found = f"byte 0x{data[error.start]:02x} at offset {error.start}"
        return source, [
            Diagnostic(
                "E1001",
                "error",
                "the file is not UTF-8 text",
                Label(Span(source, at, at + 1), found),
                help="save the file as UTF-8",
            )
        ]


def read_module(path: Path) -> tuple[Tree, list[Diagnostic]]:
    """A file's tree and findings. PackageError if it cannot be read."""
    source, problems = read_source(path)
    tree, found = parse(source)
    if problems:  # what U+FFFD does to the text follows from it
        found = [problem for problem in found if problem.code != "E1001"]
    return tree, problems + found
