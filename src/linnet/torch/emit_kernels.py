"""Calls of kernels: arguments, checks, and results that come in two parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from linnet.dims import Dim
from linnet.ir import program as ir
from linnet.ir.types import TensorType, shape_of
from linnet.torch.emit import FunctionEmitter, fresh
from linnet.torch.kernels.table import Choice

if TYPE_CHECKING:
    from linnet.ir.bound import Instance


def argument(f: FunctionEmitter, value: ir.Value) -> str:
    """A kernel's argument; a causal mask stays a position."""
    op = f.defs.get(f.some(value))
    if isinstance(op, ir.Intrinsic) and op.name == "causal_mask":
        return f"rt.Causal({mask_offset(f, op)})"
    return f.ref(value)


def mask_offset(f: FunctionEmitter, op: ir.Intrinsic) -> str:
    """`k <= q + at + offset`: the two added up."""
    offset = op.attrs["offset"]
    assert isinstance(offset, Dim)
    if not op.args:
        return f.dim(offset)
    at = f.ref(op.args[0])
    return at if offset.constant == 0 else f"{at} + {f.dim(offset)}"


def materialize(f: FunctionEmitter, value: ir.Value) -> str:
    """Make a causal mask where something other than a kernel wants it."""
    inner = f.some(value)
    op = f.defs[inner]
    assert isinstance(op, ir.Intrinsic) and op.name == "causal_mask", op
    axes = op.attrs["axes"]
    assert isinstance(axes, tuple)
    offset = mask_offset(f, op)
    shape = f.shape(inner.type)
    text = f"rt.causal_mask(rt.Causal({offset}), '{''.join(axes)}', ({shape},), DEVICE)"
    return f.temporary(text, "mask")


def kernel_call(f: FunctionEmitter, op: ir.Call, callee: Instance, choice: Choice) -> None:
    kernel = choice.kernel
    assert kernel is not None
    args = [argument(f, arg) for arg in op.args]
    for position, extent, span in choice.checks:
        args[position] = f"rt.index({args[position]}, {extent}, '{span}', '{callee.source.name}')"
    mapping = dict(zip(callee.dims, op.generics, strict=True))
    for name in kernel.generics:
        dim = callee.arguments[name]
        assert isinstance(dim, Dim)
        args.append(f.dim(dim.substitute({k: v for k, v in mapping.items() if isinstance(v, Dim)})))
    if kernel.split is not None and split_call(f, op, callee, kernel, args):
        return
    name = f.module.kernel(kernel.function)
    f.define(op.result, f"{name}({', '.join(args)})", op.span)


def split_call(
    f: FunctionEmitter, op: ir.Call, callee: Instance, kernel: Any, args: list[str]
) -> bool:
    """A result of outputs and a final state, joined along axis 1, kept apart.

    Applies where every use slices one of the two parts out whole. Where the state given
    is the block's own and is written back, it is updated in place.
    """
    type = op.result.type
    assert isinstance(type, TensorType)
    state_rows = shape_of(op.args[kernel.state].type)[2]
    assert isinstance(state_rows, Dim)
    total = type.shape[1]
    assert isinstance(total, Dim)
    cut = total - state_rows
    uses = f.uses.get(op.result, [])
    parts: list[tuple[ir.Slice, bool]] = []
    for use in uses:
        if not isinstance(use, ir.Slice) or len(use.items) < 2:
            return False
        item = use.items[1]
        rest = [i for n, i in enumerate(use.items) if n != 1]
        if not isinstance(item, ir.Range) or item.step != 1 or not all(whole(i) for i in rest):
            return False
        if item.start.constant == 0 and item.stop == cut:
            parts.append((use, False))
        elif item.start == cut and item.stop == total:
            parts.append((use, True))
        else:
            return False
    write = None if f.options.functional else own_state(f, op, kernel, parts)
    function = kernel.split if write is None else kernel.in_place
    name = f.module.kernel(function)
    outputs, state = fresh("outputs", f.taken), fresh("final", f.taken)
    f.line(f"{outputs}, {state} = {name}({', '.join(args)})", op.span)
    for use, final in parts:
        # Handled here: the slice itself then only stands for the part.
        f.defs[use.result] = use
        f.refs[use.result] = f"{state}.transpose(1, 2)" if final else outputs
    if write is not None:
        f.refs[write.value] = ""
    return True


def whole(item: ir.SliceItem) -> bool:
    return isinstance(item, ir.Keep)


def own_state(
    f: FunctionEmitter, op: ir.Call, kernel: Any, parts: list[tuple[ir.Slice, bool]]
) -> ir.StateWrite | None:
    """The write of the final state back to where the initial one was read, if that is all."""
    read = f.defs.get(op.args[kernel.state])
    if kernel.in_place is None or not isinstance(read, ir.ReadMember) or read.kind != "state":
        return None
    if len(f.uses.get(read.result, [])) != 1:
        return None
    finals = [use for use, final in parts if final]
    if len(finals) != 1 or len(f.uses.get(finals[0].result, [])) != 1:
        return None
    back = f.uses[finals[0].result][0]
    if not isinstance(back, ir.Permute) or back.axes != (0, 2, 1, 3):
        return None
    writes = f.uses.get(back.result, [])
    if len(writes) != 1 or not isinstance(writes[0], ir.StateWrite):
        return None
    write = writes[0]
    region = next((r for r in regions(f.instance.body) if op in r.ops and write in r.ops), None)
    if write.name != read.name or region is None:
        return None
    for between in region.ops[region.ops.index(op) + 1 : region.ops.index(write)]:
        if isinstance(between, ir.Call) and between.receiver is not None:
            return None
        if isinstance(between, (ir.ReadMember, ir.StateWrite)) and between.name == read.name:
            return None
    return write


def regions(region: ir.Region) -> list[ir.Region]:
    return [region] + [r for op in region.ops for inner in op.regions() for r in regions(inner)]
