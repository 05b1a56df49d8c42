"""A program with its root's generics bound: what every backend starts from.

A *kind* is a block with its generic arguments and with which of its optional members
are there; an *instance* is a function for one kind and one set of arguments. A model of
forty equal layers has one kind of layer and one instance a method. An entry's own
generics stay symbolic, and so do the callee's generics that follow from them.
"""

from __future__ import annotations

from linnet.dims import Dim, Facts
from linnet.ir.program import Function, Program, Region
from linnet.ir.types import GenericArg, ScalarType, TensorType, Type
from linnet.record import dataclass, field


@dataclass(frozen=True, slots=True)
class KindMember:
    """A member of a kind. A sub names its kind in `sub` (and `length` for an array).

    `each` is set only for an array whose elements differ in which optional members are
    present: it names the kind of every element, and `sub` is then None.
    """

    name: str
    kind: str  # "param", "buffer", "state", "sub"
    type: Type | None  # None for a sub; without its `?` where an optional one is there
    sub: str | None = None
    length: int | None = None
    present: bool = True
    each: tuple[str, ...] | None = None

    def element(self, index: int) -> str:
        """The kind id of one element of an array, or of the sub."""
        if self.each is not None:
            return self.each[index]
        assert self.sub is not None
        return self.sub

    @property
    def dtype(self) -> str:
        """The dtype of its elements, of a member that is there."""
        assert isinstance(self.type, (TensorType, ScalarType)), self.type
        return self.type.dtype


@dataclass(frozen=True, eq=False, slots=True)
class Kind:
    id: str  # a readable, unique name: "DeltaLayer", "RmsNorm_2"
    block: str  # the block's id in the program; "" for the stand-alone entries' empty owner
    bindings: dict[str, GenericArg]
    members: list[KindMember]

    def member(self, name: str) -> KindMember:
        for member in self.members:
            if member.name == name:
                return member
        raise KeyError(name)


@dataclass(eq=False, slots=True)
class Instance:
    """A function of one kind for one set of generic arguments.

    `dims` are the names that stay symbolic, in the order of a call's `generics`.
    `arguments` gives every generic of the function by its own name (dimensions over
    `dims`). `reads` and `writes` are paths of states relative to the kind, `*` for
    every position of an array (`groups.*.linear.*.history`), calls included.
    """

    id: str
    name: str
    source: Function
    kind: str | None
    dims: tuple[str, ...]
    params: list[tuple[str, Type]]
    result: Type
    body: Region
    arguments: dict[str, GenericArg] = field(default_factory=dict)
    reads: frozenset[str] = frozenset()
    writes: frozenset[str] = frozenset()

    def facts(self) -> Facts:
        """What its `where` clause says of the dimensions that are left."""
        bound = {name: dim for name, dim in self.arguments.items() if isinstance(dim, Dim)}
        return Facts(fact.substitute(bound) for fact in self.source.where)


@dataclass(eq=False, slots=True)
class Bound:
    """`functions` are in call order: every instance comes after those that it calls.

    `entries` maps an entry's name to its instance; an entry with a dtype or a shape pack of
    its own that has no default is in `deferred` instead. `constants` holds values hoisted
    out of bodies (see the intrinsic `constant`).
    """

    program: Program
    root: str
    kinds: dict[str, Kind]
    functions: dict[str, Instance]
    entries: dict[str, str]
    constants: dict[str, Instance] = field(default_factory=dict)
    deferred: dict[str, Function] = field(default_factory=dict)
