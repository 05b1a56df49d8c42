"""Snapshots kept in a folder across a restart: `snapshots.json`, and a safetensors file in
`snapshots/`.

The JSON has the tree (each node's parent, its tokens, what of it stands in the file), a checksum
of the file, and a fingerprint of the model: its dtypes and shapes and a sample of every parameter.
Snapshots of another model are not read, nor is a file that was damaged. Nothing in either file is
executed.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zlib
from collections.abc import Callable, Iterator
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from linnet.errors import Error, InputError
from linnet.serve.layout import BATCH, CONTEXT
from linnet.serve.prefix import Node, PrefixCache
from linnet.torch import dtypes

VERSION = 2
INDEX = "snapshots.json"
DATA = "snapshots"  # a folder of its own: the user's may hold a checkpoint of the same name


def fingerprint(model: Any) -> str:
    """Changes with the weights, the program's parameters and states, and the numerics."""
    digest = hashlib.blake2b(digest_size=16)
    generics = {k: v for k, v in model.generics.items() if k not in (BATCH, CONTEXT)}
    digest.update(repr((VERSION, sorted(generics.items()), model.numerics)).encode())
    if model.caches:
        digest.update(repr(sorted(model.caches)).encode())
    for path, tensor in model.state_dict().items():
        packed = getattr(tensor, "packed", None)  # sampled as it lies: opening it takes memory
        flat = (tensor if packed is None else packed[1]).detach().reshape(-1)
        sample = flat[:: max(1, flat.numel() // 256)][:300].cpu().contiguous()
        digest.update(repr((path, tuple(tensor.shape), str(tensor.dtype))).encode())
        digest.update(sample.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def prepare(folder: Path) -> None:
    """Makes the folder. Raises InputError where nothing can be kept in it: said before anything
    is served, not when it ends."""
    try:
        (folder / DATA).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder), tempfile.TemporaryFile(dir=folder / DATA):
            pass
    except OSError as e:
        raise InputError(
            f"{folder}: snapshots cannot be written there: {e.strerror or e}"
        ) from None


def write(cache: PrefixCache, model: Any, folder: Path) -> None:
    """Writes the tree, replacing what stood there. Raises InputError where it cannot."""
    from linnet.weights.safetensors import save

    nodes = list(cache.nodes())
    numbers = {id(node): i for i, node in enumerate(nodes)}
    listed = [
        {
            "parent": numbers.get(id(node.parent)),
            "tokens": list(node.tokens),
            "recurrent": node.recurrent is not None,
            "logits": node.logits is not None,
            "used": [node.used, node.revived],
            "weak": node.weak,
        }
        for node in nodes
    ]

    def items() -> Iterator[tuple[str, str, tuple[int, ...], Any]]:
        for i, node in enumerate(nodes):
            for name, tensor in _tensors(node):
                yield f"{i}.{name}", dtypes.NAMES[tensor.dtype], tuple(tensor.shape), _raw(tensor)

    try:
        folder.mkdir(parents=True, exist_ok=True)
        index = folder / INDEX
        index.unlink(missing_ok=True)  # without it what stands beside it counts for nothing
        files = save(folder / DATA, items(), shard_bytes=1 << 50) if nodes else []
        about = {
            "version": VERSION,
            "model": fingerprint(model),
            "file": files[0].name if files else None,
            "checksum": _checksum(files[0]) if files else 0,
            "nodes": listed,
        }
        fresh = folder / f"{INDEX}.new"
        fresh.write_text(json.dumps(about))
        os.replace(fresh, index)
    except OSError as e:
        raise InputError(f"{folder}: snapshots cannot be written: {e}") from None


def read(
    cache: PrefixCache, model: Any, folder: Path, say: Callable[[str], None] = lambda line: None
) -> int:
    """Takes in what the folder holds for this model, as far as the budget goes; returns how many
    nodes. What cannot be read is left out, which `say` is told."""
    from linnet.weights.checkpoint import open_checkpoint

    if not (folder / INDEX).exists():
        return 0
    made: list[Node | None] = []
    latest = 0
    try:
        about = json.loads((folder / INDEX).read_text())
        if about["version"] != VERSION or about["model"] != fingerprint(model):
            say(f"{folder}: the snapshots are of another model or version, and left out")
            return 0
        if about["file"] is None:
            return 0
        path = folder / DATA / Path(about["file"]).name
        if _checksum(path) != about["checksum"]:
            raise InputError(f"{path.name} is not as it was written")
        with open_checkpoint(path) as checkpoint:
            for i, entry in enumerate(about["nodes"]):
                node = _node(cache, model, checkpoint, made, i, entry)
                made.append(node)
                if node is not None:
                    latest = max(latest, node.used, node.revived)
    # RuntimeError: torch's, of bytes that are too few for their shape.
    except (OSError, ValueError, LookupError, TypeError, RuntimeError, RecursionError, Error) as e:
        cache.clear()
        say(f"{folder}: the snapshots are damaged, and left out: {e}")
        return 0
    cache.resume(latest)
    count = sum(node is not None for node in made)
    say(f"{count} snapshots taken in from {folder}")
    return count


def _checksum(path: Path) -> int:
    """Finds damage, not malice."""
    found = 0
    with path.open("rb") as file:
        while part := file.read(1 << 20):
            found = zlib.crc32(part, found)
    return found


def _node(
    cache: PrefixCache, model: Any, checkpoint: Any, made: list[Node | None], i: int, entry: Any
) -> Node | None:
    layout = cache.layout
    tokens = tuple(int(t) for t in entry["tokens"])
    parent = cache.root if entry["parent"] is None else made[entry["parent"]]
    if parent is None or not tokens or tokens[0] in parent.children:
        return None
    declared = {p.path: p.dtype for p in model.manifest if p.kind == "state"}
    need = len(tokens) * layout.position_bytes
    if cache.bytes + need + layout.recurrent_bytes > cache.budget:
        return None

    def tensor(name: str, dtype: str, shape: tuple[int, ...]) -> Tensor:
        raw = checkpoint.read(f"{i}.{name}")
        value = torch.frombuffer(bytearray(raw), dtype=dtypes.STORAGE[dtype]).view(shape)
        return dtypes.to_carrier(value, dtype).to(model.device)

    def form(path: str) -> tuple[str, list[int]]:
        shape, _ = model.state_form(path)
        return "u8" if path in model.caches else declared[path], shape[1:]

    segment: list[Tensor] = []
    for j, (path, axis) in enumerate(layout.positional.items()):
        dtype, shape = form(path)
        shape[axis] = len(tokens)
        segment.append(tensor(f"s{j}", dtype, tuple(shape)))
    node = cache.attach(parent, tokens, tuple(segment))
    if entry["recurrent"]:
        node.recurrent = tuple(
            tensor(f"r{j}", form(path)[0], tuple(form(path)[1]))
            for j, path in enumerate(layout.recurrent)
        )
        cache.bytes += layout.recurrent_bytes
    if entry["logits"]:
        count = prod(checkpoint.tensors[f"{i}.logits"].shape)
        node.logits = tensor("logits", "f32", (count,))
        cache.bytes += 4 * count
    node.used, node.revived = (int(t) for t in entry["used"])
    node.weak = bool(entry["weak"])
    return node


def _tensors(node: Node) -> Iterator[tuple[str, Tensor]]:
    for j, tensor in enumerate(node.segment):
        yield f"s{j}", tensor
    for j, tensor in enumerate(node.recurrent or ()):
        yield f"r{j}", tensor
    if node.logits is not None:
        yield "logits", node.logits


def _raw(tensor: Tensor) -> Any:
    def read_bytes() -> Any:
        held = tensor.cpu().contiguous()
        return held.view(torch.uint8).reshape(-1).numpy().data if held.numel() else b""

    return read_bytes
