"""Caches of keys and values in 8 bits: dense to whoever reads them, bytes in memory.

A position of a head is its width in signed bytes and then an f32 scale, the largest magnitude over
127 (`linnet.ir.caches` says which states are kept so). The bytes are one u8 tensor with the axes of
the state, its last one longer by the scale: whoever copies, cuts or moves rows and positions of
states (the server's rows, its snapshots) does to it what he does to any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from linnet.ir.caches import SCALE, row_bytes
from linnet.torch.pages import check_room


class CacheTensor(torch.Tensor):
    """A state `[…, positions, D]` of a float dtype, kept as `held`, u8 `[…, positions, D + 4]`.

    `packed` is (kind, data, None, None, D) as `linnet.native` binds it.
    """

    held: Tensor
    packed: tuple[str, Tensor, None, None, int]

    @staticmethod
    def __new__(cls, held: Tensor, dtype: torch.dtype) -> CacheTensor:
        shape = (*held.shape[:-1], held.shape[-1] - SCALE)
        made: CacheTensor = torch.Tensor._make_wrapper_subclass(
            cls, shape, dtype=dtype, device=held.device
        )
        return made

    def __init__(self, held: Tensor, dtype: torch.dtype):
        self.held = held
        self.packed = ("cache8", held, None, None, held.shape[-1] - SCALE)

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"CacheTensor({list(self.shape)}, {self.dtype})"

    def dense(self) -> Tensor:
        return unpack(self.held, self.dtype)

    def rows(self, value: Tensor) -> Tensor:
        """What a value becomes in the cache: bytes with its axes."""
        return pack(value)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Positions that are cut out are the only ones that are opened."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        first = args[0] if args else None
        if name in _ABOUT:
            return super().__torch_function__(func, types, args, kwargs)
        if isinstance(first, CacheTensor):
            if name == "detach":
                return first
            if name == "clone" and not kwargs:
                return CacheTensor(first.held.clone(), first.dtype)
            if name == "to" and args[1:] == (first.dtype,) and not kwargs:
                return first
            cut = _cut(first, name, args[1:])
            if cut is not None:
                return unpack(cut, first.dtype)
        with torch._C.DisableTorchFunctionSubclass():
            return func(*_opened(args), **{k: _opened(v) for k, v in kwargs.items()})

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten.detach.default:
            return args[0]
        return func(*_opened(args), **{k: _opened(v) for k, v in (kwargs or {}).items()})


# What asks about a tensor without reading its values.
_ABOUT = {
    "__get__", "__len__", "dim", "ndimension", "size", "numel", "nelement", "element_size",
    "stride", "is_contiguous", "is_floating_point", "is_inference", "is_complex", "storage_offset",
    "get_device", "__repr__", "__hash__",
}  # fmt: skip


def _cut(cache: CacheTensor, name: str, args: Sequence[Any]) -> Tensor | None:
    """The bytes of a part along any axis but the last, which holds the scales."""
    last = cache.dim() - 1
    if name == "narrow" and len(args) == 3 and args[0] % cache.dim() != last:
        return cache.held.narrow(*args)
    if name == "__getitem__":
        index = args[0] if isinstance(args[0], tuple) else (args[0],)
        if len(index) <= last and all(isinstance(i, (int, slice)) for i in index):
            found: Tensor = cache.held[index]
            return found
    return None


def _opened(x: Any) -> Any:
    if isinstance(x, CacheTensor):
        return x.dense()
    return type(x)(_opened(y) for y in x) if type(x) in (list, tuple) else x


def pack(value: Tensor) -> Tensor:
    """`[…, D]` to u8 `[…, D + 4]`. What is not finite makes its own position not finite."""
    x = value.float()
    scale = x.abs().amax(-1, keepdim=True) / 127
    inverse = torch.where(scale > 0, 1 / scale, 0)
    q = (x * inverse).round_().clamp_(-127, 127).nan_to_num_(0).to(torch.int8)
    return torch.cat([q.view(torch.uint8), scale.view(torch.uint8)], -1)


def unpack(held: Tensor, dtype: torch.dtype) -> Tensor:
    width = held.shape[-1] - SCALE
    q = held[..., :width].view(torch.int8).float()
    scale = held[..., width:].contiguous().view(torch.float32)
    return (q * scale).to(dtype)


def zeros(shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> CacheTensor:
    """An empty cache. Raises RuntimeError where memory lacks."""
    each = row_bytes(shape[-1])
    assert each is not None
    if device.type == "cpu":
        check_room(prod(shape[:-1]) * each)
    held = torch.zeros((*shape[:-1], each), dtype=torch.uint8, device=device)
    return CacheTensor(held, dtype)


def raw(state: Tensor) -> Tensor:
    """The tensor that holds a state's memory."""
    return state.held if isinstance(state, CacheTensor) else state


def opened(cache: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """The two sides of a write: the memory written to, and what is written there."""
    if isinstance(cache, CacheTensor):
        return cache.held, pack(value)
    return cache, value
