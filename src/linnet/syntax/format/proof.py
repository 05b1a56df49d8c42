"""Whether two trees say the same: all that a tree holds but where it stood.

Documentation is compared with the other comments, not here: a `///` in the middle of an
expression documents nothing, and may do so at the end of its line.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from linnet.source import Span
from linnet.syntax.tree import File, Node

_NAMES: dict[type, tuple[str, ...]] = {}


def _fields(node: Node) -> tuple[str, ...]:
    kind = type(node)
    names = _NAMES.get(kind)
    if names is None:
        every = (field.name for field in fields(node))
        names = tuple(name for name in every if not name.endswith("span") and name != "doc")
        _NAMES[kind] = names
    return names


def same(a: File, b: File) -> bool:
    """Compares node by node, without recursion: a tree may be deep."""
    stack: list[tuple[Any, Any]] = [(a, b)]
    while stack:
        left, right = stack.pop()
        kind = type(left)
        if kind is not type(right):
            return False
        if isinstance(left, Node):
            for name in _fields(left):
                stack.append((getattr(left, name), getattr(right, name)))
        elif kind is list:
            if len(left) != len(right):
                return False
            stack.extend(zip(left, right))
        elif kind is not Span and left != right:
            return False
    return True
