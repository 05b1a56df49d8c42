"""Statements as a tree, so that a failing program can be made smaller."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

NAME = re.compile(r"\b[a-z]\w*\b")


@dataclass
class Statement:
    """`head` alone, or `head`, a body and a closing brace. `defines` are the names it gives."""

    head: str
    defines: tuple[str, ...] = ()
    body: list[Statement] | None = None
    last: str = ""  # the body's last line (`yield …`, or the assignment that ends a loop)
    keep: bool = False  # a loop's counter: dropping it would never end
    types: dict[str, str] = field(default_factory=dict)  # of what it defines

    def uses(self) -> set[str]:
        found = set(NAME.findall(self.head)) | set(NAME.findall(self.last))
        for inner in self.body or ():
            found |= inner.uses()
        return found

    def lines(self, indent: int) -> list[str]:
        pad = " " * indent
        made = [pad + self.head]
        if self.body is not None:
            for inner in self.body:
                made += inner.lines(indent + 4)
            if self.last:
                made += [f"{pad}    {line}" for line in self.last.split("\n")]
            made.append(pad + "}")
        return made


@dataclass
class Routine:
    """An entry, a method or a function: its head, statements and what it returns."""

    head: str  # up to the result's type
    results: list[tuple[str, str, bool]]  # (name, type, whether all evaluators give the same bits)
    where: list[str]
    body: list[Statement]

    def text(self, indent: int) -> str:
        pad = " " * indent
        types = [type for _, type, _ in self.results]
        names = [name for name, _, _ in self.results]
        result = types[0] if len(types) == 1 else f"({', '.join(types)})"
        value = names[0] if len(names) == 1 else f"({', '.join(names)})"
        where = f"\n{pad}where {', '.join(self.where)} " if self.where else " "
        lines = [f"{pad}{self.head} -> {result}{where}{{"]
        for statement in self.body:
            lines += statement.lines(indent + 4)
        return "\n".join([*lines, f"{pad}    return {value}", f"{pad}}}"])
