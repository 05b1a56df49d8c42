"""A model's entries on the native CPU backend: torch tensors in and out, their memory shared.

Compiled when the first entry is called. Parameters and states stay where they are; the native
code reads and writes them in place.
"""

from __future__ import annotations

import os
import sys
from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from linnet.errors import BackendError, InputError
from linnet.ir.types import ScalarType, StructType, TensorType, TupleType, Type
from linnet.torch import dtypes
from linnet.torch.block import Block
from linnet.torch.ranges import Ranges
from linnet.torch.touched import touched

if TYPE_CHECKING:
    from linnet.native.choose import Largest
    from linnet.native.module import NativeEntry, NativeModule
    from linnet.native.paused import Paused
    from linnet.torch.compile import Compiler
    from linnet.torch.module import Model
    from linnet.torch.shared import SharedCode

BACKENDS = ("native", "torch")
# What torch holds in a wider dtype; native code reads elements of the type's own width.
WIDENED = frozenset(
    d for d in dtypes.STORAGE if dtypes.CARRIER[d].itemsize != dtypes.STORAGE[d].itemsize
)
KEPT = 256  # sets of dimensions whose results' shapes are remembered
Shapes = list[tuple[list[int], torch.dtype]]
_said = False


def wanted(backend: str | None) -> str | None:
    """The backend asked for by argument or `$LINNET_BACKEND`; None leaves the choice here."""
    chosen = backend or os.environ.get("LINNET_BACKEND") or None
    if chosen is not None and chosen not in BACKENDS:
        raise InputError(f"backend: expected one of {', '.join(BACKENDS)}, found {chosen!r}")
    return chosen


@dataclass
class Arguments:
    """One call's: `held` are the tensors behind the addresses `inputs`."""

    inputs: list[Any]
    held: list[Tensor]
    dims: dict[str, int]
    results: list[Tensor]

    @property
    def outputs(self) -> list[int]:
        return [t.data_ptr() for t in self.results]

    def folded(self, entry: NativeEntry) -> Any:
        return _folded(entry.instance.result, iter(self.results))


@dataclass
class Started:
    """A call in slices, with all whose memory it uses."""

    paused: Paused
    arguments: Arguments
    kept: list[Any]


