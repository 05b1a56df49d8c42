"""Records behave as data classes do."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest

from linnet.record import dataclass, field


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: str = "north"


@dataclass(eq=False, slots=True)
class Base:
    a: int
    items: list[int] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Derived(Base):
    c: int = 3


@dataclass
class Plain:
    p: int
    items: list[int] = field(default_factory=list, repr=False)


@dataclasses.dataclass
class Standard(Derived):
    e: int = 9


def test_values() -> None:
    assert Point(1) == Point(1, "north") != Point(2)
    assert hash(Point(1)) == hash(Point(x=1))
    assert Plain(1) == Plain(1) and Plain(1).items is not Plain(1).items
    assert Plain.__hash__ is None
    assert Derived(1) != Derived(1)
    assert repr(Derived(1, c=4)) == "Derived(a=1, items=[], c=4)"


def test_frozen() -> None:
    point: Any = Point(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        point.x = 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        del point.x
    assert copy.copy(point) == pickle.loads(pickle.dumps(point)) == point


def test_missing_and_unknown_arguments() -> None:
    make: Any = Point
    with pytest.raises(TypeError):
        make()
    with pytest.raises(TypeError):
        make(1, z=2)


def test_the_standard_module_knows_them() -> None:
    assert dataclasses.is_dataclass(Derived)
    assert [one.name for one in dataclasses.fields(Derived)] == ["a", "items", "c"]
    assert dataclasses.replace(Derived(1), c=5).c == 5
    assert Standard(1, e=2) == Standard(1, e=2)
    match Derived(1, [2]):
        case Derived(1, [two], three):
            assert (two, three) == (2, 3)
        case _:
            pytest.fail("no match")


def test_slots() -> None:
    derived: Any = Derived(1)
    with pytest.raises(AttributeError):
        derived.other = 1
