"""Binding the root's generics: from a checked program to the kinds and instances of a model.

A method is specialized once a kind of block, not once an instance, so the code of a model does
not grow with its depth. Every generic that is bound becomes a number or a dtype in the bodies;
shape packs are spelled out; an entry's own dimensions stay symbolic.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping, Sequence

from linnet.dims import Dim, Fact
from linnet.errors import BindError
from linnet.ir.bound import Bound, Instance, Kind, KindMember
from linnet.ir.clone import Cloner
from linnet.ir.effects import effects
from linnet.ir.program import Block, Function, Generic, Member, Program, Step, Value
from linnet.ir.types import (
    CONSTRAINTS,
    BlockRef,
    GenericArg,
    OptionalType,
    Substitution,
    Type,
    shape_of,
    substitute,
    substitute_arg,
    substitute_dim,
)

GenericInput = Mapping[str, "int | str | Sequence[int]"]


def specialize(
    program: Program,
    root: str,
    generics: GenericInput,
    present: frozenset[str] | None = None,
    free: Mapping[str, str] | None = None,
) -> Bound:
    """Bind the generics of the block `root` (a block id, or "" for the stand-alone entries).

    `present` are the paths of the optional params and subs that exist (None: none does). `free`
    gives dimensions of the root that stay symbolic in types and bodies, each with its symbol;
    `where` clauses are checked at their value all the same.
    Raises BindError for a missing, unknown or unfit generic, for a `where` clause of the root
    that the values violate, and for a dimension that comes out negative.
    """
    bindings = bind_root(program, root, generics)
    bindings.update({name: Dim.name(symbol) for name, symbol in (free or {}).items()})
    maker = _Maker(program)
    if root:
        arguments = tuple(bindings[g.name] for g in program.blocks[root].generics)
        kind = maker.kind(root, arguments, present or frozenset())
        entries = program.entries(root)
    else:
        kind = maker.add_kind(Kind("Module", "", {}, []))
        entries = {
            f.name: f for f in program.functions.values() if f.kind == "entry" and f.block is None
        }
    bound = Bound(program, kind.id, maker.kinds, maker.functions, {})
    for name, entry in entries.items():
        owner = kind if entry.block is not None else None
        arguments_of_entry = entry_arguments(entry)
        if arguments_of_entry is None:
            bound.deferred[name] = entry
        else:
            bound.entries[name] = maker.instance(entry, owner, arguments_of_entry)[0].id
    return bound


def bind_root(program: Program, root: str, generics: GenericInput) -> dict[str, GenericArg]:
    """The root's generics as arguments, defaults filled in, `where` clauses checked."""
    if not root:
        if generics:
            raise BindError(f"there is no root block to bind `{next(iter(generics))}` of")
        return {}
    if root not in program.blocks:
        raise BindError(f"there is no block `{root}` in the program")
    block = program.blocks[root]
    known = {g.name for g in block.generics}
    for name in generics:
        if name not in known:
            raise BindError(
                f"`{block.name}` has no generic `{name}`; it has {_listed(known_order(block))}"
            )
    bindings: dict[str, GenericArg] = {}
    missing: list[str] = []
    for generic in block.generics:
        if generic.name in generics:
            bindings[generic.name] = _argument(generic, generics[generic.name], block.name)
        elif generic.default is not None:
            bindings[generic.name] = substitute_arg(generic.default, bindings)
        else:
            missing.append(generic.name)
    if missing:
        raise BindError(
            f"`{block.name}` needs a value for {_listed(missing)} "
            f"(--bind {missing[0]}=…; generics={{{missing[0]!r}: …}} in Python)"
        )
    check_facts(block.where, bindings, f"`{block.name}`")
    return bindings


def known_order(block: Block) -> list[str]:
    return [g.name for g in block.generics]


def check_facts(facts: tuple[Fact, ...], bindings: Mapping[str, GenericArg], owner: str) -> None:
    """Raise BindError for the first fact that does not hold at the values bound."""
    values = {name: int(d.constant) for name, d in bindings.items()
              if isinstance(d, Dim) and d.constant is not None}  # fmt: skip
    for fact in facts:
        names = fact.left.names() | fact.right.names()
        if not names <= values.keys():
            continue
        at = ", ".join(f"{name} = {values[name]}" for name in sorted(names))
        try:
            left, right = fact.left.evaluate(values), fact.right.evaluate(values)
        except ZeroDivisionError:
            raise BindError(f"{owner}: `{fact}` divides by zero at {at}") from None
        if not _COMPARE[fact.op](left, right):
            raise BindError(f"{owner} requires `{fact}`, which fails at {at}")


