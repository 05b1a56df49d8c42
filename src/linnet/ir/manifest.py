"""The manifest: every param, buffer and state under a root block, with its shape and dtype."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from linnet.dims import Dim
from linnet.errors import BindError
from linnet.ir.program import Program
from linnet.ir.specialize import GenericInput, bind_root, bind_type, bound_size
from linnet.ir.types import (
    BlockRef,
    GenericArg,
    OptionalType,
    dtype_of,
    shape_of,
    substitute_arg,
)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One entry of the manifest.

    `path` joins member names with dots and array positions. `optional` says that a
    checkpoint may lack it, by itself or with an optional sub; `within` are the paths of
    the optional subs around it, outermost first.
    """

    path: str
    kind: str  # "param", "buffer", "state"
    shape: tuple[int, ...]
    dtype: str
    optional: bool = False
    within: tuple[str, ...] = ()
    alone: bool = False  # declared optional itself, so its sub is complete without it

    @property
    def count(self) -> int:
        result = 1
        for size in self.shape:
            result *= size
        return result


def manifest(
    program: Program,
    root: str,
    generics: GenericInput,
    present: frozenset[str] | None = None,
) -> list[Parameter]:
    """The parameters of block `root` in declaration order, arrays in order of position.

    Optional ones are listed and marked; where `present` (paths of optional params and subs)
    is given, only those that are there. Raises BindError as `specialize` does.
    """
    bindings = bind_root(program, root, generics)
    arguments = tuple(bindings[g.name] for g in program.blocks[root].generics)
    listed = _list(program, root, arguments, {})
    if present is None:
        return listed
    return [p for p in listed if _there(p, present)]


def _there(parameter: Parameter, present: frozenset[str]) -> bool:
    def held(path: str) -> bool:
        return path in present or any(p.startswith(f"{path}.") for p in present)

    if parameter.alone and parameter.path not in present:
        return False
    return all(held(path) for path in parameter.within)


_Memo = dict[tuple[str, tuple[GenericArg, ...]], list[Parameter]]


def _list(
    program: Program, block_id: str, arguments: tuple[GenericArg, ...], memo: _Memo
) -> list[Parameter]:
    """Paths relative to the block; each block with its arguments is walked once."""
    key = (block_id, arguments)
    if key in memo:
        return memo[key]
    block = program.blocks[block_id]
    bindings = {g.name: a for g, a in zip(block.generics, arguments, strict=True)}
    found: list[Parameter] = []
    for member in block.members.values():
        where = f"`{block.name}.{member.name}`"
        if not isinstance(member.type, BlockRef):
            type = bind_type(member.type, bindings, where)
            if isinstance(type, OptionalType):
                type = type.inner
            sizes = tuple(_size(d) for d in shape_of(type))
            dtype = dtype_of(type)
            alone = member.optional
            found.append(Parameter(member.name, member.kind, sizes, dtype, alone, (), alone))
            continue
        inner = _list(
            program,
            member.type.id,
            tuple(substitute_arg(a, bindings) for a in member.type.generics),
            memo,
        )
        if member.length is None:
            prefixes = [member.name]
        else:
            length = bound_size(member.length, bindings, where)
            prefixes = [f"{member.name}.{position}" for position in range(length)]
        for prefix in prefixes:
            around = (prefix,) if member.optional else ()
            found.extend(
                Parameter(
                    f"{prefix}.{p.path}",
                    p.kind,
                    p.shape,
                    p.dtype,
                    p.optional or member.optional,
                    around + tuple(f"{prefix}.{path}" for path in p.within),
                    p.alone,
                )
                for p in inner
            )
    memo[key] = found
    return found


def _size(dim: object) -> int:
    assert isinstance(dim, Dim) and dim.constant is not None
    return dim.constant


def presence(
    parameters: list[Parameter], have: Collection[str]
) -> tuple[frozenset[str], list[str]]:
    """Which optionals exist, given the paths that a checkpoint has tensors for.

    Returns the paths of optional params and subs that are there, and a line for every
    optional sub of which there is only a part. States belong to no checkpoint.
    """
    have = frozenset(have)
    stored = [p for p in parameters if p.kind != "state"]
    present = {p.path for p in stored if p.alone and p.path in have}
    groups: dict[str, list[Parameter]] = {}
    for parameter in stored:
        for group in parameter.within:
            groups.setdefault(group, []).append(parameter)
    problems: list[str] = []
    for group, inside in groups.items():
        found = [p for p in inside if p.path in have]
        if not found:
            continue
        present.add(group)
        deeper = {path for p in inside for path in p.within if path.startswith(f"{group}.")}
        required = [
            p for p in inside
            if not p.alone and not any(path in deeper for path in p.within)
        ]  # fmt: skip
        lacking = [p.path for p in required if p.path not in have]
        if lacking:
            problems.append(
                f"optional `{group}` is only partly there: {found[0].path} is present, "
                f"missing are {', '.join(lacking)}"
            )
    return frozenset(present), problems


def root_block(program: Program, name: str | None = None) -> str:
    """The id of the root: the block named, else the only one with entries.

    Raises BindError where there is no such block, or a choice is left.
    """
    own = [b for b in program.blocks.values() if b.id.startswith(program.root_package)]
    if name is not None:
        named = [b for b in own if name in (b.name, b.id)]
        if not named:
            have = ", ".join(f"`{b.name}`" for b in own) or "none"
            raise BindError(f"there is no block `{name}`; the package has {have}")
        if len(named) > 1:
            found = ", ".join(b.id for b in named)
            raise BindError(f"`{name}` could be any of {found}; name one by its full id")
        return named[0].id
    candidates = [b for b in own if program.entries(b.id)]
    if not candidates:
        raise BindError("no block has an entry; name the root block")
    if len(candidates) > 1:
        found = ", ".join(f"`{b.name}`" for b in candidates)
        raise BindError(f"several blocks have entries ({found}); name the root block")
    return candidates[0].id
