"""`linnet init NAME`: a new package that checks and runs."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

HELP = """\
Write a new package: a manifest, and a small network in src/lib.linnet to start from. It
checks, and runs with random weights.

  linnet init digits
  linnet init ../models/digits"""

MANIFEST = """\
[package]
name = "{name}"
version = "0.1.0"
language = "0.1"
"""

LIBRARY = """\
// A network of two layers, to start from. `linnet check` proves its shapes for every size at once.
module {module}

use std.nn.activations::{{relu}}
use std.nn.linear::{{Linear}}

/// From a picture's `Pixels` brightnesses to a score for each of `Classes` classes.
pub block Network<Pixels: Dim = 784, Hidden: Dim = 128, Classes: Dim = 10, T: Float = f32> {{
    sub hidden: Linear<Pixels, Hidden, T>
    sub output: Linear<Hidden, Classes, T>

    pub entry forward<B: Dim>(pictures: Tensor[B, Pixels; T]) -> Tensor[B, Classes; T] {{
        return output.forward(relu(hidden.forward(pictures)))
    }}
}}
"""

NEXT = """\
wrote {folder}/linnet.toml and {folder}/src/lib.linnet

  linnet check {folder}
  linnet inspect --parameters {folder}
  python -c "import linnet, torch; model = linnet.load('{folder}', weights='random'); \
print(model.forward(torch.rand(1, 784)))"
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", metavar="NAME", help="the new folder; the package is named after it"
    )


def run(args: argparse.Namespace) -> int:
    from linnet.cli.terminal import UsageError
    from linnet.errors import PackageError

    folder = Path(args.name)
    name = folder.resolve().name
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", name, re.ASCII):
        raise UsageError(
            f"`{name}` cannot name a package: a name uses letters, digits, `_` and `-`, "
            "and begins with a letter or `_`"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise PackageError(f"{folder}: exists already; expected a new or an empty folder")
    write(folder, name)
    print(NEXT.format(folder=folder), end="")
    return 0


def write(folder: Path, name: str) -> None:
    (folder / "src").mkdir(parents=True, exist_ok=True)
    module = module_name(name)
    (folder / "linnet.toml").write_text(MANIFEST.format(name=name), encoding="utf-8")
    (folder / "src" / "lib.linnet").write_text(LIBRARY.format(module=module), encoding="utf-8")


def module_name(name: str) -> str:
    """A name that may stand after `module`."""
    from linnet.syntax.lexer import WORDS

    module = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "model"
    if module[0].isdigit():
        module = f"model_{module}"
    return f"{module}_model" if module in WORDS or module == "std" else module
