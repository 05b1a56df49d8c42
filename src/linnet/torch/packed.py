"""Packed weights as torch tensors: dense to whoever reads them, small in memory.

The native backend takes the parts through `packed`. Every torch operation sees the values: the
rows that it asks for where it picks rows, the whole weight otherwise, made anew each time.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch import Tensor

from linnet.errors import InputError
from linnet.weights.packed import BLOCKS, Packed, unpack_rows

CPU = torch.device("cpu")


class PackedTensor(torch.Tensor):
    """A weight `[…, In]` of a float dtype whose storage is packed. Never written to.

    `packed` is (kind, data, scale or None, zero or None, group) as `linnet.native` binds them.
    """

    packed: tuple[str, Tensor, Tensor | None, Tensor | None, int]
    source: Packed

    @staticmethod
    def __new__(
        cls, source: Packed, dtype: torch.dtype, device: torch.device = CPU
    ) -> PackedTensor:
        made: PackedTensor = torch.Tensor._make_wrapper_subclass(
            cls, source.shape, dtype=dtype, device=device
        )
        return made

    def __init__(self, source: Packed, dtype: torch.dtype, device: torch.device = CPU):
        self.source = source
        data = torch.frombuffer(source.data, dtype=torch.uint8)
        scale = None
        if source.scale is not None:
            scale = torch.frombuffer(source.scale, dtype=torch.float32)
        if device != CPU:
            data, scale = data.to(device), scale.to(device) if scale is not None else None
        self.packed = (source.kind, data, scale, None, source.group)

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"PackedTensor({self.source.kind}, {list(self.shape)}, {self.dtype})"

    @property
    def bytes(self) -> int:
        """Bytes as kept."""
        return self.source.nbytes

    def rows(self, start: int, stop: int) -> Tensor:
        """Rows of the weight seen as `[rows, In]`, dense."""
        kind, data, scale, _, group = self.packed
        width = self.shape[-1]
        if kind in BLOCKS:
            dense = torch.from_numpy(unpack_rows(self.source, start, stop))
            return dense.to(self.device, self.dtype)
        assert scale is not None
        count = width // group
        return _values(
            kind,
            data.view(self.source.rows, -1)[start:stop],
            scale.view(-1, count)[start:stop],
            group,
        ).to(self.dtype)

    def pick(self, ids: Tensor) -> Tensor:
        """Rows of a matrix by their numbers: `[…, In]`."""
        kind, data, scale, _, group = self.packed
        flat = ids.reshape(-1).long()
        if kind in BLOCKS:
            unique, back = torch.unique(flat, return_inverse=True)
            parts = [self.rows(i, i + 1) for i in unique.tolist()]
            found = torch.cat(parts)[back] if parts else self.rows(0, 0)
        else:
            assert scale is not None
            chosen = data.view(self.source.rows, -1)[flat]
            found = _values(kind, chosen, scale.view(self.source.rows, -1)[flat], group)
        return found.to(self.dtype).view(*ids.shape, self.shape[-1])

    def dense(self) -> Tensor:
        """All values in the tensor's dtype."""
        return self.rows(0, self.source.rows).view(self.shape)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Above autograd and inference mode, so that views of what is made here are ordinary."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        first = args[0] if args else None
        if isinstance(first, PackedTensor) and _writes(func, name):
            raise InputError(
                f"a weight packed as {first.source.kind} {list(first.shape)} is never written to "
                f"(found {name}): load the model without `quantize` to change its weights"
            )
        if name in _ABOUT:
            return super().__torch_function__(func, types, args, kwargs)
        if isinstance(first, PackedTensor):
            if name == "detach":
                return first
            if name == "to" and args[1:] == (first.dtype,) and not kwargs:
                return first
            if name == "__getitem__":
                found = first.item_at(args[1])
                if found is not None:
                    return found
            if name == "index_select" and first.dim() == 2 and args[1:2] == (0,):
                return first.pick(args[2])
        elif name == "embedding" and isinstance(args[1], PackedTensor) and len(args) == 2:
            return args[1].pick(args[0])
        with torch._C.DisableTorchFunctionSubclass():
            return func(*_opened(args), **{k: _opened(v) for k, v in kwargs.items()})

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """What reaches the dispatcher all the same."""
        if func is torch.ops.aten.detach.default:
            return args[0]
        return func(*_opened(args), **{k: _opened(v) for k, v in (kwargs or {}).items()})

    def item_at(self, index: Any) -> Tensor | None:
        """`self[index]` for one position or a tensor of row numbers; None for other indices."""
        if isinstance(index, int) and not isinstance(index, bool):
            if not -len(self) <= index < len(self):
                raise IndexError(f"index {index} of {len(self)}")
            at, each = index % len(self), prod(self.shape[1:-1])
            return self.rows(at * each, (at + 1) * each).view(self.shape[1:])
        if isinstance(index, tuple) and len(index) == 1:
            index = index[0]
        if isinstance(index, Tensor) and self.dim() == 2:
            if index.dtype in (torch.int32, torch.int64):
                return self.pick(torch.where(index < 0, index + len(self), index))
        return None


_IN_PLACE = {
    f"__i{name}__"
    for name in ("add", "sub", "mul", "truediv", "floordiv", "div", "mod", "pow", "and", "or",
                 "xor", "lshift", "rshift")
}  # fmt: skip
# What asks about a tensor without reading its values.
_ABOUT = {
    "__get__", "__len__", "dim", "ndimension", "size", "numel", "nelement", "element_size",
    "stride", "is_contiguous", "is_floating_point", "is_inference", "is_complex", "storage_offset",
    "get_device", "__repr__", "__hash__", "requires_grad_",
}  # fmt: skip


def _writes(func: Any, name: str) -> bool:
    """Whether a function changes its first argument: by torch's names."""
    if name == "__set__":
        return getattr(getattr(func, "__self__", None), "__name__", "") == "data"
    if name.startswith("__"):
        return name == "__setitem__" or name in _IN_PLACE
    return name.endswith("_") and name != "requires_grad_"


def _opened(x: Any) -> Any:
    if isinstance(x, PackedTensor):
        return x.dense()
    return type(x)(_opened(y) for y in x) if type(x) in (list, tuple) else x


def _values(kind: str, data: Tensor, scale: Tensor, group: int) -> Tensor:
    """f32 values of rows `[n, bytes]` with scales `[n, groups]`: `[n, In]`."""
    n = data.shape[0]
    if kind == "int8":
        q = data.view(torch.int8).view(n, -1, group).float()
    else:
        pairs = data.view(n, -1, group // 2)
        q = torch.cat([pairs & 15, pairs >> 4], -1).float().sub_(8)
    return q.mul_(scale.unsqueeze(-1)).view(n, -1)
