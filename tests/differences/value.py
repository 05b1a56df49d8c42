"""What a random program has at hand: named values with their types, and the sizes of its axes."""

from __future__ import annotations

from dataclasses import dataclass

INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS = ("f16", "bf16", "f32", "f64")
NUMERIC = (*INTEGERS, *FLOATS)
DTYPES = ("bool", *NUMERIC)
# Torch holds these in a wider dtype, and a model with members of them runs on torch alone.
WIDENED = ("u16", "u32", "u64")


@dataclass(frozen=True)
class Value:
    """`dims` are dimension expressions as the language writes them; none: a scalar.

    `exact`: every evaluator gives the same bits, so that it may decide something. `raw`: the
    name stands for a `var` or a state, which a later statement may change.
    """

    name: str
    dtype: str
    dims: tuple[str, ...] = ()
    exact: bool = True

    @property
    def type(self) -> str:
        return type_text(self.dtype, self.dims)


def type_text(dtype: str, dims: tuple[str, ...]) -> str:
    return f"Tensor[{', '.join(dims)}; {dtype}]" if dims else dtype


def limits(dtype: str) -> tuple[int, int]:
    bits = int(dtype[1:])
    return (0, 2**bits - 1) if dtype[0] == "u" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def size(dim: str, sizes: dict[str, int]) -> int:
    """A dimension expression at given sizes."""
    return int(eval(dim.replace("/", "//"), {"__builtins__": {}}, dict(sizes)))


def product(dims: tuple[str, ...] | list[str]) -> str:
    """The count of elements as an expression."""
    kept = [dim if dim.isalnum() else f"({dim})" for dim in dims if dim != "1"]
    return " * ".join(kept) or "1"
