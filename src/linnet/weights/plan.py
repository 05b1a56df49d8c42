"""The plan of a load: which tensor becomes which parameters, and everything that is wrong.

A plan is made before any tensor is read, so a checkpoint that does not fit is refused as a
whole, with every finding in one error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Protocol

from linnet.errors import WeightsError
from linnet.weights.dtypes import SIZES, bytes_of, is_float, widens
from linnet.weights.names import NearNames
from linnet.weights.tensor_info import TensorInfo


class Parameter(Protocol):
    """What the plan reads of a manifest's line.

    `optional`: a checkpoint may lack it. `within`: the paths of the optional subs around it,
    outermost first. `alone`: declared optional itself, so that its sub is whole without it.
    """

    @property
    def path(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> str: ...
    @property
    def optional(self) -> bool: ...
    @property
    def within(self) -> tuple[str, ...]: ...
    @property
    def alone(self) -> bool: ...


class Tensors(Protocol):
    """What the plan reads of a checkpoint."""

    @property
    def tensors(self) -> Mapping[str, TensorInfo]: ...


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor to load; several `paths` are tied and share it. `shape` is the program's."""

    paths: tuple[str, ...]
    tensor: str
    stored: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes once loaded."""
        return bytes_of(self.dtype, self.shape)


@dataclass(frozen=True, slots=True)
class Plan:
    """`present` and `absent` are paths of optional parameters and subs; `unused` are tensors
    that nothing names; `ignored_bindings` are bound paths that the program does not have."""

    entries: tuple[Entry, ...]
    present: frozenset[str]
    absent: tuple[str, ...]
    unused: tuple[str, ...]
    ignored_bindings: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        return sum(entry.nbytes for entry in self.entries)

    def summary(self) -> str:
        """One line: how much is loaded, what is tied, optional, left out."""
        paths = sum(len(entry.paths) for entry in self.entries)
        parts = [f"{paths} parameters from {len(self.entries)} tensors, {self.nbytes:,} bytes"]
        if self.present:
            parts.append(f"optional parts present: {', '.join(sorted(self.present))}")
        if self.absent:
            parts.append(f"optional parts absent: {', '.join(self.absent)}")
        if self.unused:
            parts.append(f"{len(self.unused)} tensors ignored, which no parameter names")
        if self.ignored_bindings:
            parts.append(f"{len(self.ignored_bindings)} bindings of paths not in this program")
        return "; ".join(parts)


def plan(
    parameters: Iterable[Parameter],
    checkpoint: Tensors,
    bindings: Mapping[str, str] | None = None,
    cast: bool = False,
    strict: bool = False,
) -> Plan:
    """Bind every parameter and buffer to exactly one tensor.

    `parameters` is the manifest with every optional member in it; states are passed over. A
    path without a binding is its tensor's own name. A float tensor stored narrower is widened;
    a wider one needs `cast`. With `strict`, bindings of unknown paths are errors too. Raises one
    `WeightsError` whose `problems` are all that was found.
    """
    return _Planner(list(parameters), checkpoint.tensors, bindings or {}, cast).plan(strict)


class _Planner:
    def __init__(
        self,
        parameters: list[Parameter],
        tensors: Mapping[str, TensorInfo],
        bindings: Mapping[str, str],
        cast: bool,
    ):
        self.parameters = [p for p in parameters if p.kind != "state"]
        self.paths = {p.path for p in parameters}
        self.tensors = tensors
        self.bindings = bindings
        self.cast = cast
        self.problems: list[str] = []
        named = {bindings.get(p.path, p.path) for p in self.parameters}
        self.near = NearNames([name for name in tensors if name not in named])

    def plan(self, strict: bool) -> Plan:
        present, absent = self._parts()
        left_out = set(absent)
        tied: dict[tuple[str, str], list[Parameter]] = {}
        for parameter in self.parameters:
            info = self._tensor(parameter)
            if not left_out.isdisjoint((parameter.path, *parameter.within)):
                continue
            if info is None:
                self._missing(parameter)
            elif self._fits(parameter, info):
                source = info.alias or info.name
                tied.setdefault((source, parameter.dtype), []).append(parameter)
        ignored = tuple(path for path in self.bindings if path not in self.paths)
        if strict:
            self.problems += [
                f"binding of `{path}`: the program has no such parameter" for path in ignored
            ]
        if self.problems:
            raise WeightsError(self._message(), self.problems)
        entries = tuple(
            Entry(
                tuple(p.path for p in parameters),
                source,
                self.tensors[source].dtype,
                dtype,
                tuple(parameters[0].shape),
            )
            for (source, dtype), parameters in tied.items()
        )
        loaded = {entry.tensor for entry in entries}
        unused = tuple(
            name for name, info in self.tensors.items() if (info.alias or name) not in loaded
        )
        return Plan(entries, frozenset(present), tuple(absent), unused, ignored)

    def _tensor(self, parameter: Parameter) -> TensorInfo | None:
        return self.tensors.get(self.bindings.get(parameter.path, parameter.path))

    def _parts(self) -> tuple[list[str], list[str]]:
        """Which optional subs and parameters there are, and which there are not.

        A sub is there when the checkpoint has anything of it. Whatever it requires and lacks
        is then missing like any other parameter, and `_missing` says what it belongs to.
        """
        found: dict[str, bool] = {}
        for parameter in self.parameters:
            here = self._tensor(parameter) is not None
            for group in parameter.within:
                found[group] = found.get(group, False) or here
        for parameter in self.parameters:
            if parameter.alone and all(found[group] for group in parameter.within):
                found[parameter.path] = self._tensor(parameter) is not None
        present = [path for path, here in found.items() if here]
        absent = [path for path, here in found.items() if not here]
        return present, absent

    def _missing(self, parameter: Parameter) -> None:
        name = self.bindings.get(parameter.path, parameter.path)
        text = f"missing tensor: {_place(parameter, name)}: expected {_form(parameter)}"
        if parameter.within:
            text += f"; the optional part `{parameter.within[-1]}` is there only in part"
        elif name == "lm_head.weight":
            text += "; a checkpoint with a tied head has none: bind it to the embedding's tensor"
        near = self.near.of(name)
        if near:
            info = self.tensors[near]
            text += f"; did you mean `{near}` ({info.dtype} {list(info.shape)})?"
        self.problems.append(text)

    def _fits(self, parameter: Parameter, info: TensorInfo) -> bool:
        place = _place(parameter, info.name)
        shape = tuple(parameter.shape)
        before = len(self.problems)
        if info.shape != shape:
            self.problems.append(
                f"shape: {place}: found {list(info.shape)}, expected {list(shape)}"
                f"{_shape_hint(info.shape, shape)}"
            )
        problem = self._dtype_problem(info, parameter.dtype)
        if problem:
            self.problems.append(f"{problem[0]}: {place}: {problem[1]}")
        return len(self.problems) == before

    def _dtype_problem(self, info: TensorInfo, wanted: str) -> tuple[str, str] | None:
        stored = info.dtype
        if stored == wanted or widens(stored, wanted):
            return None
        if info.importer and is_float(wanted) and (is_float(stored) or stored not in SIZES):
            return None
        found = f"found {stored}, expected {wanted}"
        if is_float(stored) and is_float(wanted):
            if self.cast:
                return None
            kind = "dtype too wide" if widens(wanted, stored) else "dtype"
            return kind, f"{found}; it would lose precision: ask for it (cast=True, --cast)"
        return "dtype", found

    def _message(self) -> str:
        count = len(self.problems)
        head = f"the checkpoint does not fit the program: {count} problem{'s' * (count > 1)}"
        lines = [head, *(f"  {problem}" for problem in self.problems)]
        prefix = self.near.prefix([p for p in self.bindings.values() if p not in self.tensors])
        if prefix:
            lines.append(
                f"  note: names that begin with `{prefix[0]}` in the bindings begin with "
                f"`{prefix[1]}` in this checkpoint"
            )
        return "\n".join(lines)


def _place(parameter: Parameter, tensor: str) -> str:
    if tensor == parameter.path:
        return f"`{parameter.path}`"
    return f"`{parameter.path}` from `{tensor}`"


def _form(parameter: Parameter) -> str:
    return f"{parameter.dtype} {list(parameter.shape)}"


def _shape_hint(found: tuple[int, ...], expected: tuple[int, ...]) -> str:
    if len(found) > 1 and found == expected[::-1]:
        return " (transposed)"
    if sorted(found) == sorted(expected):
        return " (its axes are permuted)"
    if prod(found) == prod(expected):
        return " (the same number of elements: reshaped)"
    return ""
