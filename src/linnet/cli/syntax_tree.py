"""The syntax tree as indented text: a node a line, with the place where it starts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

from linnet.syntax.tree import Ident, Node

if TYPE_CHECKING:
    from linnet.package import Package


def show_trees(package: Package) -> int:
    """Print each module's tree; findings of the parser go to standard error. Exit status."""
    from linnet.cli.terminal import use_color, width
    from linnet.diagnostics.text import render_all

    failed = False
    for path in package.module_paths():
        module = package.load(path)
        if module is None:
            continue
        print(f"{module.id}  {module.tree.source.path}")
        print("\n".join(lines(module.tree.file)))
        if module.diagnostics:
            failed = True
            color, columns = use_color(sys.stderr), width(sys.stderr)
            text = render_all(module.diagnostics, color=color, width=columns)
            print(text, end="", file=sys.stderr)
    return 1 if failed else 0


def lines(node: Node, label: str = "", depth: int = 1) -> Iterator[str]:
    """A node with its plain fields on one line, and its children below it."""
    plain: list[str] = []
    below: list[tuple[str, Node]] = []
    for field in fields(node):
        value = getattr(node, field.name)
        if field.name in ("span", "body_end") or value is None:
            continue
        if isinstance(value, Ident):
            plain.append(f"{field.name}={value.text}")
        elif isinstance(value, Node):
            below.append((field.name, value))
        elif isinstance(value, list) and all(isinstance(item, Node) for item in value):
            if value and all(isinstance(item, Ident) for item in value):
                plain.append(f"{field.name}={'.'.join(item.text for item in value)}")
            else:
                below += [(f"{field.name}[{at}]", item) for at, item in enumerate(value)]
        elif not hasattr(value, "source"):
            plain.append(f"{field.name}={value!r}")
    line, column = node.span.source.position(node.span.start)
    name = f"{label}: " if label else ""
    head = " ".join([type(node).__name__, *plain])
    yield f"{'  ' * depth}{name}{head}  {line}:{column}"
    for child, value in below:
        yield from lines(value, child, depth + 1)
