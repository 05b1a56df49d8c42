"""A loaded model: its parameters and states, and its entries as methods on torch tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from linnet.errors import BackendError, InputError
from linnet.ir.caches import row_bytes
from linnet.ir.manifest import Parameter
from linnet.ir.types import (
    EnumType,
    OptionalType,
    ScalarType,
    StructType,
    TensorType,
    TupleType,
    Type,
)
from linnet.torch import dtypes
from linnet.torch.arguments import Signature
from linnet.torch.block import Block, attribute, build, leaves
from linnet.torch.caches import CacheTensor, pack, raw, zeros
from linnet.torch.compile import Compiled, Compiler
from linnet.torch.evaluate import Evaluator
from linnet.torch.native import Native
from linnet.torch.pages import blank
from linnet.torch.ranges import Ranges, analyze
from linnet.torch.shared import SharedCode

if TYPE_CHECKING:
    from linnet.ir.bound import Bound, Instance
    from linnet.torch.slices import Slices
    from linnet.torch.trace import Trace

NUMERICS = ("exact", "equivalent", "fast")


class State(MutableMapping[str, Tensor]):
    """The live states by path. Reading allocates them; assigning copies into the model."""

    def __init__(self, model: Model):
        self._model = model

    def __getitem__(self, path: str) -> Tensor:
        block, name, _ = self._slot(path)
        self._model.allocate()
        held = getattr(block, name)
        if isinstance(held, CacheTensor):  # a copy: what is kept has no elements of this dtype
            return held.dense()
        return dtypes.from_carrier(held, self._dtype(path))

    def __setitem__(self, path: str, value: Any) -> None:
        block, name, member = self._slot(path)
        self._model.allocate()
        held: Tensor = getattr(block, name)
        value = torch.as_tensor(value, device=held.device)
        if value.shape != held.shape:
            raise InputError(
                f"state `{path}`: expected shape {list(held.shape)}, found {list(value.shape)}"
            )
        with torch.no_grad():
            value = dtypes.to_carrier(value, member.dtype)
            raw(held).copy_(pack(value) if isinstance(held, CacheTensor) else value)

    def __delitem__(self, path: str) -> None:
        raise TypeError("a model's states cannot be removed; reset_state() zeroes them")

    def __iter__(self) -> Iterator[str]:
        return iter(self._model._states)

    def __len__(self) -> int:
        return len(self._model._states)

    def _slot(self, path: str) -> tuple[Block, str, Any]:
        try:
            return self._model._states[path]
        except KeyError:
            raise KeyError(f"no state `{path}`") from None

    def _dtype(self, path: str) -> str:
        return str(self._model._states[path][2].type.dtype)


class Entry:
    """One entry, compiled when first called."""

    def __init__(self, model: Model, name: str):
        self.model, self.name = model, name
        self.instance: Instance = model.bound.functions[model.bound.entries[name]]
        outer = {
            key: value.constant
            for key, value in model.bound.kinds[model.bound.root].bindings.items()
            if hasattr(value, "constant") and value.constant is not None
        }
        self.signature = Signature(self.instance, outer, model.device)
        self.compiled: Compiled | None = None
        self._ranges: Ranges | None = None
        self.uses_state = bool(self.instance.reads or self.instance.writes)
        self.__doc__ = self.instance.source.doc

    def __repr__(self) -> str:
        params = ", ".join(f"{n}: {t}" for n, t in self.instance.params)
        return f"<entry {self.name}({params}) -> {self.instance.result}>"

    def ranges(self) -> Ranges:
        native = self.model.native
        if native.entry(self.name) is not None:
            return native.ranges[self.name]
        if self.model.numerics == "exact":
            if self._ranges is None:
                self._ranges = analyze(self.model.bound, self.instance.id)
            return self._ranges
        return self.code().ranges

    def code(self) -> Compiled:
        if self.compiled is None:
            self.compiled = self.model.compiler.compile(self.name)
        return self.compiled

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        model = self.model
        model.native.wake()
        values, dims = self.signature.bind(args, keywords)
        beside = self.signature.check_ranges(self.ranges(), values, dims)
        if self.uses_state:
            model.allocate()
        result = self.run(values, dims, beside)
        return self.outward(result, self.instance.result)

    def run(self, values: list[Any], dims: dict[str, int], by_reference: bool = False) -> Any:
        model = self.model
        native = None if by_reference else model.native.entry(self.name)
        if native is not None:
            result = model.native.run(native, values, dims)
            if result is not None:
                return result
        with model.mode():
            return self.run_torch(values, dims, by_reference)

    def run_torch(self, values: list[Any], dims: dict[str, int], by_reference: bool) -> Any:
        model = self.model
        if model.numerics == "exact" or by_reference:
            return self.reference(values, dims)
        code = self.code()
        args = [*values, *(dims[name] for name in self.instance.dims)]
        owner = [] if self.instance.kind is None else [model.root]
        if not code.functional or not self.instance.writes:
            try:
                return code.function(*owner, *args)
            except InputError as refused:
                return self.refused(refused, values, dims)
        held = {path: getattr(block, name) for path, (block, name, _) in model._states.items()}
        try:
            result = code.function(*owner, *args)
        except BaseException as error:
            for path, (block, name, _) in model._states.items():
                setattr(block, name, held[path])
            if isinstance(error, InputError):
                return self.refused(error, values, dims)
            raise
        with torch.inference_mode(False):
            for path, (block, name, _) in model._states.items():
                left = getattr(block, name)
                if isinstance(held[path], CacheTensor) and not isinstance(left, CacheTensor):
                    left = CacheTensor(pack(left), left.dtype)
                elif not isinstance(left, CacheTensor):
                    left = plain(left).contiguous()  # whoever writes in place counts on it
                setattr(block, name, left)
        return result

    def reference(self, values: list[Any], dims: dict[str, int]) -> Any:
        """The entry run by the reference evaluator."""
        model = self.model
        args = [self.carrier(v, t) for v, t in zip(values, self.signature.types, strict=True)]
        return Evaluator(model.bound, model.device).run(self.instance.id, model.root, args, dims)

    def refused(self, error: InputError, values: list[Any], dims: dict[str, int]) -> Any:
        """After compiled code refused an index or a divisor, with the states as they were.

        It looks at whole tensors, also where no element is computed of what it found: whether
        the call is wrong, and how, is for the reference to say, where it can read the weights.
        """
        model = self.model
        held = [getattr(block, name) for block, name, _ in model._params.values()]
        if model.caches or any(hasattr(x, "packed") for x in held):
            raise error
        return self.reference(values, dims)

    def carrier(self, value: Any, type: Type) -> Any:
        """A Python scalar as the evaluator holds it."""
        if isinstance(type, OptionalType):
            return None if value is None else self.carrier(value, type.inner)
        if isinstance(type, ScalarType) and not isinstance(value, Tensor):
            return dtypes.constant(value, type.dtype, self.model.device)
        return value

    def outward(self, value: Any, type: Type) -> Any:
        """A result as the caller sees it: tensors of the dtype's own torch type."""
        match type:
            case OptionalType(inner):
                return None if value is None else self.outward(value, inner)
            case TupleType(items):
                return tuple(self.outward(v, t) for v, t in zip(value, items, strict=True))
            case StructType(fields=fields):
                return {n: self.outward(v, t) for v, (n, t) in zip(value, fields, strict=True)}
            case EnumType(variants=variants):
                return variants[int(value)]
            case ScalarType(dtype) | TensorType(dtype=dtype):
                if not isinstance(value, Tensor):
                    value = dtypes.constant(value, dtype, self.model.device)
                return plain(dtypes.from_carrier(value, dtype))
        return value


