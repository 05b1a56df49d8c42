"""Values from inside a run: named `let`s and block results beside an entry's result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from torch import Tensor

from linnet.errors import InputError
from linnet.torch.block import Block
from linnet.torch.evaluate import Evaluator

if TYPE_CHECKING:
    from linnet.torch.module import Model


@dataclass
class Trace:
    """`result` is the entry's; `values` maps a name to a tensor, in the order computed.

    A `let` is called `groups.0.full.self_attn.gate` (the block's path and its name), one of a
    free function `rope.turned`, a block's result by the block's path. What is computed again (a
    loop, a second call) has `#2`, `#3` ….
    """

    result: Any
    values: dict[str, Tensor] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Tensor:
        return self.values[name]


class Recorder:
    def __init__(self, model: Model, names: Sequence[str] | None):
        self.paths: Mapping[int, str] = model._paths
        self.names = None if names is None else set(names)
        self.found: set[str] = set()
        self.values: dict[str, Tensor] = {}
        self.seen: dict[str, int] = {}

    def __call__(
        self, block: Block | None, name: str | None, value: Any, args: Sequence[Any] = ()
    ) -> None:
        if not isinstance(value, Tensor):
            return
        path = self.paths.get(id(block), "") if block is not None else ""
        key = path if name is None else (f"{path}.{name}" if path else name)
        if self.names is not None:
            last = name.rpartition(".")[2] if name is not None else None
            matched = {key, name, last} & self.names
            if not matched:
                return
            self.found |= matched  # type: ignore[arg-type]
        count = self.seen[key] = self.seen.get(key, 0) + 1
        kept = value.detach().clone()
        self.values[key if count == 1 else f"{key}#{count}"] = kept


def run_traced(
    model: Model, entry: str, inputs: Sequence[Any], keywords: dict[str, Any],
    names: Sequence[str] | None, recorder: Recorder | None = None,
) -> Trace:  # fmt: skip
    """Raises InputError for an unknown entry, wrong arguments, or a name that nothing has."""
    if entry not in model.entries:
        known = ", ".join(f"`{name}`" for name in model.entries)
        raise InputError(f"there is no entry `{entry}`; the entries are {known}")
    target = model.entries[entry]
    values, dims = target.signature.bind(inputs, keywords)
    target.signature.check_ranges(target.ranges(), values, dims)
    recorder = recorder or Recorder(model, names)
    if target.uses_state:
        model.allocate()
    held = {path: getattr(block, name) for path, (block, name, _) in model._states.items()}
    try:
        with model.mode():
            if model.numerics == "exact":
                result = _evaluate(model, target.instance.id, values, dims, recorder, target)
            else:
                code = model.compiler.compile(entry, recorder)
                owner = [] if target.instance.kind is None else [model.root]
                sizes = (dims[name] for name in target.instance.dims)
                result = code.function(*owner, *values, *sizes)
    finally:
        for path, (block, name, _) in model._states.items():
            setattr(block, name, held[path])
    if recorder.names is not None and recorder.names - recorder.found:
        missing = ", ".join(f"`{name}`" for name in sorted(recorder.names - recorder.found))
        raise InputError(f"nothing in `{entry}` is called {missing}")
    from linnet.torch.module import plain

    kept = {name: plain(value) for name, value in recorder.values.items()}
    return Trace(target.outward(result, target.instance.result), kept)


def _evaluate(
    model: Model, id: str, values: list[Any], dims: dict[str, int], recorder: Recorder, target: Any
) -> Any:
    class Watched(Evaluator):
        def call(self, instance: Any, block: Block | None, args: list[Any], sizes: Any) -> Any:
            result = super().call(instance, block, args, sizes)
            if block is not None and block is not model.root:
                recorder(block, None, result, args)
            return result

    evaluator = Watched(model.bound, model.device, recorder)
    args = [target.carrier(v, t) for v, t in zip(values, target.signature.types, strict=True)]
    try:
        return evaluator.call(model.bound.functions[id], model.root, args, dims)
    finally:
        evaluator.journal = {}
