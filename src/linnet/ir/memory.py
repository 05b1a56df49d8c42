"""What a model occupies, as expressions over its sizes: weights, caches and states.

`linnet memory` evaluates these for one choice of sizes; the pages carry them along, so that a
reader can move the sizes. Bytes are those of the tensors themselves, without an allocator's
rounding and without a framework's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from linnet.dims import Dim
from linnet.ir.caches import caches, float_cache, row_bytes
from linnet.ir.groups import packed_bits
from linnet.ir.program import (
    Block,
    Call,
    Op,
    Program,
    ReadMember,
    Region,
    Value,
)
from linnet.ir.types import (
    BITS,
    BlockRef,
    OptionalType,
    Substitution,
    count,
    dtype_of,
    shape_of,
    substitute,
    substitute_arg,
    substitute_dim,
)

# Operations whose weight may be stored in fewer bits, and which operand that is.
PACKED_OPERANDS = {
    ("std.nn.linear::linear", 1): "linear",
    ("std.nn.embedding::embedding", 1): "embedding",
    ("std.nn.moe::linear_experts", 1): "experts",
    ("std.nn.moe::linear_experts_shared", 1): "experts",
    ("std.nn.moe::combine_experts", 1): "experts",
}

ONE = Dim.const(1)


@dataclass(frozen=True, slots=True)
class Stored:
    """A param, buffer or state, with all its copies in arrays of blocks.

    `path` has `*` for every position of an array. `shape` is one tensor's, `copies` how many
    there are, both over the root's generics; `dtype` is a dtype or the name of a generic of the
    root. `packs` says by which kind of operation alone it is read, where that takes weights
    of fewer bits: "linear", "embedding" or "experts"; a state that may be kept in 8 bits is
    a "cache". Of experts a token reads `active` in
    `of`; of everything else all.
    """

    path: str
    kind: str
    shape: tuple[Dim, ...]
    dtype: str
    copies: Dim
    packs: str | None
    optional: bool = False
    active: Dim = ONE
    of: Dim = ONE

    @property
    def elements(self) -> Dim:
        return count(self.shape) * self.copies


def storage(program: Program, root: str) -> list[Stored]:
    """Everything that block `root` keeps, in declaration order, symbolic in its generics."""
    block = program.blocks[root]
    own: Substitution = {
        g.name: Dim.name(g.name) if g.kind == "Dim" else g.name for g in block.generics
    }
    packs = {id: _packed(program, found) for id, found in program.blocks.items()}
    cached = {id: caches(program, found) for id, found in program.blocks.items()}
    found: list[Stored] = []

    def walk(block: Block, bindings: Substitution, prefix: str, copies: Dim, opt: bool) -> None:
        for member in block.members.values():
            path, optional = prefix + member.name, opt or member.optional
            if isinstance(member.type, BlockRef):
                inner = program.blocks[member.type.id]
                args = [substitute_arg(a, bindings) for a in member.type.generics]
                below = {g.name: a for g, a in zip(inner.generics, args, strict=True)}
                if member.length is None:
                    walk(inner, below, f"{path}.", copies, optional)
                else:
                    length = substitute_dim(member.length, bindings)
                    walk(inner, below, f"{path}.*.", copies * length, optional)
                continue
            type = substitute(member.type, bindings)
            if isinstance(type, OptionalType):
                type = type.inner
            shape = tuple(d for d in shape_of(type) if isinstance(d, Dim))
            kept, chosen = packs[block.id].get(member.name, (None, ONE))
            if member.kind == "state" and member.name in cached[block.id]:
                kept = "cache"
            active, of = ONE, ONE
            if kept == "experts":
                active, of = substitute_dim(chosen, bindings), shape[0]
            dtype = dtype_of(type)
            found.append(
                Stored(path, member.kind, shape, dtype, copies, kept, optional, active, of)
            )

    walk(block, own, "", Dim.const(1), False)
    return found


def _packed(program: Program, block: Block) -> dict[str, tuple[str, Dim]]:
    """The params of a block that only operations for packed weights read; for experts with how
    many of them are chosen for a token, by the shape `[R, K]` of the choice."""
    kinds: dict[str, tuple[str, Dim]] = {}
    refused: set[str] = set()
    for method in block.methods.values():
        reads: dict[Value, str] = {}
        if method not in program.functions:  # of a dependency, and not called
            continue
        for op in all_ops(program.functions[method].body):
            if isinstance(op, ReadMember) and op.kind == "param":
                reads[op.result] = op.name
                continue
            for position, value in enumerate(op.operands()):
                if (name := reads.get(value)) is None:
                    continue
                key = (op.callee, position) if isinstance(op, Call) else ("", 0)
                if key in PACKED_OPERANDS and isinstance(op, Call):
                    kind, chosen = PACKED_OPERANDS[key], ONE
                    if kind == "experts":
                        last = shape_of(op.args[2].type)[-1]
                        chosen = last if isinstance(last, Dim) else ONE
                    kinds[name] = (kind, chosen)
                else:
                    refused.add(name)
    return {name: found for name, found in kinds.items() if name not in refused}


def all_ops(region: Region) -> list[Op]:
    """Of a region and of all regions in it."""
    found: list[Op] = []
    waiting = [region]
    while waiting:
        for op in waiting.pop().ops:
            found.append(op)
            waiting.extend(op.regions())
    return found


LEAST_ROWS = 64  # matrices with fewer are gates and the like, and stay as they are


def packing(stored: list[Stored], sizes: Mapping[str, int]) -> dict[str, str]:
    """How each path is kept when weights are quantized: "dense", "eight" (8 bits even where 4
    are asked for) or "four". Routers and narrow projections stay dense, since a model decides
    by them, and rows that no group divides; embeddings, and heads of an embedding's shape,
    keep 8 bits."""
    embeddings = {s.shape for s in stored if s.packs == "embedding"}
    experts = {s.path.rpartition(".")[0]: s.shape[0] for s in stored if s.packs == "experts"}
    kept: dict[str, str] = {}
    for s in stored:
        parent = s.path.rpartition(".")[0].rpartition(".")[0]
        grouped = s.packs is not None and s.kind == "param" and len(s.shape) > 1
        if not grouped or packed_bits(8, s.shape[-1].evaluate(sizes)) is None:
            kept[s.path] = "dense"
        elif s.packs == "embedding" or s.shape in embeddings:
            kept[s.path] = "eight"
        elif s.packs == "linear" and (
            s.shape[0] == experts.get(parent) or s.shape[0].evaluate(sizes) < LEAST_ROWS
        ):
            kept[s.path] = "dense"
        else:
            kept[s.path] = "four"
    return kept


def stored_bits(
    stored: Stored,
    values: Mapping[str, int | str],
    kept: str,
    quantize: int,
    embedding: int = 8,
) -> float:
    """Bits of a weight's element; `quantize` is 0, 8 or 4, `kept` is from `packing`, `embedding`
    what "eight" is under 4."""
    dense = element_bits(stored.dtype, values)
    if quantize == 0 or kept == "dense" or not float_cache(_bound(stored.dtype, values)):
        return dense
    sizes = {name: value for name, value in values.items() if isinstance(value, int)}
    bits = max(quantize, embedding) if kept == "eight" else quantize
    return packed_bits(bits, stored.shape[-1].evaluate(sizes)) or dense


def in_checkpoint(stored: list[Stored], bindings: Mapping[str, str]) -> list[Stored]:
    """What a checkpoint with these bindings brings, and the states: a tied tensor once, an
    optional part where it is bound. Without bindings nothing optional counts."""
    first: dict[str, str] = {}
    found: list[Stored] = []
    for s in stored:
        tensor = bindings.get(s.path.replace("*", "0"))
        if s.kind != "state":
            if s.optional and tensor is None:
                continue
            if tensor is not None and first.setdefault(tensor, s.path) != s.path:
                continue
        found.append(s)
    return found


def held(
    stored: list[Stored],
    generics: Mapping[str, int | str],
    free: frozenset[str],
    quantize: int = 0,
    embedding: int = 8,
    cache: int = 0,
) -> dict[str, int]:
    """Bytes of "weights" (params and buffers), "caches" (states that grow with a free size other
    than `Batch`, the rows) and "states" (all others), for generics that are all bound. The list
    has no tied tensor twice and no optional part that is absent. `cache` 8 is for keys and values
    in 8 bits."""
    sizes = {name: value for name, value in generics.items() if isinstance(value, int)}
    kept = packing(stored, sizes)
    total = {"weights": 0.0, "caches": 0.0, "states": 0.0}
    for s in stored:
        elements = s.elements.evaluate(sizes)
        if s.kind != "state":
            bits = stored_bits(s, generics, kept[s.path], quantize, embedding)
            total["weights"] += elements * bits / 8
            continue
        grows = (s.elements.names() & free) - {"Batch"}
        few = cache_bits(s, generics) if cache else None
        bits = few or element_bits(s.dtype, generics)
        total["caches" if grows else "states"] += elements * bits / 8
    return {part: int(amount) for part, amount in total.items()}


def cache_bits(stored: Stored, values: Mapping[str, int | str]) -> float | None:
    """Bits of an element of a state in 8 bits with its share of the scale; None where it stays
    as declared."""
    if stored.packs != "cache" or not float_cache(_bound(stored.dtype, values)):
        return None
    sizes = {name: value for name, value in values.items() if isinstance(value, int)}
    width = stored.shape[-1].evaluate(sizes)
    each = row_bytes(width)
    return None if each is None else 8 * each / width


def _bound(dtype: str, values: Mapping[str, int | str]) -> str:
    return str(values.get(dtype, dtype))


def element_bits(dtype: str, values: Mapping[str, int | str]) -> int:
    """Bits of an element; a dtype generic is looked up among the values bound."""
    return BITS[_bound(dtype, values)]


def free_sizes(program: Program, root: str) -> frozenset[str]:
    """The root's dimensions that only states depend on, as `Batch` and `MaxSeq` do: what one
    chooses when a model is loaded, while the checkpoint fixes the others."""
    fixed: set[str] = set()
    held: set[str] = set()
    for stored in storage(program, root):
        of_shape = {n for d in stored.shape for n in d.names()}
        (held if stored.kind == "state" else fixed).update(of_shape)
        fixed.update(stored.copies.names())
    for fact in program.blocks[root].where:  # what a clause ties to other sizes is not free
        names = fact.left.names() | fact.right.names()
        if len(names) > 1 and fact.op == "==":  # a bound, as `MaxSeq <= Positions`, leaves a choice
            fixed.update(names)
    return frozenset(held.difference(fixed))
