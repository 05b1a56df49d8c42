"""What a call costs at least: operations of its products, bytes that it must read and write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from linnet.ir.cost import product_operations
from linnet.ir.memory import Stored, free_sizes, storage
from linnet.weights.choice import pattern

if TYPE_CHECKING:
    from linnet.torch.module import Model


def prompt_operations(model: Model, entry: str, sizes: dict[str, int]) -> int:
    """Operations of the products with weights of one call (see `linnet.ir.cost`)."""
    return product_operations(model.bound, entry, sizes)


def token_bytes(model: Model, position: int, batch: int = 1) -> int:
    """Bytes that a decoded token reads and writes, as the weights are kept in memory.

    Every weight once, of an embedding the rows looked up, of experts those that `batch`
    independent rows choose on average, recurrent states both ways, caches up to `position`.
    """
    program, bound = model.bound.program, model.bound
    root = bound.kinds[bound.root].block
    if not root:
        return sum(_bytes(tensor) for tensor in model.state_dict().values())
    table = {s.path: s for s in storage(program, root)}
    sizes = {n: v for n, v in model.generics.items() if isinstance(v, int)}
    free = free_sizes(program, root) - {"Batch"}
    total = 0.0
    by_tensor: dict[int, float] = {}
    for path, tensor in model.state_dict().items():
        found = table.get(pattern(path))
        share = _share(found, sizes, batch) if found is not None else 1.0
        # A tied tensor is read once, as its busiest reader does.
        key = _address(tensor)
        by_tensor[key] = max(by_tensor.get(key, 0.0), share * _bytes(tensor))
    total += sum(by_tensor.values())
    longest = max((sizes[n] for n in free if n in sizes), default=0)
    for path in model.state:
        found = table.get(pattern(path))
        grows = found is not None and bool(found.elements.names() & free)
        size = model.state_bytes(path)
        total += size * min(1.0, position / longest) if grows and longest else 2 * size
    return int(total)


def _share(stored: Stored, sizes: dict[str, int], batch: int) -> float:
    if stored.packs == "embedding":
        return min(1.0, batch / max(1, stored.shape[0].evaluate(sizes)))
    active, of = stored.active.evaluate(sizes), max(1, stored.of.evaluate(sizes))
    return 1.0 - (1.0 - min(1.0, active / of)) ** batch


def _bytes(tensor: Any) -> int:
    """As kept: a packed weight is dense to whoever asks for its elements."""
    packed = getattr(tensor, "bytes", None)
    return int(packed) if isinstance(packed, int) else tensor.numel() * tensor.element_size()


def _address(tensor: Any) -> int:
    packed = getattr(tensor, "packed", None)
    return int(packed[1].data_ptr() if packed is not None else tensor.data_ptr())
