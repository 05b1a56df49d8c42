"""An entry's arguments: converted, moved, their shapes bound and their ranges checked.

Everything that can be wrong with an argument is an InputError that names it, what was found
and what was expected, raised before anything runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from linnet.dims import Fact
from linnet.errors import InputError
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
from linnet.torch.ranges import Ranges

if TYPE_CHECKING:
    from linnet.ir.bound import Instance

FEW = 64  # integers in a list
KEPT = 256  # sets of dimensions remembered for one entry
_INTEGERS = frozenset(d for d in dtypes.STORAGE if d[0] in "iu")


class Signature:
    """What one entry takes. `outer` binds the root's generics, `where` are the entry's facts."""

    def __init__(self, instance: Instance, outer: Mapping[str, int], device: torch.device):
        self.instance, self.device = instance, device
        self.name = instance.source.name
        self.names = [name for name, _ in instance.params]
        self.types = [type for _, type in instance.params]
        self.dims = instance.dims
        self.outer = dict(outer)
        self.where: tuple[Fact, ...] = instance.source.where
        self.defaults: tuple[Any, ...] = instance.source.defaults
        self.held: dict[tuple[int, ...], None] = {}  # dimensions at which the facts hold
        self.shapes: dict[tuple[int, ...], list[int]] = {}  # of a type of `types` at dimensions
        # By the dimensions, the least and greatest value of each argument that these ranges allow.
        self.limits: dict[tuple[int, ...], tuple[Ranges, dict[str, tuple[int, int]]]] = {}
        self.symbols: dict[int, list[str]] = {}  # a type of `types` → its dimensions' texts

    def bind(
        self, args: Sequence[Any], keywords: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, int]]:
        """Carriers in order, and the entry's own dimensions."""
        keywords = dict(keywords)
        for unknown in keywords:
            if unknown not in self.names and unknown not in self.dims:
                known = ", ".join(f"`{n}`" for n in [*self.names, *self.dims]) or "nothing"
                raise InputError(f"`{self.name}` has no argument `{unknown}`; it takes {known}")
        given = self.assemble(args, keywords)
        dims: dict[str, int] = {}
        for name in self.dims:
            if name in keywords:
                dims[name] = self.size(name, keywords.pop(name))
        values = [
            self.convert(name, type, value, dims)
            for name, type, value in zip(self.names, self.types, given, strict=True)
        ]
        unbound = [name for name in self.dims if name not in dims]
        if unbound:
            listed = ", ".join(f"`{name}`" for name in unbound)
            raise InputError(f"`{self.name}`: no shape binds {listed}: pass it as a keyword")
        for name, type, value in zip(self.names, self.types, values, strict=True):
            self.check_shape(name, type, value, dims)
        self.check_where(dims)
        return values, dims

    def assemble(self, args: Sequence[Any], keywords: dict[str, Any]) -> list[Any]:
        if len(args) > len(self.names):
            raise InputError(
                f"`{self.name}` takes {len(self.names)} arguments, {len(args)} were given"
            )
        given = dict(zip(self.names, args, strict=False))
        for name in self.names:
            if name in keywords:
                if name in given:
                    raise InputError(f"`{self.name}`: argument `{name}` is given twice")
                given[name] = keywords.pop(name)
        missing = [
            name
            for name, type in zip(self.names, self.types, strict=True)
            if name not in given and not isinstance(type, OptionalType)
        ]
        if missing:
            listed = ", ".join(f"`{name}`" for name in missing)
            raise InputError(f"`{self.name}` needs a value for {listed}")
        return [given.get(name) for name in self.names]

    def size(self, name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InputError(
                f"`{name}` is a dimension: expected an integer of at least 0, found {value!r}"
            )
        return value

    # --- Conversion -------------------------------------------------------------

    def convert(self, name: str, type: Type, value: Any, dims: dict[str, int]) -> Any:
        match type:
            case OptionalType(inner):
                return None if value is None else self.convert(name, inner, value, dims)
            case TupleType(items):
                if not isinstance(value, (tuple, list)) or len(value) != len(items):
                    raise InputError(f"`{name}`: expected a tuple of {len(items)} values")
                return tuple(
                    self.convert(f"{name}[{i}]", item, part, dims)
                    for i, (item, part) in enumerate(zip(items, value, strict=True))
                )
            case StructType(fields=fields):
                if not isinstance(value, Mapping) or set(value) != {n for n, _ in fields}:
                    wanted = ", ".join(f"`{n}`" for n, _ in fields)
                    raise InputError(f"`{name}`: expected a mapping with the fields {wanted}")
                return tuple(self.convert(f"{name}.{n}", t, value[n], dims) for n, t in fields)
            case EnumType(variants=variants):
                if value in variants:
                    return variants.index(value)
                raise InputError(
                    f"`{name}`: expected one of {', '.join(variants)}, found {value!r}"
                )
            case ScalarType(dtype):
                return self.scalar(name, dtype, value)
            case TensorType():
                return self.tensor(name, type, value, dims)
        raise AssertionError(type)

    def scalar(self, name: str, dtype: str, value: Any) -> Any:
        if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
            value = value.item()
        if dtype == "bool":
            if isinstance(value, bool):
                return value
        elif dtype in dtypes.FLOATS:
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                return dtypes.constant(value, dtype, self.device)
        elif isinstance(value, int) and not isinstance(value, bool):
            low, high = dtypes.limits(dtype)
            if not low <= value <= high:
                raise InputError(
                    f"`{name}`: {value} does not fit {dtype}, which holds {low} to {high}"
                )
            return value
        raise InputError(f"`{name}`: expected a scalar of {dtype}, found {describe(value)}")

    def tensor(self, name: str, type: TensorType, value: Any, dims: dict[str, int]) -> Tensor:
        if not isinstance(value, Tensor):
            if type.dtype in _INTEGERS and fits(value, len(type.shape), type.dtype):
                made = torch.tensor(value, dtype=dtypes.STORAGE[type.dtype], device=self.device)
                self.bind_dims(type, made, dims)
                return dtypes.to_carrier(made, type.dtype)
            value = self.converted(name, type, value)
        if value.layout is not torch.strided or value.is_meta:
            kind = "meta" if value.is_meta else str(value.layout).removeprefix("torch.")
            raise InputError(f"`{name}`: expected a dense tensor with values, found a {kind} one")
        if value.is_neg():
            value = value.resolve_neg()
        if value.dim() != len(type.shape):
            raise InputError(
                f"`{name}`: expected shape {self.shape_text(type)}, found {list(value.shape)}"
            )
        self.bind_dims(type, value, dims)
        return self.as_dtype(name, type.dtype, value)

    def bind_dims(self, type: TensorType, value: Tensor, dims: dict[str, int]) -> None:
        texts = self.symbols.get(id(type))
        if texts is None:
            texts = self.symbols[id(type)] = [str(dim) for dim in type.shape]
        for text, size in zip(texts, value.shape, strict=True):
            if text in self.dims and text not in dims:
                dims[text] = size

    def converted(self, name: str, type: TensorType, value: Any) -> Tensor:
        """What is no tensor as one, of the dtype that torch finds in it."""
        try:
            made = torch.as_tensor(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(
                f"`{name}`: expected a tensor {self.shape_text(type)} of {type.dtype}, "
                f"found {describe(value)}"
            ) from error
        if made.numel() == 0 or type.dtype in dtypes.FLOATS:
            return made.to(dtypes.STORAGE[type.dtype])
        return made

    def as_dtype(self, name: str, dtype: str, value: Tensor) -> Tensor:
        found = dtypes.NAMES.get(value.dtype, str(value.dtype))
        if found == dtype:
            held = value if value.device == self.device else value.to(self.device)
            return dtypes.to_carrier(held, dtype)
        if dtype in _INTEGERS and found in _INTEGERS:
            low, high = dtypes.limits(dtype)
            least, most = dtypes.limits(found)
            if (least < low or most > high) and value.numel():
                wide = value.to(torch.int64)
                for extreme in (int(wide.min()), int(wide.max())):
                    if not low <= extreme <= high:
                        raise InputError(f"`{name}`: {extreme} does not fit {dtype}")
            value = value.to(self.device)
            return dtypes.to_carrier(value.to(dtypes.STORAGE[dtype]), dtype)
        order = ("f16", "bf16", "f32", "f64")
        if dtype in order and found in order and order.index(dtype) > max(1, order.index(found)):
            return value.to(self.device).to(dtypes.CARRIER[dtype])  # widened: exact
        raise InputError(f"`{name}`: expected elements of {dtype}, found {found}")

    # --- Shapes and facts ----------------------------------------------------------

    def shape_text(self, type: TensorType) -> str:
        return f"[{', '.join(map(str, type.shape))}]"

    def check_shape(self, name: str, type: Type, value: Any, dims: dict[str, int]) -> None:
        if isinstance(type, OptionalType) and value is not None:
            self.check_shape(name, type.inner, value, dims)
        if isinstance(type, (TupleType, StructType)):
            items = type.items if isinstance(type, TupleType) else [t for _, t in type.fields]
            for item, part in zip(items, value, strict=True):
                self.check_shape(name, item, part, dims)
        if not isinstance(type, TensorType):
            return
        key = (id(type), *[dims[n] for n in self.dims])
        expected = self.shapes.get(key)
        if expected is None:
            expected = [dim.evaluate(dims) for dim in type.shape]  # type: ignore[union-attr]
            if len(self.shapes) >= KEPT:
                self.shapes.clear()
            self.shapes[key] = expected
        if expected != list(value.shape):
            text = self.shape_text(type)
            shown = "" if text == str(expected) else f" = {expected}"
            raise InputError(f"`{name}`: expected shape {text}{shown}, found {list(value.shape)}")

    def check_where(self, dims: Mapping[str, int]) -> None:
        key = tuple([dims[n] for n in self.dims])
        if not self.where or key in self.held:
            return
        values = {**self.outer, **dims}
        for fact in self.where:
            names = fact.left.names() | fact.right.names()
            if not names <= values.keys():
                continue
            a, b = fact.left.evaluate(values), fact.right.evaluate(values)
            if not _HOLDS[fact.op](a, b):
                at = ", ".join(f"{n} = {values[n]}" for n in sorted(names))
                raise InputError(f"`{self.name}` requires `{fact}`, which fails at {at}")
        if len(self.held) < KEPT:
            self.held[key] = None

    def check_ranges(self, ranges: Ranges, values: Sequence[Any], dims: Mapping[str, int]) -> bool:
        """The conditions that the entry's indices put on its integer arguments.

        True: an index that no element is computed of is outside, which only the reference
        evaluator has an eye for. Raises InputError for any other.
        """
        by_name = dict(zip(self.names, values, strict=True))
        key = tuple([dims[n] for n in self.dims])
        known = self.limits.get(key)
        if known is not None and known[0] is ranges:
            limits, beside = known[1], False
        else:
            limits, beside, fixed = self.limits_of(ranges, by_name, dims)
            if fixed:
                if len(self.limits) >= KEPT:
                    self.limits.clear()
                self.limits[key] = (ranges, limits)
        for name, (low, high) in limits.items():
            least, most = extremes(by_name[name])
            if least < low or most > high:
                found = least if least < low else most
                if low > high:
                    raise InputError(
                        f"`{name}`: no value fits `{self.name}`{sizes_text(dims)}: {REACHES}"
                    )
                expected = f"{low} to {high}"
                raise InputError(
                    f"`{name}`: {found} is out of range for `{self.name}`: expected {expected}"
                )
        for name in ranges.distinct:
            value = by_name[name]
            if isinstance(value, Tensor) and value.numel() > 1:
                listed = value.flatten().tolist()
                twice = next((x for x in listed if listed.count(x) > 1), None)
                if twice is not None:
                    raise InputError(f"`{name}`: {twice} is named twice; expected distinct values")
        return beside

    def limits_of(
        self, ranges: Ranges, by_name: Mapping[str, Any], dims: Mapping[str, int]
    ) -> tuple[dict[str, tuple[int, int]], bool, bool]:
        """The least and greatest value of each argument at these dimensions; what `check_ranges`
        returns; and whether that is so for all values of the arguments."""
        limits: dict[str, tuple[int, int]] = {}
        beside, fixed = False, True
        for condition in ranges.conditions:
            offset = condition.offset.evaluate(dims)
            if condition.sizes and any(size.evaluate(dims) == 0 for size in condition.sizes):
                least, most = (
                    (0, 0) if condition.argument is None else extremes(by_name[condition.argument])
                )
                extent = condition.extent
                fixed = False
                beside |= (
                    least + offset < 0
                    if extent is None
                    else (most + offset >= extent.evaluate(dims))
                )
                continue
            if condition.argument is None:
                extent = condition.extent
                if offset < 0 or (extent is not None and offset >= extent.evaluate(dims)):
                    raise InputError(f"`{self.name}`{sizes_text(dims)}: {REACHES}")
                continue
            low, high = limits.get(condition.argument, (-(2**63), 2**63 - 1))
            if condition.extent is None:
                low = max(low, -offset)
            else:
                high = min(high, condition.extent.evaluate(dims) - 1 - offset)
            limits[condition.argument] = (low, high)
        return limits, beside, fixed


REACHES = "an index reaches past its axis"


def sizes_text(dims: Mapping[str, int]) -> str:
    sizes = ", ".join(f"{n} = {size}" for n, size in dims.items())
    return f" at {sizes}" if sizes else ""


def extremes(value: Any) -> tuple[int, int]:
    """The least and greatest element; of no element, nothing that any range refuses."""
    if not isinstance(value, Tensor):
        return value, value
    if value.numel() == 0:
        return 0, -1
    if value.numel() == 1:
        only = int(value)
        return only, only
    low, high = torch.aminmax(value)
    return int(low), int(high)


def fits(value: Any, rank: int, dtype: str) -> bool:
    """Whether it is a list, nested `rank` deep, of a few integers that `dtype` holds: a step's
    tokens, which then need no second look. False says nothing."""
    items = [value]
    for _ in range(rank):
        if not all(type(item) is list for item in items):
            return False
        if len({len(item) for item in items}) > 1 or len(items) > FEW:
            return False
        items = [x for item in items for x in item]
    low, high = dtypes.limits(dtype)
    return 0 < len(items) <= FEW and all(type(x) is int and low <= x <= high for x in items)


def describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)} of {dtypes.NAMES.get(value.dtype, value.dtype)}"
    return f"{type(value).__name__} {value!r}"[:80]


_HOLDS: dict[str, Any] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}
