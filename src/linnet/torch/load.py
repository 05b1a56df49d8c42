"""`linnet.load`: from a name, folder or file, through checking and binding, to a Model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from linnet.check.path import check_path
from linnet.errors import BackendError, BindError, InputError, WeightsError
from linnet.ir.caches import FORMATS as CACHES
from linnet.ir.caches import float_cache, row_bytes
from linnet.ir.manifest import Parameter, manifest, root_block
from linnet.ir.memory import storage
from linnet.ir.specialize import specialize
from linnet.nest.described import described
from linnet.torch import dtypes
from linnet.torch.module import NUMERICS, Model, Rebound
from linnet.torch.packed import PackedTensor
from linnet.torch.random import RandomWeights
from linnet.torch.shared import SharedCode
from linnet.weights.choice import FORMATS, Choice, pattern
from linnet.weights.quantize import quantize_tensor, quantize_values

if TYPE_CHECKING:
    from linnet.ir.program import Program
    from linnet.nest.card import Card
    from linnet.weights.checkpoint import Checkpoint
    from linnet.weights.packed import Packed
    from linnet.weights.plan import Entry, Plan

StrPath = str | PathLike[str]


def load(
    model: StrPath,
    *,
    program: Program | None = None,
    root: str | None = None,
    weights: StrPath | Sequence[StrPath] | None = None,
    bindings: StrPath | Mapping[str, str] | None = None,
    generics: Mapping[str, int | str | Sequence[int]] | None = None,
    device: str | torch.device = "cpu",
    numerics: str = "fast",
    quantize: str | None = None,
    embedding: int = 8,
    cache: str | None = None,
    cast: bool = False,
    trainable: bool = False,
    seed: int = 0,
    backend: str | None = None,
    resident: bool | None = None,
) -> Model:
    """Check a model, bind it to its generics and weights, and make its entries callable.

    `model` is a zoo name, a folder with a card or a package, a `.linnet` file, or a folder that
    `linnet quantize` wrote, which names its model. `program` is its checked program, where the
    caller has it already (`linnet.check`). `weights`
    is a folder, a file, a list of files, or "random" (with `seed`); default: what the card
    names. `bindings` maps parameter paths to tensor names; default: the card's, else the
    paths themselves. `generics` override the card's. `numerics` is "exact", "equivalent" or
    "fast". `cast` allows weights to be narrowed. `quantize` "int8" or "int4" packs linear,
    expert and embedding weights in groups along their rows; "stored" keeps those of a GGUF
    file in its own blocks. `embedding` are the bits of embeddings, and of heads of their shape,
    under "int4": 8 or 4. `cache` "int8" keeps keys and values in 8 bits with a scale for each
    position of a head. With `trainable` every entry is
    differentiable and states are replaced, never written in place. `backend` is "native" (C, on
    a CPU) or "torch"; default: native where the device, the policy and a C compiler allow.
    `resident` says whether weights that a file holds as they are wanted are read into memory
    (True) or stay mapped (False); default: read on a CPU where memory has room to spare, which
    `$LINNET_RESIDENT` (0 or 1) overrides.

    Raises PackageError, CardError, CheckError, BindError, WeightsError or BackendError.
    """
    if numerics not in NUMERICS:
        raise InputError(f"numerics: expected one of {', '.join(NUMERICS)}, found {numerics!r}")
    place = _device(device)
    if quantize is not None:
        _quantizable(quantize, trainable)
    if embedding not in (4, 8):
        raise InputError(f"embedding: expected 4 or 8 bits, found {embedding!r}")
    if cache is not None:
        _cacheable(cache, numerics, trainable)
    folder = described(Path(model))
    path, card = _open(folder.home() if folder else model)
    program = program or check_path(path)
    bound_generics: dict[str, Any] = dict(card.generics) if card else {}
    if folder is not None:
        bound_generics.update(folder.generics)
        root = root or folder.root
        weights = folder.weights if weights is None else weights
    block = _root(program, root or (card.root if card else None))
    bound_generics.update(generics or {})
    listed = manifest(program, block, bound_generics) if block else []
    choice = Choice(program, block, bound_generics, quantize, embedding)
    source = _Source(path, card, listed, weights, bindings, cast, seed, place, trainable, choice)
    present = source.present
    bound = specialize(program, block, bound_generics, present)
    there = manifest(program, block, bound_generics, present) if block else []
    made = Model(
        bound, there, device=place, numerics=numerics, trainable=trainable,
        name=card.name if card else path.stem, backend=backend,
        caches=_caches(program, block, there) if cache else frozenset(),
    )  # fmt: skip
    made.present = present
    source.fill(made, there)
    source.finish(resident)
    return made


def _device(device: str | torch.device) -> torch.device:
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise BackendError(f"device {device!r}: {str(error).splitlines()[0]}") from error
    if place.type == "cuda" and place.index is None:
        place = torch.device("cuda", torch.cuda.current_device())
    return place


def _open(model: StrPath) -> tuple[Path, Card | None]:
    from linnet.nest.card import has_card, read_card
    from linnet.nest.zoo import find_model

    path = find_model(model if isinstance(model, str) else Path(model))
    card = read_card(path) if path.is_dir() and has_card(path) else None
    return path, card


def _root(program: Program, name: str | None) -> str:
    """The root block's id; "" where a package has entries outside blocks and none inside."""
    if name is None and not any(program.entries(block) for block in program.blocks):
        free = [f for f in program.functions.values() if f.kind == "entry" and f.block is None]
        if free:
            return ""
    return root_block(program, name)