_COMPARE = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def _argument(generic: Generic, value: object, owner: str) -> GenericArg:
    what = f"generic `{generic.name}` of `{owner}`"
    if generic.kind == "Dim":
        if isinstance(value, bool) or not isinstance(value, int):
            raise BindError(f"{what} is a dimension: expected an integer, found {value!r}")
        if value < 0:
            raise BindError(f"{what} is a dimension: expected at least 0, found {value}")
        return Dim.const(value)
    if generic.kind == "Shape":
        sizes = [] if isinstance(value, (str, int)) else list(value)  # type: ignore[call-overload]
        fine = all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in sizes)
        if isinstance(value, (str, int)) or not fine:
            raise BindError(f"{what} is a shape: expected a list of sizes, found {value!r}")
        return tuple(Dim.const(n) for n in sizes)
    allowed = CONSTRAINTS[generic.kind]
    if not isinstance(value, str) or value not in allowed:
        raise BindError(
            f"{what} is a dtype: expected one of {', '.join(sorted(allowed))}, found {value!r}"
        )
    return value


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def entry_arguments(entry: Function) -> tuple[GenericArg, ...] | None:
    """An entry's own dimensions by their names, symbolic; None where more must be known."""
    arguments: list[GenericArg] = []
    bindings: Substitution = {}
    for generic in entry.generics:
        if generic.kind == "Dim":
            argument: GenericArg = Dim.name(generic.name)
        elif generic.default is not None:
            argument = substitute_arg(generic.default, bindings)
        else:
            return None
        bindings[generic.name] = argument
        arguments.append(argument)
    return tuple(arguments)


class _Maker:
    """Makes kinds and instances, each once."""

    def __init__(self, program: Program):
        self.program = program
        self.kinds: dict[str, Kind] = {}
        self.functions: dict[str, Instance] = {}
        self._kinds: dict[object, Kind] = {}
        self._instances: dict[object, tuple[Instance, tuple[Dim, ...]]] = {}
        self._names: set[str] = set()

    # --- kinds ---------------------------------------------------------------

    def kind(
        self, block_id: str, arguments: tuple[GenericArg, ...], present: frozenset[str]
    ) -> Kind:
        key = (block_id, arguments, present)
        if key in self._kinds:
            return self._kinds[key]
        block = self.program.blocks[block_id]
        bindings = {g.name: a for g, a in zip(block.generics, arguments, strict=True)}
        members = [self._member(block, m, bindings, present) for m in block.members.values()]
        name = block.name
        serial = 2
        while name in self.kinds:
            name = f"{block.name}_{serial}"
            serial += 1
        self._kinds[key] = kind = self.add_kind(Kind(name, block_id, bindings, members))
        return kind

    def add_kind(self, kind: Kind) -> Kind:
        self.kinds[kind.id] = kind
        return kind

    def _member(
        self,
        block: Block,
        member: Member,
        bindings: dict[str, GenericArg],
        present: frozenset[str],
    ) -> KindMember:
        where = f"`{block.name}.{member.name}`"
        if not isinstance(member.type, BlockRef):
            here = not member.optional or member.name in present
            type = bind_type(member.type, bindings, where)
            if here and isinstance(type, OptionalType):
                type = type.inner
            return KindMember(member.name, member.kind, type, present=here)
        inside = [p.removeprefix(f"{member.name}.") for p in present
                  if p.startswith(f"{member.name}.")]  # fmt: skip
        if member.optional and member.name not in present and not inside:
            return KindMember(member.name, "sub", None, present=False)
        arguments = tuple(substitute_arg(a, bindings) for a in member.type.generics)
        if member.length is None:
            sub = self.kind(member.type.id, arguments, frozenset(inside)).id
            return KindMember(member.name, "sub", None, sub)
        length = bound_size(member.length, bindings, where)
        by_position: dict[int, set[str]] = {}
        for path in inside:
            head, _, rest = path.partition(".")
            if head.isdecimal() and rest:
                by_position.setdefault(int(head), set()).add(rest)
        nothing: set[str] = set()
        each = tuple(
            self.kind(member.type.id, arguments, frozenset(by_position.get(i, nothing))).id
            for i in (range(length) if by_position else range(1))
        )
        if len(set(each)) == 1:
            return KindMember(member.name, "sub", None, each[0], length)
        return KindMember(member.name, "sub", None, None, length, each=each)

    # --- instances -----------------------------------------------------------

    def instance(
        self, function: Function, kind: Kind | None, arguments: tuple[GenericArg, ...]
    ) -> tuple[Instance, tuple[Dim, ...]]:
        """The instance for these arguments and the dimensions a call passes for its `dims`.

        An argument that is a number is bound; any other dimension becomes a symbol named
        after the generic, so that one instance serves whatever the caller writes there.
        """
        taken = {g.name for g in function.generics}
        own: dict[str, GenericArg] = {}
        dims: list[str] = []
        passed: list[Dim] = []

        def bind(name: str, dim: Dim) -> Dim:
            if dim.constant is not None:
                return dim
            dims.append(name)
            passed.append(dim)
            return Dim.name(name)

        for generic, argument in zip(function.generics, arguments, strict=True):
            if isinstance(argument, tuple):
                items: list[Dim] = []
                for position, item in enumerate(argument):
                    assert isinstance(item, Dim), f"unbound pack {item} in {function.id}"
                    name = f"{generic.name}{position}"
                    while name in taken:
                        name += "_"
                    taken.add(name)
                    items.append(bind(name, item))
                own[generic.name] = tuple(items)
            elif isinstance(argument, Dim):
                own[generic.name] = bind(generic.name, argument)
            else:
                own[generic.name] = argument
        key = (function.id, kind.id if kind else None, tuple(own.values()))
        if key not in self._instances:
            made = self._make(function, kind, own, tuple(dims))
            self._instances[key] = (made, ())
        return self._instances[key][0], tuple(passed)

    def _make(
        self,
        function: Function,
        kind: Kind | None,
        own: dict[str, GenericArg],
        dims: tuple[str, ...],
    ) -> Instance:
        mapping: Substitution = {**(kind.bindings if kind else {}), **own}
        cloner = _Specializer(self, function, kind, mapping)
        body = cloner.region(function.body)
        params = [
            (name, value.type)
            for (name, _), value in zip(function.params, body.params, strict=True)
        ]
        name = self._name(function, kind)
        result = bind_type(function.result, mapping, f"the result of `{function.id}`")
        made = Instance(name, name, function, kind.id if kind else None, dims, params, result, body)
        made.arguments = own
        made.reads, made.writes = effects(made, self.functions)
        self.functions[made.id] = made
        return made

    def _name(self, function: Function, kind: Kind | None) -> str:
        stem = f"{snake(kind.id)}_{function.name}" if kind and kind.block else function.name
        if keyword.iskeyword(stem):
            stem += "_"
        name = stem
        serial = 2
        while name in self._names:
            name = f"{stem}_{serial}"
            serial += 1
        self._names.add(name)
        return name


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def bind_type(type: Type, mapping: Substitution, what: str) -> Type:
    """Substitute, and refuse a dimension that became a negative number."""
    try:
        bound = substitute(type, mapping)
    except ZeroDivisionError:
        raise BindError(f"{what}: a dimension of {type} divides by zero") from None
    for size in shape_of(bound):
        if isinstance(size, Dim) and size.constant is not None and size.constant < 0:
            raise BindError(f"{what}: a dimension of {type} is {size} with the generics given")
    return bound