def plain(x: Tensor) -> Tensor:
    """A tensor made under inference mode as an ordinary one, without a copy."""
    if not x.is_inference():
        return x
    if x.numel() == 0:
        return torch.empty(x.shape, dtype=x.dtype, device=x.device)
    return torch.from_dlpack(x.contiguous() if 0 in x.stride() else x)


class Rebound(NamedTuple):
    """What a model with other generics has in common with every other one of the same."""

    bound: Bound
    manifest: list[Parameter]
    compiler: Compiler


class Model:
    """What `linnet.load` returns. Every entry is a method: `model.forward(tokens)`.

    Entries take torch tensors, arrays or nested lists of any integer dtype for integer
    inputs, numbers for scalars; an entry's own dimensions follow from the shapes. A wrong
    argument raises InputError, and leaves every state as it was.
    """

    def __init__(
        self,
        bound: Bound,
        manifest: list[Parameter],
        *,
        device: str | torch.device = "cpu",
        numerics: str = "fast",
        trainable: bool = False,
        name: str = "model",
        backend: str | None = None,
        caches: frozenset[str] = frozenset(),
    ):
        """`caches` are the paths of states that are kept in 8 bits."""
        self.bound, self.manifest, self.name = bound, manifest, name
        self.caches = caches
        self.device = torch.device(device)
        self.numerics, self.trainable = numerics, trainable
        self.root, self._blocks = build(bound)
        self._paths = {id(block): path for path, _, block in self._blocks}
        self._params: dict[str, tuple[Block, str, Any]] = {}
        self._states: dict[str, tuple[Block, str, Any]] = {}
        for path, block, member in leaves(bound, self._blocks):
            if member.present:
                table = self._states if member.kind == "state" else self._params
                table[path] = (block, attribute(member.name), member)
        self._allocated = False
        self.compiler = Compiler(bound, numerics, self.device, trainable)
        self.native = Native(self, backend)
        self.entries: dict[str, Entry] = {name: Entry(self, name) for name in bound.entries}
        self.tensor_names: dict[str, str] = {}  # a parameter's path → its checkpoint name
        self.unused_tensors: tuple[str, ...] = ()
        self.present: frozenset[str] = frozenset()
        self.rebound: dict[tuple[tuple[str, str], ...], Rebound] = {}
        self.open_code: dict[tuple[tuple[str, str], ...], SharedCode] = {}

    def __repr__(self) -> str:
        return f"<linnet model {self.name}: {', '.join(self.entries)}>"

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.entries]

    def __getattr__(self, name: str) -> Any:
        entries = self.__dict__.get("entries", {})
        if name in entries:
            return entries[name]
        bound = self.__dict__.get("bound")
        if bound is not None and name in bound.deferred:
            raise BackendError(
                f"entry `{name}` has a dtype or shape of its own without a default: "
                "this version cannot call it"
            )
        known = ", ".join(entries)
        raise AttributeError(f"the model has no entry or attribute `{name}`; entries: {known}")

    @property
    def generics(self) -> dict[str, int | str]:
        """The root's generics as bound."""
        found: dict[str, int | str] = {}
        for name, value in self.bound.kinds[self.bound.root].bindings.items():
            found[name] = value if isinstance(value, str) else value.constant  # type: ignore
        return found

    def mode(self) -> AbstractContextManager[Any]:
        return torch.enable_grad() if self.grad() else torch.inference_mode()

    def grad(self) -> bool:
        return self.trainable and torch.is_grad_enabled()

    # --- Parameters -------------------------------------------------------------

    def set_parameter(self, path: str, tensor: Tensor) -> None:
        """Put a tensor of the declared shape and dtype in place; used while loading."""
        block, name, member = self._params[path]
        if self.trainable and tensor.is_floating_point() and member.kind == "param":
            tensor.requires_grad_(True)
        setattr(block, name, dtypes.to_carrier(tensor, member.dtype))

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        """(path, live tensor) of every param and buffer; a tied tensor under its first path."""
        seen: set[int] = set()
        for path, tensor in self.state_dict().items():
            if id(tensor) not in seen:
                seen.add(id(tensor))
                yield path, tensor

    def parameters(self) -> Iterator[Tensor]:
        return (tensor for _, tensor in self.named_parameters())

    def state_dict(self) -> dict[str, Tensor]:
        """Every param and buffer by its Linnet path; the live tensors."""
        return {
            path: dtypes.from_carrier(getattr(block, name), member.dtype)
            for path, (block, name, member) in self._params.items()
        }

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy values into the parameters named; raises InputError for a wrong path or shape."""
        for path, tensor in tensors.items():
            if path not in self._params:
                raise InputError(f"no parameter `{path}`")
            block, name, member = self._params[path]
            held: Tensor = getattr(block, name)
            if held.shape != tensor.shape:
                raise InputError(
                    f"`{path}`: expected shape {list(held.shape)}, found {list(tensor.shape)}"
                )
            if hasattr(held, "packed"):
                raise InputError(
                    f"`{path}` is packed as {held.packed[0]}, which is never written to: load the "
                    "model without `quantize` to change its weights"
                )
            with torch.no_grad():
                held.copy_(dtypes.to_carrier(tensor, member.dtype))

    # --- States -----------------------------------------------------------------

    @property
    def state(self) -> State:
        return State(self)

    def allocate(self) -> None:
        """Make the states, zero, where there are none yet."""
        if self._allocated:
            return
        made: list[tuple[Block, str, Tensor]] = []
        for path, (block, name, member) in self._states.items():
            shape = [dim.constant for dim in getattr(member.type, "shape", ())]
            dtype = dtypes.CARRIER[member.dtype]
            make = zeros if path in self.caches else blank
            try:
                made.append((block, name, make(shape, dtype=dtype, device=self.device)))
            except RuntimeError as error:
                raise BackendError(
                    f"state `{path}` {shape} of {member.dtype} does not fit the memory "
                    f"of {self.device}: bind a smaller Batch or MaxSeq"
                ) from error
        for block, name, tensor in made:
            setattr(block, name, tensor)
        self._allocated = True

    def use_state(self, tensors: Mapping[str, Tensor]) -> None:
        """Let every state live in the tensor given for its path, such as a view of another's.

        Raises InputError for a path that is missing and for another shape or dtype.
        """
        for path in self._states:
            shape, dtype = self.state_form(path)
            held = tensors.get(path)
            if held is None or list(held.shape) != shape or held.dtype != dtype:
                found = "nothing" if held is None else f"{list(held.shape)} of {held.dtype}"
                raise InputError(f"state `{path}`: expected {shape} of {dtype}, found {found}")
        for path, (block, name, member) in self._states.items():
            tensor = tensors[path]
            if path in self.caches:
                tensor = CacheTensor(tensor, dtypes.CARRIER[member.dtype])
            setattr(block, name, tensor)
        self._allocated = True

    def state_form(self, path: str) -> tuple[list[int], torch.dtype]:
        """The shape and dtype of the tensor that a state lives in, allocated or not."""
        member = self._states[path][2]
        shape = [dim.constant for dim in getattr(member.type, "shape", ())]
        if path in self.caches:
            return [*shape[:-1], row_bytes(shape[-1]) or 0], torch.uint8
        return shape, dtypes.CARRIER[member.dtype]

    def held_state(self) -> dict[str, Tensor]:
        """The tensors that the states live in now, in the dtype they are held in: for a cache in
        8 bits its bytes."""
        self.allocate()
        return {path: raw(getattr(block, name)) for path, (block, name, _) in self._states.items()}

    def state_bytes(self, path: str) -> int:
        """The bytes that a state takes, allocated or not."""
        shape, dtype = self.state_form(path)
        return prod(shape) * dtype.itemsize

    def rebind(
        self, generics: Mapping[str, int | str | Sequence[int]], free: Sequence[str] = ()
    ) -> Model:
        """This model's weights, shared, under other generics: another `Batch` or `MaxSeq`.

        Native code for it is shared by all models rebound with the same dimensions `free`,
        whatever their values are, where the program can be compiled so.
        """
        from linnet.torch.load import rebind_model

        return rebind_model(self, generics, free)

    def reset_state(self) -> None:
        """Every state zero again."""
        if not self._allocated:
            return
        for block, name, _ in self._states.values():
            held: Tensor = raw(getattr(block, name))
            if isinstance(getattr(block, name), CacheTensor):
                held.zero_()
            elif held.requires_grad or held.is_inference():
                setattr(block, name, torch.zeros_like(held, requires_grad=False))
            else:
                with torch.no_grad():
                    held.zero_()

    # --- More -------------------------------------------------------------------

    def trace(
        self, entry: str, *inputs: Any, names: Sequence[str] | None = None, **kw: Any
    ) -> Trace:
        """Run `entry` and return the values of named `let`s and of block results beside its
        result. `names` are `block.path.let`, a bare `let`, or the path of a block (its
        result); without it, every one. States are left as they were.
        """
        from linnet.torch.trace import run_traced

        return run_traced(self, entry, inputs, kw, names)

    def working(self, entry: str, *args: Any, **keywords: Any) -> int | None:
        """The bytes that such a call of `entry` needs while it runs, beside parameters, states,
        arguments and results; None where it runs on the torch backend. Nothing is computed."""
        native = self.native.entry(entry)
        if native is None:
            return None
        _, dims = self.entries[entry].signature.bind(args, keywords)
        return self.native.working(native, dims)

    def slices(self, entry: str, *args: Any, **keywords: Any) -> Slices:
        """A call of `entry` that is run a little at a time: `run(seconds)` until it is true, then
        `result`. Raises InputError as the entry does, and for a name that is no entry."""
        from linnet.torch.slices import Slices

        if entry not in self.entries:
            raise InputError(
                f"the model has no entry `{entry}`; entries: {', '.join(self.entries)}"
            )
        return Slices(self.entries[entry], args, keywords)

    def save(self, folder: str, **options: Any) -> list[Any]:
        """Write the parameters as safetensors under the checkpoint's names; returns the files."""
        from linnet.torch.load import save_model

        return save_model(self, folder, **options)

    def inspect_code(self, entry: str) -> str:
        """The generated source of one entry."""
        from linnet.torch.inspect import code

        return code(self, entry)
