"""Native code that serves a model at every value of some of its generics.

A server binds the same weights at many sizes of its batch. What is compiled for each size differs
in nothing but the size, so the dimension is left open, as an entry's own dimensions are, and one
library, with one arena and one set of threads, serves all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from linnet.dims import Dim
from linnet.dims.dim import DimTooLarge
from linnet.errors import BackendError, BindError
from linnet.ir import program as ir
from linnet.torch.compile import Compiler
from linnet.torch.ranges import Condition, Ranges

if TYPE_CHECKING:
    from linnet.ir.bound import Bound
    from linnet.native.module import NativeModule
    from linnet.torch.module import Model
    from linnet.torch.native import Native


class SharedCode:
    """The code of a model whose generics `names` are left open, compiled when first needed.

    Where a program cannot be compiled so, or fewer of its entries, each model compiles its own.
    """

    def __init__(self, names: tuple[str, ...]):
        self.names = names
        self._tried = False
        self._module: NativeModule | None = None
        self._ranges: dict[str, Ranges] = {}
        self._refused: dict[str, str] = {}
        self.symbols: dict[str, str] = {}

    def compile(self, native: Native) -> bool:
        """Let a model run on the code; whether it does."""
        if not self._tried:
            self._tried = True
            try:
                self._compile(native)
            except (BackendError, BindError, DimTooLarge):
                # The program counts on a number where a size is left open here (how many layers
                # there are), or cannot be compiled at all. Each model then gets code of its own.
                self._module = None
        if self._module is None:
            self.symbols = {}
            return False
        generics = native.model.generics
        fixed = {symbol: int(generics[name]) for name, symbol in self.symbols.items()}
        ranges = {name: _at(found, fixed) for name, found in self._ranges.items()}
        native.refused.update(self._refused)
        native.adopt(self._module, ranges, fixed)
        return True

    def _compile(self, native: Native) -> None:
        from linnet.ir.specialize import specialize
        from linnet.native import kept
        from linnet.native.module import NativeModule
        from linnet.torch.kept import keep, recall

        model = native.model
        program = model.bound.program
        taken = {g.name for f in program.functions.values() for g in f.generics}
        self.symbols = {name: _fresh(name, taken) for name in self.names}
        root = model.bound.kinds[model.bound.root].block
        bound = specialize(program, root, model.generics, model.present, self.symbols)
        key = kept.key(bound, native.caches(), self.symbols.values())
        found = recall(key, bound)
        if found is not None:
            _opened(bound, tuple(self.symbols.values()))
            self._module, self._ranges = found.module, found.ranges
            self._refused = found.refused
            return
        compiler = Compiler(bound, model.numerics, model.device)
        bound, _ = compiler.optimized(True)
        _refuse_calls(bound)
        _opened(bound, tuple(self.symbols.values()))
        covered = native.examine(compiler)
        module = NativeModule(bound, list(covered), covered, caches=native.caches())
        if module.refused and _more_alone(native, module):
            return
        self._module = module
        self._ranges, native.ranges = native.ranges, {}
        self._refused = {**native.refused, **module.refused}
        keep(key, module, self._ranges, self._refused)


def call_at(model: Model, entry: str, values: list[Any], sizes: Mapping[str, int]) -> Any:
    """What an entry gives at other sizes of the open dimensions, on the memory of this model.

    For dimensions that are the first axis of states, and at most as large as this model's: the
    first rows are then those of a model of that size. `values` are tensors of the entry's types
    and shapes at these sizes, and in its ranges: nothing is checked here. None where the entry
    is not open native code.
    """
    native = model.native
    found = native.entry(entry)
    if found is None or native.shared is None:
        return None
    symbols = native.shared.symbols
    if not symbols:
        return None
    model.allocate()
    return native.run(found, values, {symbols[name]: size for name, size in sizes.items()})


def _fresh(name: str, taken: set[str]) -> str:
    """A symbol that stands for a generic of the root and is no function's own."""
    symbol = f"{name}_open"
    while symbol in taken:
        symbol += "_"
    return symbol


def _refuse_calls(bound: Bound) -> None:
    entries = set(bound.entries.values())
    for instance in bound.functions.values():
        for region in _regions(instance.body):
            if any(isinstance(op, ir.Call) and op.callee in entries for op in region.ops):
                raise BackendError("an entry that others call has dimensions of its own only")


def _opened(bound: Bound, symbols: tuple[str, ...]) -> None:
    """The symbols become dimensions that each entry is given with its own."""
    for name in set(bound.entries.values()):
        bound.functions[name].dims += symbols


def _regions(region: ir.Region) -> list[ir.Region]:
    found = [region]
    for op in region.ops:
        for inner in op.regions():
            found += _regions(inner)
    return found


def _more_alone(native: Native, module: NativeModule) -> bool:
    """Whether an entry that is refused so would be compiled with every dimension bound."""
    from linnet.native.emit import Emitter
    from linnet.native.node import Unsupported
    from linnet.native.table import Table

    bound, _ = native.model.compiler.optimized(True)
    table = Table(bound)
    for name in module.refused:
        try:
            Emitter(bound, table, bound.functions[bound.entries[name]], {}, frozenset()).run("e")
        except (Unsupported, DimTooLarge):
            continue
        return True
    return False


def _at(ranges: Ranges, values: Mapping[str, int]) -> Ranges:
    """The same conditions with the open dimensions at their values."""
    known = {name: Dim.const(value) for name, value in values.items()}

    def put(value: Any) -> Any:
        if isinstance(value, Dim):
            return value.substitute(known)
        if isinstance(value, (set, frozenset)):
            return type(value)(put(item) for item in value)
        return value

    def condition(found: Condition) -> Condition:
        return replace(found, **{f.name: put(getattr(found, f.name)) for f in fields(found)})

    return replace(
        ranges,
        conditions=[condition(found) for found in ranges.conditions],
        extents=put(ranges.extents),
    )
