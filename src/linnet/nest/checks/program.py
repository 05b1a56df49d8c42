"""The check of a package's program, run as a process of its own:
`python -m linnet.nest.checks.program FOLDER [WEIGHTS…]`, or `--headers FILE` for the tensors of
a checkpoint that lies elsewhere.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from linnet.check.checker import check_package
from linnet.diagnostics.text import render_all
from linnet.errors import Error, WeightsError
from linnet.ir.manifest import Parameter, manifest, root_block
from linnet.ir.program import Program
from linnet.ir.types import BITS
from linnet.nest.card import Card, read_card
from linnet.nest.checks.limits import begin, finish, restrict
from linnet.nest.checks.report import Step
from linnet.package import open_package


def main(arguments: list[str]) -> None:
    restrict()
    folder = Path(arguments[0])
    card = read_card(folder)
    begin("source")
    step, program = check_source(folder, card)
    finish(step)
    if program is None or card.root is None:
        return
    begin("sizes")
    step, listed = check_sizes(program, card)
    finish(step)
    if listed:
        begin("tensors")
        finish(check_tensors(card, listed, arguments[1:]))


def check_source(folder: Path, card: Card) -> tuple[Step, Program | None]:
    step = Step("source")
    try:
        package = open_package(folder)
        checked = check_package(package)
    except Error as error:
        step.problems.append(str(error))
        return step, None
    errors = [one for one in checked.diagnostics if one.severity == "error"]
    warnings = [one for one in checked.diagnostics if one.severity == "warning"]
    step.problems += [render_all([one]).rstrip() for one in errors]
    step.notes += [f"{one.span}: {one.message} [{one.code}]" for one in warnings]
    program = checked.program
    if program is None:
        return step, None
    modules = package.module_paths()
    step.detail = f"{len(modules)} module{'s' * (len(modules) != 1)}"
    if card.root is not None:
        try:
            entries = program.entries(root_block(program, card.root))
            step.detail += f", entries {', '.join(entries)}"
            if card.entry is not None and card.entry not in entries:
                known = ", ".join(f"`{name}`" for name in entries) or "none"
                step.problems.append(
                    f"nest.toml: [source] entry: no entry `{card.entry}` in `{card.root}`; "
                    f"there are {known}"
                )
        except Error as error:
            step.problems.append(f"nest.toml: [source] root: {error}")
    return step, program if not step.problems else None


def check_sizes(program: Program, card: Card) -> tuple[Step, list[Parameter]]:
    """The card's generics fit the program."""
    step = Step("sizes")
    try:
        listed = manifest(program, root_block(program, card.root), card.generics)
    except Error as error:
        step.problems.append(f"nest.toml: [generics]: {error}")
        return step, []
    names = _bindings(card)
    held = [p for p in listed if p.kind != "state" and (not p.optional or p.path in names)]
    tensors = {names.get(p.path, p.path): p for p in held}.values()  # a tied one once
    elements = sum(p.count for p in tensors)
    step.detail = f"{len(held)} parameters, {elements:,} elements"
    step.figures["parameters"] = elements
    for p in tensors:
        step.figures[p.dtype] = step.figures.get(p.dtype, 0) + p.count * BITS[p.dtype] // 8
    return step, listed


def _bindings(card: Card) -> dict[str, str]:
    """As far as they can be read: the next step says what is wrong with them."""
    from linnet.weights.bindings import read_bindings

    try:
        return read_bindings(card.weights.bindings)
    except Error:
        return {}


def check_tensors(card: Card, listed: list[Parameter], given: list[str]) -> Step:
    """Every parameter has its tensor, of its shape and dtype; no binding is left over."""
    from linnet.weights.bindings import read_bindings
    from linnet.weights.checkpoint import open_checkpoint
    from linnet.weights.header import Headers
    from linnet.weights.importer_file import read_importer
    from linnet.weights.importers import idle
    from linnet.weights.plan import plan

    step = Step("tensors")
    try:
        bindings = read_bindings(card.weights.bindings)
        paths = {p.path for p in listed}
        step.problems += [
            f"{card.weights.bindings}: `{path}`: the program has no such parameter"
            for path in bindings
            if path not in paths
        ]
        if card.weights.bindings is not None:
            step.problems += [
                f"{card.weights.bindings}: nothing is bound to `{p.path}`"
                for p in listed
                if p.kind == "param" and not p.optional and p.path not in bindings
            ]
        rules = read_importer(card.weights.importer)
        if not given:
            step.detail = "bindings only: no checkpoint here"
            step.skipped = not step.problems
            return step
        tensors: Any
        if given[0] == "--headers":
            tensors = Headers.of(json.loads(Path(given[1]).read_text("utf-8")))
        else:
            tensors = open_checkpoint(given[0] if len(given) == 1 else given)
        if not getattr(tensors, "is_gguf", False):
            without = idle(rules, tensors.tensors)
            step.problems += [f"{rule.where}: no tensor matches" for rule in without]
        wanted = (bindings.get(p.path, p.path) for p in listed if p.kind != "state")
        tensors.adapt(wanted, rules)
        made = plan(listed, tensors, bindings)
        paths_loaded = sum(len(entry.paths) for entry in made.entries)
        step.detail = f"{paths_loaded} parameters from {len(made.entries)} tensors"
        if made.absent:
            step.detail += f", {len(made.absent)} optional parts absent"
        if made.unused:
            step.detail += f", {len(made.unused)} tensors ignored"
        wider = [
            f"`{e.paths[0]}` is stored as {e.stored} and widened to {e.dtype}"
            for e in made.entries
            if e.stored != e.dtype and not tensors.tensors[e.tensor].importer
        ]
        step.notes += wider[:3] + ([f"and {len(wider) - 3} more"] if len(wider) > 3 else [])
    except WeightsError as error:
        step.problems += error.problems
    except Error as error:
        step.problems.append(str(error))
    return step


if __name__ == "__main__":
    main(sys.argv[1:])
