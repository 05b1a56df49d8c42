"""What would run: the generated source, and the kernel chosen for each call with the reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from linnet.torch.emit import Generated, ModuleEmitter, Options
from linnet.torch.ranges import analyze
from linnet.torch.runtime import Constants

if TYPE_CHECKING:
    from linnet.ir.bound import Bound
    from linnet.torch.module import Model


def generated(target: Model | Bound, entry: str, numerics: str = "fast") -> Generated:
    """The source of one entry of a model, or of an optimized program."""
    from linnet.torch.module import Model

    if isinstance(target, Model):
        if target.numerics == "exact":
            return generated(target.bound, entry, "exact")
        return target.entries[entry].code().generated
    device = torch.device("cpu")
    ranges = analyze(target, target.entries[entry])
    options = Options(numerics, device, unchecked=ranges.unchecked)
    return ModuleEmitter(target, Constants(target, device), options).emit([target.entries[entry]])


def code(target: Model | Bound, entry: str, numerics: str = "fast") -> str:
    """The torch source of an entry and of all that it calls."""
    return generated(target, entry, numerics).text


def kernels(target: Model | Bound, entry: str, numerics: str = "fast") -> str:
    """A line for each call of an op: where, the op, the kernel or its body, why, the test."""
    lines = []
    for choice in generated(target, entry, numerics).choices:
        kernel = choice.kernel
        chosen = kernel.name if kernel else "its body"
        test = f"  [{kernel.test_id}]" if kernel else ""
        lines.append(f"{choice.caller}: {choice.op} -> {chosen} ({choice.reason}){test}")
    text = "\n".join(lines) if lines else "no op is called"
    return text if numerics != "fast" else f"{text}\n\n{native_kernels(target, entry)}"


def native_kernels(target: Model | Bound, entry: str) -> str:
    """The same for the native CPU backend, which runs an entry on a CPU where it can."""
    from linnet.native.inspect import kernels
    from linnet.torch.module import Model

    if isinstance(target, Model):
        if target.native.reason is not None:
            return f"native: not used, {target.native.reason}"
        target, _ = target.compiler.optimized(True)
    ranges = analyze(target, target.entries[entry])
    if ranges.open and target.functions[target.entries[entry]].writes:
        return "native: not used for this entry, an index is checked after states were written"
    return kernels(target, entry, ranges.unchecked)
