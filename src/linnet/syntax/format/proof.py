"""Whether two trees say the same: all that a tree holds but where it stood.

Documentation is compared with the other comments, not here: a `///` in the middle of an
expression documents nothing, and may do so at the end of its line.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any

from linnet.source import Span
from linnet.syntax.tree import File, Node


@cache
def _fields(kind: type[Node]) -> tuple[str, ...]:
    names = (field.name for field in fields(kind))
    return tuple(name for name in names if not name.endswith("span") and name != "doc")


def same(a: File, b: File) -> bool:
    """Compares node by node, without recursion: a tree may be deep."""
    stack: list[tuple[Any, Any]] = [(a, b)]
    while stack:
        left, right = stack.pop()
        kind = type(left)
        if kind is not type(right):
            return False
        if isinstance(left, Node):
            for name in _fields(type(left)):
                stack.append((getattr(left, name), getattr(right, name)))
        elif kind is list:
            if len(left) != len(right):
                return False
            stack.extend(zip(left, right))
        elif kind is not Span and left != right:
            return False
    return True
