"""Integer polynomials over dimension names, floor quotients, minima and maxima.

A `Dim` is in normal form from the start, so two dimensions that are the same polynomial are
equal as Python values. What needs an assumption (`x / x == 1` needs `x > 0`) is left to `Facts`.

A little longer than other files: atoms and polynomials are made of each other.
"""

from __future__ import annotations

from _thread import allocate_lock as Lock
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Protocol
from weakref import WeakValueDictionary

from linnet.dims.bounds import Bounds, atom_bounds, interval

# Bounds on one dimension. They keep hostile input from taking time or memory; the largest
# dimension in the zoo has about ten terms.
MAX_TERMS = 400
MAX_DEGREE = 64
MAX_SIZE = 3000  # nodes of the expression written out as a tree
MAX_DEPTH = 40
MAX_BITS = 2048
MAX_ORDERS = 10_000  # kept sort keys of monomials
_LIMIT = 1 << MAX_BITS

Monomial = tuple[tuple["Atom", int], ...]  # atoms in order, each with its power
Term = tuple[Monomial, int]


class DimTooLarge(ValueError):
    """The expression has more terms, or a higher degree, than any real size has."""


class Knowledge(Protocol):
    """What is known of signs while a dimension is built."""

    def positive(self, dim: Dim) -> bool: ...

    def nonnegative(self, dim: Dim) -> bool: ...


class Atom:
    """An indivisible part of a polynomial: a name, `floor(p / q)`, a minimum or a maximum.

    Names that begin with `~` stand for integers of either sign and are made by the prover only;
    every other name is non-negative. There is one object for each (see `_atom`), so atoms are
    compared and hashed by identity.
    """

    __slots__ = (
        "__weakref__",
        "args",
        "depth",
        "dim",
        "high",
        "key",
        "kind",
        "low",
        "name",
        "names",
        "size",
    )

    kind: str  # "name", "floor", "min", "max"
    name: str
    args: tuple[Dim, ...]
    key: tuple[int, str]
    low: int | None
    high: int | None
    size: int
    depth: int
    names: frozenset[str]
    dim: Dim | None  # the atom as a dimension, once it has been asked for

    def __init__(self, kind: str, name: str, args: tuple[Dim, ...]):
        self.kind, self.name, self.args = kind, name, args
        self.dim = None
        if kind == "name":
            self.key = (0, name)
            self.low, self.high = (None if name.startswith("~") else 0), None
            self.size, self.depth, self.names = 1, 0, frozenset((name,))
            return
        self.size = 1 + sum(arg.size for arg in args)
        self.depth = 1 + max(arg.depth for arg in args)
        if self.size > MAX_SIZE or self.depth > MAX_DEPTH:
            raise DimTooLarge("the dimension nests too deeply")
        self.key = (1, f"{kind}({','.join(arg.key for arg in args)})")
        self.names = frozenset().union(*(arg.names() for arg in args))
        self.low, self.high = atom_bounds(kind, [(arg.low, arg.high) for arg in args])

    def __repr__(self) -> str:
        return f"Atom({self.key[1]})"

    def __reduce__(self) -> tuple[object, ...]:
        return (_atom, (self.kind, self.name, self.args))


_ATOMS: WeakValueDictionary[tuple[str, str, tuple[Dim, ...]], Atom] = WeakValueDictionary()
_LOCK = Lock()


def _atom(kind: str, name: str = "", args: tuple[Dim, ...] = ()) -> Atom:
    found = _ATOMS.get((kind, name, args))
    if found is None:
        made = Atom(kind, name, args)
        with _LOCK:  # never two of one
            found = _ATOMS.get((kind, name, args))
            if found is None:
                found = _ATOMS[kind, name, args] = made
    return found


