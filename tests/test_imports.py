"""Imports go one way: each room names the rooms that it may import, and torch stays in its own."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "linnet"

# Each room with the rooms it may import. A room may always import itself. The order is the
# order of the house: nothing imports a room further down.
ROOMS: dict[str, set[str]] = {
    "record": set(),
    "source": set(),
    "errors": set(),
    "dims": set(),
    "diagnostics": {"source"},
    "syntax": {"source", "errors", "diagnostics"},
    "package": {"source", "errors", "diagnostics", "syntax"},
    "ir": {"source", "errors", "dims"},
    "check": {"source", "errors", "diagnostics", "syntax", "dims", "package", "ir"},
    "lint": {"source", "errors", "diagnostics", "syntax", "dims", "package", "ir", "check"},
    # Beside the line: they know files and text, not torch; the registry checks what it shows.
    "weights": {"source", "errors", "ir"},
    "text": {"source", "errors", "weights"},
    "nest": {
        "source",
        "errors",
        "diagnostics",
        "syntax",
        "dims",
        "package",
        "ir",
        "check",
        "weights",
        "text",
    },
    "native": {"errors", "dims", "ir"},
    "torch": {"source", "errors", "dims", "package", "ir", "check", "weights", "nest", "native"},
    "bench": {"errors", "ir", "weights", "native", "torch"},
    "serve": {"source", "errors", "ir", "check", "weights", "text", "nest", "torch"},
}
# Declarations of data classes, which any room may use.
EVERYWHERE = {"record"}
# The edges may import any room, and no room imports them.
EDGES = {"", "__main__", "cli", "lsp"}
# Packages that cost a noticeable part of a second to import, and the rooms that may.
HEAVY = {
    # In `bench` by the peers' scripts alone, which run in processes of their own.
    "torch": {"torch", "serve", "bench"},
    "transformers": {"torch", "bench"},  # the reference of `linnet parity`
    "llama_cpp": {"bench"},
    "vllm": {"bench"},
    "numpy": {"torch", "serve", "weights", "text"},
    "gguf": {"weights", "text"},
    "tokenizers": {"text"},
    "jinja2": {"text"},
    "huggingface_hub": {"weights"},
    "llguidance": {"serve"},
    "starlette": {"serve"},
    "uvicorn": {"serve"},
    "prometheus_client": {"serve"},
}  # fmt: skip


def files() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def room(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Dotted names that a file imports when it runs, with their lines."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    inside = ["linnet", *path.relative_to(ROOT).parts[:-1]]
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        # What only a type checker reads is no import.
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            skipped.update(part for child in node.body for part in ast.walk(child))
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = inside[: len(inside) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            if base == "linnet":
                for alias in node.names:
                    yield f"linnet.{alias.name}", node.lineno
            else:
                yield base, node.lineno


def test_the_table_has_no_back_edge() -> None:
    earlier: set[str] = set()
    for name, allowed in ROOMS.items():
        assert allowed <= earlier, f"{name} may import {allowed - earlier}, which come later"
        earlier.add(name)


@pytest.mark.parametrize("path", files(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_of(path: Path) -> None:
    here = room(path)
    assert here in ROOMS or here in EDGES, f"{here} is not in the table of rooms"
    for name, line in imports(path):
        top, _, rest = name.partition(".")
        if top in HEAVY:
            assert here in HEAVY[top], f"{path}:{line} imports {top}, which is not for {here}"
        if top != "linnet" or here in EDGES:
            continue
        there = rest.partition(".")[0]
        if (ROOT / f"{there}.py").exists() or (ROOT / there).is_dir():
            assert there == here or there in ROOMS[here] | EVERYWHERE, (
                f"{path}:{line}: {here} imports {there}; it may import {sorted(ROOMS[here])}"
            )


def test_the_language_tools_import_nothing_heavy() -> None:
    code = (
        "import sys, linnet, linnet.cli.main, linnet.cli.check, linnet.check, linnet.package\n"
        f"print([name for name in {sorted(HEAVY)} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_the_version_imports_neither_argparse_nor_the_checker() -> None:
    code = (
        "import sys; from linnet.cli.main import main; main(['--version'])\n"
        "print([n for n in ('argparse', 'linnet.check', 'dataclasses') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.splitlines()[1:] == ["[]"], done.stdout + done.stderr
