"""Types of the checked program: shapes of dimensions, element types, aggregates.

A dtype is a string: a concrete name of `DTYPES`, or the name of a dtype generic.
A shape is a tuple of `Dim` and `Pack`. A tensor type without dimensions does not
exist: it is the scalar (`tensor()` sees to it).
"""

from __future__ import annotations

from linnet.dims import Dim
from linnet.record import dataclass

BITS = {
    "bool": 8, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "u8": 8, "u16": 16, "u32": 32,
    "u64": 64, "f16": 16, "bf16": 16, "f32": 32, "f64": 64,
}  # fmt: skip
DTYPES = frozenset(BITS)
FLOATS = frozenset({"f16", "bf16", "f32", "f64"})
SIGNED = frozenset({"i8", "i16", "i32", "i64"})
UNSIGNED = frozenset({"u8", "u16", "u32", "u64"})
INTEGERS = SIGNED | UNSIGNED
# What each dtype constraint of a generic allows.
CONSTRAINTS = {
    "DType": DTYPES,
    "Numeric": FLOATS | INTEGERS,
    "Integer": INTEGERS,
    "Float": FLOATS,
}


@dataclass(frozen=True, slots=True)
class Pack:
    """`*S`: any number of dimensions, bound at a call."""

    name: str

    def __str__(self) -> str:
        return f"*{self.name}"


Shape = tuple["Dim | Pack", ...]


class Type:
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class ScalarType(Type):
    dtype: str

    def __str__(self) -> str:
        return self.dtype


@dataclass(frozen=True, slots=True)
class TensorType(Type):
    shape: Shape
    dtype: str

    def __str__(self) -> str:
        return f"Tensor[{', '.join(map(str, self.shape))}; {self.dtype}]"


@dataclass(frozen=True, slots=True)
class OptionalType(Type):
    inner: Type

    def __str__(self) -> str:
        return f"{self.inner}?"


@dataclass(frozen=True, slots=True)
class TupleType(Type):
    items: tuple[Type, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.items))})"


@dataclass(frozen=True, slots=True)
class StructType(Type):
    """A nominal struct; its fields, substituted, in declaration order."""

    id: str  # "module::Name"
    generics: tuple[GenericArg, ...]
    fields: tuple[tuple[str, Type], ...]

    def __str__(self) -> str:
        name = self.id.rpartition("::")[2]
        return f"{name}{generics_text(self.generics)}"


@dataclass(frozen=True, slots=True)
class EnumType(Type):
    """An enum; a value of it is the position of its variant."""

    id: str
    variants: tuple[str, ...]

    def __str__(self) -> str:
        return self.id.rpartition("::")[2]


# An argument for a generic: a dimension, a dtype name, or a shape for a pack.
GenericArg = Dim | str | tuple  # tuple[Dim | Pack, ...]


@dataclass(frozen=True, slots=True)
class BlockRef:
    """A block with its generic arguments; the type of a `sub`."""

    id: str
    generics: tuple[GenericArg, ...]

    def __str__(self) -> str:
        return f"{self.id.rpartition('::')[2]}{generics_text(self.generics)}"


def generics_text(arguments: tuple[GenericArg, ...]) -> str:
    def one(argument: GenericArg) -> str:
        if isinstance(argument, tuple):
            return f"[{', '.join(map(str, argument))}]"
        return str(argument)

    return f"<{', '.join(map(one, arguments))}>" if arguments else ""


def tensor(shape: Shape, dtype: str) -> Type:
    """The tensor type, or the scalar where no dimension is left."""
    return TensorType(tuple(shape), dtype) if shape else ScalarType(dtype)


def shape_of(type: Type) -> Shape:
    return type.shape if isinstance(type, TensorType) else ()


def dtype_of(type: Type) -> str:
    assert isinstance(type, (TensorType, ScalarType)), type
    return type.dtype


Substitution = dict[str, GenericArg]


def substitute_dim(dim: Dim, mapping: Substitution) -> Dim:
    """Replace generics in a dimension. `*S` stands in it for the count of a pack."""
    dims: dict[str, Dim] = {}
    for name in dim.names():
        if name.startswith("*"):
            pack = mapping.get(name[1:])
            if isinstance(pack, tuple):
                dims[name] = count(pack)
        elif isinstance(argument := mapping.get(name), Dim):
            dims[name] = argument
    return dim.substitute(dims) if dims else dim


def substitute_shape(shape: Shape, mapping: Substitution) -> Shape:
    result: list[Dim | Pack] = []
    for item in shape:
        if isinstance(item, Pack):
            argument = mapping.get(item.name)
            result.extend(argument if isinstance(argument, tuple) else (item,))
        else:
            result.append(substitute_dim(item, mapping))
    return tuple(result)


def substitute_dtype(dtype: str, mapping: Substitution) -> str:
    argument = mapping.get(dtype)
    return argument if isinstance(argument, str) else dtype


def substitute_arg(argument: GenericArg, mapping: Substitution) -> GenericArg:
    if isinstance(argument, tuple):
        return substitute_shape(argument, mapping)
    if isinstance(argument, str):
        return substitute_dtype(argument, mapping)
    return substitute_dim(argument, mapping)


def substitute(type: Type, mapping: Substitution) -> Type:
    match type:
        case TensorType(shape, dtype):
            return tensor(substitute_shape(shape, mapping), substitute_dtype(dtype, mapping))
        case ScalarType(dtype):
            return ScalarType(substitute_dtype(dtype, mapping))
        case OptionalType(inner):
            return OptionalType(substitute(inner, mapping))
        case TupleType(items):
            return TupleType(tuple(substitute(item, mapping) for item in items))
        case StructType(id, generics, fields):
            return StructType(
                id,
                tuple(substitute_arg(argument, mapping) for argument in generics),
                tuple((name, substitute(field, mapping)) for name, field in fields),
            )
    return type


def count(shape: Shape) -> Dim:
    """The number of elements, a pack counted by the name `*S`."""
    result = Dim.const(1)
    for item in shape:
        result = result * (Dim.name(f"*{item.name}") if isinstance(item, Pack) else item)
    return result
