"""`linnet inspect`: what a model is made of, from its syntax to the kernels that run it."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from linnet.cli.model import Target, add_arguments, open_target
from linnet.errors import BindError
from linnet.weights.amounts import tenths

if TYPE_CHECKING:
    from linnet.ir.bound import Bound
    from linnet.ir.manifest import Parameter

HELP = """\
Show what a model is made of. Nothing is loaded or run: sizes come from the card
and from --bind."""

_VIEWS = {
    "parameters": "every parameter, buffer and state with shape and dtype, and totals (default)",
    "tree": "the syntax tree",
    "ir": "the checked program",
    "diagram": "an entry as a picture, in SVG (redirect it into a file)",
    "code": "the torch code that is generated",
    "kernels": "the kernel chosen for each call, and why",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    add_arguments(parser)
    views = parser.add_mutually_exclusive_group()
    for view, help in _VIEWS.items():
        views.add_argument(f"--{view}", dest="view", action="store_const", const=view, help=help)
    parser.set_defaults(view="parameters")
    parser.add_argument(
        "--entry", metavar="E", help="only this entry (--ir, --diagram, --code, --kernels)"
    )
    parser.add_argument(
        "--numerics",
        choices=("exact", "equivalent", "fast"),
        default="fast",
        help="the policy that --code and --kernels show (default: fast)",
    )
    parser.add_argument("--json", action="store_true", help="the parameters as JSON")


def run(args: argparse.Namespace) -> int:
    target = open_target(args)
    match args.view:
        case "parameters":
            show_parameters(target, args.json)
        case "tree":
            from linnet.cli.syntax_tree import show_trees

            return show_trees(target.package)
        case "ir":
            show_ir(target, args.entry, args.numerics)
        case "diagram":
            show_diagram(target, args.entry)
        case _:
            show_torch(target, args.view, args.entry, args.numerics)
    return 0


def show_parameters(target: Target, as_json: bool) -> None:
    from linnet.ir.manifest import manifest, root_block

    program = target.program()
    root = root_block(program, target.root)
    listed = manifest(program, root, target.generics)
    tied = tied_to(listed, target.bindings())
    if as_json:
        from json import dumps

        print(dumps(document(root, target.generics, listed, tied), indent=2))
    else:
        print(table(listed, tied))


def tied_to(listed: list[Parameter], bindings: Mapping[str, str]) -> dict[str, str]:
    """Paths whose tensor an earlier path has already: the path, and that earlier one."""
    first: dict[str, str] = {}
    tied: dict[str, str] = {}
    for parameter in listed:
        tensor = bindings.get(parameter.path)
        if tensor is not None and first.setdefault(tensor, parameter.path) != parameter.path:
            tied[parameter.path] = first[tensor]
    return tied


def show_ir(target: Target, entry: str | None, numerics: str) -> None:
    """The program as checked; with an entry, that entry bound to the sizes and optimized."""
    from linnet.ir.print import bound_text, program_text

    if entry is None:
        print(program_text(target.program()))
    else:
        print(bound_text(bind(target, entry, numerics), entry))


def show_diagram(target: Target, entry: str | None) -> None:
    """The entry named, else the card's, else the only one, with the sizes that are bound."""
    from linnet.ir.manifest import root_block
    from linnet.nest.diagram import diagram_of

    program = target.program()
    root = root_block(program, target.root)
    if entry is None:
        entry = target.card.entry if target.card else None
    entries = program.entries(root)
    if entry is None and len(entries) == 1:
        entry = next(iter(entries))
    if entry not in entries:
        have = ", ".join(f"`{name}`" for name in entries) or "none"
        what = f"there is no entry `{entry}`" if entry else "--entry must say which entry"
        raise BindError(f"{what}; the entries are {have}")
    print(diagram_of(program, entries[entry].id, target.generics).text(), end="")


def show_torch(target: Target, view: str, entry: str | None, numerics: str) -> None:
    """Generated code, or the kernels chosen, of one entry or of all."""
    from linnet.torch import inspect

    bound = bind(target, entry, numerics)
    show = inspect.code if view == "code" else inspect.kernels
    names = [entry] if entry else list(bound.entries)
    texts = [show(bound, name, numerics).strip("\n") for name in names]
    if len(names) > 1:
        texts = [f"# --- {name} ---\n{text}" for name, text in zip(names, texts, strict=True)]
    print("\n\n".join(texts))


