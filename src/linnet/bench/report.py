"""The results as a table and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from linnet.bench.machine import Machine
from linnet.bench.result import Job, Run

LABEL = 22
COLUMN = 16


def document(
    model: dict[str, Any],
    job: Job,
    machine: Machine | None,
    runs: Sequence[Run],
    missing: dict[str, str],
) -> dict[str, Any]:
    """All figures: `runs` begins with ours; shares are of the machine's rates in the same run."""
    listed = [run.document(job) for run in runs]
    ours = listed[0]
    if machine is not None:
        if (part := ours.get("prompt")) and part["operations"]:
            part["matrix_share"] = part["operations"] / part["seconds"] / machine.product_rate
        if (part := ours.get("token")) and part["bytes"]:
            part["read_share"] = part["bytes"] / part["seconds"] / machine.read_rate
    return {
        "version": 1,
        "model": model,
        "threads": job.threads,
        "batch": job.batch,
        "prompt_tokens": job.prompt,
        "new_tokens": job.tokens,
        "machine": _rates(machine) if machine is not None else None,
        "runs": listed,
        "missing": [{"engine": name, "reason": why} for name, why in missing.items()],
    }


def _rates(machine: Machine) -> dict[str, Any]:
    return {
        "measured_by": machine.by,
        "read_bytes_per_second": machine.read_rate,
        "product_operations_per_second": machine.product_rate,
        "product_dtype": machine.dtype,
        "read_each": machine.read,
        "product_each": machine.products,
    }


def _millions(count: int) -> str:
    return f"{count / 1e6:,.0f} M" if count >= 1e7 else f"{count:,}"


def table(found: dict[str, Any]) -> str:
    """The document of `document` as text, one column an engine."""
    runs, machine, model = found["runs"], found["machine"], found["model"]
    title = f"{model['name']}: {_millions(model['parameters'])} parameters, {model['weights']}"
    lines = [f"{title}; {model['backend']}, {_count(found['threads'], 'thread')}", ""]

    def row(label: str, cells: list[str]) -> None:
        if any(cells):
            lines.append(f"{label:<{LABEL}}" + "".join(f"{c:>{COLUMN}}" for c in cells))

    def each(part: str, key: str, shape: str, scale: float = 1.0) -> list[str]:
        values = [run.get(part, {}).get(key) if part else run.get(key) for run in runs]
        return [shape.format(v * scale) if v is not None else "" for v in values]

    row("", [run["engine"] for run in runs])
    row("", [run["version"] for run in runs])
    row("", [run["dtype"] for run in runs])
    sequences = f" × {found['batch']}" if found["batch"] > 1 else ""
    row(
        f"prompt of {found['prompt_tokens']}{sequences}",
        each("prompt", "seconds", "{:.1f} ms", 1e3),
    )
    row("", each("prompt", "tokens_per_second", "{:,.0f} tokens/s"))
    row("  of the matrix rate", each("prompt", "matrix_share", "{:.0%}"))
    row(f"token{sequences}", each("token", "seconds", "{:.2f} ms", 1e3))
    row("", each("token", "tokens_per_second", "{:,.1f} tokens/s"))
    row("  of the read rate", each("token", "read_share", "{:.0%}"))
    row("loading", each("", "load_seconds", "{:.2f} s"))
    row("first call", each("", "first_call_seconds", "{:.2f} s"))
    row("peak memory", each("", "peak_memory_bytes", "{:.2f} GB", 1e-9))
    for part in ("prompt", "token"):
        row(f"linnet faster, {part}", _ratios(runs, part))
    lines.append("")
    if machine is not None:
        read, products = (
            machine["read_bytes_per_second"] / 1e9, machine["product_operations_per_second"] / 1e12
        )  # fmt: skip
        lines.append(
            f"The machine reads {read:.1f} GB/s and multiplies matrices of "
            f"{machine['product_dtype']} at {products:.2f} TFLOP/s"
        )
        lines.append(f"({machine['measured_by']}; before and after linnet ran, the better).")
    lines += [f"No figures of {one['engine']}: {one['reason']}" for one in found["missing"]]
    return "\n".join(line.rstrip() for line in lines)


def _ratios(runs: list[dict[str, Any]], part: str) -> list[str]:
    """How many times our time each other engine took."""
    ours = runs[0].get(part, {}).get("seconds")
    others = [run.get(part, {}).get("seconds") for run in runs[1:]]
    return ["", *(f"{other / ours:.2f} ×" if other and ours else "" for other in others)]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
