"""What a measurement needs of memory, before anything is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from linnet.bench.result import Job
    from linnet.ir.program import Program

# Tokens of one call below which its values are small beside any weights.
FEW = 1 << 16


def needed(
    program: Program,
    root: str,
    generics: Mapping[str, int | str],
    job: Job,
    entries: Iterable[str],
    cache: int = 0,
) -> int:
    """Bytes of caches and recurrent states for a job, and of the values of its largest call.

    `entries` are those that the job may call, where they are there; `cache` 8 is for keys and
    values in 8 bits. Weights do not count: a file of them is mapped. Raises BindError.
    """
    from linnet.ir.memory import free_sizes, held, storage
    from linnet.ir.passes.pipeline import optimize
    from linnet.ir.peak import entry_sizes, peak
    from linnet.ir.specialize import bind_root, specialize

    sizes: dict[str, int | str] = {
        name: int(str(value)) if str(value).isdigit() else str(value)
        for name, value in bind_root(program, root, generics).items()
    }
    parts = held(storage(program, root), sizes, free_sizes(program, root), cache=cache)
    most = 0
    if job.batch * job.prompt >= FEW:
        optimized = optimize(specialize(program, root, sizes), "fast")
        for name in entries:
            if name in optimized.entries:
                dims = entry_sizes(program.entries(root)[name])
                own = {n: job.prompt if n == "S" else job.batch for n in dims}
                most = max(most, peak(optimized, name, own).bytes.evaluate(own))
    return parts["caches"] + parts["states"] + most
