"""Inference of generic arguments: patterns of a callee against types at hand.

Unification only binds; whether the types then agree is compared afterwards, once
all generics are known, so that one difference gives one error.
"""

from __future__ import annotations

from linnet.check.typing import ERROR
from linnet.dims import Dim, Facts
from linnet.ir.program import Generic
from linnet.ir.types import (
    DTYPES,
    GenericArg,
    OptionalType,
    Pack,
    ScalarType,
    Shape,
    StructType,
    Substitution,
    TensorType,
    TupleType,
    Type,
    shape_of,
    substitute,
)


class Inference:
    """Bindings for a callee's generics. `bindings` hold terms of the caller."""

    def __init__(self, generics: tuple[Generic, ...], bindings: Substitution):
        self.kinds = {g.name: g.kind for g in generics}
        self.defaults = {g.name: g.default for g in generics}
        self.bindings = bindings

    def open(self, name: str) -> bool:
        return name in self.kinds and name not in self.bindings

    def known(self, pattern: Type) -> Type | None:
        """What is known of a parameter's type before its argument is read; of a tuple also the
        parts, with the error type for the others."""
        if not any(self.open(name) for name in free_names(pattern)):
            return substitute(pattern, self.bindings)
        if isinstance(pattern, TupleType):
            return TupleType(tuple(self.known(item) or ERROR for item in pattern.items))
        return None

    def unify(self, pattern: Type, actual: Type) -> None:
        match pattern, actual:
            case (TensorType() | ScalarType(), TensorType() | ScalarType()):
                self._dtype(pattern.dtype, actual.dtype)
                self._shape(shape_of(pattern), shape_of(actual))
            case (OptionalType(inner=a), OptionalType(inner=b)):
                self.unify(a, b)
            case (TupleType(items=xs), TupleType(items=ys)):
                for x, y in zip(xs, ys, strict=False):
                    self.unify(x, y)
            case (StructType(), StructType()) if pattern.id == actual.id:
                for mine, other in zip(pattern.generics, actual.generics, strict=True):
                    self._argument(mine, other)

    def _argument(self, pattern: GenericArg, actual: GenericArg) -> None:
        if isinstance(pattern, tuple) and isinstance(actual, tuple):
            self._shape(pattern, actual)
        elif isinstance(pattern, str) and isinstance(actual, str):
            self._dtype(pattern, actual)
        elif isinstance(pattern, Dim) and isinstance(actual, Dim):
            self._dim(pattern, actual)

    def _dtype(self, pattern: str, actual: str) -> None:
        if pattern not in DTYPES and self.open(pattern):
            self.bindings[pattern] = actual

    def _dim(self, pattern: Dim, actual: Dim) -> None:
        names = pattern.names()
        if len(names) == 1:
            (name,) = names
            if self.open(name) and pattern == Dim.name(name):
                self.bindings[name] = actual

    def _shape(self, pattern: Shape, actual: Shape) -> None:
        # Expand packs that are bound; their parts are the caller's and not patterns.
        items: list[tuple[bool, Dim | Pack]] = []
        for item in pattern:
            if isinstance(item, Pack) and isinstance(bound := self.bindings.get(item.name), tuple):
                items.extend((False, part) for part in bound)
            else:
                items.append((True, item))
        open_packs = [i for i, (own, item) in enumerate(items) if own and isinstance(item, Pack)]
        if len(open_packs) > 1 or (not open_packs and len(items) != len(actual)):
            return
        if open_packs:
            at = open_packs[0]
            behind = len(items) - at - 1
            if len(actual) < at + behind:
                return
            pack = items[at][1]
            assert isinstance(pack, Pack)
            if self.open(pack.name):
                self.bindings[pack.name] = tuple(actual[at : len(actual) - behind])
            pairs = [
                *zip(items[:at], actual[:at], strict=True),
                *zip(items[at + 1 :], actual[len(actual) - behind :], strict=True),
            ]
        else:
            pairs = list(zip(items, actual, strict=True))
        for (own, item), other in pairs:
            if own and isinstance(item, Dim) and isinstance(other, Dim):
                self._dim(item, other)


def free_names(type: Type) -> set[str]:
    """The generics a type mentions."""
    names: set[str] = set()

    def argument(value: GenericArg) -> None:
        if isinstance(value, tuple):
            shape(value)
        elif isinstance(value, Dim):
            names.update(name.lstrip("*") for name in value.names())
        elif value not in DTYPES:
            names.add(value)

    def shape(items: Shape) -> None:
        for item in items:
            if isinstance(item, Pack):
                names.add(item.name)
            else:
                argument(item)

    def go(type: Type) -> None:
        match type:
            case TensorType(shape=items, dtype=dtype):
                shape(items)
                argument(dtype)
            case ScalarType(dtype=dtype):
                argument(dtype)
            case OptionalType(inner=inner):
                go(inner)
            case TupleType(items=items):
                for item in items:
                    go(item)
            case StructType(generics=generics):
                for value in generics:
                    argument(value)

    go(type)
    return names


def same_shape(facts: Facts, a: Shape, b: Shape) -> bool:
    if len(a) != len(b):
        return False
    for x, y in zip(a, b, strict=True):
        if isinstance(x, Pack) or isinstance(y, Pack):
            if x != y:
                return False
        elif not facts.equal(x, y):
            return False
    return True


def same_argument(facts: Facts, a: GenericArg, b: GenericArg) -> bool:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return same_shape(facts, a, b)
    if isinstance(a, Dim) and isinstance(b, Dim):
        return facts.equal(a, b)
    return a == b


def same_type(facts: Facts, a: Type, b: Type) -> bool:
    """Whether two types provably are one."""
    if a == b:
        return True
    match a, b:
        case (TensorType(), TensorType()):
            return a.dtype == b.dtype and same_shape(facts, a.shape, b.shape)
        case (OptionalType(), OptionalType()):
            return same_type(facts, a.inner, b.inner)
        case (TupleType(), TupleType()):
            return len(a.items) == len(b.items) and all(
                same_type(facts, x, y) for x, y in zip(a.items, b.items, strict=True)
            )
        case (StructType(), StructType()):
            return a.id == b.id and all(
                same_argument(facts, x, y) for x, y in zip(a.generics, b.generics, strict=True)
            )
    return False