def bind(target: Target, entry: str | None, numerics: str) -> Bound:
    """The root at the target's sizes with no optional part, after the policy's passes."""
    from linnet.ir.manifest import root_block
    from linnet.ir.passes.pipeline import optimize
    from linnet.ir.specialize import specialize

    program = target.program()
    bound = specialize(program, root_block(program, target.root), target.generics)
    if entry is not None and entry not in bound.entries:
        have = ", ".join(f"`{name}`" for name in bound.entries) or "none"
        raise BindError(f"there is no entry `{entry}`; the entries are {have}")
    return optimize(bound, numerics)


def size(parameter: Parameter) -> int:
    """Bytes in memory."""
    from linnet.ir.types import BITS

    return parameter.count * BITS[parameter.dtype] // 8


def totals(listed: list[Parameter], tied: Mapping[str, str] = {}) -> dict[str, dict[str, Any]]:
    """By kind how many tensors, elements and bytes, by dtype too.

    The kinds are param, buffer and state, and `optional` for what a checkpoint may lack.
    A tied tensor counts once.
    """
    result: dict[str, dict[str, Any]] = {}
    for parameter in listed:
        if parameter.path in tied:
            continue
        total = result.setdefault(
            "optional" if parameter.optional else parameter.kind,
            {"tensors": 0, "elements": 0, "bytes": 0, "bytes_by_dtype": {}},
        )
        total["tensors"] += 1
        total["elements"] += parameter.count
        total["bytes"] += size(parameter)
        by_dtype = total["bytes_by_dtype"]
        by_dtype[parameter.dtype] = by_dtype.get(parameter.dtype, 0) + size(parameter)
    order = ("param", "buffer", "optional", "state")
    return {kind: result[kind] for kind in order if kind in result}


def document(
    root: str, generics: Mapping[str, Any], listed: list[Parameter], tied: Mapping[str, str]
) -> dict[str, Any]:
    return {
        "version": 1,
        "root": root.rpartition("::")[2],
        "generics": dict(generics),
        "parameters": [
            {
                "path": p.path,
                "kind": p.kind,
                "shape": list(p.shape),
                "dtype": p.dtype,
                "optional": p.optional,
                "bytes": size(p),
                "tied_to": tied.get(p.path),
            }
            for p in listed
        ],
        "totals": totals(listed, tied),
    }


def table(listed: list[Parameter], tied: Mapping[str, str] = {}) -> str:
    """Aligned columns, then the totals; what is optional and what is state apart."""
    rows = [("path", "kind", "shape", "dtype", "bytes", "")]
    for p in listed:
        shape = f"[{', '.join(map(str, p.shape))}]" if p.shape else "scalar"
        remark = f"is {tied[p.path]}" if p.path in tied else "optional" if p.optional else ""
        rows.append((p.path, p.kind, shape, p.dtype, f"{size(p):,}", remark))
    widths = [max(len(row[column]) for row in rows) for column in range(6)]
    lines = []
    for path, kind, shape, dtype, count, remark in rows:
        cells = (
            f"{path:<{widths[0]}}",
            f"{kind:<{widths[1]}}",
            f"{shape:<{widths[2]}}",
            f"{dtype:<{widths[3]}}",
            f"{count:>{widths[4]}}",
            remark,
        )
        lines.append("  ".join(cells).rstrip())
    lines.append("")
    nouns = {
        "param": ("parameter", "parameters"),
        "buffer": ("buffer", "buffers"),
        "optional": ("optional part, not counted above", "optional parts, not counted above"),
        "state": ("state", "states"),
    }
    found = totals(listed, tied)
    for kind, total in found.items():
        dtypes = ", ".join(f"{d} {tenths(n)}" for d, n in total["bytes_by_dtype"].items())
        lines.append(
            f"{total['tensors']:,} {nouns[kind][total['tensors'] != 1]}: "
            f"{total['elements']:,} elements, {tenths(total['bytes'])} ({dtypes})"
        )
    if tied:
        lines.append(f"{len(tied)} tied, counted once")
    if not found:
        lines.append("no parameters")
    return "\n".join(lines)