class _Source:
    """Where parameters come from: a checkpoint through its plan, random numbers, or nothing."""

    def __init__(
        self, path: Path, card: Card | None, listed: list[Parameter], weights: Any, bindings: Any,
        cast: bool, seed: int, device: torch.device, trainable: bool, choice: Choice,
    ):  # fmt: skip
        self.device, self.trainable, self.choice = device, trainable, choice
        self.checkpoint: Checkpoint | None = None
        self.plan: Plan | None = None
        self.random: RandomWeights | None = None
        self.present: frozenset[str] = frozenset()
        held = [p for p in listed if p.kind != "state"]
        if isinstance(weights, str) and weights == "random":
            self.random = RandomWeights(seed, device)
            return
        if not held:
            return
        from linnet.weights.bindings import read_bindings
        from linnet.weights.checkpoint import open_checkpoint
        from linnet.weights.importer_file import read_importer
        from linnet.weights.plan import plan

        if weights is None:
            weights = _weights_of(path, card)
        if bindings is None and card is not None:
            bindings = card.weights.bindings
        names = read_bindings(bindings)
        self.checkpoint = open_checkpoint(weights)
        rules = read_importer(card.weights.importer if card else None)
        self.checkpoint.adapt((names.get(p.path, p.path) for p in held), rules)
        self.plan = plan(listed, self.checkpoint, names, cast)
        self.present = self.plan.present

    def fill(self, model: Model, listed: list[Parameter]) -> None:
        if self.random is not None:
            for parameter in listed:
                if parameter.kind != "state":
                    made = self.random.make(parameter)
                    model.set_parameter(parameter.path, self.packed_from(made, parameter))
            return
        if self.plan is None or self.checkpoint is None:
            return
        for entry in self.plan.entries:
            tensor = self.tensor(entry)
            for path in entry.paths:
                model.set_parameter(path, tensor)
                model.tensor_names[path] = entry.tensor
        model.unused_tensors = self.plan.unused

    def finish(self, resident: bool | None) -> None:
        """Bring mapped weights in, where they are wanted so, and close the files."""
        if self.checkpoint is not None:
            if self.device.type == "cpu":
                self.checkpoint.bring_in(resident)
            self.checkpoint.close()

    def tensor(self, entry: Entry) -> Tensor:
        """One tensor of the checkpoint: the mapped file itself where the dtype is the same, or
        where it is packed there as it is wanted."""
        assert self.checkpoint is not None
        dtype = dtypes.STORAGE[entry.dtype]
        found = self.packed(entry)
        if found is not None:
            return PackedTensor(found, dtype, self.device)
        raw = self.checkpoint.read(entry.tensor, entry.dtype)
        if len(raw) == 0:
            return torch.empty(entry.shape, dtype=dtype, device=self.device)
        tensor = torch.frombuffer(raw, dtype=dtype).view(entry.shape)
        return tensor.to(self.device) if self.device.type != "cpu" else tensor

    def packed(self, entry: Entry) -> Packed | None:
        """The tensor in few bits, where the file has it so or `quantize` asks for it."""
        assert self.checkpoint is not None
        if self.trainable:
            return None
        if self.choice.keeps(entry.paths, entry.stored, entry.dtype):
            return self.checkpoint.packed(entry.tensor)
        kind = self.choice.format(entry.paths, entry.shape, entry.dtype)
        if kind is None:
            return None
        return quantize_tensor(self.checkpoint, entry.tensor, entry.shape, kind)

    def packed_from(self, made: Tensor, parameter: Parameter) -> Tensor:
        """A tensor of random numbers, packed where `quantize` asks for it."""
        kind = self.choice.format((parameter.path,), parameter.shape, parameter.dtype)
        if kind is None:
            return made
        found = quantize_values(_array(made), parameter.shape, kind)
        return PackedTensor(found, made.dtype, self.device)


def _array(tensor: Tensor) -> Any:
    """Rows of any float tensor, as f32 arrays made when they are asked for."""
    flat = tensor.reshape(-1, tensor.shape[-1])
    return lambda start, stop: flat[start:stop].float().cpu().numpy()


def _quantizable(quantize: str, trainable: bool) -> None:
    if quantize not in FORMATS:
        raise InputError(f"quantize: expected one of {', '.join(FORMATS)}, found {quantize!r}")
    if trainable:
        raise BackendError("quantize: packed weights have no gradients; load without trainable")