class Native:
    """The compiled entries of a model, or the reason why there are none."""

    def __init__(self, model: Model, backend: str | None):
        self.model = model
        self.backend = wanted(backend)
        self.reason = self._why_not()
        self.module: NativeModule | None = None
        self._largest: Largest | None = None
        self.ranges: dict[str, Ranges] = {}
        self.refused: dict[str, str] = {}
        # Code for every value of some generics, by which; None: this model has code of its own.
        self.shared: SharedCode | None = None
        self._table: Any = None
        self._fixed: dict[str, int] = {}
        self._ready = False
        self._params: dict[str, int] = {}
        self._bound: tuple[NativeModule | None, int] = (None, 0)  # what the addresses are of
        # A tensor's memory can move under it (`tensor.data = …`): asked at each call, and there.
        self._looked: list[Tensor] = []
        self._places = array("Q")
        self._lines = array("Q")
        self._shapes: dict[tuple[Any, ...], Shapes | None] = {}
        # Packed ones that had to be opened; models rebound on the same weights share them.
        self.dense: dict[str, tuple[Any, Tensor]] = {}
        self._paths: frozenset[str] | None = None
        if self.reason is not None and self.backend == "native":
            raise BackendError(f"the native backend cannot run this model: {self.reason}")

    def _why_not(self) -> str | None:
        model = self.model
        if self.backend == "torch":
            return "the torch backend was asked for"
        if model.device.type != "cpu":
            return f"the device is {model.device}"
        if model.numerics != "fast":
            return f"numerics are {model.numerics}"
        if model.trainable:
            return "the model is trainable"
        for path, (_, _, member) in (*model._params.items(), *model._states.items()):
            if member.dtype in WIDENED:
                return f"`{path}` is of {member.dtype}, which is held in a wider dtype"
        from linnet.native.compiler import why_not

        reason = why_not()
        if reason is not None and self.backend is None:
            _say(f"running on the torch backend: {reason}")
        return reason

    def entry(self, name: str) -> NativeEntry | None:
        """The compiled entry, where this backend runs it."""
        if self.reason is not None:
            return None
        if not self._ready:
            self._compile()
        return self.module.entries.get(name) if self.module is not None else None

    def _compile(self) -> None:
        from linnet.native import kept
        from linnet.native.module import NativeModule
        from linnet.torch.kept import keep, recall

        self._ready = True
        model = self.model
        if self.shared is not None and self.shared.compile(self):
            return
        key = kept.key(model.bound, self.caches())
        found = recall(key, model.bound)
        if found is not None:
            self.module, self.ranges = found.module, found.ranges
            self.refused.update(found.refused)
            return
        bound, _ = model.compiler.optimized(True)
        covered = self.examine(model.compiler)
        try:
            module = NativeModule(bound, list(covered), covered, caches=self.caches())
        except BackendError as error:
            if self.backend == "native":
                raise
            self.reason = str(error)
            _say(f"running on the torch backend: {error}")
            return
        self.refused.update(module.refused)
        if module.refused and self.backend == "native" and not module.entries:
            raise BackendError(f"the native backend cannot run this model: {self.refused}")
        self.module = module
        keep(key, module, self.ranges, self.refused)

    def caches(self) -> frozenset[tuple[str, str]]:
        """The states kept in 8 bits, as (block id, member)."""
        model = self.model
        return frozenset(
            (model.bound.kinds[kind].block, member.name)
            for path, kind, _ in model._blocks
            for member in model.bound.kinds[kind].members
            if (f"{path}.{member.name}" if path else member.name) in model.caches
        )

    def examine(self, compiler: Compiler) -> dict[str, frozenset[int]]:
        """The entries to compile, each with the indices that its checks keep in range."""
        bound, _ = compiler.optimized(True)
        covered: dict[str, frozenset[int]] = {}
        for name, instance_id in bound.entries.items():
            ranges = compiler.ranges(bound, name)
            if ranges.open and bound.functions[instance_id].writes:
                self.refused[name] = "an index is checked half-way, after states were written"
                continue
            if ranges.divides:
                self.refused[name] = "an integer division may be by zero, which is an error there"
                continue
            self.ranges[name] = ranges
            covered[name] = ranges.unchecked
        return covered

    def adopt(self, module: NativeModule, ranges: dict[str, Ranges], fixed: dict[str, int]) -> None:
        """Run on code that others run on too, with a table of this model's own. `fixed` are the
        values here of the dimensions that the code leaves open."""
        self.module, self.ranges, self._fixed = module, ranges, fixed
        self._shapes.clear()
        self._table = module.new_weights()

    @property
    def open(self) -> bool:
        """Whether the code leaves dimensions open. Compiles it."""
        if self.reason is None and not self._ready:
            self._compile()
        ready = self.reason is None and self.shared is not None
        return ready and bool(self.shared.symbols)  # type: ignore[union-attr]

    def run(self, entry: NativeEntry, values: list[Any], dims: dict[str, int]) -> Any:
        """Call a compiled entry; None where memory does not lie as it needs."""
        ready = self._ready_for(entry, values, dims)
        if ready is None:
            return None
        try:
            entry(ready.inputs, ready.dims, ready.outputs, self._table)
        except InputError:  # nothing was written: the torch backend says which index and where
            return None
        return ready.folded(entry)

    def largest(self, rows: Tensor) -> tuple[list[float], list[int]] | None:
        """The largest of each row of `rows [n, width]` (NaN where there is one) and its first
        place; None where native code cannot tell: then torch has to."""
        if self.module is None or rows.device.type != "cpu" or not rows.is_contiguous():
            return None
        if self._largest is None:
            from linnet.native.choose import Largest

            self._largest = Largest(self.module)
        return self._largest.find(rows.data_ptr(), dtypes.NAMES.get(rows.dtype, ""), *rows.shape)

    def working(self, entry: NativeEntry, dims: dict[str, int]) -> int:
        """Bytes of the arena that a call at these dimensions needs."""
        dims = {**self._fixed, **dims}
        return entry.plan(tuple(dims[name] for name in entry.instance.dims)).size

    def start(self, entry: NativeEntry, values: list[Any], dims: dict[str, int]) -> Started | None:
        """The same as a call to be run in slices; None where it must be run as a whole."""
        ready = self._ready_for(entry, values, dims)
        if ready is None:
            return None
        try:
            paused = entry.start(ready.inputs, ready.dims, ready.outputs, self._table)
        except BackendError:  # no memory for stacks of its own
            return None
        model = self.model
        kept: list[Any] = [
            getattr(block, name)
            for table in (model._params, model._states)
            for block, name, _ in table.values()
        ]
        return Started(paused, ready, [*kept, *(dense for _, dense in self.dense.values())])

    def _ready_for(
        self, entry: NativeEntry, values: list[Any], dims: dict[str, int]
    ) -> Arguments | None:
        """Arguments as addresses, and results to write to."""
        module = self.module
        assert module is not None
        if not self._bind(module):
            return None
        dims = {**self._fixed, **dims}
        shapes = self._shapes_of(entry, dims)
        if shapes is None:
            return None
        inputs: list[Any] = []
        held: list[Tensor] = []
        for value, (_, type) in zip(values, entry.params, strict=True):
            if isinstance(type, TensorType):
                value = value if value.is_contiguous() else value.contiguous()
                if type.dtype in WIDENED:
                    value = dtypes.from_carrier(value, type.dtype)
                held.append(value)
                inputs.append(value.data_ptr())
            else:
                inputs.append(value.item() if isinstance(value, Tensor) else value)
        if torch.is_inference_mode_enabled():
            with torch.inference_mode(False):  # ordinary tensors, as the caller's
                results = [torch.empty(shape, dtype=dtype) for shape, dtype in shapes]
        else:
            results = [torch.empty(shape, dtype=dtype) for shape, dtype in shapes]
        return Arguments(inputs, held, dims, results)

    def _shapes_of(self, entry: NativeEntry, dims: dict[str, int]) -> Shapes | None:
        """The results' shapes and dtypes at these dimensions; None where an axis that is indexed
        has no element: native code reads one even where it refuses the index."""
        name = entry.instance.source.name
        key = (name, *[dims[n] for n in entry.instance.dims])
        if key in self._shapes:
            return self._shapes[key]
        found: Shapes | None = None
        if all(extent.evaluate(dims) != 0 for extent in self.ranges[name].extents):
            found = [
                (
                    [d.evaluate(dims) for d in getattr(result, "shape", ())],
                    dtypes.STORAGE[result.dtype],  # type: ignore[attr-defined]
                )
                for result in entry.results
            ]
        if len(self._shapes) >= KEPT:
            self._shapes.clear()
        self._shapes[key] = found
        return found

    def _bind(self, module: NativeModule) -> bool:
        """Give the module the addresses that changed since the last call.

        A parameter held packed is an object whose `packed` is (kind, data, scale, zero, group):
        the format's name, tensors or None, and the elements of a group. Where an entry reads
        it in another way than as a packed weight, it is opened once and kept so.
        """
        model = self.model
        known = self._params
        changes = Block.changes
        if self._bound == (module, changes) and self._places == self._now():
            return True
        looked: list[Tensor] = []
        for table in (model._params, model._states):
            for path, (block, name, member) in table.items():
                held: Any = getattr(block, name)
                packed = getattr(held, "packed", None)
                if packed is not None:
                    looked.extend(t for t in packed[1:4] if t is not None)
                elif held is not None:
                    looked.append(held)
                if packed is not None and path in self._opened(module):
                    dense = self.dense.get(path)
                    if dense is None or dense[0] is not held:
                        dense = self.dense[path] = (held, held.dense())
                    if known.get(path) != dense[1].data_ptr():
                        known[path] = dense[1].data_ptr()
                        module.bind(path, known[path], table=self._table)
                    continue
                if packed is not None:
                    kind, data, scale, zero, group = packed
                    at = [t.data_ptr() if t is not None else 0 for t in (data, scale, zero)]
                    module.bind(path, at[0], kind, at[1], at[2], group, self._table)
                    known[path] = at[0]
                    continue
                address = held.data_ptr() if held is not None else 0
                if known.get(path) != address:
                    if held is not None:
                        _held_as(path, member, held)
                        if not held.is_contiguous():
                            return False
                    module.bind(path, address, table=self._table)
                    known[path] = address
        self._bound = (module, changes)
        self._looked = looked
        self._places, self._lines = self._now(), touched(looked)
        return True

    def _now(self) -> array[int]:
        """Where the tensors' memory is."""
        return array("Q", map(Tensor.data_ptr, self._looked))

    def wake(self) -> None:
        """A call will follow. What it will look at was pushed out of the caches by the weights
        of the last one."""
        if self.module is not None:
            self.module.wake(self._lines)

    def _opened(self, module: NativeModule) -> frozenset[str]:
        """The paths of parameters that compiled code reads as dense elements."""
        if self._paths is None:
            self._paths = frozenset(
                f"{path}.{member.name}" if path else member.name
                for path, kind, _ in self.model._blocks
                for member in self.model.bound.kinds[kind].members
                if (kind, member.name) in module.dense
            )
        return self._paths


def _folded(type: Type, results: Any) -> Any:
    """Flat results in the nesting of the entry's result type."""
    match type:
        case TupleType(items):
            return tuple(_folded(item, results) for item in items)
        case StructType(fields=fields):
            return tuple(_folded(item, results) for _, item in fields)
        case ScalarType(dtype):
            value = next(results)
            return value if dtype in dtypes.FLOATS else value.item()
    return next(results)


def _held_as(path: str, member: Any, held: Tensor) -> None:
    """Code is given the address alone. Raises InputError for another shape or dtype than declared,
    as `tensor.data = …` may have put in place."""
    expected = [dim.constant for dim in getattr(member.type, "shape", ())]
    dtype = dtypes.CARRIER[member.dtype]
    if list(held.shape) != expected or held.dtype != dtype:
        raise InputError(
            f"`{path}`: expected {expected} of {member.dtype}, found {list(held.shape)} of "
            f"{dtypes.NAMES.get(held.dtype, held.dtype)}"
        )


def _say(text: str) -> None:
    global _said
    if not _said:
        _said = True
        print(f"note: {text}", file=sys.stderr)
