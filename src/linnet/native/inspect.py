"""What this backend would run for an entry, without compiling it."""

from __future__ import annotations

from linnet.dims.dim import DimTooLarge
from linnet.ir.bound import Bound
from linnet.native import compiler
from linnet.native.emit import Emitter
from linnet.native.node import Unsupported
from linnet.native.table import Table


def kernels(bound: Bound, entry: str, covered: frozenset[int]) -> str:
    """A line for each call of an op: the op, its kernel or its body, why, and where it stands.

    The first line says which instruction set is compiled for, or why this backend is not used.
    """
    reason = compiler.why_not()
    if reason is not None:
        return f"native: not used here, {reason}"
    instance = bound.functions[bound.entries[entry]]
    nests: dict[str, str] = {}
    emitter = Emitter(bound, Table(bound), instance, nests, covered)
    try:
        emitter.run("entry")
    except (Unsupported, DimTooLarge) as why:
        return f"native: not used for this entry, {why} is not compiled here"
    many = "loop nest" if len(nests) == 1 else "loop nests"
    lines = [f"native ({compiler.level()}), {len(nests)} {many} of its own:"]
    for choice in emitter.choices:
        chosen = choice.kernel or "its body"
        detail = f" ({choice.reason})" if choice.reason else ""
        lines.append(f"  {choice.op} -> {chosen}{detail}  {choice.span}".rstrip())
    return "\n".join(lines)