def _cacheable(cache: str, numerics: str, trainable: bool) -> None:
    if cache not in CACHES:
        raise InputError(f"cache: expected one of {', '.join(CACHES)}, found {cache!r}")
    if trainable:
        raise BackendError("cache: caches in few bits have no gradients; load without trainable")
    if numerics == "exact":
        raise BackendError('cache: caches in few bits are not exact; use numerics "fast"')


def _caches(program: Program, root: str, listed: list[Parameter]) -> frozenset[str]:
    """The states to be kept in 8 bits. Raises InputError where a model has none."""
    kept = {s.path for s in storage(program, root) if s.packs == "cache"} if root else set()
    found = frozenset(
        p.path
        for p in listed
        if p.kind == "state"
        and pattern(p.path) in kept
        and float_cache(p.dtype)
        and row_bytes(p.shape[-1])
    )
    if not found:
        raise InputError(
            "cache: the model has no caches of keys and values that are written through "
            "`std.nn.cache` and read by attention alone"
        )
    return found


def _weights_of(path: Path, card: Card | None) -> Any:
    if card is None:
        raise WeightsError(
            f"{path}: no weights given, and there is no card that names any: pass weights= a "
            'folder or file, or weights="random"'
        )
    from linnet.nest.fetch import get_weights

    return get_weights(card)


def rebind_model(
    model: Model, generics: Mapping[str, int | str | Sequence[int]], free: Sequence[str] = ()
) -> Model:
    """The same weights under other generics, such as another `Batch` or `MaxSeq`.

    Parameters and buffers are shared, not copied; states are the new model's own. Code compiled
    for the same generics before is used again, and for any values of the dimensions `free`
    (see `Model.rebind`). Raises BindError where the generics do not fit
    the program or change a parameter's shape or dtype.
    """
    values: dict[str, Any] = {**model.generics, **generics}
    key = tuple(sorted((name, repr(value)) for name, value in values.items()))
    known = model.rebound.get(key)
    if known is None:
        kind = model.bound.kinds[model.bound.root]
        program = model.bound.program
        bound = specialize(program, kind.block, values, model.present)
        there = manifest(program, kind.block, values, model.present)
        before = {p.path: p for p in model.manifest if p.kind != "state"}
        for p in there:
            if p.kind != "state" and before.get(p.path) != p:
                changed = ", ".join(f"{n} = {v}" for n, v in generics.items())
                raise BindError(
                    f"`{p.path}` would be another parameter with {changed}: only generics that "
                    "leave the parameters as they are can be bound anew"
                )
    else:
        bound, there = known.bound, known.manifest
    made = Model(
        bound, there, device=model.device, numerics=model.numerics, trainable=model.trainable,
        name=model.name, backend=model.native.backend, caches=model.caches,
    )  # fmt: skip
    if known is None:
        model.rebound[key] = Rebound(bound, there, made.compiler)
    else:
        made.compiler = known.compiler
    made.rebound = model.rebound
    made.open_code = model.open_code
    made.native.dense = model.native.dense
    if free:
        closed = tuple((name, "" if name in free else value) for name, value in key)
        shared = model.open_code.setdefault(closed, SharedCode(tuple(free)))
        made.native.shared = shared
    made.present = model.present
    made.tensor_names = dict(model.tensor_names)
    made.unused_tensors = model.unused_tensors
    for path, (block, name, _) in made._params.items():
        owner, held, _ = model._params[path]
        setattr(block, name, getattr(owner, held))
    return made


def save_model(model: Model, folder: StrPath, shard_bytes: int = 5_000_000_000) -> list[Path]:
    """Safetensors under the checkpoint's names, a tied tensor once; atomic, in shards.

    Raises InputError for a folder that `linnet quantize` wrote: what it says of its weights would
    not be so any more.
    """
    from linnet.nest.described import FILE
    from linnet.weights.safetensors import save

    if (Path(folder) / FILE).exists():
        raise InputError(
            f"{Path(folder) / FILE}: the folder's weights are what `linnet quantize` wrote; "
            "expected another folder to save to"
        )

    def items() -> Iterator[tuple[str, str, tuple[int, ...], Any]]:
        seen: dict[int, str] = {}
        for path, (block, name, member) in model._params.items():
            held: Tensor = getattr(block, name)
            tensor_name = model.tensor_names.get(path, path)
            if seen.get(id(held)) == tensor_name:
                continue
            seen[id(held)] = tensor_name
            dtype = member.dtype
            yield tensor_name, dtype, tuple(held.shape), _raw(held, dtype)

    return save(Path(folder), items(), shard_bytes=shard_bytes)


def _raw(held: Tensor, dtype: str) -> Any:
    def read() -> Any:
        tensor = dtypes.from_carrier(held.detach(), dtype).cpu().contiguous()
        if tensor.numel() == 0:
            return b""
        flat: Any = tensor.reshape(-1).view(torch.uint8).numpy()
        return memoryview(flat)

    return read