def bound_size(dim: Dim, mapping: Substitution, what: str) -> int:
    size = substitute_dim(dim, mapping).constant
    if size is None:  # of a root's generic that is to stay open
        raise BindError(f"{what}: how many there are is {dim}, which must be bound to a number")
    if size < 0:
        raise BindError(f"{what}: the length {dim} is {size} with the generics given")
    return size


class _Specializer(Cloner):
    """Clones a body with generics substituted, calls resolved, optional members decided."""

    def __init__(self, maker: _Maker, function: Function, kind: Kind | None, mapping: Substitution):
        super().__init__(mapping)
        self.maker = maker
        self.function = function
        self.kind = kind

    def new_type(self, type: Type) -> Type:
        return bind_type(type, self.mapping, f"`{self.function.id}`")

    def resolve(
        self, callee: str, generics: tuple[GenericArg, ...], receiver: tuple[Step, ...] | None
    ) -> tuple[str, tuple[GenericArg, ...]]:
        function = self.maker.program.functions[callee]
        kind = None
        if receiver is not None or function.block is not None:
            assert self.kind is not None
            kind = self.receiver_kind(receiver or ())
        arguments = tuple(substitute_arg(g, self.mapping) for g in generics)
        instance, dims = self.maker.instance(function, kind, arguments)
        return instance.id, dims

    def receiver_kind(self, steps: tuple[Step, ...]) -> Kind:
        kind = self.kind
        assert kind is not None
        for step in steps:
            member = kind.member(step.name)
            index = 0
            if member.each is not None:
                assert isinstance(step.index, Dim) and step.index.constant is not None
                index = step.index.constant
            kind = self.maker.kinds[member.element(index)]
        return kind

    def optional_member(self, name: str) -> bool | None:
        """Whether an optional member is there; None for a member that is not optional."""
        assert self.kind is not None
        block = self.maker.program.blocks[self.kind.block]
        if not block.members[name].optional:
            return None
        return self.kind.member(name).present

    def mixed(self, steps: tuple[Step, ...], counter: Value) -> bool:
        """Whether a receiver picks, by `counter`, from an array whose elements differ."""
        kind = self.kind
        assert kind is not None
        for step in steps:
            member = kind.member(step.name)
            if member.each is not None:
                return step.index is counter
            kind = self.maker.kinds[member.element(0)] if member.present else None
            if kind is None:
                return False
        return False
