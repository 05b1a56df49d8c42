"""Which calls run as kernels of `native/c`, and with which arguments.

One function an op: it returns whether it took the call. Where it did not, the op's body is
compiled like user code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from linnet.dims import Dim
from linnet.ir import program as ir
from linnet.ir.bound import Instance
from linnet.ir.types import dtype_of
from linnet.native.elements import c_dim
from linnet.native.node import (
    ONE,
    ZERO,
    Buffer,
    Causal,
    Joined,
    Mem,
    Node,
    Scalar,
    Unsupported,
    volume,
)
from linnet.native.views import merge, permuted, pointer, shape

if TYPE_CHECKING:
    from linnet.native.emit import Emitter
    from linnet.native.frame import Frame

TYPES = {"bf16": "T_BF16", "f32": "T_F32", "f16": "T_F16"}
WIDE = {"i64": 1, "i32": 0}


def arg(e: Emitter, f: Frame, op: ir.Call, position: int) -> Node:
    return e.node(f, op.args[position])


def absent(e: Emitter, f: Frame, value: ir.Value) -> bool:
    return f.env[value] is None


def rows_of(e: Emitter, node: Node) -> tuple[Mem, Dim, Dim, Dim]:
    """Memory as `[n, width]` with unit steps along the width: (view, n, width, row step)."""
    mem = e.memory(node)
    width = mem.shape[-1]
    count = volume(mem.shape[:-1])
    if mem.strides[-1] == ONE or width == ONE:
        if count == ONE:
            return mem, count, width, width
        merged = merge(mem, (count, width)) if width != ONE else merge(mem, (count,))
        if merged is not None:
            return merged, count, width, merged.strides[0]
    mem = e.packed(mem)
    return mem, count, width, width


def weight_of(e: Emitter, node: Node) -> tuple[Mem, str]:
    """A weight in memory, and the C expression of its descriptor."""
    mem = node if isinstance(node, Mem) and node.param else e.packed(node)
    if mem.param:
        e.packable.add(mem.param)
        return mem, mem.param
    return mem, f"&(weight){{{pointer(mem)}, 0, 0, 0, 0}}"


def strides(mem: Mem, *axes: int) -> str:
    return f"(long[]){{{', '.join(c_dim(mem.strides[axis]) for axis in axes)}}}"


def shared(e: Emitter, n: Dim, width: Dim) -> tuple[str, Buffer]:
    """Memory for `n` rows of `width` as bytes with scales, should the weight be packed."""
    each = (width + 63) // 64 * 192 + 640
    buffer = e.buffer("u8", n * (each + 32) + 128)
    return buffer.name, buffer


def linear(e: Emitter, f: Frame, op: ir.Call, callee: Instance, bind: dict[str, Dim]) -> bool:
    dtype = dtype_of(op.args[0].type)
    if dtype not in TYPES:
        return False
    x, n, width, step = rows_of(e, arg(e, f, op, 0))
    weight, text = weight_of(e, arg(e, f, op, 1))
    bias = None if absent(e, f, op.args[2]) else e.packed(arg(e, f, op, 2))
    to = shape(f, op.result.type)
    made = e.new(to, dtype)
    room, buffer = shared(e, n, width)
    reads = [x.buffer, weight.buffer] + ([bias.buffer] if bias else [])
    hazard = e.step(reads, [made.buffer, buffer])
    out = to[-1]
    e.line(
        f"k_linear(c, {hazard}, {text}, {TYPES[dtype]}, {pointer(x)}, {c_dim(step)},"
        f" {pointer(made)}, {c_dim(out)}, {TYPES[dtype]}, {c_dim(n)}, {c_dim(width)}, {c_dim(out)},"
        f" {pointer(bias) if bias else 'NULL'}, {room});"
    )
    e.note(op, callee, "k_linear", f"{dtype}, {c_dim(width)} to {c_dim(out)}")
    e.define(f, op.result, made)
    return True


def embedding(e: Emitter, f: Frame, op: ir.Call, callee: Instance, bind: dict[str, Dim]) -> bool:
    dtype = dtype_of(op.result.type)
    ids = arg(e, f, op, 0)
    if dtype not in TYPES or ids.dtype not in WIDE or e.unchecked(callee):
        return False
    mem = e.packed(ids)
    table, text = weight_of(e, arg(e, f, op, 1))
    to = shape(f, op.result.type)
    made = e.new(to, dtype)
    hazard = e.step([mem.buffer, table.buffer], [made.buffer])
    width = c_dim(to[-1])
    e.line(
        f"k_embedding(c, {hazard}, {text}, {TYPES[dtype]}, {pointer(mem)}, {WIDE[ids.dtype]},"
        f" {c_dim(volume(mem.shape))}, {width}, {pointer(made)}, {width});"
    )
    e.note(op, callee, "k_embedding", dtype)
    e.define(f, op.result, made)
    return True


def experts(e: Emitter, f: Frame, op: ir.Call, callee: Instance, bind: dict[str, Dim]) -> bool:
    name = callee.source.name
    dtype = dtype_of(op.args[0].type)
    if dtype not in TYPES:
        return False
    chosen = e.packed(arg(e, f, op, 2))
    if not e.sound(chosen):
        return False
    x, _, width, step = rows_of(e, arg(e, f, op, 0))
    weight, text = weight_of(e, arg(e, f, op, 1))
    count, out = weight.shape[0], weight.shape[1]
    slots = volume(chosen.shape)
    share = chosen.shape[1] if name == "linear_experts_shared" else ONE
    combine = name == "combine_experts"
    kind = "f32" if combine else dtype
    rows, k = chosen.shape
    made = e.new((rows, k, out), kind)
    room = e.buffer(
        "u8", (slots + count + 1) * 4 + 64 + slots * ((width + 63) // 64 * 192 + 704) + 256
    )
    reads = [x.buffer, weight.buffer, chosen.buffer]
    hazard = e.step(reads, [made.buffer, room])
    e.line(
        f"k_experts(c, {hazard}, {text}, {TYPES[dtype]}, {pointer(x)}, {c_dim(step)},"
        f" {c_dim(share)}, {pointer(chosen)}, {c_dim(slots)}, {c_dim(count)}, {c_dim(width)},"
        f" {c_dim(out)}, {pointer(made)}, {TYPES[kind]}, {room.name});"
    )
    e.note(op, callee, "k_experts", f"{dtype}, {c_dim(width)} to {c_dim(out)}")
    if combine:
        shares = e.packed(arg(e, f, op, 3))
        total = e.new((rows, out), dtype)
        hazard = e.step([made.buffer, shares.buffer], [total.buffer])
        e.line(
            f"k_combine(c, {hazard}, {TYPES[dtype]}, {pointer(made)}, {pointer(shares)},"
            f" {pointer(total)}, {c_dim(rows)}, {c_dim(k)}, {c_dim(out)});"
        )
        made = total
    e.define(f, op.result, made)
    return True


def attention(e: Emitter, f: Frame, op: ir.Call, callee: Instance, bind: dict[str, Dim]) -> bool:
    dtype = dtype_of(op.args[0].type)
    if dtype not in TYPES:
        return False

    def inner(node: Node) -> Mem:
        mem = e.memory(node)
        return mem if mem.strides[-1] == ONE else e.packed(mem)

    q, k, v = (inner(arg(e, f, op, i)) for i in range(3))
    scale = e.force(arg(e, f, op, 3))
    batch, heads, queries, dim = q.shape
    kv, keys = k.shape[1], k.shape[2]
    mask, at, rows, wide, seen, seen_batch = 0, "0", "NULL", 0, "NULL", "0"
    reads = [q.buffer, k.buffer, v.buffer]
    if len(op.args) > 4 and not absent(e, f, op.args[4]):
        given = arg(e, f, op, 4)
        if isinstance(given, Causal) and getattr(given, "made", None) is None:
            at = c_dim(given.offset)
            if given.at is None:
                mask = 1
            elif not given.at.shape:
                mask, at = 1, f"(long){e.force(given.at).text} + {at}"
            else:
                start = e.packed(given.at)
                if start.dtype not in WIDE:
                    return False
                mask, rows, wide = 2, pointer(start), WIDE[start.dtype]
                reads.append(start.buffer)
        else:
            dense = e.packed(given)
            mask, seen = 3, pointer(dense)
            seen_batch = c_dim(queries * keys if len(dense.shape) == 3 else ZERO)
            reads.append(dense.buffer)
    made = e.new((batch, heads, queries, dim), dtype, order=(0, 2, 1, 3))
    few = [e.cache8(k), e.cache8(v)]
    if few != [None, None]:
        if None in few:
            raise Unsupported("attention over one cache in 8 bits and one that is not")
        room, writes = "NULL", [made.buffer]
        if queries == ONE:
            cell = (dim + 31) // 16 * 64
            buffer = e.buffer("u8", batch * heads * ((keys + 1023) // 1024) * cell)
            room, writes = buffer.name, [made.buffer, buffer]
        hazard = e.step(reads, writes)
        e.line(
            f"k_attention8(c, {hazard}, {TYPES[dtype]}, {pointer(q)}, {strides(q, 0, 1, 2)},"
            f" {few[0]}, {few[1]}, {pointer(made)}, {strides(made, 0, 1, 2)}, {c_dim(batch)},"
            f" {c_dim(heads)}, {c_dim(kv)}, {c_dim(queries)}, {c_dim(keys)}, {c_dim(dim)},"
            f" {scale.text}, {mask}, {at}, {rows}, {wide}, {seen}, {seen_batch}, {room});"
        )
        e.note(op, callee, "k_attention8", f"{dtype}, keys and values in 8 bits")
        e.define(f, op.result, made)
        return True
    hazard = e.step(reads, [made.buffer])
    e.line(
        f"k_attention(c, {hazard}, {TYPES[dtype]}, {pointer(q)}, {strides(q, 0, 1, 2)},"
        f" {pointer(k)}, {strides(k, 0, 1, 2)}, {pointer(v)}, {strides(v, 0, 1, 2)},"
        f" {pointer(made)}, {strides(made, 0, 1, 2)}, {c_dim(batch)}, {c_dim(heads)}, {c_dim(kv)},"
        f" {c_dim(queries)}, {c_dim(keys)}, {c_dim(dim)}, {scale.text}, {mask}, {at}, {rows},"
        f" {wide}, {seen}, {seen_batch});"
    )
    e.note(op, callee, "k_attention", dtype)
    e.define(f, op.result, made)
    return True


def delta(e: Emitter, f: Frame, op: ir.Call, callee: Instance, bind: dict[str, Dim]) -> bool:
    step = callee.source.name == "gated_delta_step"

    def plain(node: Node) -> Mem:
        from linnet.native.node import Map

        if node.dtype != "f32":
            node = Map("cast", [node], node.shape, "f32")
        mem = e.memory(node)
        return mem if mem.strides[-1] == ONE else e.packed(mem)

    q, k, v = (plain(arg(e, f, op, i)) for i in range(3))
    decay, beta = (e.packed(arg(e, f, op, i)) for i in (3, 4))
    scale = e.force(arg(e, f, op, 6))
    initial = arg(e, f, op, 5)
    zeros = not isinstance(initial, Mem) and is_zero(initial) and not step
    start = None if zeros else e.packed(initial)
    batch, heads, dk, dv = initial.shape
    length = ONE if step else q.shape[1]
    kh = q.shape[1] if step else q.shape[2]
    final = None
    if start is not None and start.state is not None and own_state(f, op, start):
        final = start
        e.before_write(start.buffer)
    if final is None:
        final = e.new((batch, heads, dk, dv), "f32")
    out = e.new((batch, length, heads, dv), "f32")
    reads = [m.buffer for m in (q, k, v, decay, beta)] + ([start.buffer] if start else [])
    hazard = e.step(reads, [final.buffer, out.buffer])
    axes = (0, 0, 1) if step else (0, 1, 2)
    e.line(
        f"k_delta_{'step' if step else 'rule'}(c, {hazard}, {pointer(q)}, {strides(q, *axes)},"
        f" {pointer(k)}, {strides(k, *axes)}, {pointer(v)}, {strides(v, *axes)}, {pointer(decay)},"
        f" {pointer(beta)}, {pointer(start) if start else 'NULL'}, {pointer(final)},"
        f" {pointer(out)}, {c_dim(batch)},{'' if step else f' {c_dim(length)},'} {c_dim(kh)},"
        f" {c_dim(heads)}, {c_dim(dk)}, {c_dim(dv)}, {scale.text});"
    )
    e.note(
        op, callee, f"k_delta_{'step' if step else 'rule'}", "in place" if final is start else ""
    )
    plain_final = Mem(final.buffer, final.shape, final.strides, "f32", final.offset)
    joined = Joined([out, permuted(plain_final, (0, 2, 1, 3))], 1, shape(f, op.result.type), "f32")
    f.env[op.result] = joined
    return True


def is_zero(node: Node) -> bool:
    from linnet.native.node import Map

    if isinstance(node, Map) and node.op == "cast":
        inner = node.args[0]
        return isinstance(inner, Scalar) and inner.value == 0
    return False


def own_state(f: Frame, op: ir.Call, start: Mem) -> bool:
    """Whether the final state goes back, and only there, to the state that `start` is, and
    nothing reads the state in between."""
    from linnet.ir.passes.tools import regions

    region = next((r for r in regions(f.instance.body) if op in r.ops), None)
    if region is None:
        return False
    read = next(
        (o for o in region.ops if isinstance(o, ir.ReadMember) and o.result is op.args[5]), None
    )
    if read is None or f.uses.get(read.result, 0) != 1:
        return False
    after = region.ops[region.ops.index(op) + 1 :]
    for later in after:
        if isinstance(later, ir.StateWrite) and later.name == read.name:
            return True
        if isinstance(later, ir.ReadMember) and later.name == read.name:
            return False
        if isinstance(later, ir.Call) and later.receiver == ():
            return False
    return False


def causal_conv(e: Emitter, f: Frame, op: ir.Call, callee: Instance, bind: dict[str, Dim]) -> bool:
    dtype = dtype_of(op.args[0].type)
    if dtype not in TYPES:
        return False

    def inner(node: Node) -> Mem:
        mem = e.memory(node)
        return mem if mem.strides[-1] == ONE else e.packed(mem)

    x, history, taps = inner(arg(e, f, op, 0)), inner(arg(e, f, op, 1)), e.packed(arg(e, f, op, 2))
    made = e.new(x.shape, "f32")
    hazard = e.step([x.buffer, history.buffer, taps.buffer], [made.buffer])
    e.line(
        f"k_conv(c, {hazard}, {TYPES[dtype]}, {pointer(x)}, {strides(x, 0, 1)}, {pointer(history)},"
        f" {strides(history, 0, 1)}, {pointer(taps)}, {pointer(made)},"
        f" {', '.join(c_dim(d) for d in x.shape)}, {c_dim(taps.shape[1])});"
    )
    e.note(op, callee, "k_conv", dtype)
    e.define(f, op.result, made)
    return True


Kernel = Callable[["Emitter", "Frame", ir.Call, Instance, "dict[str, Dim]"], bool]
KERNELS: dict[str, Kernel] = {
    "std.nn.linear::linear": linear,
    "std.nn.embedding::embedding": embedding,
    "std.nn.moe::linear_experts": experts,
    "std.nn.moe::linear_experts_shared": experts,
    "std.nn.moe::combine_experts": experts,
    "std.nn.attention::attention": attention,
    "std.nn.attention::attention_rows": attention,
    "std.nn.attention::grouped_attention": attention,
    "std.nn.attention::grouped_attention_rows": attention,
    "std.nn.recurrent::gated_delta_rule": delta,
    "std.nn.recurrent::gated_delta_step": delta,
    "std.nn.recurrent::causal_conv": causal_conv,
}
