"""Which module of the reference each of our blocks is: the one that holds the same tensors."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from linnet.torch.parity.reference import Reference


def map_blocks(
    paths: Mapping[str, str], values: Mapping[str, Tensor], reference: Reference
) -> dict[str, str]:
    """Block path → module name. `paths` maps our parameters to the checkpoint's tensors, `values`
    to what they hold.

    Tensors are found through the bindings, by name; where the reference keeps them under another
    prefix, by the longest end of the name that only one of its tensors has; and where it renames
    them, by their values. Blocks with the same
    tensors (a head tied to the embedding) take the modules in turn, equal names first. A block
    without tensors, or whose tensors are no one module's, has no counterpart.
    """
    ends = _ends(reference)
    prints: dict[Print, set[int]] = {}
    for name, tensor in reference.values.items():
        prints.setdefault(_print(tensor), set()).add(reference.tensors[name])
    held: dict[str, set[int]] = {}
    for path, name in paths.items():
        storage = _find(name, ends, reference)
        if storage is None:
            same = prints.get(_print(values[path]), set())
            storage = next(iter(same)) if len(same) == 1 else None
        parts = path.split(".")
        for length in range(1, len(parts)):
            block = ".".join(parts[:length])
            held.setdefault(block, set()).add(-1 if storage is None else storage)
    modules: dict[frozenset[int], list[str]] = {}
    for name, storages in reference.modules().items():
        if name:
            modules.setdefault(storages, []).append(name)
    result: dict[str, str] = {}
    taken: set[str] = set()
    # Longer paths first: a wrapper with the same tensors as its one part comes after it.
    for exact in (True, False):
        for block, found in sorted(held.items(), key=lambda item: -item[0].count(".")):
            if block in result or -1 in found:
                continue
            free = [name for name in modules.get(frozenset(found), []) if name not in taken]
            last = block.rpartition(".")[2]
            if exact:
                free = [name for name in free if name.rpartition(".")[2] == last]
            if free:
                result[block] = max(free, key=lambda name: name.count("."))
                taken.add(result[block])
    return result


Print = tuple[tuple[int, ...], tuple[float, ...]]


def _print(tensor: Tensor) -> Print:
    """Shape and a few elements: enough to tell trained weights apart."""
    flat = tensor.detach().reshape(-1)
    step = max(1, flat.numel() // 32)
    return tuple(tensor.shape), tuple(flat[::step][:33].float().tolist())


def _ends(reference: Reference) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for name, storage in reference.tensors.items():
        parts = name.split(".")
        for start in range(len(parts)):
            found.setdefault(".".join(parts[start:]), set()).add(storage)
    return found


def _find(tensor: str, ends: Mapping[str, set[int]], reference: Reference) -> int | None:
    if tensor in reference.tensors:
        return reference.tensors[tensor]
    parts = tensor.split(".")
    for start in range(len(parts)):
        found = ends.get(".".join(parts[start:]), set())
        if len(found) == 1:
            return next(iter(found))
    return None