class Dim:
    """An integer polynomial over atoms, immutable, hashable, in normal form.

    `+ - * // %` accept integers on either side; `//` is floor division.
    Raises `DimTooLarge` where a result would exceed the bounds above.
    """

    __slots__ = ("_bounds", "_hash", "_key", "_names", "_size", "terms")

    terms: tuple[Term, ...]  # by falling degree, then by key; no zero coefficients

    def __init__(self, terms: tuple[Term, ...]):
        """Internal: `terms` are already in normal form. Use `Dim.const` and `Dim.name`."""
        self.terms = terms
        if len(terms) == 1 and not terms[0][0]:
            self._hash = hash(terms[0][1])  # that of the equal `int`
        else:
            self._hash = hash(terms) if terms else 0
        self._bounds: Bounds | None = None
        self._names: frozenset[str] | None = None
        self._size: tuple[int, int] | None = None
        self._key: str | None = None

    @staticmethod
    def const(value: int) -> Dim:
        """The constant `value`."""
        if value.bit_length() > MAX_BITS:
            raise DimTooLarge("an integer in the dimension is too large")
        return Dim((((), value),)) if value else ZERO

    @staticmethod
    def name(name: str) -> Dim:
        """A non-negative unknown; `*S` is the element count of the pack `S`."""
        return of_atom(_atom("name", name))

    @staticmethod
    def min(a: Dim | int, b: Dim | int) -> Dim:
        return extreme("min", (as_dim(a), as_dim(b)), BLANK)

    @staticmethod
    def max(a: Dim | int, b: Dim | int) -> Dim:
        return extreme("max", (as_dim(a), as_dim(b)), BLANK)

    @property
    def constant(self) -> int | None:
        """The value, where it has no unknowns."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and not self.terms[0][0]:
            return self.terms[0][1]
        return None

    def names(self) -> frozenset[str]:
        if self._names is None:
            self._names = frozenset().union(*(atom.names for atom in self.atoms()))
        return self._names

    def atoms(self) -> Iterator[Atom]:
        """The atoms of the polynomial itself, not those inside them; repeats possible."""
        for monomial, _ in self.terms:
            for atom, _ in monomial:
                yield atom

    def substitute(self, mapping: Mapping[str, Dim | int]) -> Dim:
        """Replace names, all at once."""
        if self.names().isdisjoint(mapping):
            return self
        return rebuild(self, lambda atom: _substitute_atom(atom, mapping))

    def evaluate(self, values: Mapping[str, int]) -> int:
        """The value at `values`. KeyError where a name is missing, ZeroDivisionError at `/ 0`."""
        total = 0
        for monomial, coefficient in self.terms:
            product = coefficient
            for atom, power in monomial:
                value = _evaluate_atom(atom, values)
                product *= value if power == 1 else value**power
            total += product
        return total

    def python(self, rename: Callable[[str], str] = str) -> str:
        """A Python expression over `rename(name)`; floor division is `//`."""
        from linnet.dims.text import python

        return python(self, rename)

    def __add__(self, other: Dim | int) -> Dim:
        if not isinstance(other, (Dim, int)):
            return NotImplemented
        right = as_dim(other)
        if not right.terms:
            return self
        return combine([(1, self), (1, right)]) if self.terms else right

    __radd__ = __add__

    def __sub__(self, other: Dim | int) -> Dim:
        if not isinstance(other, (Dim, int)):
            return NotImplemented
        right = as_dim(other)
        if not right.terms:
            return self
        return combine([(1, self), (-1, right)])

    def __rsub__(self, other: int) -> Dim:
        return as_dim(other) - self

    def __neg__(self) -> Dim:
        return combine([(-1, self)])

    def __mul__(self, other: Dim | int) -> Dim:
        if not isinstance(other, (Dim, int)):
            return NotImplemented
        right = as_dim(other)
        if self.constant is not None:
            return combine([(self.constant, right)])
        if right.constant is not None:
            return combine([(right.constant, self)])
        if len(self.terms) * len(right.terms) > 20 * MAX_TERMS:
            raise DimTooLarge("the dimension has too many terms")
        total: dict[Monomial, int] = {}
        for left_monomial, a in self.terms:
            for right_monomial, b in right.terms:
                product = times(left_monomial, right_monomial)
                total[product] = total.get(product, 0) + a * b
        return make(total)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim | int) -> Dim:
        if not isinstance(other, (Dim, int)):
            return NotImplemented
        from linnet.dims.division import floor_divide

        return floor_divide(self, as_dim(other), BLANK)

    def __rfloordiv__(self, other: int) -> Dim:
        return as_dim(other) // self

    def __mod__(self, other: Dim | int) -> Dim:
        if not isinstance(other, (Dim, int)):
            return NotImplemented
        return self - other * (self // other)

    def __rmod__(self, other: int) -> Dim:
        return as_dim(other) % self

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if isinstance(other, int):
            return self.constant == other
        return isinstance(other, Dim) and self._hash == other._hash and self.terms == other.terms

    def __str__(self) -> str:
        from linnet.dims.text import show

        return show(self)

    def __repr__(self) -> str:
        return f"Dim({self})"

    def __reduce__(self) -> tuple[object, ...]:
        return (Dim, (self.terms,))

    # Cached measures, used by the normal form itself.

    @property
    def key(self) -> str:
        """A canonical text that orders atoms the same way in every process."""
        if self._key is None:
            self._key = "+".join(
                "*".join([str(coefficient), *(f"{a.key[1]}^{n}" for a, n in monomial)])
                for monomial, coefficient in self.terms
            )
        return self._key

    @property
    def low(self) -> int | None:
        return self._interval()[0]

    @property
    def high(self) -> int | None:
        return self._interval()[1]

    def _interval(self) -> Bounds:
        if self._bounds is None:
            self._bounds = interval(self, lambda atom: (atom.low, atom.high))
        return self._bounds

    @property
    def size(self) -> int:
        return self._measure()[0]

    @property
    def depth(self) -> int:
        return self._measure()[1]

    def _measure(self) -> tuple[int, int]:
        if self._size is None:
            size, depth = 1, 0
            for monomial, _ in self.terms:
                size += 1
                for atom, _ in monomial:
                    size += atom.size
                    depth = max(depth, atom.depth)
            self._size = (size, depth)
        return self._size

    def coefficient(self, monomial: Monomial) -> int:
        for other, coefficient in self.terms:
            if other == monomial:
                return coefficient
        return 0


def as_dim(value: Dim | int) -> Dim:
    return value if isinstance(value, Dim) else Dim.const(int(value))


def of_atom(atom: Atom) -> Dim:
    if atom.dim is None:
        atom.dim = Dim(((((atom, 1),), 1),))
    return atom.dim


def floor_atom(p: Dim, q: Dim) -> Dim:
    return of_atom(_atom("floor", "", (p, q)))


def degree(monomial: Monomial) -> int:
    return sum(power for _, power in monomial)


def order(monomial: Monomial) -> tuple[int, object]:
    """Falling degree, then names before other atoms, then text: one total order."""
    found = _ORDERS.get(monomial)
    if found is None:
        if len(_ORDERS) >= MAX_ORDERS:
            _ORDERS.clear()
        found = (-degree(monomial), tuple((atom.key, -power) for atom, power in monomial))
        _ORDERS[monomial] = found
    return found


_ORDERS: dict[Monomial, tuple[int, object]] = {}


def _term_order(term: Term) -> tuple[int, object]:
    return order(term[0])


def make(total: Mapping[Monomial, int]) -> Dim:
    terms = [term for term in total.items() if term[1]]
    if not terms:
        return ZERO
    if len(terms) > 1:
        if len(terms) > MAX_TERMS:
            raise DimTooLarge("the dimension has too many terms")
        terms.sort(key=_term_order)
    if order(terms[0][0])[0] < -MAX_DEGREE:
        raise DimTooLarge("the dimension has too high a degree")
    for _, coefficient in terms:
        if not -_LIMIT < coefficient < _LIMIT:
            raise DimTooLarge("an integer in the dimension is too large")
    result = Dim(tuple(terms))
    if len(terms) > 8 and result.size > MAX_SIZE:
        raise DimTooLarge("the dimension is too long")
    return result


def combine(parts: Iterable[tuple[int, Dim]]) -> Dim:
    """The linear combination of `parts`."""
    total: dict[Monomial, int] = {}
    for factor, dim in parts:
        for monomial, coefficient in dim.terms:
            known = total.get(monomial)
            if known is None:
                total[monomial] = factor * coefficient
            else:
                total[monomial] = known + factor * coefficient
    return make(total)


def times(a: Monomial, b: Monomial) -> Monomial:
    if not a or not b:
        return a or b
    powers = dict(a)
    for atom, power in b:
        powers[atom] = powers.get(atom, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: item[0].key))


def quotient(a: Monomial, b: Monomial) -> Monomial | None:
    """`a / b` where `b` divides `a`."""
    powers = dict(a)
    for atom, power in b:
        left = powers.get(atom, 0) - power
        if left < 0:
            return None
        if left:
            powers[atom] = left
        else:
            del powers[atom]
    return tuple(powers.items())


def rebuild(dim: Dim, atom_of: Callable[[Atom], Dim]) -> Dim:
    """`dim` with every atom replaced by `atom_of(atom)`."""
    if len(dim.terms) == 1:  # most are a single name, or a number
        monomial, coefficient = dim.terms[0]
        if not monomial:
            return dim
        if len(monomial) == 1 and monomial[0][1] == 1:
            value = atom_of(monomial[0][0])
            return value if coefficient == 1 else combine([(coefficient, value)])
    values: dict[Atom, Dim] = {}
    for atom in dim.atoms():
        if atom not in values:
            value = atom_of(atom)
            if value is not atom.dim:
                values[atom] = value
    if not values:
        return dim
    total: dict[Monomial, int] = {}
    for monomial, coefficient in dim.terms:
        kept = tuple(item for item in monomial if item[0] not in values)
        if len(kept) == len(monomial):
            total[monomial] = total.get(monomial, 0) + coefficient
            continue
        product = Dim(((kept, coefficient),))
        for atom, power in monomial:
            if atom in values:
                for _ in range(power):
                    product = product * values[atom]
        for inner, c in product.terms:
            total[inner] = total.get(inner, 0) + c
    return make(total)


def rebuild_atom(atom: Atom, args: tuple[Dim, ...], known: Knowledge) -> Dim:
    """The compound `atom` over new arguments, in normal form under `known`."""
    if atom.kind == "floor":
        from linnet.dims.division import floor_divide

        return floor_divide(args[0], args[1], known)
    return extreme(atom.kind, args, known)


def extreme(kind: str, args: tuple[Dim, ...], known: Knowledge) -> Dim:
    """`min` or `max` of `args`: flat, sorted, without what another argument dominates."""
    flat: list[Dim] = []
    for arg in args:
        monomial = arg.terms[0][0] if len(arg.terms) == 1 else ()
        inner = monomial[0][0] if len(monomial) == 1 and arg == of_atom(monomial[0][0]) else None
        for item in inner.args if inner is not None and inner.kind == kind else (arg,):
            if item not in flat:
                flat.append(item)
    flat.sort(key=lambda item: (item.constant is not None, item.key))
    kept: list[Dim] = []
    for index, item in enumerate(flat):
        others = kept + flat[index + 1 :]
        dominated = any(
            known.nonnegative(item - other if kind == "min" else other - item) for other in others
        )
        if not dominated:
            kept.append(item)
    return kept[0] if len(kept) == 1 else of_atom(_atom(kind, "", tuple(kept)))


def _substitute_atom(atom: Atom, mapping: Mapping[str, Dim | int]) -> Dim:
    if atom.names.isdisjoint(mapping):
        return of_atom(atom)
    if atom.kind == "name":
        return as_dim(mapping[atom.name])
    return rebuild_atom(atom, tuple(arg.substitute(mapping) for arg in atom.args), BLANK)


def _evaluate_atom(atom: Atom, values: Mapping[str, int]) -> int:
    if atom.kind == "name":
        return values[atom.name]
    args = [arg.evaluate(values) for arg in atom.args]
    if atom.kind == "floor":
        return args[0] // args[1]
    return min(args) if atom.kind == "min" else max(args)


class _Blank:
    """No assumptions: names are non-negative, nothing else is known."""

    def positive(self, dim: Dim) -> bool:
        low = dim.low
        return low is not None and low > 0

    def nonnegative(self, dim: Dim) -> bool:
        low = dim.low
        return low is not None and low >= 0


BLANK: Knowledge = _Blank()
ZERO = Dim(())
ONE = Dim((((), 1),))
